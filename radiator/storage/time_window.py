"""Which segments of a log can hold what was received in a window of time.

Receive times never fall, so the first of each segment says it. That one stands in a header, and a flipped bit there
would hide good segments from who asks by time. So nothing is left out because of a header that no crc covers: the one
at either border is looked at with its batch, and where that does not hold, the next one outside.

Knows: segments, first batches. Must not know: who asks.
"""

from __future__ import annotations

from collections.abc import Sequence

from radiator.storage.files import FileSystem
from radiator.storage.format import HEADER_BYTES, DamagedBatch, UnknownVersion
from radiator.storage.reader import StoredSegment
from radiator.storage.segment import Window, batch_at


def since(fs: FileSystem, segments: Sequence[StoredSegment], low_ns: int) -> Sequence[StoredSegment]:
    """Without those at the beginning in which everything was received before ``low_ns``."""
    for at in range(len(segments) - 1, 0, -1):
        first_ns = segments[at].first_receive_ns
        if first_ns is not None and first_ns < low_ns and _holds(fs, segments[at]):
            return segments[at:]
    return segments


def before(fs: FileSystem, segments: Sequence[StoredSegment], high_ns: int) -> Sequence[StoredSegment]:
    """Without those at the end in which everything was received at ``high_ns`` or later."""
    for at, segment in enumerate(segments):
        first_ns = segment.first_receive_ns
        if first_ns is not None and first_ns >= high_ns and _holds(fs, segment):
            return segments[:at]
    return segments


def first_ns(fs: FileSystem, segments: Sequence[StoredSegment]) -> int | None:
    """When the first record of these was received, as far as a batch that holds begins one of them. Raises OSError for
    none of them: what cannot be read says nothing."""
    return next((segment.first_receive_ns for segment in segments if _holds(fs, segment)), None)


def _holds(fs: FileSystem, segment: StoredSegment) -> bool:
    """Whether its first batch is whole and says the same."""
    try:
        fd = fs.open_read(segment.path)
        try:
            header = batch_at(Window(fs, fd, HEADER_BYTES, segment.path), 0)
        finally:
            fs.close(fd)
    except (DamagedBatch, UnknownVersion, OSError):
        return False
    return (header.base_offset, header.min_receive_ns) == (segment.base_offset, segment.first_receive_ns)
