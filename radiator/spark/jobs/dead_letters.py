"""Dead letters by cause: what was given up, where, why, and how old it was.

A dead letter is a message whose headers say so (``dlq-reason`` and the others of docs/protocol.md), in whatever
destination it lies. Once ``radiator dlq replay`` has sent it back it is a message like others, without these headers;
and what a queue has settled is one day removed from the files. So these jobs see what the log still holds.
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
    """The dead letters among the records, one row each: cause, origin (where it was), subscription (whose it was, if a
    named subscription's), destination (where it lies), partition, offset, deliveries, hops, died_ns, died (timestamp),
    age_ms (from when the broker had first received it to its end; of a letter that does not say that, from its event or
    else from its transmission; null without all three), size.

    Needs destination, partition, offset, headers, event_ns, transmit_ns, receive_ns and size. Not small.
    """
    died_ns = F.coalesce(_whole("dlq-time"), F.col("receive_ns"))
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
        died_ns.alias("died_ns"),
        F.timestamp_micros(F.floor(died_ns / 1000)).alias("died"),
        (F.try_subtract(died_ns, since) / NS_PER_MS).alias("age_ms"),
        "size",
    )


def dead_letters(df: DataFrame, *, by: Sequence[str] = BY) -> DataFrame:
    """Per cause, origin, subscription and destination, the most first: those, letters, bytes, first_died, last_died,
    deliveries_p50, deliveries_max, repeated (letters that were dead before, and moved again), age_p50_ms, age_p95_ms,
    age_max_ms (null where no letter says since when).

    ``by`` are columns of ``letters``: ``by=("cause",)`` is the shortest answer.
    """
    found = letters(df)
    return (
        found.groupBy(*by)
        .agg(
            F.count("*").alias("letters"),
            F.sum("size").alias("bytes"),
            F.min("died").alias("first_died"),
            F.max("died").alias("last_died"),
            F.percentile_approx("deliveries", 0.5, _ACCURACY).alias("deliveries_p50"),
            F.max("deliveries").alias("deliveries_max"),
            F.count_if(F.col("hops") > 1).alias("repeated"),
            F.percentile_approx("age_ms", 0.5, _ACCURACY).alias("age_p50_ms"),
            F.percentile_approx("age_ms", 0.95, _ACCURACY).alias("age_p95_ms"),
            F.max("age_ms").alias("age_max_ms"),
        )
        .orderBy(F.desc("letters"), *by)
    )


def dead_letters_over_time(df: DataFrame, *, every: str = "1 hour") -> DataFrame:
    """Deaths per cause and hour, or any width: start, cause, origin, letters. The clock is that of the death."""
    return (
        letters(df)
        .groupBy(F.window("died", every).start.alias("start"), "cause", "origin")
        .agg(F.count("*").alias("letters"))
        .orderBy("start", "cause", "origin")
    )


def deliveries_of_dead_letters(df: DataFrame) -> DataFrame:
    """How often dead letters had been delivered: cause, deliveries, letters. Null: the letter does not say."""
    counts = letters(df).groupBy("cause", "deliveries").agg(F.count("*").alias("letters"))
    return counts.orderBy("cause", "deliveries")


def dead_letter_words(df: DataFrame, *, key: str = "error", limit: int = 20) -> DataFrame:
    """What stands on dead letters: the most frequent values of a header, or of a field of their JSON bodies
    (``$.error``): cause, origin, value, letters. Needs headers (and body)."""
    dead = df.where(_header("dlq-reason").isNotNull())
    named = dead.select(
        _header("dlq-reason").alias("cause"), _header("dlq-destination").alias("origin"), key_of(key).alias("value")
    )
    counts = named.where("value is not null").groupBy("cause", "origin", "value").agg(F.count("*").alias("letters"))
    return counts.orderBy(F.desc("letters"), "cause", "origin", "value").limit(limit)


def _header(name: str) -> Column:
    return F.col("headers").getItem(name)


def _whole(name: str) -> Column:
    """A header that is a number; null if it is none: anybody may have written it."""
    return _header(name).try_cast("long")
