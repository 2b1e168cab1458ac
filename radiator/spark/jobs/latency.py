"""Measure the time from the event to its transmission, and from there to the broker."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

LEGS: dict[str, tuple[str, str]] = {
    "event to transmit": ("event_ns", "transmit_ns"),
    "transmit to receive": ("transmit_ns", "receive_ns"),
    "event to receive": ("event_ns", "receive_ns"),
}
_NS_PER_MS = 1e6
_ACCURACY = 10_000  # of percentile_approx: the rank differs by at most 1 / 10,000


def latency(df: DataFrame, *, by: Sequence[str] = ("destination",)) -> DataFrame:
    """Return percentiles of the time per leg of the way.

    Args:
        df: A DataFrame with event_ns, transmit_ns, receive_ns and the columns of ``by``.
        by: The columns to group by; empty for one row per leg.

    Returns:
        The columns of ``by``, leg, messages, p50_ms, p95_ms, p99_ms, max_ms, negative, first_negative. A leg is
        measured for records with both times. ``negative`` counts records whose later time is the earlier one: clocks
        that disagree, or an event time in the future. ``first_negative`` excludes those that an earlier leg counts, so
        that its sum over the legs is a number of messages.
    """
    ways = {leg: F.try_subtract(end, start) for leg, (start, end) in LEGS.items()}
    below, structs = F.lit(False), []
    for leg, ns in ways.items():
        negative = F.coalesce(ns < 0, F.lit(False))
        structs.append(F.struct(F.lit(leg).alias("leg"), ns.alias("ns"), (negative & ~below).alias("first")))
        below = below | negative
    one = df.select(*by, F.explode(F.array(*structs)).alias("one"))
    measured = one.select(*by, "one.leg", "one.ns", "one.first").where("ns is not null")
    quantiles = F.percentile_approx("ns", [0.5, 0.95, 0.99], _ACCURACY)
    found = measured.groupBy(*by, "leg").agg(
        F.count("*").alias("messages"),
        quantiles.alias("q"),
        F.max("ns").alias("max"),
        F.count_if(F.col("ns") < 0).alias("negative"),
        F.count_if("first").alias("first_negative"),
    )
    order = F.array_position(F.array(*[F.lit(leg) for leg in LEGS]), F.col("leg"))
    return found.orderBy(*by, order).select(
        *by,
        "leg",
        "messages",
        (F.col("q")[0] / _NS_PER_MS).alias("p50_ms"),
        (F.col("q")[1] / _NS_PER_MS).alias("p95_ms"),
        (F.col("q")[2] / _NS_PER_MS).alias("p99_ms"),
        (F.col("max") / _NS_PER_MS).alias("max_ms"),
        "negative",
        "first_negative",
    )
