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
    from radiator.storage.cursor import Cursor

MAX_DELIVERIES, REJECTED, EXPIRED, UNACKED = "max-deliveries", "rejected", "expired", "unacked"
NOTED: Final = COUNT_STOP  # a count from here on has a note; what counts lies below
NOTES: Final = {REJECTED: NOTED, UNACKED: 2 * NOTED}
UNWRITTEN: Final = 3 * NOTED  # its consumer, with ack:auto, left before the message was written to the socket


def reach(cursor: Cursor) -> int:
    """What lies at or above this was not delivered, as the counts tell."""
    if not cursor.counts:
        return 0
    return max((offset + 1 for offset, count in cursor.counts.items() if count), default=0)
