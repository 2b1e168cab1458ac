"""Ranges of messages with a stored delivery count of 0 that were delivered since.

A message that was skipped while messages behind it were delivered has a stored count of 0. Once it is delivered the
count is 1, but that is written a moment later, and the bytes of the message may leave before. Until then the mapping
that also contains ``delivered`` has one range for each cursor: a store into it outlives the process. The next start
ignores a stored 0 within the range.

Invariants: a delivery that is recorded and not written yet is in the range of its cursor at every moment; a range that
is too large causes a needless ``redelivered`` mark, and nothing else.
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
        self._taken: dict[int, tuple[int, int]] = {}  # changes in entries that may not be written yet

    def record(self, slot: int, offset: int) -> None:
        """Add a message to the range of its cursor, before its bytes leave."""
        start, stop = self._recorded.get(slot, (offset, offset + 1))
        self._recorded[slot] = min(start, offset), max(stop, offset + 1)
        at = _place(slot)
        start, stop = self._slots[at], self._slots[at + 1]
        self._slots[at] = min(start, offset) if stop else offset
        self._slots[at + 1] = max(stop, offset + 1)

    def take(self) -> None:
        """Note that an entry of the journal has all changes until now."""
        for slot, (start, stop) in self._recorded.items():
            before = self._taken.get(slot, (start, stop))
            self._taken[slot] = min(start, before[0]), max(stop, before[1])
        self._recorded.clear()

    def written(self) -> None:
        """Shrink the ranges: all entries are written."""
        for slot in self._taken:
            start, stop = self._recorded.get(slot, (0, 0))
            at = _place(slot)
            self._slots[at] = start
            self._slots[at + 1] = stop
        self._taken.clear()

    def restore(self, slot: int) -> tuple[int, int]:
        """Return the range that an earlier run left. It stays until its consequences are written."""
        at = _place(slot)
        start, stop = self._slots[at], self._slots[at + 1]
        if stop:
            self._taken[slot] = start, stop
        return start, stop

    def forget(self, slot: int) -> None:
        """Clear the range of a slot, which another cursor gets."""
        self._recorded.pop(slot, None)
        self._taken.pop(slot, None)
        self._slots[_place(slot) + 1] = 0


def range_of(hints: bytes, slot: int) -> tuple[int, int]:
    """Return (start, stop) of a cursor, from the bytes of the file."""
    at = _place(slot) * U64_BYTES
    start, stop = hints[at : at + U64_BYTES], hints[at + U64_BYTES : at + 2 * U64_BYTES]
    return int.from_bytes(start, "little"), int.from_bytes(stop, "little")


def _place(slot: int) -> int:
    return limits.CURSORS_MAX + 2 * slot
