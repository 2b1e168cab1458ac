"""How much came, where and when."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def traffic(df: DataFrame, *, time: str = "receive_time", every: str = "1 hour") -> DataFrame:
    """Messages and bytes per destination and hour: columns destination, start, messages, bytes.

    ``time`` is the clock to go by (``receive_time``, or ``event_time`` for when things happened rather than arrived;
    records without it are left out), ``every`` the width of a bucket in Spark's words: ``"1 hour"``, ``"5 minutes"``.
    """
    return (
        df.where(F.col(time).isNotNull())
        .groupBy("destination", F.window(time, every).start.alias("start"))
        .agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
        .orderBy("start", "destination")
    )


def totals(df: DataFrame) -> DataFrame:
    """One row per destination, the busiest first: destination, messages, bytes, first_received, last_received,
    with_event_time (messages that have one), first_event, last_event."""
    return (
        df.groupBy("destination")
        .agg(
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.min("receive_time").alias("first_received"),
            F.max("receive_time").alias("last_received"),
            F.count("event_time").alias("with_event_time"),
            F.min("event_time").alias("first_event"),
            F.max("event_time").alias("last_event"),
        )
        .orderBy(F.desc("messages"), "destination")
    )
