"""What may go, and when the active segment is sealed, besides by its size. Whole sealed segments only, oldest first.

    limits     age, size, count; never at or above ``retain_from``, unless the rule forces them: then the broker is told
               before anything is deleted, and moves its cursors on
    reclaim    in a log that holds only queues, what all of them have settled, whatever the limits
    archive    where a rule waits for it, nothing that the archive does not have, for whatever reason
    ids        nothing that is needed to know the ids of messages within their window (``dedup_file``)

A segment that is being rewritten stays until that has ended. Without a limit and a queue nothing ever goes.

Knows: a partition's facts. Must not know: files (``log`` deletes). Called by the hub.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from radiator import limits
from radiator.clock import NS_PER_SECOND, WallNs
from radiator.storage import dedup_file

if TYPE_CHECKING:
    from radiator.storage.file_partition import FilePartition

DAY_NS = 86_400 * NS_PER_SECOND


def roll_due_ns(first_receive_ns: int, roll_at_seconds: int) -> WallNs:
    """The first daily moment (UTC) after the segment's first record."""
    shift = roll_at_seconds * NS_PER_SECOND
    return WallNs((first_receive_ns - shift) // DAY_NS * DAY_NS + DAY_NS + shift)


def to_drop(partition: FilePartition, now_ns: WallNs) -> list[int]:
    """Takes what is due out of the hub's view and returns the base offsets of the segments to delete."""
    settings, segments, needed = partition.settings, partition.segments, partition.retain_from
    age, size_max, count_max = settings.retention_age_ns, settings.retention_bytes, settings.retention_count
    settled = partition.high_watermark if needed is None else needed
    reclaim = settings.reclaim_acked and needed is not None and not partition.history
    limited = age is not None or size_max is not None or count_max is not None
    if not (reclaim or limited) or len(segments) < 2:
        return []
    end_max = partition.high_watermark if settings.retention_force else min(settled, partition.high_watermark)
    if settings.wait_for_archive:
        end_max = min(end_max, partition.archived_to)
    size = sum(segment.size_bytes for segment in segments)
    drop = 0
    for segment, following in pairwise(segments):
        end = following.base_offset
        if end > end_max or segment.base_offset == partition.rewriting:
            break
        too_old = age is not None and segment.last_receive_ns < now_ns - age
        too_big = size_max is not None and size > size_max
        too_many = count_max is not None and partition.high_watermark - end >= count_max
        if not (too_old or too_big or too_many or (reclaim and end <= settled)):
            break
        size -= segment.size_bytes
        drop += 1
    if drop:
        removable_to = dedup_file.removable_to(partition, now_ns)
        while drop and segments[drop].base_offset > removable_to:
            drop -= 1
    bases = [segment.base_offset for segment in segments[:drop]]
    if drop:
        del segments[:drop]
        start = segments[0].base_offset
        partition.drop_before(start)
        partition.set_deadlines()
        if start > settled and partition.on_forced is not None:
            partition.on_forced(start)
    return bases


def size_due_bytes(partition: FilePartition) -> int | None:
    """How large the active segment may be before the oldest must go, by size."""
    size_max, segments = partition.settings.retention_bytes, partition.segments
    if size_max is None or len(segments) < 2:
        return None
    return size_max - sum(segment.size_bytes for segment in segments[:-1])


def settled_and_large(partition: FilePartition) -> bool:
    """Whether the active segment holds nothing but what its queues have settled, and enough of it to begin another."""
    segments, settings = partition.segments, partition.settings
    return (
        bool(segments)
        and settings.reclaim_acked
        and not partition.history
        and partition.retain_from == partition.high_watermark == partition.next_offset
        and segments[-1].size_bytes >= min(limits.RECLAIM_ROLL_BYTES, settings.segment_bytes)
    )


def stays(partition: FilePartition) -> bool:
    """Whether a log is there to be read again, which pays for writing it once more. Where what queues have settled is
    reclaimed it is read once, mostly from memory, and gone; but what waits for an archive may wait long, and is read
    by it. Of a log that nobody has opened, since it has no rule any more, it is not known."""
    settings = partition.settings
    return partition.history or not settings.reclaim_acked or settings.wait_for_archive


def many_commits(partition: FilePartition) -> bool:
    """Whether the active segment just got so many that it is better sealed, and rewritten with large batches."""
    if partition.segments[-1].commits % limits.SEGMENT_COMMITS:
        return False
    settings = partition.settings
    return settings.compress is not None or (settings.merge_commits and stays(partition))


def held_back(partition: FilePartition) -> bool:
    """Whether something of a log may be waiting for what no cursor decides: an archive, or ids that are remembered."""
    segments, needed = partition.segments, partition.retain_from
    if len(segments) < 2:
        return False
    settled = needed is not None and segments[1].base_offset <= needed and not partition.history
    return settled or partition.settings.wait_for_archive or partition.dedup is not None
