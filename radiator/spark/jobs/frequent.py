"""Find frequent tags, keys and senders, and how unevenly they share the traffic.

A *key* is any header (``partition-key``, ``tag-carrier``), or a field of a JSON body, written as a path: ``$.tailnum``.
The broker stores no login with a message, so a *sender* is the name that the publisher writes into ``producer-id`` or
another header.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

PARTITION_KEY, PRODUCER = "partition-key", "producer-id"


def key_of(key: str) -> Column:
    """Return a column with the value of a header, or of a field of the JSON body, as text; null without it.

    Args:
        key: The name of a header, or a path into JSON bodies (``$.a.b``).
    """
    if key.startswith("$"):
        return F.get_json_object(F.col("body").cast("string"), key)
    return F.col("headers").getItem(key)


def key_columns(key: str, *others: str) -> tuple[str, ...]:
    """Return the columns that ``key_of`` needs, followed by others.

    Args:
        key: The name of a header, or a path into JSON bodies.
        *others: More columns.

    Example:
        >>> key_columns("$.tailnum", "size")
        ('body', 'size')
    """
    return ("body" if key.startswith("$") else "headers", *others)


def top_tags(df: DataFrame, *, limit: int = 10) -> DataFrame:
    """Return the most frequent values of every tag; the tags of most messages come first.

    Args:
        df: A DataFrame with tags.
        limit: The maximum number of values per tag.

    Returns:
        The columns key, value, messages, share (of the messages with the tag), rank, values (the number of different
        ones).
    """
    used = df.select(F.explode("tags").alias("key", "value"))
    counts = used.groupBy("key", "value").agg(F.count("*").alias("messages"))
    of_key = counts.groupBy("key").agg(F.sum("messages").alias("of_key"), F.count("*").alias("values"))
    rank = F.row_number().over(Window.partitionBy("key").orderBy(F.desc("messages"), "value"))
    # With only the limit after this window, Spark cuts the rows of each task before it sorts them together, so a tag
    # with a million values is cheap.
    top = counts.withColumn("rank", rank).where(F.col("rank") <= limit)
    return (
        top.join(of_key, "key")
        .orderBy(F.desc("of_key"), "key", "rank")
        .select("key", "value", "messages", (F.col("messages") / F.col("of_key")).alias("share"), "rank", "values")
    )


def top_keys(df: DataFrame, *, key: str = PARTITION_KEY, limit: int = 20) -> DataFrame:
    """Return the most frequent values of a key.

    Args:
        df: A DataFrame with headers (or body, see ``key_columns``), partition, size and receive_time.
        key: The name of a header, or a path into JSON bodies.
        limit: The maximum number of values.

    Returns:
        The columns value, messages, share (of the messages with the key), bytes, partitions (the number of partitions
        with the value; 1 if the key determines the partition), first_received, last_received.
    """
    carried = df.select(key_of(key).alias("value"), "partition", "size", "receive_time").where("value is not null")
    counts = _counts(carried, "value", "partition")
    return _most(counts, limit).select(
        "value", "messages", "share", "bytes", "partitions", "first_received", "last_received"
    )


def key_skew(df: DataFrame, *, key: str = PARTITION_KEY) -> DataFrame:
    """Return one row that says how uneven a key is; no row for an empty log.

    If values_50 is 1, one value has half of the messages, and no number of partitions distributes them.

    Args:
        df: A DataFrame with headers or body.
        key: The name of a header, or a path into JSON bodies.

    Returns:
        The columns messages (with the key), without, values, most_share (of the most frequent value), values_50 and
        values_90 (how many of the most frequent values make up that percentage of the messages).
    """
    counts = df.select(key_of(key).alias("value")).groupBy("value").agg(F.count("*").alias("n"))
    # The number of values per count: a short table, however many values there are, so it may be sorted in one task.
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

    present = ~F.col("none")
    carried = F.coalesce(F.sum(F.when(present, F.col("n") * F.col("values"))), F.lit(0))
    return (
        steps.groupBy()
        .agg(
            carried.alias("messages"),
            F.coalesce(F.sum(F.when(F.col("none"), F.col("n"))), F.lit(0)).alias("without"),
            F.coalesce(F.sum(F.when(present, F.col("values"))), F.lit(0)).alias("values"),
            (F.max(F.when(present, F.col("n"))) / F.when(carried > 0, carried)).alias("most_share"),
            needed(50),
            needed(90),
        )
        .where("messages + without > 0")
    )


def partition_balance(df: DataFrame) -> DataFrame:
    """Return how evenly the partitions of a destination share its messages, for destinations with several partitions.

    Args:
        df: A DataFrame with destination, partition and size.

    Returns:
        The columns destination, partition, messages, bytes, share, even (the multiple of an equal share: 1.0 is even).
    """
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
    """Return the senders with most messages.

    Args:
        df: A DataFrame with headers (or body), destination, size and receive_time.
        sender: The header, or the path into JSON bodies, with the name of the sender.
        limit: The maximum number of senders.

    Returns:
        The columns sender, messages, share (of the messages with a sender), bytes, destinations, first_received,
        last_received, silent_ms (from its last message to the last message of all).
    """
    named = df.select(key_of(sender).alias("sender"), "destination", "size", "receive_time")
    counts = _counts(named, "sender", "destination")
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


def _counts(df: DataFrame, by: str, other: str) -> DataFrame:
    """Return one row per value of a column, with the number of different values of ``other``."""
    return df.groupBy(by).agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.count_distinct(other).alias(f"{other}s"),
        F.min("receive_time").alias("first_received"),
        F.max("receive_time").alias("last_received"),
    )


def _most(counts: DataFrame, limit: int, name: str = "value") -> DataFrame:
    """Return the rows with most messages, each with its share of all."""
    everything = counts.agg(F.sum("messages").alias("all"))
    top = counts.orderBy(F.desc("messages"), name).limit(limit)
    return (
        top.crossJoin(everything)
        .withColumn("share", F.col("messages") / F.col("all"))
        .orderBy(F.desc("messages"), name)
    )
