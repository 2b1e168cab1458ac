"""What cursors are called in the store: whose they are, as a prefix, and a name.

``queue:<name>`` is a queue's, over its own logs and those of the parents that feed it; ``sub:<name>`` a durable
subscription's, ``group:<name>`` a group's, over the logs of topics (``docs/storage-format.md``, "Cursors").
"""

from __future__ import annotations

QUEUE = "queue:"
SUBSCRIPTION = "sub:"
GROUP = "group:"


def of_queue(name: str) -> str:
    """Of the cursors of a queue, one over each of its partitions."""
    return QUEUE + name
