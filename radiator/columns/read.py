"""Ranges of segments to RecordBatches: scan and decode, joined; what is lost may come from elsewhere.

Knows: scan, decode. Must not know: who planned the ranges, Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from radiator.columns.decode import Contradiction, Counters, Decoder
from radiator.columns.files import open_store
from radiator.columns.options import ReadOptions
from radiator.columns.partial import Reach, reach_of
from radiator.columns.scan import Loss, LostRecords, SegmentRange, scan
from radiator.columns.warn import warn

Lose = Callable[[Loss], None]
Instead = Callable[[Loss, Lose], Iterator[pa.RecordBatch]]  # what else has of a loss; the rest is told to the second


def read(
    ranges: Iterable[SegmentRange],
    options: ReadOptions,
    schema: pa.Schema,
    counters: Counters,
    instead: Instead | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of one task. ``counters`` is filled as it goes."""
    losses: list[Loss] = []

    def note(loss: Loss) -> None:
        low, high = options.selection.offsets_of(loss.partition)
        if loss.following > low and loss.first < high:  # else nobody asked for them
            losses.append(loss) if instead is not None else lose(loss)

    def lose(loss: Loss) -> None:
        if loss.removed and loss.partition not in options.selection.starts:
            return  # nobody has named these offsets: a read that is planned now would begin behind them
        if options.fail_on_data_loss:
            raise LostRecords(
                f'{loss}. To read everything else: option("failOnDataLoss", "false"); '
                "to see what is left of it: radiator dump"
            )
        warn(f"skipped: {loss}", options.warn_once)

    def found() -> Iterator[pa.RecordBatch]:
        while losses:
            assert instead is not None
            yield from instead(losses.pop(0), lose)

    def contradicted(of: SegmentRange) -> Callable[[Contradiction], None]:
        return lambda found: note(Loss(of.partition, of.path, *found))

    fs = open_store(options.path, options.storage).fs
    # Where damage is skipped, every query has to skip the same: then each batch is judged by all of it.
    reach = reach_of(schema.names) if options.fail_on_data_loss else Reach.WHOLE
    decoder: Decoder | None = None
    partition = None
    for wanted in ranges:
        if decoder is None or wanted.partition != partition:
            partition = wanted.partition
            decoder = Decoder(partition, schema, options.selection, options.rows_per_batch, counters)
        for chunk in scan(wanted, note, counters, fs, reach):
            yield from found()
            for batch in decoder.decode(*chunk, contradicted(wanted)):
                yield from found()
                yield batch
        yield from found()
