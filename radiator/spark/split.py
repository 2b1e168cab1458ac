"""Define the work of one task: ranges of segments, in order, and a selection.

It is pickled to the process of the task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from radiator.columns.decode import Counters
from radiator.columns.options import ReadOptions
from radiator.columns.read import read
from radiator.columns.scan import SegmentRange
from radiator.columns.selection import Selection
from radiator.columns.typed import Typing, needed
from radiator.spark.archived import archived
from radiator.spark.schema import arrow_schema, is_plain, select
from radiator.spark.struct_columns import TableColumns
from radiator.spark.worker import settle


class Split(InputPartition):  # type: ignore[misc]  # pyspark is untyped here
    """The work of one task.

    Args:
        ranges: The ranges of segments, in order.
        selection: The records to return.
    """

    def __init__(self, ranges: tuple[SegmentRange, ...], selection: Selection) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.selection = selection

    def read(self, options: ReadOptions, table: TableColumns) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the task, in its process.

        Args:
            options: The options of the read.
            table: The columns to return.

        Raises:
            LostRecords: Records cannot be read, and ``failOnDataLoss`` is set.
            ConfigError: A decoder of bodies cannot be imported.
            StorageError: A segment cannot be read.
        """
        settle()
        options = replace(options, selection=self.selection)
        wanted = arrow_schema(table.schema)
        if is_plain(table.schema.names):
            return read(self.ranges, options, wanted, Counters(), archived(options, wanted))
        schema = arrow_schema(select(needed(table.schema.names, table.typed)))
        batches = read(self.ranges, options, schema, Counters(), archived(options, schema))
        return Typing(table.typed, wanted).extend(batches)
