"""Identify records that say nothing about the traffic of users.

Messages that monitor others are *operations*: samples of cursors, live windows. A message that is stored a second time
has the times of its first sending, so its latency and lateness are not those of the second. *Replayed* messages have
the header ``replayed-from``, *dead letters* ``dlq-reason``; messages written by *Spark* are recognised by their
``dedup-id``.
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
    """Return a condition: the record was stored before. Needs the column headers."""
    return reduce(or_, [_says(why) for why in AGAIN])


def without_old_times(df: DataFrame) -> DataFrame:
    """Return the same records, without the sender's times where a record was stored before.

    Args:
        df: A DataFrame with headers.
    """
    names = [name for name in SENDER_TIMES if name in df.columns]
    return df.withColumns({name: F.when(~stored_again(), F.col(name)) for name in names})


def left_out(df: DataFrame, *, operations: Iterable[str] = ()) -> DataFrame:
    """Count the messages that are left out, per destination and reason.

    Args:
        df: A DataFrame with destination and headers.
        operations: The destinations that count as operations.

    Returns:
        The columns destination, why (``operations``, ``replayed``, ``dead letter``, ``written by Spark``), messages. A
        message is counted once, for its first reason.
    """
    why = F.when(F.col("destination").isin(list(operations)), OPERATIONS)
    for reason in AGAIN:
        why = why.when(_says(reason), reason)
    found = df.select("destination", why.alias("why")).where("why is not null")
    return found.groupBy("destination", "why").agg(F.count("*").alias("messages")).orderBy("why", "destination")


def _says(why: str) -> Column:
    header = F.col("headers").getItem(AGAIN[why])
    return F.coalesce(header.rlike(SHAPE), F.lit(False)) if why == WRITTEN else header.isNotNull()
