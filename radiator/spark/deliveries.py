"""Plan a read of the messages that a cursor had acknowledged, and make the table of deliveries from records.

``acknowledged`` plans a read with ``as_of_cursor``. ``deliveries`` makes the table from a DataFrame of records, which
may be of the archive.

``radiator.columns.deliveries`` defines the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, TimestampType

from radiator.columns.deliveries import settled
from radiator.columns.delivery_records import HEADERS, INT, LONG
from radiator.columns.options import ReadOptions
from radiator.columns.planning import plan_until
from radiator.spark.archived import archived
from radiator.spark.schema import DELIVERIES
from radiator.spark.split import Split


def acknowledged(
    options: ReadOptions, cursor: str, until: Mapping[str, int] | None = None
) -> tuple[list[Split], Mapping[str, int]]:
    """Plan a read of the messages that a cursor had acknowledged, as of the moment of the options.

    The deliveries are read first. A message is stored before it is acknowledged, so the messages are all there.

    Args:
        options: The options of the read, after ``resolved``.
        cursor: The name of the queue, the durable subscription or the group.
        until: The first offset that is not read, by partition. None plans as of now.

    Returns:
        A Split per task, and the end of each partition for a later plan of the same messages.

    Raises:
        LostRecords: Deliveries or messages have been removed or cannot be read, and ``failOnDataLoss`` is set.
        StorageError: The store cannot be read.
    """
    of = settled(options, cursor, options.as_of_ns, archived, until)
    selection = options.selection.partition("in", *of.runs)
    tasks, ends = plan_until(replace(options, selection=selection), until)
    selection = selection.until(ends)
    splits = []
    for ranges in tasks:
        wanted = tuple(each for each in ranges if of.within([each]).runs)
        if wanted:
            splits.append(Split(wanted, selection.of({each.partition for each in wanted}), of.within(ranges)))
    return splits, {**ends, **of.ends}


def deliveries(df: DataFrame, columns: Iterable[str] | None = None) -> DataFrame:
    """Return the table of deliveries, made from records.

    Args:
        df: The records of the deliveries log, with the columns ``headers`` and ``offset``.
        columns: The columns to return; None returns all.
    """
    return df.select(*(_column(name).alias(name) for name in columns or DELIVERIES.names))


def _column(name: str) -> Column:
    if name == "record_offset":
        return F.col("offset")
    text, kind = F.col("headers")[HEADERS[name]], DELIVERIES[name].dataType
    if isinstance(kind, StringType):
        return text
    whole = F.when(text.rlike(INT if isinstance(kind, IntegerType) else LONG), text.cast("bigint"))
    if isinstance(kind, TimestampType):
        return F.timestamp_micros(F.call_function("div", whole, F.lit(1000)))
    return whole.cast(kind)
