"""The headers of many batches in a chunk, as columns, and where the headers say that the other parts begin.

Knows: the header of a batch. Must not know: files, columns of records.
Invariant: batches whose header is possible (``regions``) have all of their parts within their length.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from radiator.storage.header import ColumnPlaces, column_places, region_places

Ints: TypeAlias = NDArray[np.int64]
Offsets: TypeAlias = NDArray[np.int32]
Bytes: TypeAlias = NDArray[np.uint8]
Mask: TypeAlias = NDArray[np.bool_]

_LOW = (1 << 32) - 1  # half of a word


class Batches:
    """Batches in a chunk of a segment.

    Args:
        chunk: Bytes, aligned to 8, which contain all headers.
        at: Where the batches begin in ``chunk``.
        words: The words of the headers as in ``_words``, if they are known.
    """

    def __init__(self, chunk: Bytes, at: Ints, words: tuple[Ints, ...] | None = None) -> None:
        self.chunk, self.at = chunk, at
        self._words = words or tuple(self._word(number) for number in (1, 2, 5, 6, 7))
        self._total, self.base_offset, self._numbers, self._lengths, self._rest = self._words
        self._equal = bool(len(at)) and bool((self._numbers == self._numbers[0]).all())  # as in a log of single records
        self.count = self._number(0, _LOW)  # of records
        self.flags = self._number(32, 0xFFFF)

    def only(self, chosen: Mask | slice) -> Batches:
        """Return some of these batches."""
        return Batches(self.chunk, self.at[chosen], tuple(word[chosen] for word in self._words))

    def _word(self, number: int) -> Ints:
        words: Ints = self.chunk.view("<i8")[(self.at >> 3) + number]
        return words

    def _number(self, shift: int, mask: int) -> Ints:
        if self._equal:
            return np.full(len(self.at), int(self._numbers[0]) >> shift & mask)
        return self._numbers >> shift & mask

    def _shared(self, numbers: Ints) -> Any:
        """Return the number if all batches have the same one, else all numbers."""
        return int(numbers[0]) if self._equal else numbers

    @property
    def min_receive_ns(self) -> Ints:
        return self._word(3)

    @property
    def max_receive_ns(self) -> Ints:
        return self._word(4)

    @cached_property
    def name_counts(self) -> Ints:
        """How many names the dictionary of each batch has."""
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

    @cached_property
    def columns(self) -> ColumnPlaces:
        """Where the columns begin, from the start of each batch: numbers if all batches have the same, else arrays."""
        return column_places(self._shared(self.count), self._shared(self.flags))

    @cached_property
    def regions(self) -> tuple[Ints, Ints, Mask]:
        """Where header blocks and bodies begin, from the start of each batch, and whether its header is possible: the
        lengths add up, which a correct crc does not imply."""
        lengths = self.names_len, self.headers_len, self.bodies_len
        return region_places(self.columns, self._total & _LOW, self._shared(self.count), *lengths)

    def last_deltas(self) -> Ints:
        """Return the offset of the last record of each batch, less the base offset. All batches must fit and have a
        column of offsets."""
        last = (self.at + self.columns.offset_delta >> 2) + self.count - 1
        deltas: Ints = self.chunk.view("<u4")[last].astype(np.int64)
        return deltas
