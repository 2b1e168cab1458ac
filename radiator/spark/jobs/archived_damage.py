"""Find the offsets that neither the archive nor the log has.

The commits of an archive say which offsets of a partition it has and which it could not read; the files of the log say
the same for offsets that are not archived yet. Offsets between them without a record were removed on purpose, and are
not listed here, because the archive stores records and not batches.

Uses the state of an archive, and the job ``absent``.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from radiator.archive import load, open_files
from radiator.archive.gaps import GapFinder
from radiator.archive.lineage import check
from radiator.columns.files import open_store
from radiator.columns.log import partitions
from radiator.spark import options as read_options
from radiator.spark.jobs.damage import LOST, REMOVED, ROW, WHY, absent
from radiator.spark.uris import arrow_uri


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
    rows = [
        (name, REMOVED, 0, first - 1, first, None, None, "they had been removed before the archive began")
        for name, first in state.starts.items()
        if first
    ]
    rows += [
        (each.name, REMOVED, 0, each.log_start_offset - 1, each.log_start_offset, None, None, WHY[REMOVED])
        for each in logs
        if each.log_start_offset and each.name not in state.ends
    ]
    for gap in GapFinder(state, place, logs).gaps(asked.selection):
        why, records = REMOVED if gap.settled else LOST, gap.following - gap.first
        rows.append((gap.partition, why, gap.first, gap.following - 1, records, None, None, gap.why))
    found = spark.createDataFrame(rows, ROW)
    begins = {each.name: max(each.log_start_offset, state.ends.get(each.name, 0)) for each in logs}
    ends = {each.name: each.next_offset for each in logs if begins[each.name] < each.next_offset}
    if path is not None and ends:
        starting, ending = json.dumps({name: begins[name] for name in ends}), json.dumps(ends)
        log = absent(spark, path, starting_offsets=starting, ending_offsets=ending, **options)
        found = found.unionByName(log.where(F.col("why") == LOST))
    return found.orderBy("partition", "first_missing")
