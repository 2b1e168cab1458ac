"""Notes about ended messages, stored with the cursor.

After a restart a delivery count alone does not say that a message has ended although its dead-letter destination takes
no message now, nor that a message gets one more delivery although it was delivered as often as its rule allows.

The note is in the delivery count of the message, above the bits that count: the reason of the end, or ``UNWRITTEN``. An
expired message, or one that was delivered as often as its rule allows, needs no note.

The module knows cursors and reasons, but not dead-letter destinations.
Invariant: a message with a reason in its count is a dead letter, or, just after a start, becomes one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from radiator.storage.cursor import COUNT_STOP

if TYPE_CHECKING:
    from radiator.storage.cursor import Cursor

MAX_DELIVERIES, REJECTED, EXPIRED, UNACKED = "max-deliveries", "rejected", "expired", "unacked"
NOTED: Final = COUNT_STOP  # a count from here on has a note above the bits that count
NOTES: Final = {REJECTED: NOTED, UNACKED: 2 * NOTED}
UNWRITTEN: Final = 3 * NOTED  # its consumer, under ack:auto, left before the message was written to the socket


def reach(cursor: Cursor) -> int:
    """Return the end of the offsets that were delivered, according to the delivery counts."""
    if not cursor.counts:
        return 0
    return max((offset + 1 for offset, count in cursor.counts.items() if count), default=0)
