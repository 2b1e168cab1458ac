"""How far behind was who? From what ``radiator cursors sample`` writes down: the log holds its own history."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

SAMPLE = (
    "time_ns BIGINT, cursor STRING, destination STRING, partition STRING, position BIGINT, end BIGINT, lag BIGINT, "
    "in_flight BIGINT, members BIGINT"
)
RECORDS_MAX = 1 << 40  # in a log: what says more is no sample, and sums of such overflow
_NS_PER_SECOND, _NS_PER_MS = 1e9, 1e6


def samples(df: DataFrame) -> DataFrame:
    """The samples in the bodies: time, time_ns, cursor, destination, partition, position, end, lag, in_flight, members.

    ``df`` has a column ``body``: the records of the topic that samples are published to. What is no sample is left out.
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
    """One row per cursor and partition, the furthest behind first.

    Columns: cursor, partition, destination, samples, first, last (times), lag (at the last), lag_max, max_at, lag_avg,
    slope (messages per second that the lag grew by, least squares; null for one sample), took (messages settled per
    second), still_since (the first sample with the position of the last; null if it was moved back), in_flight, members
    (at the last), age_ms: how old the oldest message was that was not settled at the last sample, which ``log`` tells
    (partition, offset, receive_ns of all records); null without it, where the record is gone, and where the lag is 0.
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
    """The largest lag of every cursor, its partitions together, in pieces of time: cursor, start, lag."""
    whole = samples(df).groupBy("cursor", "time_ns").agg(F.sum("lag").alias("lag"), F.max("time").alias("time"))
    return (
        whole.groupBy("cursor", F.window("time", every).start.alias("start"))
        .agg(F.max("lag").alias("lag"))
        .orderBy("start", "cursor")
    )
