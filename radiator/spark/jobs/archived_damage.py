"""Find the offsets that neither the archive nor the log has.

The commits of an archive say which offsets of a partition it has and which it could not read; the files of the log say
the same for offsets that are not archived yet. Offsets between them without a record were removed on purpose, and are
not listed here, because the archive stores records and not batches.

Uses the state of an archive, and the job ``absent``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from radiator.archive import State, load, open_files
from radiator.archive.gaps import GapFinder
from radiator.archive.lineage import check
from radiator.columns.files import open_store
from radiator.columns.log import partitions
from radiator.spark import options as read_options
from radiator.spark.jobs.damage import LOST, REMOVED, ROW, absent, missing, removed
from radiator.spark.uris import arrow_uri
from radiator.storage.reader import StoredPartition

BEFORE_START = "they had been removed before the archive began"


def absent_from_both(spark: SparkSession, path: str | None, archive: str, **options: Any) -> DataFrame:
    """Return the offsets that neither the archive nor the log has.

    Args:
        spark: A session with the format registered.
        path: The data directory of the broker, or None for the archive alone.
        archive: The path or the URI of the archive.
        **options: ``start_time`` and ``end_time``, as of the source.

    Returns:
        The columns of ``absent``, with the reasons ``lost`` and ``removed`` only.

    Raises:
        NoStore: There is no store at ``path``.
        ConfigError: An option has a wrong value.
        StorageError: Store or archive cannot be read, or they belong to different logs.
    """
    asked = read_options.parse({"path": path or ".", **{name: str(value) for name, value in options.items()}})
    place = None if path is None else open_store(path)
    logs = [] if place is None else partitions(place)  # listed before the commits are read, as in ``table``
    files = open_files(arrow_uri(archive))
    state = load(files)
    if place is not None:
        check(place, files, state, [each for each in logs if asked.selection.wants_partition(each.name)])
    rows = [missing(name, REMOVED, 0, first, BEFORE_START) for name, first in state.starts.items() if first]
    rows += removed(each for each in logs if each.name not in state.ends)
    for gap in GapFinder(state, place, logs).gaps(asked.selection):
        if gap.settled and gap.partition not in state.ends:
            continue  # ``removed`` has this row
        rows.append(missing(gap.partition, REMOVED if gap.settled else LOST, gap.first, gap.following, gap.why))
    found = spark.createDataFrame(rows, ROW)
    unarchived = _unarchived(logs, state)
    if path is not None and unarchived:
        starting = json.dumps({name: first for name, (first, _) in unarchived.items()})
        ending = json.dumps({name: following for name, (_, following) in unarchived.items()})
        log = absent(spark, path, starting_offsets=starting, ending_offsets=ending, **options)
        found = found.unionByName(log.where(F.col("why") == LOST))
    return found.orderBy("partition", "first_missing")


def _unarchived(logs: Iterable[StoredPartition], state: State) -> dict[str, tuple[int, int]]:
    """Return the offsets, half-open, that a log has and the archive does not have yet, by partition."""
    ranges = {each.name: (max(each.log_start_offset, state.ends.get(each.name, 0)), each.next_offset) for each in logs}
    return {name: (first, following) for name, (first, following) in ranges.items() if first < following}
