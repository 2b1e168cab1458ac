"""Which tags are used, and which of their values are frequent."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def top_tags(df: DataFrame, *, limit: int = 10) -> DataFrame:
    """The ``limit`` most frequent values of every tag: key, value, messages, share, rank, values.

    ``share`` is of the messages that carry the tag, ``values`` how many different ones it has. The keys that most
    messages carry come first.
    """
    used = df.select(F.explode("tags").alias("key", "value"))
    counts = used.groupBy("key", "value").agg(F.count("*").alias("messages"))
    of_key = Window.partitionBy("key")
    return (
        counts.withColumn("of_key", F.sum("messages").over(of_key))
        .withColumn("values", F.count("*").over(of_key))
        .withColumn("rank", F.row_number().over(of_key.orderBy(F.desc("messages"), "value")))
        .where(F.col("rank") <= limit)
        .orderBy(F.desc("of_key"), "key", "rank")
        .select("key", "value", "messages", (F.col("messages") / F.col("of_key")).alias("share"), "rank", "values")
    )
