"""What the file ``delivered`` has beside the mark of each cursor: deliveries that the journal does not have yet.

Two tables: messages that were put off and have been handed out since (``handed``), and the counts of those that came
again or lie ahead of the mark (``counted``). Invariant: what ``note`` was told and the journal has not got stands in
one of them.
"""

from __future__ import annotations

from radiator.storage.delivered_ranges import DeliveredRanges
from radiator.storage.delivery_counts import DeliveryCounts


class DeliveryHints:
    """Both tables of all cursors. ``words`` is the whole mapping, as u64."""

    __slots__ = ("counts", "ranges")

    def __init__(self, words: memoryview) -> None:
        self.ranges = DeliveredRanges(words)
        self.counts = DeliveryCounts(words)

    def record(self, slot: int, offset: int, before: int | None, count: int, ahead: bool) -> None:
        """Note a delivery before the bytes of the message leave.

        Args:
            slot: Place of the cursor.
            offset: Which message.
            before: Its delivery count until now; None if it has none.
            count: Its delivery count from now on.
            ahead: True if ``delivered`` of the cursor does not cover the message, so that only the count tells.
        """
        if before == 0 and not ahead:
            self.ranges.record(slot, offset)
        if count > 1 or ahead:
            self.counts.record(slot, offset, count)

    def take(self) -> None:
        """An entry of the journal is made of all that has changed until now."""
        self.ranges.take()
        self.counts.take()

    def written(self) -> None:
        """All entries that were made are written."""
        self.ranges.written()
        self.counts.written()

    def forget(self, slot: int) -> None:
        """It is another cursor's from now on."""
        self.ranges.forget(slot)
        self.counts.forget(slot)
