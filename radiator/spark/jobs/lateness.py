"""Measure how late records come, and how far out of order: the delay that a streaming query needs.

*Lateness* is measured against the clock: the receive time minus the event time. *Disorder* is measured against the
stream: an event that is older than an earlier record's event. A watermark of Structured Streaming follows the latest
event that was seen, not the clock, so its delay depends on the disorder. History that is replayed in order is years
late and needs no delay.

Source: Spark, "Structured Streaming Programming Guide", handling late data and watermarking.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

NS_PER_MS = 1e6
SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000.0, 60_000.0, 3_600_000.0, 86_400_000.0
THRESHOLDS: dict[str, float] = {"late_1s": SECOND_MS, "late_1min": MINUTE_MS, "late_1h": HOUR_MS, "late_1d": DAY_MS}
KEPT: dict[str, float] = {"keep_99_ms": 0.99, "keep_999_ms": 0.999}  # and keep_all_ms, which is exact
_ACCURACY = 100_000  # of percentile_approx: the rank differs by at most 1 / 100,000
_EVERYTHING, _BLOCK = "_everything", "_block"
_BLOCK_NS = 60_000_000_000  # a block is sorted as a whole: small enough for one task, few enough to be listed


def lateness(df: DataFrame, *, by: Sequence[str] = ("destination",), every: str | None = None) -> DataFrame:
    """Return percentiles of the time from event to receipt.

    Args:
        df: A DataFrame with receive_time, receive_ns, event_ns and the columns of ``by``.
        by: The columns to group by; may be empty.
        every: The width of time buckets of the receive time, as Spark writes it; None makes no buckets.

    Returns:
        The columns of ``by``, start (with ``every``), messages, p50_ms, p95_ms, p99_ms, max_ms, late_1s, late_1min,
        late_1h, late_1d (shares of the messages that were later than that), ahead (messages received before their
        event), without (messages without an event time). Groups without any event time have nulls.
    """
    keys: list[Column] = [F.col(name) for name in by]
    if every is not None:
        keys.append(F.window("receive_time", every).start.alias("start"))
    late = F.try_subtract("receive_ns", "event_ns").alias("ns")
    measured = F.count("ns")
    shares = [
        (F.count_if(F.col("ns") > limit_ms * NS_PER_MS) / F.when(measured > 0, measured)).alias(name)
        for name, limit_ms in THRESHOLDS.items()
    ]
    names = [*by, *(["start"] if every is not None else [])]
    found = df.select(*keys, late).groupBy(*names).agg(
        measured.alias("messages"),
        F.percentile_approx("ns", [0.5, 0.95, 0.99], _ACCURACY).alias("q"),
        (F.max("ns") / NS_PER_MS).alias("max_ms"),
        *shares,
        F.count_if(F.col("ns") < 0).alias("ahead"),
        F.count_if(F.col("ns").isNull()).alias("without"),
    )  # fmt: skip
    quantiles = [(F.col("q")[i] / NS_PER_MS).alias(name) for i, name in enumerate(("p50_ms", "p95_ms", "p99_ms"))]
    chosen = found.where(F.col("messages") + F.col("without") > 0)  # no row for nothing at all
    order = [*names[len(by) :], *by]
    rows = chosen.select(*names, "messages", *quantiles, "max_ms", *THRESHOLDS, "ahead", "without")
    return rows.orderBy(*order) if order else rows


def disorder(df: DataFrame, *, by: Sequence[str] = ("destination",)) -> DataFrame:
    """Return how far events are out of order, and the watermark delays that keep them.

    The order of records is receive_ns, then partition and offset. Spark moves a watermark between micro-batches only,
    so a query drops at most what these delays say, and usually less.

    Args:
        df: A DataFrame with event_ns, receive_ns, partition, offset and the columns of ``by``.
        by: The columns to group by. ``("partition",)`` checks the order within each log, ``()`` all logs as one stream.

    Returns:
        The columns of ``by``, messages (with an event time), disordered, share, back_ms (the largest step back in
        time), back_records (the largest number of records since the latest event before it), keep_99_ms, keep_999_ms,
        keep_all_ms. ``keep_99_ms`` is the delay for ``withWatermark("event_time", ...)`` that keeps 99 % of the
        records.
    """
    groups = list(by) or [_EVERYTHING]
    in_block = Window.partitionBy(*groups, _BLOCK).orderBy("receive_ns", "partition", "offset")
    earlier_in_block = in_block.rowsBetween(Window.unboundedPreceding, -1)
    events = df.where(F.col("event_ns").isNotNull()).withColumns(
        {_EVERYTHING: F.lit(0), _BLOCK: F.floor(F.col("receive_ns") / F.lit(_BLOCK_NS))}
    )
    # A running maximum over a whole destination would sort all of it in one task. So this computes the latest event of
    # each minute, the running maximum over the minutes, and inside each minute that of its records. "latest" is paired
    # with the negative position where it was reached first, so that the larger pair has the earlier position.
    placed = events.select(*groups, _BLOCK, "event_ns", "receive_ns", "partition", "offset", _row(in_block))
    placed = placed.withColumn("latest", F.struct("event_ns", (-F.col("place")).alias("reached")))
    earlier = Window.partitionBy(*groups).orderBy(_BLOCK).rowsBetween(Window.unboundedPreceding, -1)
    blocks = (
        placed.groupBy(*groups, _BLOCK)
        .agg(F.count("*").alias("records"), F.max("latest").alias("latest"))
        .withColumn("before", F.coalesce(F.sum("records").over(earlier), F.lit(0)))
        .withColumn("latest", _pair("latest", F.col("before")))
        .select(*groups, _BLOCK, "before", F.max("latest").over(earlier).alias("latest_before"))
    )
    known = placed.withColumn("latest_in_block", F.max("latest").over(earlier_in_block)).join(blocks, [*groups, _BLOCK])
    latest = F.greatest("latest_before", _pair("latest_in_block", F.col("before")))
    back_ns = F.try_subtract(latest["event_ns"], F.col("event_ns"))
    back_records = F.col("before") + F.col("place") + latest["reached"]
    stepped = known.select(
        *groups,
        F.greatest(back_ns, F.lit(0)).alias("ns"),
        F.when(back_ns > 0, back_records).otherwise(0).alias("records"),
    )
    found = stepped.groupBy(*groups).agg(
        F.count("*").alias("messages"),
        F.count_if(F.col("ns") > 0).alias("disordered"),
        (F.max("ns") / NS_PER_MS).alias("back_ms"),
        F.max("records").alias("back_records"),
        F.percentile_approx("ns", list(KEPT.values()), _ACCURACY).alias("q"),
    )
    return found.orderBy(*groups).select(
        *by,
        "messages",
        "disordered",
        (F.col("disordered") / F.col("messages")).alias("share"),
        "back_ms",
        "back_records",
        *[(F.col("q")[i] / NS_PER_MS).alias(name) for i, name in enumerate(KEPT)],
        F.col("back_ms").alias("keep_all_ms"),
    )


def _row(window: WindowSpec) -> Column:
    return F.row_number().over(window).alias("place")


def _pair(name: str, before: Column) -> Column:
    """Return ``latest`` of a block with its position counted from the start of the group; null if there is none."""
    inner = F.struct(F.col(name)["event_ns"].alias("event_ns"), (F.col(name)["reached"] - before).alias("reached"))
    return F.when(F.col(name).isNotNull(), inner)
