"""Cache one scan of a small store for all sections of a report.

A report runs about thirty queries. For a small log, planning a read and starting its tasks takes longer than the read.
So all columns except the bodies are read once, and Spark caches them in memory or on disk. A large store is read again
for each query, with only the columns that the query needs, because that is less data than a cache would store.

Invariant: a time window is cut from the cache only if the whole log was read before. So damage outside of a window does
not fail a report on that window.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from radiator.limits import MIB
from radiator.spark.schema import SCHEMA

CACHED_MAX_BYTES = 64 * MIB  # of the log: one second of work for one core
BODY = "body"
SETTINGS = {  # for a small store: many short queries, so the start of each query dominates
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",  # a job for each stage of each query
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
COLUMNS = tuple(name for name in SCHEMA.names if name != BODY)
TIMES = frozenset({"start_time", "end_time"})


class CachedScan:
    """A reader that caches the scan of a small store. Call ``clear`` when the report is complete.

    Args:
        reader: The function that reads the store, with ``columns`` and options as keyword arguments.
        size_bytes: The size of the store in bytes. A store above CACHED_MAX_BYTES is not cached.
    """

    def __init__(self, reader: Callable[..., DataFrame], size_bytes: int) -> None:
        self._reader, self._caches = reader, size_bytes <= CACHED_MAX_BYTES
        self._frames: dict[frozenset[tuple[str, Any]], DataFrame] = {}

    def __call__(self, columns: Iterable[str], **asked: Any) -> DataFrame:
        """Return the store as a DataFrame, from the cached scan if possible.

        Args:
            columns: The columns to read.
            **asked: Options of the data source.
        """
        wanted = list(columns)
        if not self._caches or BODY in wanted:
            return self._reader(columns=wanted, **asked)
        start, end = asked.get("start_time"), asked.get("end_time")
        whole = self._frames.get(_key({name: value for name, value in asked.items() if name not in TIMES}))
        if whole is not None:
            time = F.col("receive_ns")
            found = whole if start is None else whole.where(time >= start)
            return (found if end is None else found.where(time < end)).select(*wanted)
        if _key(asked) not in self._frames:
            frame = self._reader(columns=COLUMNS, **asked)
            self._frames[_key(asked)] = frame.persist(StorageLevel.MEMORY_AND_DISK)
        return self._frames[_key(asked)].select(*wanted)

    def clear(self) -> None:
        """Drop the cached scans."""
        for frame in self._frames.values():
            with contextlib.suppress(Exception):  # Java may have ended
                frame.unpersist()
        self._frames.clear()


def _key(asked: dict[str, Any]) -> frozenset[tuple[str, Any]]:
    return frozenset(asked.items())
