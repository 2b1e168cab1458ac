"""What is in the log and says nothing about the traffic that people ask for.

Messages that watch the others are *operations*: samples of cursors, live windows. A message that is stored a second
time keeps the times of the sender, so its way and its lateness are those of the story behind it: *replayed* ones say so
(``replayed-from``), and so do *dead letters* (``dlq-reason``). What *Spark* has written is known by its ``dedup-id``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from radiator.spark.sink_ids import SHAPE

OPERATIONS, REPLAYED, DEAD_LETTER, WRITTEN = "operations", "replayed", "dead letter", "written by Spark"
AGAIN = {REPLAYED: "replayed-from", DEAD_LETTER: "dlq-reason", WRITTEN: "dedup-id"}  # the header that tells it
SENDER_TIMES = ("event_time", "transmit_time", "event_ns", "transmit_ns")


def stored_again() -> Column:
    """Whether the record tells of an earlier sending. Needs headers."""
    return reduce(or_, [_says(why) for why in AGAIN])


def without_old_times(df: DataFrame) -> DataFrame:
    """The same records, where those that were stored again have no times of the sender. Needs headers."""
    names = [name for name in SENDER_TIMES if name in df.columns]
    return df.withColumns({name: F.when(~stored_again(), F.col(name)) for name in names})


def left_out(df: DataFrame, *, operations: Iterable[str] = ()) -> DataFrame:
    """Per destination and reason: destination, why (``operations``, ``replayed``, ``dead letter``,
    ``written by Spark``), messages.

    ``operations`` are names of destinations. A message is counted once, for the first reason that it has. Needs
    destination and headers.
    """
    why = F.when(F.col("destination").isin(list(operations)), OPERATIONS)
    for reason in AGAIN:
        why = why.when(_says(reason), reason)
    found = df.select("destination", why.alias("why")).where("why is not null")
    return found.groupBy("destination", "why").agg(F.count("*").alias("messages")).orderBy("why", "destination")


def _says(why: str) -> Column:
    header = F.col("headers").getItem(AGAIN[why])
    return F.coalesce(header.rlike(SHAPE), F.lit(False)) if why == WRITTEN else header.isNotNull()
