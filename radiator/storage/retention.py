"""What may go, and when a segment's day ends. Whole sealed segments only, oldest first, never at or above
``retain_from``, never the active one; without a limit nothing ever goes.

Knows: a partition's facts. Must not know: files (``log`` deletes). Called by the hub.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from radiator.clock import NS_PER_SECOND

if TYPE_CHECKING:
    from radiator.storage.file_partition import FilePartition

DAY_NS = 86_400 * NS_PER_SECOND


def roll_due_ns(first_receive_ns: int, roll_at_seconds: int) -> int:
    """The first daily moment (UTC) after the segment's first record."""
    shift = roll_at_seconds * NS_PER_SECOND
    return (first_receive_ns - shift) // DAY_NS * DAY_NS + DAY_NS + shift


def to_drop(partition: FilePartition, now_ns: int) -> list[int]:
    """Takes what is due out of the hub's view and returns the base offsets of the segments to delete."""
    options, segments = partition.options, partition.segments
    age, size_max, count_max = options.retention_age_ns, options.retention_bytes, options.retention_count
    if age is None and size_max is None and count_max is None:
        return []
    floor = partition.high_watermark if partition.retain_from is None else partition.retain_from
    size = sum(segment.size_bytes for segment in segments) if size_max is not None else 0
    drop = 0
    for segment, following in pairwise(segments):
        end = following.base_offset
        if end > floor:
            break
        too_old = age is not None and segment.last_receive_ns < now_ns - age
        too_big = size_max is not None and size > size_max
        too_many = count_max is not None and partition.high_watermark - end >= count_max
        if not (too_old or too_big or too_many):
            break
        size -= segment.size_bytes
        drop += 1
    bases = [segment.base_offset for segment in segments[:drop]]
    if drop:
        del segments[:drop]
        partition.drop_before(segments[0].base_offset)
        partition.set_deadlines()
    return bases
