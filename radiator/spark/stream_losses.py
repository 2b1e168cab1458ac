"""What a stream was to read and cannot, in words: an error, or a warning where ``failOnDataLoss`` is false.

A log that ends before the checkpoint is an error in any case: whatever comes next under these offsets would be taken
for what was read already.

Knows: options, words. Must not know: files, pyspark.
"""

from __future__ import annotations

from collections.abc import Collection

from radiator.columns.files import shown
from radiator.columns.options import ReadOptions
from radiator.columns.scan import LostRecords
from radiator.columns.warn import warn
from radiator.errors import StorageError
from radiator.spark.stream_offsets import Offsets

REMEDY = 'to go on with what is left: option("failOnDataLoss", "false")'


class Losses:
    def __init__(self, options: ReadOptions) -> None:
        self._path, self._fail = shown(options.path), options.fail_on_data_loss
        self._wants, self._once = options.selection.wants_partition, options.warn_once

    def _lose(self, what: str, goes_on: str) -> None:
        if self._fail:
            raise LostRecords(f"{what}; {REMEDY}")
        warn(f"{what}: {goes_on}", self._once)

    def vanished(self, start: Offsets, found: Collection[str]) -> list[str]:
        """Those of ``start`` that are not there any more."""
        missing = [name for name in start if name not in found and self._wants(name)]
        for name in missing:
            self._lose(
                f"{self._path} has no partition {name!r} any more, which this query has read", "left out from now on"
            )
        return missing

    def gone(self, name: str, low: int, high: int) -> None:
        self._lose(f"partition {name!r} is gone, and offsets {low} to {high - 1} of it were to be read", "skipped")

    def retained(self, name: str, low: int, start: int) -> None:
        """The log has nothing from ``low`` up to ``start`` any more."""
        self._lose(
            f"partition {name!r}: offsets {low} to {start - 1} have been removed, by retention or because all "
            "consumers were done with them, before this query read them",
            f"it goes on at {start}",
        )

    def past_the_end(self, name: str, offset: int, end: int, whose: str = "the checkpoint") -> None:
        if offset > end:
            raise StorageError(
                f"partition {name!r} ends at offset {end}, and {whose} is at {offset}: this is another store, or an "
                "older copy of it, or a power cut took what was not synced. Read the store that the query has read so "
                "far, or start anew with an empty checkpointLocation and startingOffsets"
            )
