"""Decide which segments of a log may be deleted, and when the active one is sealed for another reason than its size.

Only whole sealed segments are deleted, the oldest first:

    limits     age, size, number of messages; nothing that a cursor needs, unless the rule forces it
    reclaim    in a log of queues, what all of them have settled, whatever the limits
    state      nothing that is being rewritten or cut: it goes when that has ended
    archive    if the rule waits for an archive, nothing that the archive does not have, for whatever reason

Without a limit and without a queue nothing is ever deleted. The functions are pure: they know no partition and no
files.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from radiator.clock import NS_PER_SECOND, WallNs
from radiator.config import Settings
from radiator.storage.segment import SegmentInfo
from radiator.storage.segment_states import Event

DAY_NS = 86_400 * NS_PER_SECOND


def roll_due_ns(first_receive_ns: int, roll_at_seconds: int) -> WallNs:
    """Return the first daily moment (UTC) after the first record of a segment.

    Args:
        first_receive_ns: when that record was received.
        roll_at_seconds: the time of day, in seconds after midnight.
    """
    shift = roll_at_seconds * NS_PER_SECOND
    return WallNs((first_receive_ns - shift) // DAY_NS * DAY_NS + DAY_NS + shift)


def count_to_drop(
    segments: Sequence[SegmentInfo],
    settings: Settings,
    high_watermark: int,
    settled: int,
    reclaims: bool,
    archived_to: int,
    now_ns: WallNs,
) -> int:
    """Return how many of the oldest segments may be deleted.

    Args:
        segments: of the log; the last one is active, and stays.
        settings: the limits.
        high_watermark: where the log ends.
        settled: below this offset no cursor needs anything.
        reclaims: whether what is settled is deleted without any limit.
        archived_to: below this offset the archive has everything.
        now_ns: the time.
    """
    age, size_max, count_max = settings.retention_age_ns, settings.retention_bytes, settings.retention_count
    limited = age is not None or size_max is not None or count_max is not None
    if not (reclaims or limited) or len(segments) < 2:
        return 0
    end_max = high_watermark if settings.retention_force else min(settled, high_watermark)
    if settings.wait_for_archive:
        end_max = min(end_max, archived_to)
    size = sum(segment.size_bytes for segment in segments)
    drop = 0
    for segment, following in pairwise(segments):
        end = following.base_offset
        if end > end_max or not segment.can(Event.REMOVE):
            break
        too_old = age is not None and segment.last_receive_ns < now_ns - age
        too_big = size_max is not None and size > size_max
        too_many = count_max is not None and high_watermark - end >= count_max
        if not (too_old or too_big or too_many or (reclaims and end <= settled)):
            break
        size -= segment.size_bytes
        drop += 1
    return drop


def size_due_bytes(segments: Sequence[SegmentInfo], settings: Settings) -> int | None:
    """Return how large the active segment may become before the oldest must be deleted, by size; None: no limit."""
    if settings.retention_bytes is None or len(segments) < 2:
        return None
    return settings.retention_bytes - sum(segment.size_bytes for segment in segments[:-1])
