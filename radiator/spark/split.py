"""Define the work of one task: ranges of segments, in order, and a selection.

It is pickled to the process of the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from radiator.columns.decode import Counters
from radiator.columns.options import ReadOptions
from radiator.columns.read import read
from radiator.columns.scan import SegmentRange
from radiator.columns.selection import Selection
from radiator.spark.archived import archived
from radiator.spark.schema import arrow_schema
from radiator.spark.worker import settle


class Split(InputPartition):  # type: ignore[misc]  # pyspark is untyped here
    """The work of one task.

    Args:
        ranges: The ranges of segments, in order.
        selection: The records to return.
        ends: The first offset that the plan does not read, by partition; only in the first task of a plan.
    """

    def __init__(
        self, ranges: tuple[SegmentRange, ...], selection: Selection, ends: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.selection = selection
        self.ends = ends

    def read(self, options: ReadOptions, columns: StructType) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the task, in its process.

        Args:
            options: The options of the read.
            columns: The columns to read.

        Raises:
            LostRecords: Records cannot be read, and ``failOnDataLoss`` is set.
            StorageError: A segment cannot be read.
        """
        settle()
        options = replace(options, selection=self.selection)
        schema = arrow_schema(columns)
        return read(self.ranges, options, schema, Counters(), archived(options, schema))
