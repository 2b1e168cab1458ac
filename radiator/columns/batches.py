"""Locate the batches in a chunk, and return the fields of all batch headers as columns.

Uses the batch header. Must not import files or columns of records.
Invariant: in a batch that ``fit`` accepts, all parts are inside the length that its header declares.
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
    """Return lengths rounded up to a multiple of 8 bytes.

    Args:
        length: Lengths in bytes.
    """
    return (length + 7) & ~7


class Batches:
    """The batch headers of a chunk, as columns with one value per batch.

    Args:
        chunk: The bytes of a segment, aligned to 8 bytes, with whole batch headers.
        at: The position of each batch in ``chunk``.
        words: The header words, if they were gathered before; used by ``only``.

    Attributes:
        chunk: The bytes of the segment.
        at: The position of each batch in ``chunk``.
        base_offset: The offset of the first record of each batch.
        count: The number of records of each batch.
        flags: The flags of each batch (``radiator.storage.format``).

    Source: ``docs/storage-format.md``, the batch header.
    """

    def __init__(self, chunk: Bytes, at: Ints, words: tuple[Ints, ...] | None = None) -> None:
        self.chunk, self.at = chunk, at
        self._words = words or tuple(self._word(number) for number in (1, 2, 5, 6, 7))
        self._total, self.base_offset, self._numbers, self._lengths, self._rest = self._words
        self._equal = bool(len(at)) and bool((self._numbers == self._numbers[0]).all())  # often, with single records
        self.count = self._number(0, _LOW)
        self.flags = self._number(32, 0xFFFF)

    def only(self, chosen: Mask | slice) -> Batches:
        """Return the chosen batches of the same chunk.

        Args:
            chosen: A mask with one value per batch, or a slice.
        """
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
        """The first receive time of each batch, in nanoseconds since the epoch."""
        return self._word(3)

    @property
    def max_receive_ns(self) -> Ints:
        """The last receive time of each batch, in nanoseconds since the epoch."""
        return self._word(4)

    @cached_property
    def name_counts(self) -> Ints:
        """The number of destination names in the dictionary of each batch."""
        return self._number(48, 0xFFFF)

    @cached_property
    def names_len(self) -> Ints:
        """The length of the dictionary of each batch, in bytes."""
        return self._lengths & _LOW

    @cached_property
    def headers_len(self) -> Ints:
        """The length of the header blocks of each batch, in bytes."""
        return self._lengths >> 32 & _LOW

    @cached_property
    def bodies_len(self) -> Ints:
        """The length of the bodies of each batch, in bytes."""
        return self._rest & _LOW

    def fit(self) -> Mask:
        """Return a mask of the batches whose lengths add up, as ``decode_header`` checks.

        A correct crc does not guarantee this.
        """
        count, flags = (self.count[:1], self.flags[:1]) if self._equal else (self.count, self.flags)
        times = 3 - ((flags & EVENT_ABSENT) != 0).astype(np.int64) - ((flags & TRANSMIT_ABSENT) != 0)
        lists = 1 + ((flags & SPARSE) != 0).astype(np.int64)
        rest = (self._total & _LOW) - padded(self.bodies_len)
        rest -= HEADER_BYTES + 8 * count * times + 2 * padded(4 * count + 4) + padded(4 * count) * lists
        rest -= ((flags & PARTIAL_CRCS) != 0) * TRAILER.size
        both = (self._lengths + _SEVENS) & ~_SEVENS  # names and headers, padded at once
        rest -= both & _LOW
        good = (rest == both >> 32) & (count > 0) & (count <= 4 * BATCH_RECORDS_MAX)
        tops = self._lengths & _TOPS  # a carry between the halves could hide an impossible length
        return np.asarray(good & (tops == 0) if tops.any() else good)
