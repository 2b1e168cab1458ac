"""Find the records of a log that a later record with the same key replaces.

A key is 16 bytes of hash over destination and key. ``Keys`` maps it to an offset, in plain arrays of at most 48 bytes a
key. A log with more keys than the table may hold is compacted in several passes: each pass covers one *class* of keys,
chosen by their lowest bits, and keeps all other records.

A record is replaced only by a record that is safe on disk. A tombstone (a record with an empty body) is the last of its
key. It is removed when it is old enough and all records that it replaces are certainly removed.

This module knows offsets and hashes. It does not know what a header block means (``key_of`` does). It runs on the
maintenance thread.
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
    """Return the two 64-bit halves of the hash of a destination and a key."""
    high, low = _HASH.unpack(blake2b(b"%b\0%b" % (destination, key), digest_size=16).digest())
    return high, low


class Keys:
    """The latest offset of each key, by hash, in a table with open addressing."""

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
        """Forget all keys."""
        self.count = 0
        self._arrays(_SLOTS_MIN)

    def next_class(self) -> bool:
        """Go on with the next class of keys. Return False after the last one."""
        self.number += 1
        return self.number < self.classes

    def includes(self, low: int) -> bool:
        """Return whether the key with this lower half belongs to the class of this pass."""
        return low & (self.classes - 1) == self.number

    def _slot(self, high: int, low: int) -> int:
        mask, highs, lows, offsets = self._mask, self._high, self._low, self._offsets
        slot = high & mask
        while offsets[slot] and (highs[slot] != high or lows[slot] != low):
            slot = (slot + 1) & mask
        return slot

    def get(self, high: int, low: int) -> int | None:
        """Return the offset of a key, or None."""
        stored = self._offsets[self._slot(high, low)]
        return stored - 1 if stored else None

    def put(self, high: int, low: int, offset: int) -> int | None:
        """Set the offset of a key, and return its previous one. ``grow`` must have made room."""
        slot = self._slot(high, low)
        before = self._offsets[slot]
        if not before:
            self._high[slot], self._low[slot] = high, low
            self.count += 1
        self._offsets[slot] = offset + 1
        return before - 1 if before else None

    def grow(self) -> Iterator[None]:
        """Make room for one more key, in short steps. With too many keys, keep those of half the classes."""
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
    """The result of a scan over a log: how many records of each segment are replaced."""

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
        """Add the records of a batch. Batches must come in the order of offsets."""
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
        """Return a function that selects the records of a batch that are not replaced.

        Args:
            tombstones_go: Remove old tombstones too.
        """
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
