"""Convert ranges of segments to RecordBatches: scan and decode, combined.

Must not import planning or Spark.
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
Instead = Callable[[Loss, Lose], Iterator[pa.RecordBatch]]  # yields records from another source, reports the rest


def read(
    ranges: Iterable[SegmentRange],
    options: ReadOptions,
    schema: pa.Schema,
    counters: Counters,
    instead: Instead | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task.

    Args:
        ranges: The ranges of segments, as ``planning.plan`` returns them.
        options: The options of the read.
        schema: The columns to return, as ``schema.arrow_schema`` returns them.
        counters: Counts the bytes, batches and rows during the read.
        instead: Yields the records of a loss from another source, and reports the rest to its second argument. None
            reports every loss.

    Raises:
        LostRecords: Records cannot be read, and ``options.fail_on_data_loss`` is set.
        StorageError: A segment cannot be read.
        UnknownVersion: A batch was written by a newer radiator.
    """
    losses: list[Loss] = []

    def note(loss: Loss) -> None:
        low, high = options.selection.offsets_of(loss.partition)
        if loss.following > low and loss.first < high:  # else the selection excludes them
            losses.append(loss) if instead is not None else lose(loss)

    def lose(loss: Loss) -> None:
        if loss.removed and loss.partition not in options.selection.starts:
            return  # the user named no start offset, and a read that is planned now would begin after these
        if options.fail_on_data_loss:
            raise LostRecords(
                f'{loss}. To read all other records: option("failOnDataLoss", "false"); '
                "to inspect the file: radiator dump"
            )
        warn(f"skipped: {loss}", options.warn_once)

    def found() -> Iterator[pa.RecordBatch]:
        while losses:
            assert instead is not None
            yield from instead(losses.pop(0), lose)

    def contradicted(of: SegmentRange) -> Callable[[Contradiction], None]:
        return lambda found: note(Loss(of.partition, of.path, *found))

    fs = open_store(options.path, options.storage).fs
    # With failOnDataLoss off, all queries must skip the same batches, so each batch is read and checked whole.
    # A query without columns is one that wants all bytes checked.
    used = (*schema.names, *options.selection.tested_columns)
    reach = reach_of(used) if schema.names and options.fail_on_data_loss else Reach.WHOLE
    decoder: Decoder | None = None
    partition = None
    for wanted in ranges:
        if decoder is None or wanted.partition != partition:
            partition = wanted.partition
            decoder = Decoder(partition, schema, options.selection, options.rows_per_batch, counters, options.only_keys)
        for chunk in scan(wanted, note, counters, fs, reach):
            yield from found()
            for batch in decoder.decode(*chunk, contradicted(wanted)):
                yield from found()
                yield batch
        yield from found()
