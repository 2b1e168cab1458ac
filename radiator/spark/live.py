"""The streaming job: windowed counts of what is coming in, published to a topic while it comes.

``windows`` makes the table, ``publish_windows`` runs it: each trigger reads what is new, and publishes the windows that
have changed as JSON, one message each. A window comes again whenever it has grown, and the one with the most messages
is the latest; with ``closed`` it comes once, when nothing more can come to it.

Effectively once: the ids are made of query, destination, window and count, and a count only grows, so a window that is
published again after a crash is the same message to the broker.

Spark lets no Python sink take part in the mode ``update``, so the batches of ``foreachBatch`` are written.

Knows: Spark's streams, the sink's options. Must not know: sockets, files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from radiator.errors import ConfigError
from radiator.spark import sink_options
from radiator.spark.schema import select
from radiator.spark.session import FORMAT, absolute
from radiator.spark.spelling import over, plain

TIMES = ("receive_time", "event_time")
TOPIC = "/topic/ops.traffic"
COUNTED = "counted"  # the metric of a trigger's progress: what came in, without what ``to`` itself holds
_MOMENT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX"


def columns(time: str = "receive_time") -> StructType:
    """What ``windows`` reads."""
    if time not in TIMES:
        raise ConfigError(f"time: expected {' or '.join(TIMES)}, got {time!r}")
    return select(["destination", "size", time])


def windows(
    df: DataFrame, *, every: str = "1 minute", time: str = "receive_time", watermark: str = "1 minute"
) -> DataFrame:
    """Messages and bytes per destination and window: columns destination, start, end, messages, bytes.

    ``watermark`` is how long a window waits for what is late, in Spark's words; what comes later still is left out.
    Records without that time are left out.
    """
    return (
        df.where(F.col(time).isNotNull())
        .withWatermark(time, watermark)
        .groupBy("destination", F.window(time, every).alias("window"))
        .agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
        .select("destination", "window.start", "window.end", "messages", "bytes")
    )


def messages(table: DataFrame) -> DataFrame:
    """Each row of ``windows`` as a message: what the sink takes, without the destination it goes to."""
    start, end = (F.date_format(name, _MOMENT) for name in ("start", "end"))
    body = F.to_json(F.struct("destination", start.alias("start"), end.alias("end"), "messages", "bytes"))
    return table.select(
        body.alias("body"),
        F.lit("application/json").alias("content_type"),
        F.create_map(F.lit("destination"), F.col("destination")).alias("tags"),
        F.col("start").alias("event_time"),
        F.col("destination").alias("key"),  # a destination's windows stay in order, whatever the topic's partitions
        F.concat_ws(" ", F.col("destination"), F.unix_micros("start"), F.unix_micros("end"), F.col("messages")).alias(
            "row"
        ),
    )


def publish_windows(
    spark: SparkSession,
    data: str,
    url: str,
    to: str = TOPIC,
    *,
    checkpoint: str,
    destination: str = "#",
    every: str = "1 minute",
    time: str = "receive_time",
    watermark: str = "1 minute",
    closed: bool = False,
    trigger: Mapping[str, Any] | None = None,
    starting_offsets: str = "latest",
    query: str = "live",
    read_options: Mapping[str, Any] | None = None,
    sink: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Start it, and return the query: ``awaitTermination()`` waits, ``stop()`` ends it.

    ``data`` is the store, ``url`` the broker that is published to, ``to`` the topic. ``checkpoint`` is where Spark
    remembers how far it came: the same one goes on there. ``trigger`` is Spark's (``{"processingTime": "5 seconds"}``,
    which is the default, or ``{"availableNow": True}``). ``query`` begins the ids: jobs that publish to one topic need
    different ones. ``read_options`` and ``sink`` are further options of reading and writing, in any spelling; a limit
    of offsets per trigger is refused, since it would leave records out. What ``to`` itself holds is not counted. Raises
    ConfigError.
    """
    options = over({"url": url, "destination": to, "query": query, "dedup_by": "row"}, sink or {})
    sink_options.parse(options)
    reading = over({"destination": destination, "starting_offsets": starting_offsets}, read_options or {})
    limit = next((name for name in reading if plain(name) == "maxoffsetspertrigger"), None)
    if limit is not None:
        raise ConfigError(
            f"option {limit}: a batch that ends in the middle of one partition and not of another moves the watermark "
            "past records that are still to come, and their windows would miss them in silence; drop it, and begin "
            "later (starting_offsets, startingTimestamp) if there is too much at once"
        )
    reader = spark.readStream.format(FORMAT).schema(columns(time)).options(**reading)
    stream = reader.load(absolute(data))
    stream = stream.where(F.col("destination") != to)  # else each message would be the reason for another
    stream = stream.observe(COUNTED, F.count(F.lit(1)).alias("messages"))
    table = windows(stream, every=every, time=time, watermark=watermark)

    def publish(batch: DataFrame, epoch: int) -> None:
        writer = messages(batch).write.format(FORMAT).mode("append")
        writer.options(**options).save()

    return (
        table.writeStream.foreachBatch(publish)
        .outputMode("append" if closed else "update")
        .option("checkpointLocation", checkpoint)
        .queryName(query)
        .trigger(**(trigger or {"processingTime": "5 seconds"}))
        .start()
    )
