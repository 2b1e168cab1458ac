"""Names of cursors in the store: a prefix for the kind of owner, and the owner's name.

``queue:<name>`` is the cursor of a queue over its own logs and the logs of its fan-out sources. ``sub:<name>`` belongs
to a durable subscription and ``group:<name>`` to a consumer group, both over the logs of topics
(``docs/storage-format.md``, "Cursors").
"""

from __future__ import annotations

QUEUE = "queue:"
SUBSCRIPTION = "sub:"
GROUP = "group:"
EXPIRY = "expiry:"  # no cursor: the key of what a SUBSCRIBE says of the removal of a queue, among the definitions

# Keys beside those of durable subscriptions in their file (``storage.definitions``), which are no names of cursors.
PAUSED = "paused:"
SCHEDULE = "schedule:"


def shown(name: str) -> str:
    """Return the name of a queue as its users know it: that of a durable subscription or group without its prefix."""
    for prefix in (SUBSCRIPTION, GROUP):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def of_queue(name: str) -> str:
    """Return the name of the cursors of a queue. A queue has one cursor for each of its partitions."""
    return QUEUE + name
