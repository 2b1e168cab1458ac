"""Return the records of many batches as columns, without a loop over records.

A ``Rows`` is a chunk of a segment (aligned bytes in memory) and the positions of checked batches. Every
column is one numpy expression over all batches: a batch stores its columns as arrays, so the column of a single large
batch is a view, and that of thousands of one-record batches is one gather. Arrow's ``take`` joins the regions of
headers and bodies. A column is computed at its first use.

A compressed region is decompressed only if its column is used. ``parts`` limits the memory for that, because a chunk
of 8 MiB may decompress to a gigabyte.

Uses numpy and ``Batches``, which has the positions of the parts. Must not import files, Spark, or the header codec.
Invariant: no byte outside the chunk is read. A batch whose parts contradict one another (a correct crc does not exclude
that) raises DamagedBatch, with the rules and the texts of ``radiator.storage.format.StoredBatch``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from radiator.columns.batches import Array, Batches, Bytes, Ints, Mask, Offsets
from radiator.columns.names import NameTable
from radiator.limits import BATCH_BYTES_MAX
from radiator.storage.compression import decompress
from radiator.storage.header import (
    BODIES_ZSTD,
    COMPRESSED,
    EVENT_ABSENT,
    HEADER_BYTES,
    HEADERS_ZSTD,
    IDS_WRONG,
    MISSING,
    NAMES_WRONG,
    OFFSETS_WRONG,
    SPARSE,
    TRANSMIT_ABSENT,
    VALUES_WRONG,
    DamagedBatch,
)

LONG_RECORDS = 64  # records per batch from which one copy per batch is faster than one gather of all
SAME_NAMES_BYTES_MAX = 256  # longer dictionaries are compared by their hashes


def _pieces(chunk: Bytes, starts: Ints, stops: Ints) -> pa.BinaryArray:
    """Return ``chunk[start:stop]`` of each pair as an array.

    The pairs must be sorted and not overlap. Then the pieces and the gaps between them are one Arrow array over the
    chunk, without a copy, and every second value of it is a piece.
    """
    offsets = np.empty(2 * len(starts) + 1, np.int32)
    offsets[0:-1:2], offsets[1::2], offsets[-1] = starts, stops, stops[-1]
    data = pa.py_buffer(chunk)
    both = pa.Array.from_buffers(pa.binary(), 2 * len(starts), [None, pa.py_buffer(offsets), data])
    return both.take(pa.array(np.arange(0, 2 * len(starts), 2, dtype=np.int32)))


class Rows:
    """The records of several batches of one chunk.

    Args:
        batches: The batches, as far as they were read and checked (``partial.Reach``).
        names: The destination names that were decoded so far; new ones are added.

    Attributes:
        chunk: The bytes of the chunk.
        batches: The batches.
        at: The position of each batch in the chunk.
        base_offset: The first offset of each batch.
        count: The number of records of each batch.
        flags: The flags of each batch.
    """

    def __init__(self, batches: Batches, names: NameTable) -> None:
        self.chunk, self.batches, self._names = batches.chunk, batches, names
        self.at, self.base_offset = batches.at, batches.base_offset
        self.count, self.flags = batches.count, batches.flags
        self._w32 = self.chunk.view("<i4")
        self._w64: Ints = self.chunk.view("<i8")
        self._single = bool((self.count == 1).all())
        self._places = batches.columns

    def only(self, chosen: Mask) -> Rows:
        """Return the rows of the chosen batches.

        Args:
            chosen: A mask with one value per batch.
        """
        return Rows(self.batches.only(chosen), self._names)

    def singly(self) -> Iterator[Rows]:
        """Yield the rows of each batch."""
        for number in range(len(self.at)):
            yield Rows(self.batches.only(slice(number, number + 1)), self._names)

    def parts(self, bytes_max: int) -> Iterator[Rows]:
        """Yield the rows in groups of batches with a limited decompressed size.

        Args:
            bytes_max: The approximate maximum size of a group, in bytes.

        Raises:
            DamagedBatch: A compressed region declares an impossible size.
        """
        if not (self.flags & COMPRESSED).any():
            yield self
            return
        sizes = self._unpacked(HEADERS_ZSTD)[1] + self._unpacked(BODIES_ZSTD)[1]
        group = (np.cumsum(sizes) - sizes) // bytes_max
        for number in np.unique(group):
            yield self.only(group == number)

    @cached_property
    def total(self) -> int:
        """The number of records."""
        return int(self.count.sum())

    @cached_property
    def span(self) -> Ints:
        """The number of offsets that each batch covers: its count, or more if compaction has removed records."""
        if not self._sparse.any():
            return self.count
        span = self.count.copy()
        span[self._sparse] = self.batches.only(self._sparse).last_deltas() + 1
        return span

    @cached_property
    def _first_row(self) -> Ints:
        return np.cumsum(self.count) - self.count

    @cached_property
    def _sparse(self) -> Mask:
        return np.asarray((self.flags & SPARSE) != 0)

    @cached_property
    def _names_at(self) -> Ints:
        names_at: Ints = self.at + self._places.names
        return names_at

    def _gather(self, words: Array, first: Ints) -> Array:
        """Return one value per record: from each batch, ``count`` words starting at ``first``."""
        if len(first) == 1:
            return words[int(first[0]) : int(first[0]) + self.total]
        if self._single:
            return words[first]
        if self.total < LONG_RECORDS * len(first):
            return words[np.repeat(first - self._first_row, self.count) + np.arange(self.total)]
        ends = first + self.count
        return np.concatenate([words[at:end] for at, end in zip(first.tolist(), ends.tolist(), strict=True)])

    # --- columns ----------------------------------------------------------------------------------------------------

    @cached_property
    def offsets(self) -> Ints:
        """The offset of each record.

        Raises:
            DamagedBatch: The offsets of a batch do not increase.
        """
        if self._single and not self._sparse.any():
            return self.base_offset
        if not self._sparse.any() and (self.base_offset[1:] == (self.base_offset + self.count)[:-1]).all():
            return np.arange(self.base_offset[0], self.base_offset[0] + self.total)
        offsets = np.repeat(self.base_offset - self._first_row, self.count) + np.arange(self.total)
        if self._sparse.any():
            sparse = np.repeat(self._sparse, self.count)
            at = self.at + self._places.offset_delta * self._sparse  # for other batches, any column
            deltas = self._gather(self.chunk.view("<u4"), at >> 2).astype(np.int64)
            falls = deltas[1:] <= deltas[:-1]
            falls[self._first_row[1:] - 1] = False  # the step to the next batch
            if (falls & sparse[1:]).any():
                raise DamagedBatch(OFFSETS_WRONG)
            offsets = np.where(sparse, np.repeat(self.base_offset, self.count) + deltas, offsets)
        return offsets

    @cached_property
    def receive_ns(self) -> Ints:
        """The receive time of each record, in nanoseconds since the epoch."""
        return self._gather(self._w64, (self.at + HEADER_BYTES) >> 3)

    @cached_property
    def event_ns(self) -> Ints:
        """The event time of each record, in nanoseconds since the epoch; MISSING without one."""
        return self._optional(EVENT_ABSENT, self._places.event_ns)

    @cached_property
    def transmit_ns(self) -> Ints:
        """The transmit time of each record, in nanoseconds since the epoch; MISSING without one."""
        return self._optional(TRANSMIT_ABSENT, self._places.transmit_ns)

    def _optional(self, absent: int, place: Any) -> Ints:
        """Return the times in the column at ``place``; MISSING where a record has none, or its batch no such column."""
        present = (self.flags & absent) == 0
        if not present.any():
            return np.full(self.total, MISSING, np.int64)
        values = self._gather(self._w64, (self.at + place) >> 3)  # wrong for batches without the column: replaced below
        if not present.all():
            values = np.where(np.repeat(present, self.count), values, MISSING)
        return values

    @cached_property
    def only_destination(self) -> int | None:
        """The index into the NameTable's ``names`` of the only destination; None if there may be several."""
        if self._shared_place is None or (self.batches.name_counts != 1).any() or self._indexes.any():
            return None
        return int(self._names.flat[self._shared_place])

    @cached_property
    def destination_ids(self) -> Ints:
        """The destination of each record, as an index into the NameTable's ``names``.

        Raises:
            DamagedBatch: An index is outside the dictionary of its batch.
        """
        if self.only_destination is not None:
            return np.full(self.total, self.only_destination, np.int64)
        indexes = self._indexes
        if (indexes >= np.repeat(self.batches.name_counts, self.count)).any() or (indexes < 0).any():
            raise DamagedBatch(IDS_WRONG)
        places = np.repeat(self._name_places(), self.count)
        found: Ints = self._names.flat[places + indexes]
        return found

    @cached_property
    def _indexes(self) -> Array:
        """The destination of each record, as an index into the dictionary of its batch."""
        return self._gather(self._w32, (self.at + self._places.destination_id) >> 2)

    def batches_with(self, wants: Callable[[str], bool]) -> Mask:
        """Return a mask of the batches with a selected name in their dictionary.

        Args:
            wants: Returns True for a selected destination.

        Raises:
            DamagedBatch: The dictionary of a batch is invalid.
        """
        places = self._name_places()
        found = self._names.wanted(wants)[self._names.flat]
        sums = np.concatenate([[0], np.cumsum(found)])
        return np.asarray(sums[places + self.batches.name_counts] > sums[places])

    def records_with(self, wants: Callable[[str], bool]) -> Mask:
        """Return a mask of the records with a selected destination.

        Args:
            wants: Returns True for a selected destination.

        Raises:
            DamagedBatch: The dictionary or an index of a batch is invalid.
        """
        ids = self.destination_ids
        return self._names.wanted(wants)[ids]

    def _name_places(self) -> Ints:
        """Return the position of each batch's dictionary in the NameTable; equal dictionaries are decoded once."""
        counts = self.batches.name_counts
        if self._shared_place is not None:
            return np.full(len(counts), self._shared_place, np.int64)
        dictionaries = _pieces(self.chunk, self._names_at, self._names_at + self.batches.names_len).dictionary_encode()
        which = np.asarray(dictionaries.indices)
        first = np.zeros(len(dictionaries.dictionary), np.int64)
        first[which[::-1]] = counts[::-1]
        if (first[which] != counts).any():
            raise DamagedBatch(NAMES_WRONG)
        texts = dictionaries.dictionary.to_pylist()
        places = [self._names.place(text, count) for text, count in zip(texts, first.tolist(), strict=True)]
        found: Ints = np.array(places, np.int64)[which]
        return found

    @cached_property
    def _shared_place(self) -> int | None:
        """The position in the NameTable of the dictionary that all batches have; None if they may differ."""
        counts, lengths, first = self.batches.name_counts, self.batches.names_len, self._names_at >> 3
        if (lengths != lengths[0]).any() or (counts != counts[0]).any() or lengths[0] > SAME_NAMES_BYTES_MAX:
            return None
        words = range((int(lengths[0]) + 7) >> 3)  # includes the padding, which may differ: then None
        if not all(bool((self._w64[first + i] == self._w64[first[0] + i]).all()) for i in words):
            return None
        start = int(self._names_at[0])
        return self._names.place(self.chunk[start : start + int(lengths[0])].tobytes(), int(counts[0]))

    @cached_property
    def sizes(self) -> Ints:
        """The size of each body, in bytes.

        Raises:
            DamagedBatch: The positions of the bodies are invalid.
        """
        starts, stops = self._bounds(self._places.body_off, self._unpacked(BODIES_ZSTD)[1])
        sizes: Ints = stops.astype(np.int64) - starts
        return sizes

    def headers(self) -> tuple[Bytes, Offsets]:
        """Return the joined header blocks, and their positions: one more than there are records.

        Raises:
            DamagedBatch: The positions are invalid, or a region cannot be decompressed.
        """
        return self._region(self._places.header_off, self.at + self.batches.regions[0], HEADERS_ZSTD)

    def bodies(self) -> tuple[Bytes, Offsets]:
        """Return the joined bodies, and their positions: one more than there are records.

        Raises:
            DamagedBatch: The positions are invalid, or a region cannot be decompressed.
        """
        return self._region(self._places.body_off, self.at + self.batches.regions[1], BODIES_ZSTD)

    def _region(self, offsets_place: Any, region_at: Ints, zstd: int) -> tuple[Bytes, Offsets]:
        stored, length = self._unpacked(zstd)
        starts, stops = self._bounds(offsets_place, length)
        packed = (self.flags & zstd) != 0
        if len(self.at) == 1 and not packed[0]:
            at, first = int(region_at[0]), int(self.at[0] + offsets_place) >> 2
            return self.chunk[at : at + int(stored[0])], self._w32[first : first + self.total + 1]
        offsets = np.zeros(self.total + 1, np.int32)
        np.cumsum(stops - starts, out=offsets[1:])
        if packed.any():
            return self._unpack(region_at, stored, length, packed), offsets
        joined = _pieces(self.chunk, region_at, region_at + stored).buffers()[2]
        return np.frombuffer(joined, np.uint8) if joined else self.chunk[:0], offsets

    def _bounds(self, offsets_place: Any, length: Ints) -> tuple[Array, Array]:
        """Return the start and the end of each record in the decompressed region of its batch.

        ``length`` are the sizes of the decompressed regions.
        """
        first = (self.at + offsets_place) >> 2
        starts, stops = self._gather(self._w32, first), self._gather(self._w32, first + 1)
        at, end = (starts, stops) if self._single else (self._w32[first], self._w32[first + self.count])
        if at.any() or (end != length).any() or (starts > stops).any():
            raise DamagedBatch(VALUES_WRONG)
        return starts, stops

    def _unpacked(self, zstd: int) -> tuple[Ints, Ints]:
        """Return the size of a region of each batch: as stored, and decompressed."""
        stored = self.batches.headers_len if zstd == HEADERS_ZSTD else self.batches.bodies_len
        packed = (self.flags & zstd) != 0
        if not packed.any():
            return stored, stored
        offsets_at = self.at + (self._places.header_off if zstd == HEADERS_ZSTD else self._places.body_off)
        length = np.where(packed, self._w32[(offsets_at >> 2) + self.count].astype(np.int64), stored)
        if ((length < 1) | (length > BATCH_BYTES_MAX))[packed].any():
            raise DamagedBatch(f"a compressed region says that it is {length[packed].max()} bytes long")
        return stored, length

    def _unpack(self, region_at: Ints, stored: Ints, length: Ints, packed: Mask) -> Bytes:
        """Return the joined regions, decompressed."""
        joined = np.empty(int(length.sum()), np.uint8)
        end = 0
        for at, size, full, zstd in zip(region_at.tolist(), stored.tolist(), length.tolist(), packed, strict=True):
            region = self.chunk[at : at + size]
            if zstd:
                region = np.frombuffer(decompress(region.tobytes(), full), np.uint8)
            joined[end : end + full] = region
            end += full
        return joined
