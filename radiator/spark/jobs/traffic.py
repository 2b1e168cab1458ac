"""Count messages and bytes per destination and time."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def traffic(df: DataFrame, *, time: str = "receive_time", every: str = "1 hour") -> DataFrame:
    """Count messages and bytes per destination and time bucket.

    Args:
        df: A DataFrame with destination, size and the time column.
        time: The time column: ``receive_time`` or ``event_time``. Records without it are left out.
        every: The width of a bucket, as Spark writes it: ``"1 hour"``, ``"5 minutes"``.

    Returns:
        The columns destination, start, messages, bytes.
    """
    return (
        df.where(F.col(time).isNotNull())
        .groupBy("destination", F.window(time, every).start.alias("start"))
        .agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
        .orderBy("start", "destination")
    )


def totals(df: DataFrame) -> DataFrame:
    """Count messages and bytes per destination, the busiest first.

    Args:
        df: A DataFrame with destination, size, receive_time and event_time.

    Returns:
        The columns destination, messages, bytes, first_received, last_received, with_event_time (messages with an event
        time), first_event, last_event.
    """
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
