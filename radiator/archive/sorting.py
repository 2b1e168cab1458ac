"""Sort rows by day, destination and offset: those in memory, and those of several sorted sources, which are merged.

While rows are sorted, the column ``destination`` has numbers instead of names. ``Names`` has the name of each number,
which is a pair: the partition and the destination, and the rank of each in the order of names. A merge has one batch of
each source in memory. In each step it takes from all of them the rows up to the lowest of their last ones, and sorts
these together. So Arrow copies each row once, and Python works for each batch, not for each row or destination.

The rows of Parquet files that are merged are first written to the spool again, in small *pieces*, one file after the
other, since Parquet decodes a row group at a time. So memory is bounded, whatever the number of files, the size of
their rows and their compression; the price is room in the spool, about that of the files. Rows of small files are
sorted in memory, and written to the spool together: ten thousand files make one run, or a few.

This module knows Arrow and Parquet, and the columns ``destination``, ``offset``, ``receive_ns`` and ``body``. It does
not know commits, or what is done with the rows. One thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from radiator.archive.parquet import SCHEMA, reader
from radiator.columns.typed import conform
from radiator.limits import KIB, MIB

BATCH_BYTES = 16 * MIB  # that are decoded at a time, about
BATCH_ROWS = 16_384
PIECES_BYTES = 32 * MIB  # of all sources that are merged together
PIECE_BYTES_MIN = 64 * KIB
RUNS_EXPECTED = 128  # that are merged together, at most; more of them take more memory
SMALL_FILE_BYTES = 4 * MIB  # of rows: those of smaller files are sorted in memory
RUN_BYTES = 32 * MIB  # of such rows that are sorted at a time
ROW_BYTES = 200  # memory of a row besides its body, at least
DAY_NS = 86_400 * 10**9

Pair = tuple[str, str]  # a partition and a destination
Key = tuple[int, int]  # the place of a day and destination, and an offset
Ranks = NDArray[np.int32]
Places = NDArray[np.int64]


def numbered(schema: pa.Schema) -> pa.Schema:
    """Return a schema with numbers of destinations instead of their names."""
    return schema.set(schema.get_field_index("destination"), pa.field("destination", pa.int32(), nullable=False))


class Names:
    """The partition and the destination of each number: ``pairs``, which may grow."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []
        self._ranks: Ranks = np.empty(0, np.int32)
        self._columns = pa.array([], pa.string()), pa.array([], pa.string())

    @property
    def ranks(self) -> Ranks:
        """The place of each number in the order of names, which is that of their code points and of their UTF-8."""
        if len(self._ranks) < len(self.pairs):
            self._ranks = np.empty(len(self.pairs), np.int32)
            self._ranks[sorted(range(len(self.pairs)), key=self.pairs.__getitem__)] = np.arange(len(self.pairs))
        return self._ranks

    def columns(self, numbers: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the partitions and the destinations of numbers."""
        partitions, destinations = self._columns
        if len(partitions) < len(self.pairs):
            partitions = pa.array([partition for partition, _ in self.pairs], pa.string())
            destinations = pa.array([destination for _, destination in self.pairs], pa.string())
            self._columns = partitions, destinations
        return partitions.take(numbers), destinations.take(numbers)


def _places(batch: pa.RecordBatch, names: Names) -> Places:
    """Return the place of each row in the order of days and names."""
    days = batch.column("receive_ns").to_numpy() // DAY_NS
    found: Places = days * len(names.pairs) + names.ranks[batch.column("destination").to_numpy()]
    return found


def sorted_rows(batches: Sequence[pa.RecordBatch], names: Names) -> pa.RecordBatch:
    """Return all rows as one batch, sorted by day, destination and offset.

    Args:
        batches: The rows, at least one.
        names: The partitions and destinations that the rows have by number.
    """
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    places, offsets = _places(batch, names), batch.column("offset").to_numpy()
    places -= places.min()
    if places.max() < 1 << 16:
        places = places.astype(np.uint16)  # which numpy sorts by radix
    order = np.argsort(places, kind="stable")
    if ((np.diff(places[order]) == 0) & (np.diff(offsets[order]) < 0)).any():  # they came in another order of offsets
        order = np.lexsort((offsets, places))
    return batch.take(pa.array(order))


class _Head:
    """The current batch of a sorted source, of which ``start`` rows are taken."""

    def __init__(self, source: Iterator[pa.RecordBatch], names: Names) -> None:
        self._source, self._names = source, names

    def advance(self) -> bool:
        """Go to the next batch that has rows. Return whether there is one."""
        for batch in self._source:
            if batch.num_rows:
                self._batch, self._start = batch, 0
                self._places = _places(batch, self._names)
                self._offsets = batch.column("offset").to_numpy()
                self.last: Key = int(self._places[-1]), int(self._offsets[-1])
                return True
        return False

    @property
    def taken(self) -> bool:
        return bool(self._start == self._batch.num_rows)

    def take(self, bound: Key) -> pa.RecordBatch:
        """Return the rows up to ``bound``, and with it, that were not taken before."""
        place, offset = bound
        first, last = np.searchsorted(self._places, [place, place + 1]).tolist()
        stop = first + int(np.searchsorted(self._offsets[first:last], offset, "right"))
        start, self._start = self._start, max(self._start, stop)
        return self._batch.slice(start, self._start - start)


def merged(sources: Iterable[Iterator[pa.RecordBatch]], names: Names) -> Iterator[pa.RecordBatch]:
    """Yield the rows of sorted sources, sorted by day, destination and offset.

    Args:
        sources: Each yields batches in that order.
        names: The names of all their numbers.
    """
    heads = [head for source in sources if (head := _Head(source, names)).advance()]
    while heads:
        bound = min(head.last for head in heads)
        yield sorted_rows([part for head in heads if (part := head.take(bound)).num_rows], names)
        heads = [head for head in heads if not head.taken or head.advance()]


class Sorter:
    """Sorts rows: those in memory, and those that are in the spool already, as sorted runs.

    Args:
        names: The names of all numbers.
        schema: The columns of the rows.
        spooled: Returns a new path in the spool.
        piece_bytes: The size of the part of each run that is in memory while they are merged, about.
        compression: Of runs.
    """

    def __init__(
        self, names: Names, schema: pa.Schema, spooled: Callable[[], str], piece_bytes: int,
        compression: str | None = None,
    ) -> None:  # fmt: skip
        self._names, self._schema, self._spooled, self._piece_bytes = names, schema, spooled, piece_bytes
        self._options = pa.ipc.IpcWriteOptions(compression=compression)
        self.waiting: list[pa.RecordBatch] = []
        self.bytes = 0
        self.runs: list[str] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, which wait in memory: ``bytes`` in all."""
        self.waiting.append(batch)
        self.bytes += batch.nbytes

    def spill(self) -> None:
        """Write the rows in memory to the spool."""
        if self.waiting:
            self.write([sorted_rows(self.taken(), self._names)])

    def taken(self) -> list[pa.RecordBatch]:
        """Return the rows in memory, and forget them."""
        waiting, self.waiting, self.bytes = self.waiting, [], 0
        return waiting

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write rows that are sorted to the spool."""
        self.runs.append(self._spooled())
        with pa.ipc.new_stream(self.runs[-1], self._schema, options=self._options) as sink:
            for batch in batches:
                for piece in _pieces(batch, self._piece_bytes):
                    sink.write_batch(piece)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows, sorted. Runs are removed."""
        last = [sorted_rows(self.taken(), self._names)] if self.waiting else []
        if not self.runs:
            return iter(last)
        return merged([*map(_read_run, self.runs), iter(last)], self._names)


def _read_run(path: str) -> Iterator[pa.RecordBatch]:
    """Yield the pieces, and remove the file."""
    with pa.OSFile(path) as file, pa.ipc.open_stream(file) as source:
        yield from source
    os.unlink(path)


def batches(file: Any, schema: pa.Schema = SCHEMA) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an open Parquet file, a row group after the other, of bounded size.

    Columns and fields of structs that the file does not have are null.
    """
    source = reader(file)
    for number in range(source.num_row_groups):
        group = source.metadata.row_group(number)
        row_bytes = group.total_byte_size // max(group.num_rows, 1) + ROW_BYTES
        rows = max(1, min(BATCH_ROWS, BATCH_BYTES // row_bytes))
        for batch in source.iter_batches(rows, row_groups=[number]):
            own = set(batch.schema.names)
            columns = [
                conform(batch.column(each.name), each.type) if each.name in own else pa.nulls(len(batch), each.type)
                for each in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def merged_files(
    sources: Sequence[Callable[[], Any]], spool: str, token: str, schema: pa.Schema = SCHEMA
) -> tuple[set[str], Iterator[pa.RecordBatch]]:
    """Return the destinations of sorted Parquet files, and their rows, sorted by partition, destination and offset.

    Files are opened one at a time. Names in the spool begin with ``token``, and are removed at the end.
    """
    names = Names()
    numbers: dict[Pair, int] = {}
    coded = numbered(schema)
    piece_bytes = max(PIECE_BYTES_MIN, PIECES_BYTES // min(max(len(sources), 1), RUNS_EXPECTED))
    sorter = Sorter(names, coded, lambda: f"{spool}/{token}-{len(sorter.runs)}.rows", piece_bytes, "lz4")
    for source in sources:
        with source() as file:
            rows = (_numbered(batch, names.pairs, numbers, coded) for batch in batches(file, schema))
            begin: list[pa.RecordBatch] = []
            begin_bytes = 0
            for batch in rows:
                begin.append(batch)
                begin_bytes += batch.nbytes
                if begin_bytes > SMALL_FILE_BYTES:
                    sorter.write(chain(begin, rows))
                    begin, begin_bytes = [], 0
            for batch in begin:
                sorter.add(batch)
        if sorter.bytes > RUN_BYTES:
            sorter.spill()
    return {name for _, name in names.pairs}, (
        _replaced(batch, names.columns(batch.column(0))[1], schema) for batch in sorter.rows()
    )


def _numbered(batch: pa.RecordBatch, names: list[Pair], numbers: dict[Pair, int], schema: pa.Schema) -> pa.RecordBatch:
    """Replace destinations by the numbers of their pairs. New pairs are added to ``names`` and ``numbers``."""
    parts, coded = (batch.column(name).dictionary_encode() for name in ("partition", "destination"))
    known = coded.dictionary.to_pylist()
    codes = parts.indices.to_numpy().astype(np.int64) * len(known) + coded.indices.to_numpy()
    different, places = np.unique(codes, return_inverse=True)
    found = []
    for code in different.tolist():
        pair = parts.dictionary[code // len(known)].as_py(), known[code % len(known)]
        found.append(numbers.setdefault(pair, len(names)))
        if found[-1] == len(names):
            names.append(pair)
    return _replaced(batch, pa.array(np.array(found, np.int32)[places]), schema)


def _replaced(batch: pa.RecordBatch, destinations: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([destinations, *batch.columns[1:]], schema=schema)


def _pieces(batch: pa.RecordBatch, piece_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield parts of a batch with at most about so many bytes and a row."""
    sizes = pc.binary_length(batch.column("body")).to_numpy().astype(np.int64)
    besides = max(0, batch.nbytes - int(sizes.sum())) / max(len(sizes), 1)
    before = np.cumsum(sizes + besides) - (sizes + besides)
    cuts = (np.flatnonzero(np.diff(before // piece_bytes)) + 1).tolist()
    for start, stop in pairwise([0, *cuts, len(sizes)]):
        yield batch.slice(start, stop - start)
