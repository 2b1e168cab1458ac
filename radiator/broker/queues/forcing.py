"""What a queue's source does when retention takes what it still needs (``retention.force``).

Knows: sources. Must not know: why it was taken, consumers.
Invariant: what was taken is counted as lost once: now, or when a consumer that holds it gives it back.
"""

from __future__ import annotations

from heapq import heapify
from typing import TYPE_CHECKING

from radiator.broker.queues import idling

if TYPE_CHECKING:
    from radiator.broker.queues.source import QueueSource


def forced(source: QueueSource, start: int) -> None:
    """Retention took what lies below ``start`` although some of it was not settled: what nobody holds is lost now,
    what a consumer holds is lost if it comes back. In a shared log others' records that were not passed over yet
    are counted as well."""
    if start <= source.cursor.floor:
        return
    settled, source.settled = source.settled, []
    source.cursor.ack(settled)
    unsettled = start - source.cursor.floor
    unsettled -= sum(max(0, min(stop, start) - first) for first, stop in source.cursor.intervals)
    fresh = max(0, start - max(source.next_offset, source.cursor.floor))
    returned = sum(offset < start for offset in source.returned) + len(source.deferred.remove(0, start))
    returned += 0 if source.skipped is None else source.skipped.remove(0, start)
    source.waiting -= max(0, unsettled)
    floor = source.cursor.floor
    source.cursor.ack_range(floor, start)
    source.returned = [offset for offset in source.returned if offset >= start]
    heapify(source.returned)
    source.next_offset = max(source.next_offset, start)
    idling.rests(source)
    source.forced_to = start
    if fresh + returned:
        source.queue.lost(source, fresh + returned, floor, start - 1)
