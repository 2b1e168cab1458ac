"""Make a DataFrame of the cursors of a store: how far each queue, durable subscription and group has come.

Uses the files of cursors and ``head`` files. The rows are as of the call; a cursor stores no history.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from radiator.columns.files import open_store, remedy
from radiator.columns.heads import ends, stored
from radiator.storage.files import storage_error
from radiator.storage.reader import list_cursors

SCHEMA = (
    "cursor STRING NOT NULL, partition STRING NOT NULL, settled_to BIGINT NOT NULL, "
    "settled_ranges ARRAY<STRUCT<first: BIGINT, next: BIGINT>> NOT NULL, end BIGINT, lag BIGINT"
)


def cursors(spark: SparkSession, path: str, storage: Mapping[str, str] | None = None) -> DataFrame:
    """Return the cursors of the store at ``path`` as a DataFrame, as of this call.

    Args:
        spark: A session.
        path: The data directory of the broker, or the URI of a copy.
        storage: The arguments of the file system of a URI.

    Returns:
        A row for each cursor and partition: ``cursor``, the name; ``partition``; ``settled_to``, the offset below which
        everything is settled; ``settled_ranges``, half-open ranges of settled offsets above it; ``end``, the end of the
        log; ``lag``, the number of offsets that are in the log and not settled. Where destinations share a partition,
        those of others are among them. ``end`` and ``lag`` are null for a partition that does not exist any more.

    Raises:
        NoStore: There is no store at ``path``.
        StorageError: The store cannot be read.

    Example:
        With a store in ``./data``::

            cursors(spark, "./data").where("lag > 1000").show(truncate=False)
    """
    place = open_store(path, storage)
    found = ends(place)
    try:
        known = list_cursors(place.root, place.fs)
    except OSError as error:
        raise storage_error(place.root, "read", error, remedy(place.fs)) from error
    logs = {name: stored(place.fs, name, found[name]) for name in {each.partition for each in known} if name in found}
    rows = []
    for each in known:
        log = logs.get(each.partition)
        end = lag = None
        if log is not None:
            end = max(log.next_offset, each.floor)
            low = max(each.floor, log.log_start_offset)
            lag = end - low - sum(max(0, min(stop, end) - max(first, low)) for first, stop in each.intervals)
        rows.append((each.name, each.partition, each.floor, each.intervals, end, lag))
    return spark.createDataFrame(rows, SCHEMA)
