"""Ranges of segments to RecordBatches: scan and decode, joined.

Knows: scan, decode. Must not know: who planned the ranges, Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa

from radiator.columns.decode import Counters, Decoder
from radiator.columns.files import open_store
from radiator.columns.options import ReadOptions
from radiator.columns.scan import Loss, LostRecords, SegmentRange, scan


def read(
    ranges: Iterable[SegmentRange], options: ReadOptions, schema: pa.Schema, counters: Counters
) -> Iterator[pa.RecordBatch]:
    """The rows of one task. ``counters`` is filled as it goes."""

    def lose(loss: Loss) -> None:
        low, high = options.selection.offsets_of(loss.partition)
        if loss.following <= low or loss.first >= high:
            return  # nobody asked for them
        if options.fail_on_data_loss:
            raise LostRecords(
                f'{loss}. To read everything else: option("fail_on_data_loss", "false"); '
                "to see what is left of it: radiator dump"
            )
        print(f"radiator: skipped: {loss}", file=sys.stderr)

    fs = open_store(options.path, options.storage).fs
    decoder: Decoder | None = None
    partition = None
    for wanted in ranges:
        if decoder is None or wanted.partition != partition:
            partition = wanted.partition
            decoder = Decoder(partition, schema, options.selection, options.rows_per_batch, counters)
        for chunk in scan(wanted, lose, counters, fs):
            yield from decoder.decode(*chunk)
