"""Find messages that wait for a consumer, from the cursors in the files, for a report without samples."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from radiator.clock import NS_PER_SECOND
from radiator.storage.reader import Damage, list_cursors, list_partitions, segment_batches

if TYPE_CHECKING:
    from radiator.storage.reader import StoredPartition

WAITING_NS = 600 * NS_PER_SECOND  # what is younger may be in flight
CURSORS_MAX = 50  # of which the oldest message is looked up


def waiting(root: str, now_ns: int) -> list[dict[str, Any]]:
    """Return the cursors whose oldest unacknowledged message is 10 minutes old or older, the largest lag first.

    Args:
        root: A data directory on this machine.
        now_ns: The time, in nanoseconds since 1970.

    Returns:
        Rows of ``cursor``, ``partition``, ``lag`` (messages that are not acknowledged; where destinations share a
        partition, those of others are among them) and ``oldest`` (a UTC datetime).
    """
    partitions = {each.name: each for each in list_partitions(root)}
    behind = []
    for cursor in list_cursors(root):
        partition = partitions.get(cursor.partition)
        if partition is None:
            continue
        floor = max(cursor.floor, partition.log_start_offset)
        acked = sum(max(0, stop - max(start, floor)) for start, stop in cursor.intervals)
        if (lag := partition.next_offset - floor - acked) > 0:
            behind.append((lag, cursor.name, partition, floor))
    behind.sort(key=lambda each: (-each[0], each[1]))
    rows = []
    for lag, name, partition, floor in behind[:CURSORS_MAX]:
        received = _received_ns(partition, floor)
        if received is not None and received <= now_ns - WAITING_NS:
            oldest = datetime.fromtimestamp(received // NS_PER_SECOND, UTC)
            rows.append({"cursor": name, "partition": partition.name, "lag": lag, "oldest": oldest})
    return rows


def _received_ns(partition: StoredPartition, offset: int) -> int | None:
    """Return when the batch that covers ``offset`` was begun; None if it is damaged or deleted."""
    segment = next((each for each in reversed(partition.segments) if each.base_offset <= offset), None)
    if segment is None:
        return None
    found = None
    with contextlib.suppress(OSError):  # retention has removed the segment meanwhile
        for _, batch in segment_batches(segment.path, end=segment.size_bytes):
            if isinstance(batch, Damage):
                continue
            if batch.base_offset > offset:
                break
            found = batch.min_receive_ns
    return found
