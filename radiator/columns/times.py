"""Find the offset for a receive time. Receive times never decrease within a partition, so the offset is unique.

Uses segments, their first batch headers and indexes. Must not import plans, streams or pyspark.
"""

from __future__ import annotations

from contextlib import suppress

from radiator.storage.files import FileSystem, opened
from radiator.storage.reader import StoredPartition
from radiator.storage.segment import Window, load_index, locate_time
from radiator.storage.time_window import since


def offset_at(fs: FileSystem, log: StoredPartition, receive_ns: int) -> int:
    """Return the offset of the first committed record received at or after a time.

    Args:
        fs: The file system of the store.
        log: The partition.
        receive_ns: The time, in nanoseconds since the epoch.

    Returns:
        The offset, or the end of the log if there is no such record.

    Raises:
        OSError: A segment cannot be read.
    """
    for segment in since(fs, log.segments, receive_ns):
        entries = load_index(fs, log.directory, segment.base_offset)
        with suppress(FileNotFoundError), opened(fs, fs.open_read(segment.path)) as fd:  # retention may have removed it
            found = locate_time(Window(fs, fd, path=segment.path), entries, receive_ns, segment.end_offset)
            if found is not None:
                return min(found, log.next_offset)
    return log.next_offset
