"""What one task reads: ranges of segments, in order, and what is wanted of them. It travels to the task's process.

Knows: the values. Must not know: files.
"""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from radiator.columns.scan import SegmentRange
from radiator.columns.selection import Selection


class Split(InputPartition):  # type: ignore[misc]  # pyspark is untyped here
    def __init__(self, ranges: tuple[SegmentRange, ...], selection: Selection) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.selection = selection
