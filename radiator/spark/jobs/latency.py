"""How long things took on their way: from the event to its transmission, and from there to the broker."""

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
_ACCURACY = 10_000  # of percentile_approx: the rank is off by at most one part in this many


def latency(df: DataFrame, *, by: Sequence[str] = ("destination",)) -> DataFrame:
    """Percentiles per leg of the way: the columns of ``by``, leg, messages, p50_ms, p95_ms, p99_ms, max_ms, negative,
    first_negative.

    A leg is measured where a record has both times. ``negative`` counts records whose later time is the earlier one:
    clocks that disagree, or an event time in the future. ``first_negative`` leaves out those that a leg
    before it counts, so that its sum over the legs is a number of messages. ``by=()`` gives one row per leg for
    everything together.
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
