"""Deliveries that the journal does not have yet, in the file ``delivered`` beside the mark of each cursor.

There are two tables: ranges of skipped messages that were delivered since (``delivered_ranges``), and counts of
messages that were redelivered or are ahead of the mark (``delivery_counts``). Invariant: a delivery that ``record`` was
called for, and that the journal does not have, is in one of them.
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
        """Record a delivery before the bytes of the message leave.

        Args:
            slot: The place of the cursor.
            offset: The message.
            before: Its delivery count until now; None if it has none.
            count: Its delivery count from now on.
            ahead: True if ``delivered`` of the cursor does not cover the message, so that only the count shows the
                delivery.
        """
        if before == 0 and not ahead:
            self.ranges.record(slot, offset)
        if count > 1 or ahead:
            self.counts.record(slot, offset, count)

    def take(self) -> None:
        """Note that an entry of the journal has all changes until now."""
        self.ranges.take()
        self.counts.take()

    def written(self) -> None:
        """Free what the journal has: all entries are written."""
        self.ranges.written()
        self.counts.written()

    def forget(self, slot: int) -> None:
        """Clear a slot, which another cursor gets."""
        self.ranges.forget(slot)
        self.counts.forget(slot)
