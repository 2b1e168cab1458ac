"""The last record of each key: which records of a log have been replaced by a later one.

A key is 16 bytes of hash over destination and key; ``Keys`` is a table of offsets by it in plain arrays, 48 bytes a key
at worst. A log with more keys than the table may hold is compacted in several turns: each takes one *class* of keys, by
their lowest bits, and lets all others stand.

A record counts as replaced only by one that is safe on disk. A tombstone, a record with an empty body, is the last of
its key; it goes when it is old enough, and everything before it that it replaces has gone for sure.

Knows: offsets, hashes. Must not know: what a header block means (``key_of`` does), who is asking. The caretaker's.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from struct import Struct

from radiator import limits
from radiator.storage.batch import RecordBatch

KeyOf = Callable[[bytes], bytes | None]  # a header block's key
_HASH = Struct("<QQ")
_SLOTS_MIN = 1_024
_REHASH_SLOTS = 512  # moved in one step


def hash_of(destination: bytes, key: bytes) -> tuple[int, int]:
    high, low = _HASH.unpack(blake2b(b"%b\0%b" % (destination, key), digest_size=16).digest())
    return high, low


class Keys:
    """Offsets by hash, in open addressing."""

    def __init__(self, keys_max: int = limits.COMPACT_KEYS_MAX, slots: int = _SLOTS_MIN) -> None:
        self.keys_max = keys_max
        self.number, self.classes = 0, 1  # this turn's class, of how many
        self.count = 0
        self._arrays(slots)

    def _arrays(self, slots: int) -> None:
        self._mask = slots - 1
        self._high = array("Q", bytes(8 * slots))
        self._low = array("Q", bytes(8 * slots))
        self._offsets = array("Q", bytes(8 * slots))  # plus one; 0 is an empty slot

    def clear(self) -> None:
        self.count = 0
        self._arrays(_SLOTS_MIN)

    def next_class(self) -> bool:
        """Go on with the next class of keys. Return False if all have had their turn."""
        self.number += 1
        return self.number < self.classes

    def includes(self, low: int) -> bool:
        """Whether this turn is about keys like that."""
        return low & (self.classes - 1) == self.number

    def _slot(self, high: int, low: int) -> int:
        mask, highs, lows, offsets = self._mask, self._high, self._low, self._offsets
        slot = high & mask
        while offsets[slot] and (highs[slot] != high or lows[slot] != low):
            slot = (slot + 1) & mask
        return slot

    def get(self, high: int, low: int) -> int | None:
        stored = self._offsets[self._slot(high, low)]
        return stored - 1 if stored else None

    def put(self, high: int, low: int, offset: int) -> int | None:
        """Sets the key's offset; returns the one it had. There must be room: see ``grow``."""
        slot = self._slot(high, low)
        before = self._offsets[slot]
        if not before:
            self._high[slot], self._low[slot] = high, low
            self.count += 1
        self._offsets[slot] = offset + 1
        return before - 1 if before else None

    def grow(self) -> Iterator[None]:
        """Makes room for one more, in short steps; with too many keys, for those of half the classes."""
        while 2 * (self.count + 1) > self._mask + 1:
            old, slots = (self._high, self._low, self._offsets), self._mask + 1
            full = slots >= 2 * self.keys_max
            if full:
                self.classes *= 2
            self.count = 0
            self._arrays(slots if full else 2 * slots)
            for at in range(0, slots, _REHASH_SLOTS):
                for high, low, stored in zip(*(each[at : at + _REHASH_SLOTS] for each in old), strict=True):
                    if stored and self.includes(low):
                        self.put(high, low, stored - 1)
                yield


class Replaced:
    """What a scan over a log finds: for each segment how many of its records have been replaced."""

    def __init__(self, spans: Sequence[tuple[int, int]], key_of: KeyOf, keys: Keys, tombstones_before_ns: int) -> None:
        """``spans``: first offset and end of the segments that may be rewritten; later ones may be scanned as well."""
        self.keys = keys
        self.counts = [0] * len(spans)
        self.old_tombstones = [0] * len(spans)
        self._bases = [base for base, _ in spans]
        self._end = spans[-1][1]
        self._lasts = {end - 1 for _, end in spans}  # these stay, whatever their keys
        self._pinned: set[tuple[int, int]] = set()  # keys of which such a record stays: so must their tombstones
        self._key_of = key_of
        self._tombstones_before_ns = tombstones_before_ns

    def _hashes(self, batch: RecordBatch) -> Iterable[tuple[int, int, int]]:
        """(place, hash) of the records that have a key of this turn."""
        key_of, names, ids, keys = (
            self._key_of,
            [name.encode() for name in batch.names],
            batch.destination_ids,
            self.keys,
        )
        for place, block in enumerate(batch.blocks):
            key = key_of(block)
            if key is not None:
                high, low = hash_of(names[ids[place]], key)
                if keys.includes(low):
                    yield place, high, low

    def scan(self, batch: RecordBatch) -> Iterator[None]:
        """Takes notice of a few records; they must come in order."""
        for place, high, low in self._hashes(batch):
            yield from self.keys.grow()
            offset = batch.offsets[place]
            before = self.keys.put(high, low, offset)
            if before is not None and before not in self._lasts:
                self._count(self.counts, before)
            if offset in self._lasts:
                self._pinned.add((high, low))
            elif self._old_tombstone(batch, place):
                self._count(self.old_tombstones, offset)

    def _old_tombstone(self, batch: RecordBatch, place: int) -> bool:
        return not batch.bodies[place] and batch.receive_ns[place] < self._tombstones_before_ns

    def _count(self, counts: list[int], offset: int) -> None:
        if offset < self._end:
            counts[bisect_right(self._bases, offset) - 1] += 1

    def keep(self, tombstones_go: bool) -> Callable[[RecordBatch], Sequence[int] | None]:
        """The records that have not been replaced; with ``tombstones_go`` without the old tombstones."""
        keys, pinned = self.keys, self._pinned

        def places(batch: RecordBatch) -> Sequence[int] | None:
            gone = set()
            for place, high, low in self._hashes(batch):
                last = keys.get(high, low)
                if last is None or batch.offsets[place] > last:
                    continue
                old = tombstones_go and self._old_tombstone(batch, place) and (high, low) not in pinned
                if batch.offsets[place] < last or old:
                    gone.add(place)
            return [place for place in range(len(batch)) if place not in gone] if gone else None

        return places
