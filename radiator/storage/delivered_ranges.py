"""Messages that nobody had had, as their cursor's stored counts say, and that a consumer has been given now.

A message that was put off while others behind it went out has a stored count of 0. Once it is handed out the count
is 1, but that is written a moment later, and its bytes may be gone by then. So what was handed out since then stands,
as one range for each cursor, in the mapping that also holds ``delivered``: a store into it outlives the process. At
the next start a stored 0 within the range is not believed.

Invariants: whatever was noted and is not written yet lies in its cursor's range, at every moment; a range that is too
large costs a mark ``redelivered`` too much, and nothing else.
"""

from __future__ import annotations

from radiator import limits

U64_BYTES = 8
MARKS_BYTES = limits.CURSORS_MAX * U64_BYTES  # ``delivered`` of all cursors
PAIRS_END_BYTES = MARKS_BYTES + 2 * limits.CURSORS_MAX * U64_BYTES  # then (start, stop) of all


class DeliveredRanges:
    """The ranges of all cursors. ``slots`` is the whole mapping, as u64."""

    __slots__ = ("_recorded", "_slots", "_taken")

    def __init__(self, slots: memoryview) -> None:
        self._slots = slots
        self._recorded: dict[int, tuple[int, int]] = {}  # by slot: since the last entry of the journal was made
        self._taken: dict[int, tuple[int, int]] = {}  # what entries say that may not be written yet

    def record(self, slot: int, offset: int) -> None:
        """Before the bytes of the message leave."""
        start, stop = self._recorded.get(slot, (offset, offset + 1))
        self._recorded[slot] = min(start, offset), max(stop, offset + 1)
        at = _place(slot)
        start, stop = self._slots[at], self._slots[at + 1]
        self._slots[at] = min(start, offset) if stop else offset
        self._slots[at + 1] = max(stop, offset + 1)

    def take(self) -> None:
        """An entry is made of all that has changed until now."""
        for slot, (start, stop) in self._recorded.items():
            before = self._taken.get(slot, (start, stop))
            self._taken[slot] = min(start, before[0]), max(stop, before[1])
        self._recorded.clear()

    def written(self) -> None:
        """All entries that were made are written."""
        for slot in self._taken:
            start, stop = self._recorded.get(slot, (0, 0))
            at = _place(slot)
            self._slots[at] = start
            self._slots[at + 1] = stop
        self._taken.clear()

    def restore(self, slot: int) -> tuple[int, int]:
        """What an earlier run left behind; it stays until what is made of it is written."""
        at = _place(slot)
        start, stop = self._slots[at], self._slots[at + 1]
        if stop:
            self._taken[slot] = start, stop
        return start, stop

    def forget(self, slot: int) -> None:
        """It is another cursor's from now on."""
        self._recorded.pop(slot, None)
        self._taken.pop(slot, None)
        self._slots[_place(slot) + 1] = 0


def range_of(hints: bytes, slot: int) -> tuple[int, int]:
    """(start, stop) of a cursor, in the bytes of the file."""
    at = _place(slot) * U64_BYTES
    start, stop = hints[at : at + U64_BYTES], hints[at + U64_BYTES : at + 2 * U64_BYTES]
    return int.from_bytes(start, "little"), int.from_bytes(stop, "little")


def _place(slot: int) -> int:
    return limits.CURSORS_MAX + 2 * slot
