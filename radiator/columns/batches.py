"""Where in a chunk batches begin, and what their headers say: all of them as columns, gathered once.

Knows: the header of a batch. Must not know: files, columns of records.
Invariant: batches that ``fit`` have all of their parts within what their headers call their length.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from radiator.limits import BATCH_RECORDS_MAX
from radiator.storage.format import EVENT_ABSENT, HEADER_BYTES, PARTIAL_CRCS, SPARSE, TRAILER, TRANSMIT_ABSENT

Ints: TypeAlias = NDArray[np.int64]
Offsets: TypeAlias = NDArray[np.int32]
Bytes: TypeAlias = NDArray[np.uint8]
Mask: TypeAlias = NDArray[np.bool_]

_LOW = (1 << 32) - 1  # half of a word
_TOPS = -(1 << 63) | 1 << 31  # the highest bit of both halves
_SEVENS = 7 << 32 | 7


def padded(length: Ints) -> Ints:
    return (length + 7) & ~7


class Batches:
    """``at``: their positions in ``chunk``, which is aligned and holds all of their headers."""

    def __init__(self, chunk: Bytes, at: Ints, words: tuple[Ints, ...] | None = None) -> None:
        self.chunk, self.at = chunk, at
        self._words = words or tuple(self._word(number) for number in (1, 2, 5, 6, 7))
        self._total, self.base_offset, self._numbers, self._lengths, self._rest = self._words
        self._equal = bool(len(at)) and bool((self._numbers == self._numbers[0]).all())  # as in a log of single records
        self.count = self._number(0, _LOW)  # of records
        self.flags = self._number(32, 0xFFFF)

    def only(self, chosen: Mask | slice) -> Batches:
        return Batches(self.chunk, self.at[chosen], tuple(word[chosen] for word in self._words))

    def _word(self, number: int) -> Ints:
        words: Ints = self.chunk.view("<i8")[(self.at >> 3) + number]
        return words

    def _number(self, shift: int, mask: int) -> Ints:
        if self._equal:
            return np.full(len(self.at), int(self._numbers[0]) >> shift & mask)
        return self._numbers >> shift & mask

    @property
    def min_receive_ns(self) -> Ints:
        return self._word(3)

    @property
    def max_receive_ns(self) -> Ints:
        return self._word(4)

    @cached_property
    def name_counts(self) -> Ints:
        """How many names each batch's dictionary has."""
        return self._number(48, 0xFFFF)

    @cached_property
    def names_len(self) -> Ints:
        return self._lengths & _LOW

    @cached_property
    def headers_len(self) -> Ints:
        return self._lengths >> 32 & _LOW

    @cached_property
    def bodies_len(self) -> Ints:
        return self._rest & _LOW

    def fit(self) -> Mask:
        """Whether the lengths in each header add up, as ``decode_header`` asks: a crc that holds does not say that."""
        count, flags = (self.count[:1], self.flags[:1]) if self._equal else (self.count, self.flags)
        times = 3 - ((flags & EVENT_ABSENT) != 0).astype(np.int64) - ((flags & TRANSMIT_ABSENT) != 0)
        lists = 1 + ((flags & SPARSE) != 0).astype(np.int64)
        rest = (self._total & _LOW) - padded(self.bodies_len)
        rest -= HEADER_BYTES + 8 * count * times + 2 * padded(4 * count + 4) + padded(4 * count) * lists
        rest -= ((flags & PARTIAL_CRCS) != 0) * TRAILER.size
        both = (self._lengths + _SEVENS) & ~_SEVENS  # names and headers, padded at once
        rest -= both & _LOW
        good = (rest == both >> 32) & (count > 0) & (count <= 4 * BATCH_RECORDS_MAX)
        tops = self._lengths & _TOPS  # of lengths that are none: a carry between the halves could hide them
        return np.asarray(good & (tops == 0) if tops.any() else good)
