"""One scan for all sheets of a report: of a small store what they read is kept for as long as the report is made.

A report asks some thirty questions. To plan a read and to start its tasks takes longer than a small log takes to be
read, so there all columns but the bodies are read once and Spark keeps them, in memory or else on its disk. A large
store is read anew for each question, only the columns that it needs: less than what would have to be kept.

Knows: how to read. Must not know: sheets, what is asked.
Invariant: a window of time is cut from what is kept only if all of the log was wanted before, so what lies outside of a
window and is damaged fails no report on that window.
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

KEPT_MAX_BYTES = 64 * MIB  # of log: a second's work for one core
BODY = "body"
SETTINGS = {  # of a session for a small store: many short queries, so what starts quickly is what counts
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",  # a job for each stage of each query
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
COLUMNS = tuple(name for name in SCHEMA.names if name != BODY)
TIMES = frozenset({"start_time", "end_time"})


class Kept:
    """``read(columns=..., **options)``, as the reader that it was made from. ``forget`` when the report is made."""

    def __init__(self, reader: Callable[..., DataFrame], size_bytes: int) -> None:
        self._reader, self._keeps = reader, size_bytes <= KEPT_MAX_BYTES
        self._frames: dict[frozenset[tuple[str, Any]], DataFrame] = {}

    def __call__(self, columns: Iterable[str], **asked: Any) -> DataFrame:
        wanted = list(columns)
        if not self._keeps or BODY in wanted:
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

    def forget(self) -> None:
        for frame in self._frames.values():
            with contextlib.suppress(Exception):  # Java may have ended
                frame.unpersist()
        self._frames.clear()


def _key(asked: dict[str, Any]) -> frozenset[tuple[str, Any]]:
    return frozenset(asked.items())
