"""The data source ``radiator``: the thin part between Spark and the modules that know the log.

Spark makes a ``RadiatorSource`` from the options, asks it for a reader with the wanted schema, and that reader for
partitions (in a Python process beside the driver) and for the rows of each partition (in the tasks' processes). The
end of the log is fixed when the partitions are planned; a DataFrame keeps its plan, so it is a snapshot as of its
first action.

Push-down of filters is off unless asked for (``option("pushdown", "true")``): Spark 4.3 keeps what was pushed for one
query with the DataFrame and gives it to the next query over the same DataFrame too, which silently loses rows. The
options of this source select the same things safely. docs/spark.md tells the story, tests/spark holds the proof.

Knows: pyspark's data source classes. Everything else is done in planning, scan and decode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

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
from radiator.columns.log import partitions
from radiator.columns.options import ReadOptions
from radiator.columns.planning import plan
from radiator.columns.read import read
from radiator.columns.scan import SegmentRange
from radiator.spark import options as read_options
from radiator.spark.pushdown import narrow
from radiator.spark.schema import SCHEMA, arrow_schema, checked


class Split(InputPartition):  # type: ignore[misc]  # pyspark is untyped here
    """What one task reads: ranges of segments, in order."""

    def __init__(self, ranges: tuple[SegmentRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class RadiatorSource(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return "radiator"

    def schema(self) -> StructType:
        options = read_options.parse(self.options)
        partitions(open_store(options.path, options.storage))  # what is wrong is told when the DataFrame is made
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


class Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return [Split(ranges) for ranges in plan(self._options)] or [Split(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Split)
        return read(partition.ranges, self._options, arrow_schema(self._schema), Counters())


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
