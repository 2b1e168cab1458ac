"""Is every record there, once? Offsets are given out densely, so counting them is a proof."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def integrity(df: DataFrame) -> DataFrame:
    """One row per partition: partition, messages, first_offset, last_offset, missing, duplicates.

    ``missing`` are offsets between the first and the last that are not there, ``duplicates`` records whose offset was
    there already. Both are zero in a whole log, unless it has been compacted: that leaves offsets out on purpose.
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
    """The missing ranges: partition, first_missing, last_missing, records. Sorts all offsets: dearer than
    ``integrity``, worth it once that has found something."""
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
