"""Implement the data source ``radiator`` on pyspark's classes.

Spark creates a ``RadiatorSource`` from the options, asks it for a reader with a schema, and the reader for partitions
(in a Python process beside the driver) and for the rows of each partition (in the processes of the tasks). A stream has
a reader of its own, ``stream``. The end of the log is fixed when the partitions are planned, and a DataFrame stores its
plan, so it is a snapshot as of its first action.

Spark 4.3 gives a Python data source no columns, and stores the filters of one query with the DataFrame, so that they
would apply to its next query too. An optimizer rule (``scan_rule``) gives each query a reader of its own instead,
``PrunedReader``, with the columns and the filters of that query. ADR 46 has the reasons. The option ``pushdown`` uses
Spark's own way, for a DataFrame of one query, where there is no rule.

Uses pyspark's data source classes. Planning, scan and decode do the work.
Source: PySpark, "Python Data Source API".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, SupportsIndex

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from radiator.columns.files import open_store
from radiator.columns.log import exists
from radiator.columns.options import ReadOptions
from radiator.columns.planning import plan, plan_until, resolved
from radiator.columns.typed import typed_columns
from radiator.spark import options as read_options
from radiator.spark.deliveries import acknowledged
from radiator.spark.options import Use
from radiator.spark.pruned import Request, Shape, request_of
from radiator.spark.pushdown import narrow_options
from radiator.spark.schema import DELIVERIES, SCHEMA, typed_fields
from radiator.spark.shipped_import import with_package
from radiator.spark.split import Split
from radiator.spark.stream import stream_reader
from radiator.spark.struct_columns import table_of
from radiator.spark.unknown import warn_unknown
from radiator.spark.worker import settle_planning


class RadiatorSource(DataSource):  # type: ignore[misc]
    """The data source ``radiator``. ``radiator.spark.register`` registers it; Spark creates its instances.

    Args:
        options: The options of the reader or writer, as Spark passes them.
    """

    def __init__(self, options: Any) -> None:
        settle_planning()  # the JVM closes the pipe of a planning process as soon as it has the plan
        super().__init__(options)

    def __setstate__(self, state: dict[str, Any]) -> None:
        settle_planning()
        self.__dict__.update(state)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return with_package(super().__reduce_ex__(protocol))

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "radiator"

    def schema(self) -> StructType:
        """Return the columns of the table, after a check that the store exists. Rules with a schema add columns.

        Raises:
            ConfigError: An option is unknown or has a wrong value.
            NoStore: There is no store at the path.
            StorageError: The store cannot be read.
        """
        options = read_options.parse(self.options, Use.EITHER)
        place = open_store(options.path, options.storage)
        exists(place)  # report a wrong path when the DataFrame is created
        if options.deliveries is not None:
            return DELIVERIES
        return StructType([*SCHEMA.fields, *typed_fields(typed_columns(place))]) if options.typed else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query.

        Args:
            schema: The columns to read.

        Raises:
            ConfigError: An option or a column is unknown, or has a wrong value or type.
        """
        options = read_options.parse(self.options)
        request = request_of(schema, SCHEMA if options.deliveries is None else DELIVERIES)
        if request is not None:
            return PrunedReader(options, schema, request)
        return PushingReader(options, schema) if options.pushdown else Reader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch.

        Args:
            schema: The columns of the DataFrame.
            overwrite: True for the mode ``overwrite``, which is refused.

        Raises:
            ConfigError: An option or a column is unknown, or the mode is ``overwrite``.
            ClientError: The broker does not answer, or refuses the login.
        """
        from radiator.spark.sink import batch_sink  # a query that only reads does not load the client

        return batch_sink(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a stream.

        Args:
            schema: The columns of the stream.
            overwrite: True for the output mode ``complete``, which is refused.

        Raises:
            ConfigError: An option or a column is unknown, or the output mode is ``complete``.
        """
        from radiator.spark.sink import stream_sink

        return stream_sink(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream. Its methods raise ConfigError for a wrong option or column.

        Args:
            schema: The columns to read.
        """
        return stream_reader(self.options, schema)


class Reader(DataSourceReader):  # type: ignore[misc]
    """The reader of a batch query.

    Args:
        options: The options of the read.
        schema: The columns to read.

    Raises:
        ConfigError: A column is unknown or has another type.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._table = table_of(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read as of now and return one Split per task.

        Raises:
            LostRecords: Retention has removed offsets that the options name.
            StorageError: The store cannot be read, or does not have what the options name.
        """
        options = resolved(self._options)
        warn_unknown(options)
        if options.as_of_cursor is not None:
            return acknowledged(options, options.as_of_cursor)[0] or [Split((), options.selection)]
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


class PrunedReader(DataSourceReader):  # type: ignore[misc]
    """The reader of one query over a DataFrame, made by the optimizer rule (``radiator.spark.scan_rule``).

    Args:
        options: The options of the read.
        schema: The columns of the scan.
        request: The request in the schema.

    Raises:
        ConfigError: A column is unknown or has another type.
    """

    def __init__(self, options: ReadOptions, schema: StructType, request: Request) -> None:
        self._options = replace(options, only_keys=request.only_keys())
        self._schema, self._request = schema, request
        self._table = table_of(options, request.columns)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read up to the ends of the first query over the DataFrame, and return one Split per task.

        Raises:
            LostRecords: Retention has removed offsets that the options name.
            StorageError: The store cannot be read, or does not have what the options name.
        """
        options, ends = resolved(self._options), self._request.ends
        if ends is None:
            warn_unknown(options)
        options = self._request.narrowed(options)
        if options.as_of_cursor is not None:
            splits, ends = acknowledged(options, options.as_of_cursor, ends)
        else:
            tasks, ends = plan_until(options, ends)
            selection = options.selection.until(ends)
            splits = [Split(task, selection.of({each.partition for each in task})) for task in tasks]
        first, *others = splits or [Split((), options.selection)]
        return [first.with_ends(ends), *others]  # the first one has them for later plans

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task.

        Args:
            partition: A Split of ``partitions``.

        Raises:
            LostRecords: Records cannot be read, and ``failOnDataLoss`` is set.
            StorageError: A segment cannot be read.
        """
        assert isinstance(partition, Split)
        shape = Shape(self._schema, self._request)
        return shape.shaped(partition.read(self._request.narrowed(self._options), self._table))


class PushingReader(Reader):
    """A reader that accepts filters. It is a class of its own because Spark checks the class for ``pushFilters``."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Add the filters that can be converted to the selection, and return the others to Spark.

        Args:
            filters: The filters of the query.
        """
        rest = []
        for condition in filters:
            narrower = narrow_options(self._options, condition)
            if narrower is None:
                rest.append(condition)
            else:
                self._options = narrower
        return rest
