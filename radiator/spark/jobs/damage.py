"""Find the offsets without a record, and the reason, by reading the files in the tasks.

A DataFrame of records cannot show the reason: with ``fail_on_data_loss=false`` a damaged range is absent, and so are
records that retention or compaction has removed. The scan can: each batch declares the offsets that it covers. An
offset that a valid batch covers without a record was removed on purpose. An offset that no valid batch covers is lost.

Uses the plan and the scan of ``radiator.columns``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
from radiator.storage.reader import StoredPartition

REMOVED, LEFT_OUT, LOST = "removed", "left out", "lost"
WHY = {
    REMOVED: "retention removed the segments, or all their messages were settled",
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
_PLAIN = ("offset", "destination", "size")  # never compressed, and enough to find a batch that contradicts itself
_ROWS_PER_BATCH = 1 << 16
Row = tuple[str, str, int, int, int, str | None, int | None, str]


def missing(
    partition: str,
    why: str,
    first: int,
    following: int,
    reason: str,
    path: str | None = None,
    position: int | None = None,
) -> Row:
    """Return the row of a range of offsets that are all missing.

    Args:
        partition: The partition.
        why: REMOVED or LOST.
        first: The first missing offset.
        following: The offset after the last missing one.
        reason: The reason, as text.
        path: The file that is damaged.
        position: The position of the damage in the file.
    """
    return partition, why, first, following - 1, following - first, path, position, reason


def removed(logs: Iterable[StoredPartition]) -> list[Row]:
    """Return a row for each log whose beginning was removed.

    Args:
        logs: The logs.
    """
    return [missing(log.name, REMOVED, 0, log.log_start_offset, WHY[REMOVED]) for log in logs if log.log_start_offset]


def absent(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    """Return the offsets without a record in a store, with the reason.

    Args:
        spark: A session.
        path: The data directory of the broker, or the URI of a copy.
        **options: Options of the source, such as partition and ending_offsets.

    Returns:
        The columns partition, why, first_missing, last_missing, records (their number), path, position, reason.
        ``lost``: cannot be read; one row per range, with the position of the damage in the file. ``left out``: removed
        on purpose inside a segment; one row per range that a task reads. ``removed``: below the first retained offset.

    Raises:
        NoStore: There is no store at ``path``.
        ConfigError: An option is unknown or has a wrong value.
        StorageError: The store cannot be read, or does not have what the options name.
    """
    wanted = read_options.parse({"path": path, **{name: str(value) for name, value in options.items()}})
    selection = wanted.selection
    place, tasks = open_store(wanted.path, wanted.storage), plan(wanted)
    gone = spark.createDataFrame(removed(log for log in partitions(place) if selection.wants_partition(log.name)), ROW)
    if not tasks:
        return gone

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        fs = open_store(wanted.path, wanted.storage).fs
        for batch in batches:
            for number in batch.column(0).to_pylist():
                rows = [row for each in tasks[number] for row in _absent(each, selection, fs)]
                yield pa.RecordBatch.from_pylist([dict(zip(_ARROW.names, row, strict=True)) for row in rows], _ARROW)

    found = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(look, ROW)
    return gone.unionByName(found).orderBy("partition", "first_missing", F.desc("why"))


def _absent(wanted: SegmentRange, selection: Selection, fs: FileSystem) -> Iterator[Row]:
    """Yield one row for each loss of a range, and one row for all records that its batches have left out."""
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
        yield missing(wanted.partition, why, first, following, loss.reason, loss.path, loss.position)
    if holes:
        records = sum(following - first for first, following in holes)
        yield wanted.partition, LEFT_OUT, holes[0][0], holes[-1][1] - 1, records, wanted.path, None, WHY[LEFT_OUT]


def _holes(present: Ints, low: int, high: int) -> list[tuple[int, int]]:
    """Return the half-open ranges between ``low`` and ``high`` without an offset in ``present``, which is sorted."""
    present = present[(present >= low) & (present < high)]
    starts, ends = np.concatenate([[low], present + 1]), np.concatenate([present, [high]])
    some = ends > starts
    return list(zip(starts[some].tolist(), ends[some].tolist(), strict=True))
