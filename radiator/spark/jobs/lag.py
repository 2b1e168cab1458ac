"""Compute the lag of cursors over time, from the samples of ``radiator cursors sample`` in the log."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

SAMPLE = (
    "time_ns BIGINT, cursor STRING, destination STRING, partition STRING, position BIGINT, end BIGINT, lag BIGINT, "
    "in_flight BIGINT, members BIGINT"
)
RECORDS_MAX = 1 << 40  # per log: a larger lag is not a sample, and sums of such values would overflow
_NS_PER_SECOND, _NS_PER_MS = 1e9, 1e6


def samples(df: DataFrame) -> DataFrame:
    """Return the samples in the bodies; other messages are left out.

    Args:
        df: The records of the topic with the samples, with the column body.

    Returns:
        The columns time, time_ns, cursor, destination, partition, position, end, lag, in_flight, members.
    """
    one = F.from_json(F.col("body").cast("string"), SAMPLE).alias("one")
    found = (
        df.select(one)
        .select("one.*")
        .where(
            f"cursor is not null and time_ns >= 0 and lag BETWEEN 0 AND {RECORDS_MAX} AND coalesce(position, 0) >= 0"
        )
    )
    return found.withColumn("time", F.timestamp_micros(F.floor(F.col("time_ns") / 1000)))


def lag(df: DataFrame, log: DataFrame | None = None) -> DataFrame:
    """Return one row per cursor and partition, the largest lag first.

    Args:
        df: The records of the topic with the samples, with the column body.
        log: All records of the log, with partition, offset and receive_ns; or None.

    Returns:
        The columns cursor, partition, destination, samples, first, last (times), lag (at the last sample), lag_max,
        max_at, lag_avg, slope (growth of the lag in messages per second, by least squares; null for one sample), took
        (settled messages per second), still_since (the first sample with the position of the last; null if the position
        was moved back), in_flight, members (at the last sample), age_ms (the age of the oldest unsettled message at the
        last sample; null without ``log``, if the record was removed, and if the lag is 0).
    """
    each = samples(df)
    seconds = (F.col("time_ns") - F.min("time_ns").over(Window.partitionBy("cursor", "partition"))) / _NS_PER_SECOND
    by_time = [F.max_by(name, "time_ns").alias(name) for name in ("destination", "lag", "in_flight", "members")]
    position = F.max_by("position", "time_ns")
    furthest = F.min_by("time", F.struct(-F.col("position"), F.col("time_ns")))
    slope = F.when(F.count_distinct("time_ns") > 1, F.regr_slope("lag_then", "second"))
    last = (
        each.withColumn("second", seconds)
        .withColumn("lag_then", F.col("lag"))
        .groupBy("cursor", "partition")
        .agg(
            *by_time,
            F.count("*").alias("samples"),
            F.min("time").alias("first"),
            F.max("time").alias("last"),
            F.max("time_ns").alias("last_ns"),
            F.max("lag_then").alias("lag_max"),
            F.max_by("time", F.struct("lag_then", -F.col("time_ns"))).alias("max_at"),
            F.avg("lag_then").alias("lag_avg"),
            slope.alias("slope"),
            F.when(F.max("second") > 0, (position - F.min_by("position", "time_ns")) / F.max("second")).alias("took"),
            position.alias("position"),
            F.when(position == F.max("position"), furthest).alias("still_since"),
        )
    )
    if log is None:
        aged = last.withColumn("age_ms", F.lit(None).cast("double"))
    else:
        oldest = log.select("partition", F.col("offset").alias("position"), "receive_ns")
        age = F.when(F.col("lag") > 0, (F.col("last_ns") - F.col("receive_ns")) / _NS_PER_MS)
        aged = oldest.join(F.broadcast(last), ["partition", "position"], "right").withColumn("age_ms", age)
    return aged.orderBy(F.desc("lag"), F.desc("lag_max"), "cursor", "partition").select(
        *("cursor", "partition", "destination", "samples", "first", "last", "lag", "lag_max", "max_at", "lag_avg"),
        *("slope", "took", "still_since", "in_flight", "members", "age_ms"),
    )


def lag_over_time(df: DataFrame, *, every: str = "1 minute") -> DataFrame:
    """Return the largest lag of every cursor per time bucket, its partitions summed.

    Args:
        df: The records of the topic with the samples, with the column body.
        every: The width of a bucket, as Spark writes it.

    Returns:
        The columns cursor, start, lag.
    """
    whole = samples(df).groupBy("cursor", "time_ns").agg(F.sum("lag").alias("lag"), F.max("time").alias("time"))
    return (
        whole.groupBy("cursor", F.window("time", every).start.alias("start"))
        .agg(F.max("lag").alias("lag"))
        .orderBy("start", "cursor")
    )
