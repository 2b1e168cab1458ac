"""The data source ``radiator``: the thin part between Spark and the modules that know the log.

Spark makes a ``RadiatorSource`` from the options, asks it for a reader with the wanted schema, and that reader for
partitions (in a Python process beside the driver) and for the rows of each partition (in the tasks' processes). A
stream has a reader of its own, ``stream``. The end of the log is fixed when the partitions are planned; a DataFrame
keeps its plan, so it is a snapshot as of its first action.

Push-down of filters is off unless asked for (``option("pushdown", "true")``): Spark 4.3 keeps what was pushed for one
query with the DataFrame and gives it to the next query over the same DataFrame too, which silently loses rows. The
options of this source select the same things safely. docs/spark.md tells the story, tests/spark holds the proof.

Knows: pyspark's data source classes. Everything else is done in planning, scan and decode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, SupportsIndex

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from radiator.columns.decode import Counters
from radiator.columns.files import open_store
from radiator.columns.log import exists
from radiator.columns.options import ReadOptions
from radiator.columns.planning import plan, resolved
from radiator.columns.read import read
from radiator.spark import options as read_options
from radiator.spark.archived import archived
from radiator.spark.bringing import bring
from radiator.spark.options import Use
from radiator.spark.pushdown import narrow
from radiator.spark.schema import SCHEMA, arrow_schema, checked
from radiator.spark.split import Split
from radiator.spark.stream import StreamReader
from radiator.spark.unknown import tell_unknown
from radiator.spark.worker import quiet, settle


class RadiatorSource(DataSource):  # type: ignore[misc]
    def __init__(self, options: Any) -> None:
        quiet()  # the JVM leaves a process that makes one, or plans with one, as soon as it has what it wants
        super().__init__(options)

    def __setstate__(self, state: dict[str, Any]) -> None:
        quiet()
        self.__dict__.update(state)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return bring(super().__reduce_ex__(protocol))

    @classmethod
    def name(cls) -> str:
        return "radiator"

    def schema(self) -> StructType:
        options = read_options.parse(self.options, Use.EITHER)
        exists(open_store(options.path, options.storage))  # what is wrong is told when the DataFrame is made
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options.parse(self.options)
        return PushingReader(options, checked(schema)) if options.pushdown else Reader(options, checked(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from radiator.spark.sink import batch_sink  # who reads needs no client

        return batch_sink(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from radiator.spark.sink import stream_sink

        return stream_sink(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(read_options.parse(self.options, Use.STREAM), schema)


class Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        options = resolved(self._options)
        tell_unknown(options)
        return [Split(ranges, options.selection) for ranges in plan(options)] or [Split((), options.selection)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Split)
        settle()
        options = replace(self._options, selection=partition.selection)
        schema = arrow_schema(self._schema)
        return read(partition.ranges, options, schema, Counters(), archived(options, schema))


class PushingReader(Reader):
    """A reader of its own class, because Spark looks at the class to see whether filters can be pushed."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        rest = []
        for condition in filters:
            narrower = narrow(self._options.selection, condition)
            if narrower is None:
                rest.append(condition)
            else:
                self._options = replace(self._options, selection=narrower)
        return rest
