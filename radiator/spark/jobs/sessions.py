"""Group messages of one key into sessions: a session ends when no message follows within the gap.

Two messages whose distance is exactly the gap are in one session.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from radiator.spark.jobs.frequent import PARTITION_KEY, key_of

GAP = "30 minutes"
_ACCURACY = 10_000
LENGTHS_MS: dict[str, float] = {  # a session shorter than this, and not shorter than the one before
    "under 1 s": 1_000.0,
    "1 to 10 s": 10_000.0,
    "10 s to 1 min": 60_000.0,
    "1 to 10 min": 600_000.0,
    "10 min to 1 h": 3_600_000.0,
    "1 to 6 h": 21_600_000.0,
    "6 h to 1 d": 86_400_000.0,
}
ONE_EVENT, LONGER = "one message", "longer than 1 d"


def each_session(df: DataFrame, *, key: str = PARTITION_KEY, gap: str = GAP, time: str = "event_time") -> DataFrame:
    """Return one row per session. The result may be large.

    Args:
        df: A DataFrame with the time column, and headers or body.
        key: The name of a header, or a path into JSON bodies (``$.tailnum``). Messages without it are left out.
        gap: The gap that ends a session, as Spark writes it.
        time: The time column: ``event_time`` or ``receive_time``. Messages without it are left out.

    Returns:
        The columns key, start, end (times of the first and last message), messages, duration_ms.
    """
    keyed = df.select(key_of(key).alias("key"), F.col(time).alias("at")).where("key is not null and at is not null")
    start, end = F.min("at"), F.max("at")
    return (
        keyed.groupBy("key", F.session_window("at", gap))
        .agg(
            start.alias("start"),
            end.alias("end"),
            F.count("*").alias("messages"),
            ((F.unix_micros(end) - F.unix_micros(start)) / 1000).alias("duration_ms"),
        )
        .drop("session_window")
    )


def sessions(
    df: DataFrame, *, key: str = PARTITION_KEY, gap: str = GAP, time: str = "event_time", limit: int | None = 100
) -> DataFrame:
    """Return the sessions per key, the keys with most messages first.

    Args:
        df: A DataFrame with the time column, and headers or body.
        key: The name of a header, or a path into JSON bodies.
        gap: The gap that ends a session, as Spark writes it.
        time: The time column: ``event_time`` or ``receive_time``.
        limit: The maximum number of keys; None returns all.

    Returns:
        The columns key, sessions, messages, p50_ms, p95_ms, longest_ms (durations), per_session (messages), first,
        last.
    """
    found = (
        each_session(df, key=key, gap=gap, time=time)
        .groupBy("key")
        .agg(
            F.count("*").alias("sessions"),
            F.sum("messages").alias("messages"),
            F.percentile_approx("duration_ms", [0.5, 0.95], _ACCURACY).alias("q"),
            F.max("duration_ms").alias("longest_ms"),
            F.min("start").alias("first"),
            F.max("end").alias("last"),
        )
        .select(
            "key",
            "sessions",
            "messages",
            F.col("q")[0].alias("p50_ms"),
            F.col("q")[1].alias("p95_ms"),
            "longest_ms",
            (F.col("messages") / F.col("sessions")).alias("per_session"),
            "first",
            "last",
        )
        .orderBy(F.desc("messages"), "key")
    )
    return found if limit is None else found.limit(limit)


def session_lengths(df: DataFrame, *, key: str = PARTITION_KEY, gap: str = GAP, time: str = "event_time") -> DataFrame:
    """Return the distribution of the durations of sessions, short ones first.

    Args:
        df: A DataFrame with the time column, and headers or body.
        key: The name of a header, or a path into JSON bodies.
        gap: The gap that ends a session, as Spark writes it.
        time: The time column: ``event_time`` or ``receive_time``.

    Returns:
        The columns length (in words), sessions, share, messages, keys.
    """
    names = [ONE_EVENT, *LENGTHS_MS, LONGER]
    lengths = (
        each_session(df, key=key, gap=gap, time=time)
        .groupBy(_length(names).alias("place"))
        .agg(
            F.count("*").alias("sessions"),
            F.sum("messages").alias("messages"),
            F.approx_count_distinct("key").alias("keys"),
        )
    )
    everything = lengths.agg(F.sum("sessions").alias("all"))
    return (
        lengths.crossJoin(everything)
        .orderBy("place")
        .select(
            F.array(*[F.lit(name) for name in names])[F.col("place")].alias("length"),
            "sessions",
            (F.col("sessions") / F.col("all")).alias("share"),
            "messages",
            "keys",
        )
    )


def _length(names: list[str]) -> Column:
    place = F.when(F.col("messages") == 1, 0)
    for number, limit_ms in enumerate(LENGTHS_MS.values(), 1):
        place = place.when(F.col("duration_ms") < limit_ms, number)
    return place.otherwise(len(names) - 1)
