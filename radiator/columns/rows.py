"""The records of many batches as columns, without a loop over records.

A ``Rows`` is a chunk of a segment (aligned bytes in memory) and the places in it where batches begin, their crc
already checked. Every column is one numpy expression over all batches at once: the batches' own columns are ready
made in the chunk, so a single large batch is a view, and thousands of one-record batches are one gather per column.
The regions of headers and bodies are joined by Arrow's ``take``. A column is made when the caller asks for it.

Compressed regions are unpacked only if their column is asked for, batch by batch; ``parts`` limits what that takes,
since a chunk of 8 MiB may contain a gigabyte.

Knows: numpy, the places of parts (``Batches``). Must not know: files, Spark, what a header means.
Invariant: nothing outside the chunk is touched; a batch whose parts contradict one another (which a correct crc does
not exclude) raises DamagedBatch. The rules and their words are those of ``storage.format.StoredBatch``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from radiator.columns.batches import Batches, Bytes, Ints, Mask, Offsets
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

LONG_RECORDS = 64  # in a batch, on average: a copy of its own for each is faster than one gather of all
SAME_NAMES_BYTES_MAX = 256  # longer dictionaries are compared by their hashes


def _pieces(chunk: Bytes, starts: Ints, stops: Ints) -> pa.BinaryArray:
    """``chunk[start:stop]`` of each pair, one behind the other. They must rise and not overlap: then they and what
    lies between them are one Arrow array over the chunk as it lies, and every second value is taken from it."""
    offsets = np.empty(2 * len(starts) + 1, np.int32)
    offsets[0:-1:2], offsets[1::2], offsets[-1] = starts, stops, stops[-1]
    data = pa.py_buffer(chunk)
    both = pa.Array.from_buffers(pa.binary(), 2 * len(starts), [None, pa.py_buffer(offsets), data])
    return both.take(pa.array(np.arange(0, 2 * len(starts), 2, dtype=np.int32)))


class Rows:
    def __init__(self, batches: Batches, names: NameTable) -> None:
        self.chunk, self.batches, self._names = batches.chunk, batches, names
        self.at, self.base_offset = batches.at, batches.base_offset
        self.count, self.flags = batches.count, batches.flags
        self._w32 = self.chunk.view("<i4")
        self._w64: Ints = self.chunk.view("<i8")
        self._single = bool((self.count == 1).all())
        self._places = batches.columns

    def only(self, chosen: Mask) -> Rows:
        return Rows(self.batches.only(chosen), self._names)

    def singly(self) -> Iterator[Rows]:
        """Each batch by itself."""
        for number in range(len(self.at)):
            yield Rows(self.batches.only(slice(number, number + 1)), self._names)

    def parts(self, bytes_max: int) -> Iterator[Rows]:
        """These rows in one piece, or in several, so that each has about ``bytes_max`` when it is unpacked."""
        if not (self.flags & COMPRESSED).any():
            yield self
            return
        sizes = self._unpacked(HEADERS_ZSTD)[1] + self._unpacked(BODIES_ZSTD)[1]
        group = (np.cumsum(sizes) - sizes) // bytes_max
        for number in np.unique(group):
            yield self.only(group == number)

    @cached_property
    def total(self) -> int:
        return int(self.count.sum())

    @cached_property
    def span(self) -> Ints:
        """How many offsets each batch covers: its count, or more where compaction has removed records."""
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

    def _gather(self, words: NDArray[Any], first: Ints) -> NDArray[Any]:
        """One value per record: of each batch ``count`` words from its ``first`` on."""
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
        if self._single and not self._sparse.any():
            return self.base_offset
        offsets = np.repeat(self.base_offset - self._first_row, self.count) + np.arange(self.total)
        if self._sparse.any():
            sparse = np.repeat(self._sparse, self.count)
            at = self.at + self._places.offset_delta * self._sparse  # of the others any column that exists
            deltas = self._gather(self.chunk.view("<u4"), at >> 2).astype(np.int64)
            falls = deltas[1:] <= deltas[:-1]
            falls[self._first_row[1:] - 1] = False  # from one batch to the next
            if (falls & sparse[1:]).any():
                raise DamagedBatch(OFFSETS_WRONG)
            offsets = np.where(sparse, np.repeat(self.base_offset, self.count) + deltas, offsets)
        return offsets

    @cached_property
    def receive_ns(self) -> Ints:
        return self._gather(self._w64, (self.at + HEADER_BYTES) >> 3)

    @cached_property
    def event_ns(self) -> Ints:
        return self._optional(EVENT_ABSENT, self._places.event_ns)

    @cached_property
    def transmit_ns(self) -> Ints:
        return self._optional(TRANSMIT_ABSENT, self._places.transmit_ns)

    def _optional(self, absent: int, place: Any) -> Ints:
        """Return the times in the column at ``place``; MISSING where a record has none, or its batch no such column."""
        present = (self.flags & absent) == 0
        if not present.any():
            return np.full(self.total, MISSING, np.int64)
        values = self._gather(self._w64, (self.at + place) >> 3)  # where absent, other words: replaced below
        if not present.all():
            values = np.where(np.repeat(present, self.count), values, MISSING)
        return values

    @cached_property
    def only_destination(self) -> int | None:
        """The index into the NameTable's ``names`` that all records have; None: perhaps they have several."""
        if self._shared_place is None or (self.batches.name_counts != 1).any() or self._indexes.any():
            return None
        return int(self._names.flat[self._shared_place])

    @cached_property
    def destination_ids(self) -> Ints:
        """Indices into the NameTable's ``names``, one per record."""
        if self.only_destination is not None:
            return np.full(self.total, self.only_destination, np.int64)
        indexes = self._indexes
        if (indexes >= np.repeat(self.batches.name_counts, self.count)).any() or (indexes < 0).any():
            raise DamagedBatch(IDS_WRONG)
        places = np.repeat(self._name_places(), self.count)
        found: Ints = self._names.flat[places + indexes]
        return found

    @cached_property
    def _indexes(self) -> NDArray[Any]:
        """Of each record, into its batch's dictionary."""
        return self._gather(self._w32, (self.at + self._places.destination_id) >> 2)

    def batches_with(self, wants: Callable[[str], bool]) -> Mask:
        """The batches whose dictionary has a name that is wanted."""
        places = self._name_places()
        found = self._names.wanted(wants)[self._names.flat]
        sums = np.concatenate([[0], np.cumsum(found)])
        return np.asarray(sums[places + self.batches.name_counts] > sums[places])

    def records_with(self, wants: Callable[[str], bool]) -> Mask:
        ids = self.destination_ids
        return self._names.wanted(wants)[ids]

    def _name_places(self) -> Ints:
        """Where each batch's ids begin in the NameTable; equal dictionaries are looked at once."""
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
        """The one of all batches, if they have one dictionary, as in a log of one destination; None: perhaps not."""
        counts, lengths, first = self.batches.name_counts, self.batches.names_len, self._names_at >> 3
        if (lengths != lengths[0]).any() or (counts != counts[0]).any() or lengths[0] > SAME_NAMES_BYTES_MAX:
            return None
        words = range((int(lengths[0]) + 7) >> 3)  # the padding is compared as well: if it differs, nothing is lost
        if not all(bool((self._w64[first + i] == self._w64[first[0] + i]).all()) for i in words):
            return None
        start = int(self._names_at[0])
        return self._names.place(self.chunk[start : start + int(lengths[0])].tobytes(), int(counts[0]))

    @cached_property
    def sizes(self) -> Ints:
        starts, stops = self._bounds(self._places.body_off, self._unpacked(BODIES_ZSTD)[1])
        sizes: Ints = stops.astype(np.int64) - starts
        return sizes

    def headers(self) -> tuple[Bytes, Offsets]:
        """The header blocks, joined, and where each begins (one more than there are records)."""
        return self._region(self._places.header_off, self.at + self.batches.regions[0], HEADERS_ZSTD)

    def bodies(self) -> tuple[Bytes, Offsets]:
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

    def _bounds(self, offsets_place: Any, length: Ints) -> tuple[NDArray[Any], NDArray[Any]]:
        """Where each record's part of its batch's region begins and ends; unpacked, the regions have this length."""
        first = (self.at + offsets_place) >> 2
        starts, stops = self._gather(self._w32, first), self._gather(self._w32, first + 1)
        at, end = (starts, stops) if self._single else (self._w32[first], self._w32[first + self.count])
        if at.any() or (end != length).any() or (starts > stops).any():
            raise DamagedBatch(VALUES_WRONG)
        return starts, stops

    def _unpacked(self, zstd: int) -> tuple[Ints, Ints]:
        """How long a region of each batch is: as stored, and unpacked."""
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
        """The regions, joined."""
        joined = np.empty(int(length.sum()), np.uint8)
        end = 0
        for at, size, full, zstd in zip(region_at.tolist(), stored.tolist(), length.tolist(), packed, strict=True):
            region = self.chunk[at : at + size]
            if zstd:
                region = np.frombuffer(decompress(region.tobytes(), full), np.uint8)
            joined[end : end + full] = region
            end += full
        return joined
