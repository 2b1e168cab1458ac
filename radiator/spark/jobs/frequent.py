"""What is frequent: values of tags, keys, senders; and how unevenly they share the traffic.

A *key* is any header that messages carry (``partition-key``, ``tag-carrier``, an order's number), or a field of a JSON
body, written as a path: ``$.tailnum``. The broker stores no login with a message: a *sender* is who names itself, in
``producer-id`` or whatever header the publishers use.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

PARTITION_KEY, PRODUCER = "partition-key", "producer-id"


def key_of(key: str) -> Column:
    """The value of a header, or of a field of the JSON body (``$.a.b``), as text; null where there is none."""
    if key.startswith("$"):
        return F.get_json_object(F.col("body").cast("string"), key)
    return F.col("headers").getItem(key)


def key_columns(key: str, *others: str) -> tuple[str, ...]:
    """What has to be read for ``key_of(key)``, beside ``others``."""
    return ("body" if key.startswith("$") else "headers", *others)


def top_tags(df: DataFrame, *, limit: int = 10) -> DataFrame:
    """The ``limit`` most frequent values of every tag: key, value, messages, share, rank, values.

    ``share`` is of the messages that carry the tag, ``values`` how many different ones it has. The keys that most
    messages carry come first.
    """
    used = df.select(F.explode("tags").alias("key", "value"))
    counts = used.groupBy("key", "value").agg(F.count("*").alias("messages"))
    of_key = counts.groupBy("key").agg(F.sum("messages").alias("of_key"), F.count("*").alias("values"))
    rank = F.row_number().over(Window.partitionBy("key").orderBy(F.desc("messages"), "value"))
    # A window of its own with nothing but the limit behind it: then Spark cuts each task's rows before they are sorted
    # together, and a tag with a million values is no trouble.
    top = counts.withColumn("rank", rank).where(F.col("rank") <= limit)
    return (
        top.join(of_key, "key")
        .orderBy(F.desc("of_key"), "key", "rank")
        .select("key", "value", "messages", (F.col("messages") / F.col("of_key")).alias("share"), "rank", "values")
    )


def top_keys(df: DataFrame, *, key: str = PARTITION_KEY, limit: int = 20) -> DataFrame:
    """The ``limit`` most frequent values of a key: value, messages, share, bytes, partitions, first_received,
    last_received.

    ``share`` is of the messages that carry the key, ``partitions`` in how many logs the value is found: one, where it
    keeps an order. Needs headers (or body, see ``key_columns``), partition, size and receive_time.
    """
    carried = df.select(key_of(key).alias("value"), "partition", "size", "receive_time").where("value is not null")
    counts = carried.groupBy("value").agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.count_distinct("partition").alias("partitions"),
        F.min("receive_time").alias("first_received"),
        F.max("receive_time").alias("last_received"),
    )
    return _most(counts, limit).select(
        "value", "messages", "share", "bytes", "partitions", "first_received", "last_received"
    )


def key_skew(df: DataFrame, *, key: str = PARTITION_KEY) -> DataFrame:
    """One row: messages (that carry the key), without, values, most_share (of the most frequent one), values_50 and
    values_90 (how many of the most frequent values make up that much of the traffic); none if nothing is stored.

    Where values_50 is 1, half of everything is one key's, and no number of partitions spreads it.
    """
    counts = df.select(key_of(key).alias("value")).groupBy("value").agg(F.count("*").alias("n"))
    # How many values have which count: a short table however many values there are, so it may be sorted as a whole.
    alike = counts.groupBy((F.col("value").isNull()).alias("none"), "n").agg(F.count("*").alias("values"))
    so_far = Window.partitionBy("none").orderBy(F.desc("n")).rowsBetween(Window.unboundedPreceding, -1)
    total = Window.partitionBy("none")
    steps = alike.select(
        "none",
        "n",
        "values",
        F.sum(F.col("n") * F.col("values")).over(total).alias("messages"),
        F.coalesce(F.sum(F.col("n") * F.col("values")).over(so_far), F.lit(0)).alias("done"),
        F.coalesce(F.sum("values").over(so_far), F.lit(0)).alias("before"),
    )

    def needed(percent: int) -> Column:
        missing = F.ceil((F.col("messages") * percent / 100 - F.col("done")) / F.col("n"))
        reached = (~F.col("none")) & (missing > 0) & (missing <= F.col("values"))
        return F.max(F.when(reached, F.col("before") + missing)).alias(f"values_{percent}")

    there = ~F.col("none")
    carried = F.coalesce(F.sum(F.when(there, F.col("n") * F.col("values"))), F.lit(0))
    return (
        steps.groupBy()
        .agg(
            carried.alias("messages"),
            F.coalesce(F.sum(F.when(F.col("none"), F.col("n"))), F.lit(0)).alias("without"),
            F.coalesce(F.sum(F.when(there, F.col("values"))), F.lit(0)).alias("values"),
            (F.max(F.when(there, F.col("n"))) / F.when(carried > 0, carried)).alias("most_share"),
            needed(50),
            needed(90),
        )
        .where("messages + without > 0")
    )


def partition_balance(df: DataFrame) -> DataFrame:
    """Destinations in several partitions, and how evenly: destination, partition, messages, bytes, share, even (times
    its even share: 1.0 is even, 3.0 three times too much). Needs destination, partition and size."""
    counts = df.groupBy("destination", "partition").agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
    of_destination = Window.partitionBy("destination")
    share = F.col("messages") / F.sum("messages").over(of_destination)
    return (
        counts.select("*", share.alias("share"), F.count("*").over(of_destination).alias("partitions"))
        .where("partitions > 1")
        .select(
            "destination",
            "partition",
            "messages",
            "bytes",
            "share",
            (F.col("share") * F.col("partitions")).alias("even"),
        )
        .orderBy("destination", F.desc("messages"), "partition")
    )


def senders(df: DataFrame, *, sender: str = PRODUCER, limit: int = 20) -> DataFrame:
    """Who sends most: sender, messages, share, bytes, destinations, first_received, last_received, silent_ms (the time
    since then, against the last message of anybody).

    ``sender`` is the header, or JSON path, in which they name themselves. ``share`` is of the messages that have it.
    Needs headers (or body), destination, size and receive_time.
    """
    named = df.select(key_of(sender).alias("sender"), "destination", "size", "receive_time")
    counts = named.groupBy("sender").agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.count_distinct("destination").alias("destinations"),
        F.min("receive_time").alias("first_received"),
        F.max("receive_time").alias("last_received"),
    )
    newest = counts.agg(F.max("last_received").alias("newest"))
    silent = (F.unix_micros("newest") - F.unix_micros("last_received")) / 1000
    return (
        _most(counts.where("sender is not null"), limit, "sender")
        .crossJoin(newest)
        .select(
            "sender", "messages", "share", "bytes", "destinations", "first_received", "last_received",
            silent.alias("silent_ms"),
        )
        .orderBy(F.desc("messages"), "sender")
    )  # fmt: skip


def _most(counts: DataFrame, limit: int, name: str = "value") -> DataFrame:
    """The ``limit`` rows with most messages, each with its share of all."""
    everything = counts.agg(F.sum("messages").alias("all"))
    top = counts.orderBy(F.desc("messages"), name).limit(limit)
    return (
        top.crossJoin(everything)
        .withColumn("share", F.col("messages") / F.col("all"))
        .orderBy(F.desc("messages"), name)
    )
