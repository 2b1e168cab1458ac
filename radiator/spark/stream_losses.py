"""Report records that a stream cannot read: an error, or a warning if ``failOnDataLoss`` is false.

A log that ends before the checkpoint is always an error, because new records at these offsets would count as read.

Must not import files or pyspark.
"""

from __future__ import annotations

from collections.abc import Collection

from radiator.columns.files import shown
from radiator.columns.options import ReadOptions
from radiator.columns.scan import LostRecords
from radiator.columns.warn import warn
from radiator.errors import StorageError
from radiator.spark.stream_offsets import Offsets

REMEDY = 'to continue with the rest: option("failOnDataLoss", "false")'


class Losses:
    """Report the losses of one stream.

    Args:
        options: The options of the read.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._path, self._fail = shown(options.path), options.fail_on_data_loss
        self._wants, self._once = options.selection.wants_partition, options.warn_once

    def _lose(self, what: str, goes_on: str) -> None:
        if self._fail:
            raise LostRecords(f"{what}; {REMEDY}")
        warn(f"{what}: {goes_on}", self._once)

    def vanished(self, start: Offsets, found: Collection[str]) -> list[str]:
        """Return the partitions of a checkpoint that do not exist any more, and report each.

        Args:
            start: The offsets in the checkpoint.
            found: The partitions that exist.

        Raises:
            LostRecords: A partition is missing, and ``failOnDataLoss`` is set.
        """
        missing = [name for name in start if name not in found and self._wants(name)]
        for name in missing:
            self._lose(
                f"{self._path} no longer has partition {name!r}, which this query has read", "left out from now on"
            )
        return missing

    def gone(self, name: str, low: int, high: int) -> None:
        """Report offsets of a partition that does not exist any more.

        Args:
            name: The name of the partition.
            low: The first offset.
            high: The offset after the last one.

        Raises:
            LostRecords: ``failOnDataLoss`` is set.
        """
        self._lose(f"partition {name!r} no longer exists; offsets {low} to {high - 1} are not read", "skipped")

    def retained(self, name: str, low: int, start: int) -> None:
        """Report offsets that were removed from a partition.

        Args:
            name: The name of the partition.
            low: The first offset.
            start: The offset after the last one.

        Raises:
            LostRecords: ``failOnDataLoss`` is set.
        """
        self._lose(
            f"partition {name!r}: offsets {low} to {start - 1} have been removed, by retention or because all "
            "consumers had settled them, before this query read them",
            f"the query continues at {start}",
        )

    def past_the_end(self, name: str, offset: int, end: int, whose: str = "the checkpoint") -> None:
        """Check that an offset is not after the end of the log.

        Args:
            name: The name of the partition.
            offset: The offset.
            end: The end of the log.
            whose: Where the offset comes from, for the error message.

        Raises:
            StorageError: The offset is after the end.
        """
        if offset > end:
            raise StorageError(
                f"partition {name!r} ends at offset {end}, and {whose} is at {offset}: this is another store, or an "
                "older copy of it, or a power failure removed unsynced messages. Read the store that the query has "
                "read so far, or start again with an empty checkpointLocation and startingOffsets"
            )
