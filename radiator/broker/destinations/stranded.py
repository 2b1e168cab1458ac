"""Messages that nobody reads any more, because a rule names other logs than it did: told once, at the start.

Knows: cursors, and who reads by them. Must not know: rules. Changes nothing: the messages stay where they are, and are
delivered once the rule names their log again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from radiator.broker.named import cursor_names
from radiator.storage.store import Store

if TYPE_CHECKING:
    from radiator.broker.queues.queue import Queue

log = logging.getLogger("radiator.broker")

TELL_MAX = 20  # lines; then only how many more


def stranded(store: Store, queues: Iterable[Queue], named: Mapping[str, Queue]) -> list[tuple[str, str, int]]:
    """(name of the cursor, log, unsettled messages at most) of cursors that none of these reads by, over logs that hold
    messages which concern them. ``named``: those of names, by their cursors' name."""
    read = {id(source.cursor) for queue in (*queues, *named.values()) for source in queue.sources}
    found = []
    for name, where in store.cursors.names():
        cursor, partition = store.cursors.get(name, where), store.partitions.get(where)
        if cursor is None or partition is None or id(cursor) in read:
            continue
        if name in named:
            concerned = any(map(named[name].claim.has, partition.destinations))
        else:
            concerned = name.removeprefix(cursor_names.QUEUE) in partition.destinations
        if not concerned:
            continue
        end = partition.high_watermark
        settled = sum(stop - start for start, stop in cursor.settled_in(0, end))
        if end > settled:
            found.append((name, where, end - settled))
    return found


def tell(found: list[tuple[str, str, int]]) -> None:
    """In the log, with what to do."""
    for name, where, count in found[:TELL_MAX]:
        log.warning(
            "%s: its rule does not read the log %s any more, in which up to %d messages are not settled. They are kept "
            "and not delivered: give the rule back the partition, partitions and priority that it had, let the "
            "consumers empty the log, and change it then",
            name,
            where,
            count,
        )
    if len(found) > TELL_MAX:
        log.warning("%d more logs have messages that no rule reads any more", len(found) - TELL_MAX)
