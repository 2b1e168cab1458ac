"""What a delivery count alone does not tell after a start, noted with the cursor: that a message is delivered no more
although its dead-letter destination takes none now, or once more though it was delivered as often as its rule allows.

The note is in the delivery count of the message, above the bits that count: why it came to its end, or ``UNWRITTEN``.
What has expired, or was delivered as often as its rule allows, needs none: that is found again.

Knows: cursors, reasons. Must not know: what becomes of a letter.
Invariants: a count with a reason for a note belongs to a message that is a letter, or, just after a start, becomes one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from radiator.storage.cursor import COUNT_STOP

if TYPE_CHECKING:
    from radiator.broker.queues.source import QueueSource
    from radiator.storage.cursor import Cursor

MAX_DELIVERIES, REJECTED, EXPIRED, UNACKED = "max-deliveries", "rejected", "expired", "unacked"
NOTED: Final = COUNT_STOP  # a count from here on has a note; what counts lies below
NOTES: Final = {REJECTED: NOTED, UNACKED: 2 * NOTED}
UNWRITTEN: Final = 3 * NOTED  # its consumer, with ack:auto, left before the message was written to the socket


def note(source: QueueSource, offset: int, reason: str, deliveries: int) -> bool:
    """It waits for its dead-letter destination. True if that is something to be stored."""
    bits = NOTES.get(reason)
    if bits is None or source.cursor.counts.get(offset, 0) >= NOTED:
        return False
    source.cursor.set_count(offset, bits | min(deliveries, NOTED - 1))
    source.settle([])  # nothing: but the cursor is to be written in this turn
    return True


def spare(source: QueueSource, offsets: list[int]) -> None:
    """These were handed out and never written, which ends nothing; a start would end those that have been delivered as
    often as their rule allows."""
    most = source.settings.redeliver_max
    if most is None:
        return
    for offset in offsets:
        deliveries = source.deliveries(offset)
        if deliveries >= most:
            source.cursor.set_count(offset, UNWRITTEN | min(deliveries, NOTED - 1))


def reach(cursor: Cursor) -> int:
    """What lies at or above this was not delivered, as the counts tell."""
    if not cursor.counts:
        return 0
    return max((offset + 1 for offset, count in cursor.counts.items() if count), default=0)


def resume(source: QueueSource) -> None:
    """After a start: those that came to their end before it are not given out; and a broker or a consumer that dies of
    a message gets it as often as the rule says, and no more."""
    counts, most = source.cursor.counts, source.settings.redeliver_max
    for reason, bits in NOTES.items():
        _end(source, [each for each in source.returned if counts.get(each, 0) // NOTED == bits // NOTED], reason)
    if most is not None:
        spent = [
            each for each in source.returned if most <= source.deliveries(each) and counts.get(each, 0) < UNWRITTEN
        ]
        _end(source, spent, MAX_DELIVERIES)


def _end(source: QueueSource, offsets: list[int], reason: str) -> None:
    if not offsets:
        return
    source.returned = sorted(set(source.returned).difference(offsets))  # which is a heap
    source.queue.timing.returns.ended(source, offsets, reason)
