"""Compare two time windows."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from radiator.spark.jobs.left_out import AGAIN, DEAD_LETTER

_NS_PER_MS = 1e6
_ACCURACY = 10_000  # of percentile_approx, as in ``latency``
DEAD = AGAIN[DEAD_LETTER]
_BOTH, _NEW, _VANISHED = "both", "new", "vanished"


def compare(now: DataFrame, before: DataFrame, *, now_seconds: float, before_seconds: float) -> DataFrame:
    """Return one row per destination of either window, the largest change of rate first.

    Args:
        now: The records of the window, with destination, headers, size, event_ns, transmit_ns and receive_ns.
        before: The records of the other window, with the same columns.
        now_seconds: The length of the window.
        before_seconds: The length of the other window.

    Returns:
        The columns destination, kind (``both``, ``new``, ``vanished``), messages, messages_before, dead_letters,
        dead_letters_before, bytes, bytes_before, rate and rate_before (messages per second), difference (of the rates),
        ratio (of the rates; null unless both), p50_ms, p50_ms_before, p99_ms, p99_ms_before (from the event, or else
        from its transmission, to the broker; null without either) and p99_ratio.
    """
    one, other = _window(now, now_seconds, ""), _window(before, before_seconds, "_before")
    joined = one.join(other, "destination", "full").fillna(0, [*_counted(""), *_counted("_before")])
    kind = F.when(F.col("messages_before") == 0, _NEW).when(F.col("messages") == 0, _VANISHED).otherwise(_BOTH)
    difference = F.col("rate") - F.col("rate_before")
    return (
        joined.withColumn("kind", kind)
        .withColumn("difference", difference)
        .withColumn("ratio", F.when(F.col("kind") == _BOTH, F.col("rate") / F.col("rate_before")))
        .withColumn("p99_ratio", _ratio("p99_ms"))
        .orderBy(F.desc(F.abs(difference)), "destination")
        .select(
            *("destination", "kind", "messages", "messages_before", "dead_letters", "dead_letters_before"),
            *("bytes", "bytes_before", "rate", "rate_before"),
            *("difference", "ratio", "p50_ms", "p50_ms_before", "p99_ms", "p99_ms_before", "p99_ratio"),
        )
    )


def _window(df: DataFrame, seconds: float, suffix: str) -> DataFrame:
    way = F.try_subtract("receive_ns", F.coalesce("event_ns", "transmit_ns"))
    dead = F.count_if(F.col("headers").getItem(DEAD).isNotNull())
    quantiles = F.percentile_approx(way, [0.5, 0.99], _ACCURACY)
    return (
        df.groupBy("destination")
        .agg(F.count("*").alias("n"), F.sum("size").alias("b"), dead.alias("d"), quantiles.alias("q"))
        .select(
            "destination",
            F.col("n").alias(f"messages{suffix}"),
            F.col("d").alias(f"dead_letters{suffix}"),
            F.col("b").alias(f"bytes{suffix}"),
            (F.col("n") / F.lit(float(seconds))).alias(f"rate{suffix}"),
            (F.col("q")[0] / _NS_PER_MS).alias(f"p50_ms{suffix}"),
            (F.col("q")[1] / _NS_PER_MS).alias(f"p99_ms{suffix}"),
        )
    )


def _counted(suffix: str) -> list[str]:
    return [f"{name}{suffix}" for name in ("messages", "dead_letters", "bytes", "rate")]


def _ratio(name: str) -> Column:
    known = (F.col(name) > 0) & (F.col(f"{name}_before") > 0)
    return F.when(known, F.col(name) / F.col(f"{name}_before"))
