"""From a moment to an offset: receive times never fall within a partition, so there is one place where it begins.

Knows: segments, their first headers, indexes. Must not know: plans, streams, pyspark.
"""

from __future__ import annotations

from radiator.storage.files import FileSystem
from radiator.storage.reader import StoredPartition
from radiator.storage.received import since
from radiator.storage.segment import Window, load_index, locate_time


def offset_at(fs: FileSystem, log: StoredPartition, receive_ns: int) -> int:
    """Of the first committed record received then or later; the end of the log if there is none."""
    for segment in since(fs, log.segments, receive_ns):
        try:
            fd = fs.open_read(segment.path)
        except FileNotFoundError:
            continue  # taken by retention, just now
        try:
            entries = load_index(fs, log.directory, segment.base_offset)
            found = locate_time(Window(fs, fd, path=segment.path), entries, receive_ns, segment.end_offset)
        finally:
            fs.close(fd)
        if found is not None:
            return min(found, log.next_offset)
    return log.next_offset
