"""Report offsets that a cursor has not settled and that are gone from its log.

Retention moves a cursor on before it removes anything, so something other than the broker removed these files.

This module knows cursors and where logs begin. It does not know files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from radiator.storage.file_partition import FilePartition
from radiator.storage.recovery import RecoveryNote

if TYPE_CHECKING:
    from radiator.storage.cursor_store import CursorStore
    from radiator.storage.partition import Partition


def notes(cursors: CursorStore, partitions: Mapping[str, Partition]) -> list[RecoveryNote]:
    """Return a note for each cursor with missing messages."""
    found = []
    for name, partition_name in cursors.names():
        partition, cursor = partitions.get(partition_name), cursors.get(name, partition_name)
        gone = cursor.unsettled_below(partition.log_start_offset) if partition is not None and cursor else None
        if gone is not None and isinstance(partition, FilePartition):
            text = f"offsets {gone[0]} to {gone[1]}, of which {name} had not settled {gone[2]}, are missing"
            found.append(RecoveryNote(partition.directory, text, "missing", gone[0], gone[1]))
    return found
