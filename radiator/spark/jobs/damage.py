"""Which offsets are not there, and why: a look at the files themselves, spread over the tasks.

A DataFrame of records cannot say it: with ``fail_on_data_loss=false`` a damaged range is just absent, as is what
retention has taken or compaction has left out. The scan knows: each batch tells which offsets it covers, so what a good
batch covers and does not hold was removed on purpose, and what no good batch covers is lost.

Knows: the plan and the scan of ``radiator.columns``. Must not know: headers, bodies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from radiator.columns.batches import Ints
from radiator.columns.decode import Counters, Decoder
from radiator.columns.files import open_store
from radiator.columns.log import partitions
from radiator.columns.planning import plan
from radiator.columns.scan import Loss, SegmentRange, scan
from radiator.columns.schema import arrow_schema
from radiator.columns.selection import Selection
from radiator.spark import options as read_options
from radiator.spark.worker import settle
from radiator.storage.files import FileSystem

REMOVED, LEFT_OUT, LOST = "removed", "left out", "lost"
WHY = {
    REMOVED: "retention has removed the segments, or everything in them was settled",
    LEFT_OUT: "removed on purpose inside a segment: settled by its queue, or replaced by a later message of its key",
}
ROW = (
    "partition STRING, why STRING, first_missing BIGINT, last_missing BIGINT, records BIGINT, path STRING, "
    "position BIGINT, reason STRING"
)
_ARROW = pa.schema(
    [
        ("partition", pa.string()),
        ("why", pa.string()),
        ("first_missing", pa.int64()),
        ("last_missing", pa.int64()),
        ("records", pa.int64()),
        ("path", pa.string()),
        ("position", pa.int64()),
        ("reason", pa.string()),
    ]
)
_PLAIN = ("offset", "destination", "size")  # what is never compressed; a batch may contradict itself there
_ROWS_PER_BATCH = 1 << 16
_Row = tuple[str, str, int, int, int, str | None, int | None, str]


def absent(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    """What is not in the store at ``path``: partition, why, first_missing, last_missing, records (of them), path,
    position, reason.

    ``lost``: cannot be read, with the file and the byte where that begins; one row per range. ``left out``: removed on
    purpose, inside a segment; one row per stretch that a task reads, with the number of records. ``removed``: all that
    lies below the first offset that is kept. What is neither here nor a record was never given out. ``options`` as in
    ``radiator.spark.read``: partition, ending_offsets and so on.
    """
    wanted = read_options.parse({"path": path, **{name: str(value) for name, value in options.items()}})
    selection = wanted.selection
    place, tasks = open_store(wanted.path, wanted.storage), plan(wanted)
    gone: list[_Row] = [
        (log.name, REMOVED, 0, log.log_start_offset - 1, log.log_start_offset, None, None, WHY[REMOVED])
        for log in partitions(place)
        if log.log_start_offset and selection.wants_partition(log.name)
    ]
    removed = spark.createDataFrame(gone, ROW)
    if not tasks:
        return removed

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        fs = open_store(wanted.path, wanted.storage).fs
        for batch in batches:
            for number in batch.column(0).to_pylist():
                rows = [row for each in tasks[number] for row in _absent(each, selection, fs)]
                yield pa.RecordBatch.from_pylist([dict(zip(_ARROW.names, row, strict=True)) for row in rows], _ARROW)

    found = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(look, ROW)
    return removed.unionByName(found).orderBy("partition", "first_missing", F.desc("why"))


def _absent(wanted: SegmentRange, selection: Selection, fs: FileSystem) -> Iterator[_Row]:
    """Of one range: each loss, and what its batches have left out as one row."""
    low, high = selection.offsets_of(wanted.partition)
    low, high = max(low, wanted.first_offset), min(high, wanted.next_offset)
    if low >= high:
        return
    losses: list[Loss] = []
    decoder = Decoder(wanted.partition, arrow_schema(_PLAIN), Selection(), _ROWS_PER_BATCH, Counters())
    present = [
        batch.column(0).to_numpy()
        for chunk in scan(wanted, losses.append, Counters(), fs)
        for batch in decoder.decode(*chunk, lambda found: losses.append(Loss(wanted.partition, wanted.path, *found)))
    ]
    holes = _holes(np.concatenate([np.empty(0, np.int64), *present]), low, high)
    for loss in losses:
        first, following = max(loss.first, low), min(loss.following, high)
        if first >= following:
            continue
        parts = [((start, min(end, first)), (max(start, following), end)) for start, end in holes]
        holes = [part for pair in parts for part in pair if part[0] < part[1]]
        why = REMOVED if loss.removed else LOST
        lost = (first, following - 1, following - first, loss.path, loss.position, loss.reason)
        yield (wanted.partition, why, *lost)
    if holes:
        records = sum(following - first for first, following in holes)
        yield wanted.partition, LEFT_OUT, holes[0][0], holes[-1][1] - 1, records, wanted.path, None, WHY[LEFT_OUT]


def _holes(present: Ints, low: int, high: int) -> list[tuple[int, int]]:
    """Half open ranges between ``low`` and ``high`` of which nothing is ``present``, which rises."""
    present = present[(present >= low) & (present < high)]
    starts, ends = np.concatenate([[low], present + 1]), np.concatenate([present, [high]])
    some = ends > starts
    return list(zip(starts[some].tolist(), ends[some].tolist(), strict=True))
