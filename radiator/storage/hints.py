"""What the file ``delivered`` has beside the mark of each cursor: deliveries that the journal does not have yet.

Two tables: messages that were put off and have been handed out since (``handed``), and the counts of those that came
again or lie ahead of the mark (``counted``). Invariant: what ``note`` was told and the journal has not got stands in
one of them.
"""

from __future__ import annotations

from radiator.storage.counted import Counted
from radiator.storage.handed import Handed


class Hints:
    """Both tables of all cursors. ``words`` is the whole mapping, as u64."""

    __slots__ = ("counted", "handed")

    def __init__(self, words: memoryview) -> None:
        self.handed = Handed(words)
        self.counted = Counted(words)

    def note(self, slot: int, offset: int, before: int | None, count: int, ahead: bool) -> None:
        """Note a delivery before the bytes of the message leave.

        Args:
            slot: Place of the cursor.
            offset: Which message.
            before: Its delivery count until now; None if it has none.
            count: Its delivery count from now on.
            ahead: True if ``delivered`` of the cursor does not cover the message, so that only the count tells.
        """
        if before == 0 and not ahead:
            self.handed.note(slot, offset)
        if count > 1 or ahead:
            self.counted.note(slot, offset, count)

    def take(self) -> None:
        """An entry of the journal is made of all that has changed until now."""
        self.handed.take()
        self.counted.take()

    def written(self) -> None:
        """All entries that were made are written."""
        self.handed.written()
        self.counted.written()

    def forget(self, slot: int) -> None:
        """It is another cursor's from now on."""
        self.handed.forget(slot)
        self.counted.forget(slot)
