"""Check that every record exists once. The broker assigns offsets densely, so counting them is a proof."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def integrity(df: DataFrame) -> DataFrame:
    """Count missing and duplicate offsets per partition.

    Args:
        df: A DataFrame with partition and offset.

    Returns:
        The columns partition, messages, first_offset, last_offset, missing (offsets between the first and the last
        without a record), duplicates (records whose offset occurs before). Both are zero in a complete log, unless it
        was compacted, which removes records on purpose.
    """
    different = F.count_distinct("offset")
    return (
        df.groupBy("partition")
        .agg(
            F.count("*").alias("messages"),
            F.min("offset").alias("first_offset"),
            F.max("offset").alias("last_offset"),
            (F.max("offset") - F.min("offset") + 1 - different).alias("missing"),
            (F.count("*") - different).alias("duplicates"),
        )
        .orderBy("partition")
    )


def gaps(df: DataFrame) -> DataFrame:
    """Return the missing ranges of offsets.

    This sorts all offsets and costs more than ``integrity``; run it after that has found something.

    Args:
        df: A DataFrame with partition and offset.

    Returns:
        The columns partition, first_missing, last_missing, records.
    """
    before = F.lag("offset").over(Window.partitionBy("partition").orderBy("offset"))
    return (
        df.select("partition", "offset", before.alias("before"))
        .where(F.col("offset") > F.col("before") + 1)
        .select(
            "partition",
            (F.col("before") + 1).alias("first_missing"),
            (F.col("offset") - 1).alias("last_missing"),
            (F.col("offset") - F.col("before") - 1).alias("records"),
        )
        .orderBy("partition", "first_missing")
    )


def repeats(df: DataFrame, *, limit: int = 100) -> DataFrame:
    """Return messages that are stored more than once in one destination, by the ids that their publishers set.

    An id that comes again after the rule's ``dedup.window`` is a new message for the broker. Repeats of messages
    without an id cannot be found.

    Args:
        df: A DataFrame with destination, headers, offset and receive_time.
        limit: The maximum number of ids, the most repeated first.

    Returns:
        The columns destination, kind (``dedup-id``, or ``producer-id`` with its ``sequence``), identity, messages,
        first_received, last_received, first_offset, last_offset.
    """
    headers = F.col("headers")
    number = headers["sequence"]
    identities = [
        (headers["dedup-id"].isNotNull(), "dedup-id", headers["dedup-id"]),
        (
            headers["producer-id"].isNotNull() & number.rlike("^[0-9]{1,20}$"),
            "producer-id",
            F.concat(headers["producer-id"], F.lit(" "), F.regexp_replace(number, "^0+(?=[0-9])", "")),
        ),
    ]
    kind, identity = F.when(F.lit(False), ""), F.when(F.lit(False), "")
    for given, name, value in identities:
        kind, identity = kind.when(given, name), identity.when(given, value)
    named = df.select("destination", kind.alias("kind"), identity.alias("identity"), "offset", "receive_time")
    return (
        named.where("identity is not null")
        .groupBy("destination", "kind", "identity")
        .agg(
            F.count("*").alias("messages"),
            F.min("receive_time").alias("first_received"),
            F.max("receive_time").alias("last_received"),
            F.min("offset").alias("first_offset"),
            F.max("offset").alias("last_offset"),
        )
        .where("messages > 1")
        .orderBy(F.desc("messages"), "destination", "kind", "identity")
        .limit(limit)
    )
