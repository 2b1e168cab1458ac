"""Merge files shared by several destinations, sorted by destination and offset, into one sorted the same way.

Each file is first written to the spool again, in small *pieces*, one file after the other; then all of them are merged
at once, with one piece of each in memory. So memory is bounded, whatever the number of files, the size of their rows
and their compression; the price is room in the spool, about that of the files.

This module knows Parquet and Arrow's streams. It does not know commits, or what is done with the rows. One thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from radiator.archive.parquet import SCHEMA, reader
from radiator.limits import KIB, MIB

BATCH_BYTES = 16 * MIB  # that are decoded at a time, about
BATCH_ROWS = 16_384
PIECES_BYTES = 64 * MIB  # of all files that are merged together
PIECE_BYTES_MIN = 64 * KIB
ROW_BYTES = 200  # memory of a row besides its body, at least
COMPRESSED_STREAM = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1))


def batches(file: Any) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an open Parquet file, a row group after the other, of bounded size."""
    source = reader(file)
    for number in range(source.num_row_groups):
        group = source.metadata.row_group(number)
        row_bytes = group.total_byte_size // max(group.num_rows, 1) + ROW_BYTES
        rows = max(1, min(BATCH_ROWS, BATCH_BYTES // row_bytes))
        for batch in source.iter_batches(rows, row_groups=[number]):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=SCHEMA)


def by_destination(
    sources: Sequence[Callable[[], Any]], spool: str, token: str
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield all rows of Parquet files by destination; those of one destination in the order of the files.

    Files are opened one at a time. Names in the spool begin with ``token``, and are removed at the end.
    """
    piece_bytes = max(PIECE_BYTES_MIN, PIECES_BYTES // max(len(sources), 1))
    paths = [f"{spool}/{token}-{place}.rows" for place in range(len(sources))]
    for source, path in zip(sources, paths, strict=True):
        with source() as file:
            _write_pieces(batches(file), path, piece_bytes)
    runs = [_runs(path, place) for place, path in enumerate(paths)]
    for name, _, batch in merge(*runs, key=lambda each: each[:2]):
        yield name, batch


def _write_pieces(found: Iterable[pa.RecordBatch], path: str, piece_bytes: int) -> None:
    with pa.ipc.new_stream(path, SCHEMA, options=COMPRESSED_STREAM) as sink:
        for batch in found:
            for piece in _pieces(batch, piece_bytes):
                sink.write_batch(piece)


def _pieces(batch: pa.RecordBatch, piece_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield parts of a batch with at most about so many bytes and a row."""
    sizes = batch.column("size").to_numpy()
    besides = max(0, batch.nbytes - int(sizes.sum())) / max(len(sizes), 1)
    before = np.cumsum(sizes + besides) - (sizes + besides)
    for start, stop in _cuts((before // piece_bytes).astype(np.int64)):
        yield batch.slice(start, stop - start)


def _runs(path: str, place: int) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    with pa.OSFile(path) as file, pa.ipc.open_stream(file) as source:
        for batch in source:
            coded = batch.column("destination").dictionary_encode()
            names, ids = coded.dictionary.to_pylist(), coded.indices.to_numpy()
            for start, stop in _cuts(ids):
                yield names[ids[start]], place, batch.slice(start, stop - start)
    os.unlink(path)


def _cuts(values: Any) -> Iterator[tuple[int, int]]:
    """Yield the ranges of equal adjacent values."""
    if len(values):
        yield from pairwise([0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)])
