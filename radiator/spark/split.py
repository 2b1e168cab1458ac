"""Define the work of one task: ranges of segments, in order, and a selection.

It is pickled to the process of the task.
"""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from radiator.columns.scan import SegmentRange
from radiator.columns.selection import Selection


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
