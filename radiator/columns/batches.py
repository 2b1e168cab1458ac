"""The headers of many batches in a chunk, as columns, and where the headers say that the other parts begin.

Uses the batch header. Must not import files or columns of records.
Invariant: in a batch whose header is possible (``regions``), all parts are inside the length that its header declares.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from radiator.storage.header import ColumnPlaces, column_places, region_places

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]  # not numpy.typing: importing it takes each Python worker 0.04 s
Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Offsets: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]
Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

_LOW = (1 << 32) - 1  # half of a word


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

    def _shared(self, numbers: Ints) -> Any:
        """Return the number if all batches have the same one, else all numbers."""
        return int(numbers[0]) if self._equal else numbers

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

    @cached_property
    def columns(self) -> ColumnPlaces:
        """Where the columns begin, from the start of each batch: numbers if all batches have the same, else arrays."""
        return column_places(self._shared(self.count), self._shared(self.flags))

    @cached_property
    def regions(self) -> tuple[Ints, Ints, Mask]:
        """The start of the header blocks and of the bodies in each batch, and whether its header is possible.

        It is possible if the lengths add up, which a correct crc does not imply.
        """
        lengths = self.names_len, self.headers_len, self.bodies_len
        return region_places(self.columns, self._total & _LOW, self._shared(self.count), *lengths)

    def last_deltas(self) -> Ints:
        """Return the offset of the last record of each batch, less the base offset.

        The headers of all batches must be possible, and all batches must have a column of offsets.
        """
        last = (self.at + self.columns.offset_delta >> 2) + self.count - 1
        deltas: Ints = self.chunk.view("<u4")[last].astype(np.int64)
        return deltas
