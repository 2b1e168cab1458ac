"""Publish windowed counts of new messages to a topic: the streaming job.

``windows`` builds the table, ``publish_windows`` runs it. Each trigger reads the new records, and publishes the changed
windows as JSON, one message each. A window is published again whenever it has grown, and the message with the highest
count is the latest. With ``closed`` a window is published once, when no more records can belong to it.

Effectively once: the ids are made of query, destination, window and count, and a count only grows. So a window that is
published again after a crash is the same message for the broker.

Spark does not support the output mode ``update`` for Python sinks, so the job writes the batches of ``foreachBatch``.

Uses Spark's streams and the options of the sink.
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
from radiator.spark.sections.options import WINDOWS
from radiator.spark.session import FORMAT, absolute
from radiator.spark.spelling import over, plain

TIMES = ("receive_time", "event_time")
COUNTED = "counted"  # a metric in the progress of a trigger: the new messages, without those of ``to``
_MOMENT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX"


def columns(time: str = "receive_time") -> StructType:
    """Return the schema that ``windows`` reads.

    Args:
        time: The time column of the windows: ``receive_time`` or ``event_time``.

    Raises:
        ConfigError: ``time`` is another name.
    """
    if time not in TIMES:
        raise ConfigError(f"time: expected {' or '.join(TIMES)}, got {time!r}")
    return select(["destination", "size", time])


def windows(
    df: DataFrame, *, every: str = "1 minute", time: str = "receive_time", watermark: str = "1 minute"
) -> DataFrame:
    """Count messages and bytes per destination and time window.

    Args:
        df: A DataFrame or stream with ``destination``, ``size`` and the time column.
        every: The width of the windows, as Spark writes it.
        time: The time column: ``receive_time`` or ``event_time``. Records without that time are left out.
        watermark: How long a window waits for late records, as Spark writes it. Later records are left out.

    Returns:
        A DataFrame with the columns destination, start, end, messages and bytes.
    """
    return (
        df.where(F.col(time).isNotNull())
        .withWatermark(time, watermark)
        .groupBy("destination", F.window(time, every).alias("window"))
        .agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
        .select("destination", "window.start", "window.end", "messages", "bytes")
    )


def messages(table: DataFrame) -> DataFrame:
    """Return a message for the sink for each row of ``windows``, without a destination column.

    Args:
        table: The result of ``windows``.
    """
    start, end = (F.date_format(name, _MOMENT) for name in ("start", "end"))
    body = F.to_json(F.struct("destination", start.alias("start"), end.alias("end"), "messages", "bytes"))
    return table.select(
        body.alias("body"),
        F.lit("application/json").alias("content_type"),
        F.create_map(F.lit("destination"), F.col("destination")).alias("tags"),
        F.col("start").alias("event_time"),
        F.col("destination").alias("key"),  # the windows of a destination stay in order in a topic with partitions
        F.concat_ws(" ", F.col("destination"), F.unix_micros("start"), F.unix_micros("end"), F.col("messages")).alias(
            "row"
        ),
    )


def publish_windows(
    spark: SparkSession,
    data: str,
    url: str,
    to: str = WINDOWS,
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
    """Start the job and return the query: ``awaitTermination()`` waits for it, ``stop()`` ends it.

    Args:
        spark: The session.
        data: The path or the URI of the store.
        url: The address of the broker to publish to.
        to: The topic to publish to. Its own messages are not counted.
        checkpoint: The directory in which Spark stores the progress. A job with the same directory continues there.
        destination: The destinations to count: names and patterns, separated by commas.
        every: The width of the windows, as Spark writes it.
        time: The time column: ``receive_time`` or ``event_time``.
        watermark: How long a window waits for late records, as Spark writes it.
        closed: Publish each window once, when it is complete.
        trigger: The arguments of Spark's ``trigger``; None is ``{"processingTime": "5 seconds"}``.
        starting_offsets: Where the first run starts: ``earliest``, ``latest`` or JSON.
        query: The name at the start of the message ids. Jobs that publish to one topic need different names.
        read_options: More options of reading, in any spelling. A limit of offsets per trigger is refused, because it
            would leave records out.
        sink: More options of writing, in any spelling.

    Raises:
        ConfigError: An option is unknown or has a wrong value.
    """
    options = over({"url": url, "destination": to, "query": query, "dedup_by": "row"}, sink or {})
    sink_options.parse(options)
    reading = over({"destination": destination, "starting_offsets": starting_offsets}, read_options or {})
    limit = next((name for name in reading if plain(name) == "maxoffsetspertrigger"), None)
    if limit is not None:
        raise ConfigError(
            f"option {limit}: not allowed here, because a batch that ends early in one partition moves the watermark "
            "past records of it that are not read yet, so their windows would silently miss them; drop the option, and "
            "start later (starting_offsets, startingTimestamp) if there are too many records"
        )
    reader = spark.readStream.format(FORMAT).schema(columns(time)).options(**reading)
    stream = reader.load(absolute(data))
    stream = stream.where(F.col("destination") != to)  # else each published message would cause another
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
