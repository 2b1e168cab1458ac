"""Define the work of one task: ranges of segments, in order, and a selection.

It is pickled to the process of the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from radiator.columns import schema as records
from radiator.columns.decode import Counters
from radiator.columns.deliveries import RAW, Settled, as_deliveries
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
        settled: Only these messages; None returns all.
        ends: The first offset that the plan does not read, by partition; only in the first task of a plan.
    """

    def __init__(
        self,
        ranges: tuple[SegmentRange, ...],
        selection: Selection,
        settled: Settled | None = None,
        ends: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.selection = selection
        self.settled = settled
        self.ends = ends

    def with_ends(self, ends: Mapping[str, int]) -> Split:
        """Return the same work, with the ends of its plan.

        Args:
            ends: The first offset that the plan does not read, by partition.
        """
        return Split(self.ranges, self.selection, self.settled, ends)

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
        if options.deliveries is not None:
            raw = records.arrow_schema(RAW)
            found = read(self.ranges, options, raw, Counters(), archived(options, raw))
            return (as_deliveries(batch, wanted, options.deliveries) for batch in found)
        if is_plain(table.schema.names):
            return self._messages(options, wanted)
        batches = self._messages(options, arrow_schema(select(needed(table.schema.names, table.typed))))
        return Typing(table.typed, wanted).extend(batches)

    def _messages(self, options: ReadOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Return the rows of the messages: all, or those that the cursor had acknowledged."""
        if self.settled is None:
            return read(self.ranges, options, schema, Counters(), archived(options, schema))
        return self._acknowledged(options, schema, self.settled)

    def _acknowledged(self, options: ReadOptions, schema: pa.Schema, of: Settled) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the messages that the cursor had acknowledged."""
        more = [name for name in ("partition", "offset") if name not in schema.names]
        wide = pa.schema([*schema, *records.arrow_schema(more)])
        for batch in read(self.ranges, options, wide, Counters(), archived(options, wide)):
            yield of.only(batch).select(schema.names)
