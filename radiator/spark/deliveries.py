"""Read the table of deliveries, and the messages that a cursor had acknowledged.

``deliveries_reader`` is the reader of a batch of deliveries, ``acknowledged`` plans a read with ``as_of_cursor``, and
``deliveries`` makes the table from a DataFrame of records, for records of the archive too.

Uses pyspark's reader classes. ``radiator.columns.deliveries`` defines the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    In,
    InputPartition,
    IsNotNull,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import IntegerType, StringType, StructType, TimestampType

from radiator.columns.deliveries import TEXTS, settled
from radiator.columns.delivery_records import HEADERS, INT, LONG
from radiator.columns.options import ReadOptions
from radiator.columns.planning import plan, plan_until, resolved
from radiator.spark.archived import archived
from radiator.spark.schema import DELIVERIES
from radiator.spark.split import Split
from radiator.spark.struct_columns import table_of

_KINDS: dict[type[Filter], str] = {EqualTo: "in", In: "in", StringStartsWith: "starts"}


def deliveries_reader(options: ReadOptions, schema: StructType) -> DataSourceReader:
    """Return the reader of a batch of deliveries.

    Args:
        options: The options of the read.
        schema: The columns to read.

    Raises:
        ConfigError: A column is unknown or has another type.
    """
    kind = PushingDeliveriesReader if options.pushdown else DeliveriesReader
    return kind(options, schema)


class DeliveriesReader(DataSourceReader):  # type: ignore[misc]  # pyspark is untyped here
    """The reader of a batch of deliveries.

    Args:
        options: The options of the read.
        schema: The columns to read.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._table = options, table_of(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read as of now and return one Split per task.

        Raises:
            LostRecords: Retention has removed offsets that the options name.
            StorageError: The store cannot be read, or does not have what the options name.
        """
        options = resolved(self._options)
        return [Split(ranges, options.selection) for ranges in plan(options)] or [Split((), options.selection)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task.

        Args:
            partition: A Split of ``partitions``.

        Raises:
            LostRecords: Records cannot be read, and ``failOnDataLoss`` is set.
            StorageError: A segment cannot be read.
        """
        assert isinstance(partition, Split)
        return partition.read(self._options, self._table)


class PushingDeliveriesReader(DeliveriesReader):
    """A reader that accepts filters on the text columns. Spark checks the class for ``pushFilters``."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Add the filters that can be converted to the options, and return the others to Spark.

        Args:
            filters: The filters of the query.
        """
        rest = []
        for each in filters:
            narrower = _narrow(self._options, each)
            if narrower is None:
                rest.append(each)
            else:
                self._options = narrower
        return rest


def _narrow(options: ReadOptions, condition: Filter) -> ReadOptions | None:
    """Return the options with one more condition, or None if the filter cannot be converted exactly."""
    negated = isinstance(condition, Not)
    inner: Any = condition.child if isinstance(condition, Not) else condition
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(path) != 1 or path[0] not in TEXTS or options.deliveries is None:
        return None
    if isinstance(inner, IsNotNull) and not negated:
        return replace(options, deliveries=options.deliveries.where(path[0], "starts", ""))
    kind = _KINDS.get(type(inner))
    values = tuple(inner.value) if isinstance(inner, In) else (getattr(inner, "value", None),)
    if kind is None or not all(isinstance(value, str) for value in values):
        return None
    return replace(options, deliveries=options.deliveries.where(path[0], kind, *values, negated=negated))


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
    splits = []
    for ranges in tasks:
        part = of.within(ranges)
        wanted = tuple(each for each in ranges if of.within([each]).runs)
        if wanted:
            splits.append(Split(wanted, selection, part))
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
