"""Analyse dead letters: cause, origin, time and age.

A dead letter is a message with the header ``dlq-reason`` (and the others of docs/protocol.md), in any destination.
``radiator dlq replay`` sends it back without these headers, and then it is an ordinary message. Messages that a queue
has settled are removed from the files later. So these jobs see what the log still contains.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from radiator.spark.jobs.frequent import key_of

NS_PER_MS = 1e6
_ACCURACY = 10_000
BY = ("cause", "origin", "subscription", "destination")


def letters(df: DataFrame) -> DataFrame:
    """Return the dead letters among the records, one row each. The result may be large.

    Args:
        df: A DataFrame with destination, partition, offset, headers, event_ns, transmit_ns, receive_ns and size.

    Returns:
        The columns cause, origin (its first destination), subscription (the durable subscription that rejected it, or
        null), destination, partition, offset, deliveries, hops, moved_ns, moved (timestamp), age_ms (from the first
        receipt by the broker, else from the event or the transmission; null without all three), size.
    """
    moved_ns = F.coalesce(_whole("dlq-time"), F.col("receive_ns"))
    since = F.coalesce(_whole("dlq-received"), "event_ns", "transmit_ns")
    return df.where(_header("dlq-reason").isNotNull()).select(
        _header("dlq-reason").alias("cause"),
        _header("dlq-destination").alias("origin"),
        _header("dlq-subscription").alias("subscription"),
        "destination",
        "partition",
        "offset",
        _whole("dlq-deliveries").alias("deliveries"),
        F.coalesce(_whole("dlq-hops"), F.lit(1)).alias("hops"),
        moved_ns.alias("moved_ns"),
        F.timestamp_micros(F.floor(moved_ns / 1000)).alias("moved"),
        (F.try_subtract(moved_ns, since) / NS_PER_MS).alias("age_ms"),
        "size",
    )


def dead_letters(df: DataFrame, *, by: Sequence[str] = BY) -> DataFrame:
    """Count dead letters per cause, origin, subscription and destination, the largest number first.

    Args:
        df: A DataFrame with the columns that ``letters`` needs.
        by: Columns of ``letters`` to group by.

    Returns:
        The columns of ``by``, messages, bytes, first_moved, last_moved, deliveries_p50, deliveries_max, repeated
        (messages that were dead-lettered before), age_p50_ms, age_p95_ms, age_max_ms (null if no message has an age).
    """
    found = letters(df)
    return (
        found.groupBy(*by)
        .agg(
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.min("moved").alias("first_moved"),
            F.max("moved").alias("last_moved"),
            F.percentile_approx("deliveries", 0.5, _ACCURACY).alias("deliveries_p50"),
            F.max("deliveries").alias("deliveries_max"),
            F.count_if(F.col("hops") > 1).alias("repeated"),
            F.percentile_approx("age_ms", 0.5, _ACCURACY).alias("age_p50_ms"),
            F.percentile_approx("age_ms", 0.95, _ACCURACY).alias("age_p95_ms"),
            F.max("age_ms").alias("age_max_ms"),
        )
        .orderBy(F.desc("messages"), *by)
    )


def dead_letters_over_time(df: DataFrame, *, every: str = "1 hour") -> DataFrame:
    """Count dead letters per time bucket, cause and origin. The time is that of the dead-lettering.

    Args:
        df: A DataFrame with the columns that ``letters`` needs.
        every: The width of a bucket, as Spark writes it.

    Returns:
        The columns start, cause, origin, messages.
    """
    return (
        letters(df)
        .groupBy(F.window("moved", every).start.alias("start"), "cause", "origin")
        .agg(F.count("*").alias("messages"))
        .orderBy("start", "cause", "origin")
    )


def deliveries_of_dead_letters(df: DataFrame) -> DataFrame:
    """Count dead letters per cause and number of deliveries.

    Args:
        df: A DataFrame with the columns that ``letters`` needs.

    Returns:
        The columns cause, deliveries (null if it is unknown), messages.
    """
    counts = letters(df).groupBy("cause", "deliveries").agg(F.count("*").alias("messages"))
    return counts.orderBy("cause", "deliveries")


def dead_letter_words(df: DataFrame, *, key: str = "error", limit: int = 20) -> DataFrame:
    """Return the most frequent values of a header, or of a field of JSON bodies, of dead letters.

    Args:
        df: A DataFrame with headers, and body if ``key`` is a path.
        key: The name of a header, or a path into JSON bodies (``$.error``).
        limit: The maximum number of rows.

    Returns:
        The columns cause, origin, value, messages.
    """
    dead = df.where(_header("dlq-reason").isNotNull())
    named = dead.select(
        _header("dlq-reason").alias("cause"), _header("dlq-destination").alias("origin"), key_of(key).alias("value")
    )
    counts = named.where("value is not null").groupBy("cause", "origin", "value").agg(F.count("*").alias("messages"))
    return counts.orderBy(F.desc("messages"), "cause", "origin", "value").limit(limit)


def _header(name: str) -> Column:
    return F.col("headers").getItem(name)


def _whole(name: str) -> Column:
    """Return a header as a number; null if it is not one, because any client may have written it."""
    return _header(name).try_cast("long")
