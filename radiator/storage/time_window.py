"""Choose the segments of a log that may contain records received in a window of time.

Receive times never fall, so the first one of each segment is enough. It is in a header, and a flipped bit there would
hide good segments. So no segment is left out because of an unchecked header: the first batch of the segment at either
end is checked, and if it is damaged, that of the next one outside.

This module knows segments and first batches. It does not know callers.
"""

from __future__ import annotations

from collections.abc import Sequence

from radiator.storage.files import FileSystem, opened
from radiator.storage.header import HEADER_BYTES, DamagedBatch, UnknownVersion
from radiator.storage.reader import StoredSegment
from radiator.storage.segment import Window, batch_at


def since(fs: FileSystem, segments: Sequence[StoredSegment], low_ns: int) -> Sequence[StoredSegment]:
    """Return the segments without those at the beginning in which everything was received before ``low_ns``."""
    for at in range(len(segments) - 1, 0, -1):
        first_ns = segments[at].first_receive_ns
        if first_ns is not None and first_ns < low_ns and _holds(fs, segments[at]):
            return segments[at:]
    return segments


def before(fs: FileSystem, segments: Sequence[StoredSegment], high_ns: int) -> Sequence[StoredSegment]:
    """Return the segments without those at the end in which everything was received at ``high_ns`` or later."""
    for at, segment in enumerate(segments):
        first_ns = segment.first_receive_ns
        if first_ns is not None and first_ns >= high_ns and _holds(fs, segment):
            return segments[:at]
    return segments


def first_ns(fs: FileSystem, segments: Sequence[StoredSegment]) -> int | None:
    """Return when the first record of these segments was received, by the first valid batch at a segment's start.

    It raises no OSError: a segment that cannot be read is skipped.
    """
    return next((segment.first_receive_ns for segment in segments if _holds(fs, segment)), None)


def _holds(fs: FileSystem, segment: StoredSegment) -> bool:
    """Return whether the first batch is whole and agrees with the listing."""
    try:
        with opened(fs, fs.open_read(segment.path)) as fd:
            header = batch_at(Window(fs, fd, HEADER_BYTES, segment.path), 0)
    except (DamagedBatch, UnknownVersion, OSError):
        return False
    return (header.base_offset, header.min_receive_ns) == (segment.base_offset, segment.first_receive_ns)
