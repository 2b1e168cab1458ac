"""Sort rows by time, partition and offset: files with several destinations are sorted by partition and destination.

Rows are sorted a piece at a time. One small piece stays in memory; otherwise each is written to one unnamed file in
TMPDIR, and all are merged, with a slice of each in memory at a time. So memory is bounded, however many rows there are
and however well they were compressed; the price is room on that disk, less than the unpacked rows take.

This module knows Arrow's streams and rows. It does not know their source. Not for several threads.
"""

from __future__ import annotations

import heapq
import mmap
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Any

import pyarrow as pa

from radiator.errors import StorageError
from radiator.export.rows import Row
from radiator.limits import KIB, MIB

PIECE_BYTES = 16 * MIB
HELD_BYTES = MIB  # of a file in memory: hundreds may be read at the same time
SLICE_ROWS, SLICE_BYTES = 128, 128 * KIB  # or one row; some hundred pieces are gigabytes of rows
COLUMNS = list(Row._fields)
ORDER = ("receive_ns", "partition", "offset")
_PACKED = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1))


def in_rows(batch: pa.RecordBatch) -> Iterator[Row]:
    """Yield the rows of a batch with the columns COLUMNS."""
    columns: dict[str, list[Any]] = {name: batch.column(name).to_pylist() for name in COLUMNS}
    for name in ("tags", "headers"):
        columns[name] = [dict(pairs) for pairs in columns[name]]
    yield from map(Row._make, zip(*columns.values(), strict=True))


class Shelf:
    """Reads ``batches`` when it is made, and yields their ``rows`` once. Raises StorageError if there is no room.

    Up to HELD_BYTES stay in memory.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._file: IO[bytes] | None = None
        self._ends = [0]  # of the pieces in the file
        self._held: pa.Table | None = None
        found: list[pa.RecordBatch] = []
        size_bytes = 0
        for batch in batches:
            found.append(batch)
            size_bytes += batch.nbytes
            if size_bytes >= PIECE_BYTES:
                self._put(_sorted(found))
                found, size_bytes = [], 0
        if found and (self._file is not None or size_bytes > HELD_BYTES):
            self._put(_sorted(found))
        elif found:
            self._held = _sorted(found)

    def rows(self) -> Iterator[Row]:
        """Yield the rows by receive time, which is the order of offsets in a partition."""
        if self._held is not None:
            for batch in self._held.to_batches(SLICE_ROWS):
                yield from in_rows(batch)
        elif self._file is not None:
            with self._file as file:
                pieces = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            streams = [_rows_of(pieces[start:end]) for start, end in zip(self._ends, self._ends[1:], strict=False)]
            yield from heapq.merge(*streams, key=_order)

    def _put(self, piece: pa.Table) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="radiator-replay-")  # noqa: SIM115  # rows closes it
            with pa.ipc.new_stream(self._file, piece.schema, options=_PACKED) as sink:
                sink.write_table(piece, max(1, min(SLICE_ROWS, piece.num_rows * SLICE_BYTES // piece.nbytes)))
            self._file.flush()
            self._ends.append(self._file.tell())
        except OSError as error:
            raise StorageError(
                f"{tempfile.gettempdir()}: cannot be written: {error}; records of a file that destinations share are "
                "sorted there, and TMPDIR names another place"
            ) from None


def _sorted(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches).sort_by([(name, "ascending") for name in ORDER])


def _order(row: Row) -> tuple[int, str, int]:
    return row.receive_ns, row.partition, row.offset


def _rows_of(piece: pa.Buffer) -> Iterator[Row]:
    with pa.ipc.open_stream(piece) as source:
        for batch in source:
            yield from in_rows(batch)
