"""Analyse deliveries: who received what, how fast, how often, and how evenly.

The functions take the table of deliveries (``read(spark, path, table="deliveries")``), which has the deliveries that
have ended. A message that is in flight, or waits, is not in it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from radiator.columns.delivery_records import ACKED, FINAL, RETURNED

POISON_MIN = 3  # deliveries that came back
MESSAGE = ("subscription", "destination", "partition", "offset")
_ACCURACY = 10_000
_US_PER_MS, _US_PER_SECOND = 1e3, 1e6


def consumers(df: DataFrame) -> DataFrame:
    """Return one row per subscription and consumer, the most deliveries first.

    Args:
        df: A DataFrame with subscription, consumer, delivered_at, outcome and settled_at.

    Returns:
        The columns subscription, consumer, deliveries, share (of the deliveries of the subscription), acked, nacked,
        timed_out, requeued, hand_p50_ms, hand_p95_ms, hand_p99_ms (from delivery to acknowledgement), first, last
        (times), rate (acknowledged messages per second from the first delivery to the last settlement).
    """
    took = F.when(F.col("outcome") == ACKED, _between("delivered_at", "settled_at"))
    found = (
        df.where("consumer is not null")
        .groupBy("subscription", "consumer")
        .agg(
            F.count("*").alias("deliveries"),
            *(F.count_if(F.col("outcome") == name).alias(name) for name in (ACKED, *RETURNED)),
            *_percentiles(took, "hand"),
            F.min("delivered_at").alias("first"),
            F.max("settled_at").alias("last"),
        )
    )
    totals = found.groupBy("subscription").agg(F.sum("deliveries").alias("of"))
    seconds = (F.unix_micros("last") - F.unix_micros("first")) / _US_PER_SECOND
    return (
        found.join(totals, "subscription")
        .withColumn("share", F.col("deliveries") / F.col("of"))
        .withColumn("rate", F.when(seconds > 0, F.col(ACKED) / seconds))
        .orderBy("subscription", F.desc("deliveries"), "consumer")
        .select(
            *("subscription", "consumer", "deliveries", "share", ACKED, *RETURNED),
            *("hand_p50_ms", "hand_p95_ms", "hand_p99_ms", "first", "last", "rate"),
        )
    )


def subscriptions(df: DataFrame, messages: DataFrame | None = None) -> DataFrame:
    """Return one row per subscription, the most settled messages first.

    Args:
        df: The table of deliveries.
        messages: The messages, with partition, offset and receive_time; or None.

    Returns:
        The columns subscription, messages (settled ones), acked, expired, dead_lettered, dropped, purged, retried
        (settled messages that were delivered more than once), deliveries_max, consumers, evenness (Jain's index of the
        deliveries of its consumers, from 1/n to 1), queue_p50_ms, queue_p95_ms, queue_p99_ms (from receipt to the first
        delivery; null without ``messages``), timed (first deliveries whose message is stored).
    """
    final = F.col("outcome").isin(*FINAL)
    found = df.groupBy("subscription").agg(
        F.count_if(final).alias("messages"),
        *(F.count_if(F.col("outcome") == name).alias(name) for name in FINAL),
        F.count_if(final & (F.col("delivery") > 1)).alias("retried"),
        F.max("delivery").alias("deliveries_max"),
    )
    each = df.where("consumer is not null").groupBy("subscription", "consumer").agg(F.count("*").alias("had"))
    evenness = F.sum("had") * F.sum("had") / (F.count("*") * F.sum(F.col("had") * F.col("had")))
    even = each.groupBy("subscription").agg(F.count("*").alias("consumers"), evenness.alias("evenness"))
    found = found.join(even, "subscription", "left")
    queued = ("queue_p50_ms", "queue_p95_ms", "queue_p99_ms", "timed")
    if messages is None:
        found = found.select("*", *(F.lit(None).cast("double").alias(name) for name in queued))
    else:
        first = df.where("delivery = 1").select("subscription", "partition", "offset", "delivered_at")
        sent = messages.select("partition", "offset", "receive_time").hint("shuffle_hash")  # sorting takes longer
        waited = first.join(sent, ["partition", "offset"])
        times = waited.groupBy("subscription").agg(
            *_percentiles(_between("receive_time", "delivered_at"), "queue"), F.count("*").alias("timed")
        )
        found = found.join(times, "subscription", "left")
    return (
        found.withColumn("consumers", F.coalesce("consumers", F.lit(0)))
        .orderBy(F.desc("messages"), "subscription")
        .select(
            *("subscription", "messages", *FINAL, "retried", "deliveries_max", "consumers", "evenness", *queued),
        )
    )


def consumer_rates(df: DataFrame, *, every: str = "1 minute") -> DataFrame:
    """Count acknowledged messages per time bucket, subscription and consumer.

    Args:
        df: A DataFrame with subscription, consumer, outcome and settled_at.
        every: The width of a bucket, as Spark writes it.

    Returns:
        The columns start, subscription, consumer, messages.
    """
    return (
        df.where(F.col("outcome") == ACKED)
        .groupBy(F.window("settled_at", every).start.alias("start"), "subscription", "consumer")
        .agg(F.count("*").alias("messages"))
        .orderBy("start", "subscription", "consumer")
    )


def retries(df: DataFrame) -> DataFrame:
    """Count settled messages per subscription, number of deliveries and outcome.

    Args:
        df: A DataFrame with subscription, delivery and outcome.

    Returns:
        The columns subscription, delivery, outcome, messages.
    """
    return (
        df.where(F.col("outcome").isin(*FINAL))
        .groupBy("subscription", "delivery", "outcome")
        .agg(F.count("*").alias("messages"))
        .orderBy("subscription", "delivery", "outcome")
    )


def poison_messages(df: DataFrame, *, least: int = POISON_MIN, limit: int = 20) -> DataFrame:
    """Return the messages that came back most often.

    Args:
        df: The table of deliveries.
        least: The minimum number of deliveries that ended without settling the message.
        limit: The maximum number of rows.

    Returns:
        The columns subscription, destination, partition, offset, returned, nacked, timed_out, requeued, consumers (how
        many had it), first, last (times), outcome (the final one; null if it is not settled).
    """
    returned = F.col("outcome").isin(*RETURNED)
    # Most messages never come back, so the worst are found among the others, and only their rows are grouped.
    worst = (
        df.where(returned)
        .groupBy(*MESSAGE)
        .agg(F.count("*").alias("times"))
        .where(F.col("times") >= least)
        .orderBy(F.desc("times"), *MESSAGE)
        .limit(limit)
        .select(*(F.col(name).alias(f"worst_{name}") for name in MESSAGE))
    )
    same = [F.col(name).eqNullSafe(F.col(f"worst_{name}")) for name in MESSAGE]
    return (
        df.join(F.broadcast(worst), same, "left_semi")
        .groupBy(*MESSAGE)
        .agg(
            F.count_if(returned).alias("returned"),
            *(F.count_if(F.col("outcome") == name).alias(name) for name in RETURNED),
            F.count_distinct("consumer").alias("consumers"),
            F.min("delivered_at").alias("first"),
            F.max("settled_at").alias("last"),
            F.max(F.when(~returned, F.col("outcome"))).alias("outcome"),
        )
        .orderBy(F.desc("returned"), *MESSAGE)
    )


def _between(first: str, last: str) -> Column:
    return (F.unix_micros(last) - F.unix_micros(first)) / _US_PER_MS


def _percentiles(value: Column, of: str) -> list[Column]:
    points = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    every = F.percentile_approx(value, [*points.values()], _ACCURACY)  # Spark computes equal aggregates once
    return [every[place].alias(f"{of}_{name}_ms") for place, name in enumerate(points)]
