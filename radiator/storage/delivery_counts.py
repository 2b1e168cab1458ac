"""Delivery counts that the journal does not have yet.

A redelivered message has a count, which is written a moment after its bytes may have left. A crash in that moment must
be counted too. So the mapping that also contains ``delivered`` has the count until then: a store into it outlives the
process. Each start uses it, and writes it.

    record() -> take(): an entry of the journal has it -> written(): its place is free

Invariants: a count that is recorded and not written is in the mapping, unless COUNTS places were in use; a generation
older than that of the snapshot in force is ignored: a power cut may bring an old page back.
"""

from __future__ import annotations

from collections.abc import Iterator

from radiator.storage.delivered_ranges import PAIRS_END_BYTES, U64_BYTES

COUNTS = 16_384  # more than consumers that die together mostly hold; beyond, a count is as safe as the journal
WORDS = 3  # slot + 1 and count, u32 each; offset; generation
HINTS_BYTES = PAIRS_END_BYTES + COUNTS * WORDS * U64_BYTES
_FIRST = PAIRS_END_BYTES // U64_BYTES
_FREE = bytes(1024 * U64_BYTES)

Key = tuple[int, int]  # slot, offset


class DeliveryCounts:
    """The counts of all cursors. ``words`` is the whole mapping, as u64."""

    __slots__ = ("_free", "_next", "_recorded", "_places", "_taken", "_words", "generation")

    def __init__(self, words: memoryview) -> None:
        self.generation = 0  # generation of the journal that will get the current counts
        self._words = words
        self._places: dict[Key, int] = {}
        self._recorded: set[Key] = set()  # since the last entry of the journal was made
        self._taken: set[Key] = set()  # changes in entries that may not be written yet
        self._free: list[int] = []
        self._next = _FIRST

    def record(self, slot: int, offset: int, count: int) -> None:
        """Record the count of a message, before its bytes leave."""
        key = slot, offset
        place = self._places.get(key)
        if place is None:
            if not self._free and self._next == _FIRST + COUNTS * WORDS:
                return
            if self._free:
                place = self._free.pop()
            else:
                place, self._next = self._next, self._next + WORDS
            self._places[key] = place
        self._recorded.add(key)
        words = self._words
        words[place + 1], words[place + 2] = offset, self.generation
        words[place] = (slot + 1) << 32 | count  # last: without it there is no entry

    def take(self) -> None:
        """Note that an entry of the journal has all changes until now."""
        self._taken |= self._recorded
        self._recorded.clear()

    def written(self) -> None:
        """Free the places of counts that the journal has: all entries are written."""
        for key in self._taken - self._recorded:
            self._drop(key)
        self._taken.clear()

    def begin_generation(self, number: int) -> None:
        """Set the generation of the journal that will get the current counts."""
        self.generation = number

    def restore(self, generation: int) -> dict[int, dict[int, int]]:
        """Return the counts that an earlier run left, by slot and offset. They stay until they are written."""
        found: dict[int, dict[int, int]] = {}
        self.generation = generation
        for place, slot, offset, count, generation_at in _entries(self._words):
            if generation_at < generation or (slot, offset) in self._places:
                self._words[place] = 0
                continue
            self._places[slot, offset] = place
            self._taken.add((slot, offset))
            found.setdefault(slot, {})[offset] = count
        taken = set(self._places.values())
        self._next = max(taken, default=_FIRST - WORDS) + WORDS
        self._free = [place for place in range(_FIRST, self._next, WORDS) if place not in taken]
        return found

    def forget(self, slot: int) -> None:
        """Drop the counts of a slot, which another cursor gets."""
        for key in [key for key in self._places if key[0] == slot]:
            self._drop(key)
            self._recorded.discard(key)
            self._taken.discard(key)

    def _drop(self, key: Key) -> None:
        place = self._places.pop(key)
        self._words[place] = 0
        self._free.append(place)


def counts_in(hints: bytes, generation: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (slot, offset, count, position in bytes) of the entries of this generation or a later one."""
    usable = len(hints) - len(hints) % (WORDS * U64_BYTES)
    words = memoryview(hints)[: max(usable, 0)].cast("Q")
    for place, slot, offset, count, generation_at in _entries(words):
        if generation_at >= generation:
            yield slot, offset, count, place * U64_BYTES


def _entries(words: memoryview) -> Iterator[tuple[int, int, int, int, int]]:
    data = words[_FIRST:].tobytes()
    used = len(data)
    while used and data.endswith(_FREE, 0, used):  # most places are free, the last ones above all
        used -= len(_FREE)
    stop = min(_FIRST + -(-used // U64_BYTES), len(words) - WORDS + 1)
    for place in range(_FIRST, stop, WORDS):
        if word := words[place]:
            yield place, (word >> 32) - 1, words[place + 1], word & 0xFFFFFFFF, words[place + 2]
