"""Lower receive times that are in the future, while no broker runs.

A clock that was ahead leaves such times in logs and in the lists of message ids beside them (``dedup``). Each time
later than a given moment becomes that moment, so times still never decrease. A receive time has a fixed width and is
stored uncompressed, so every batch stays where it is, and ``head``, damaged bytes and positions do not change.

    <base>.rlog.new   a copy of the segment with the lower times, synced
    <base>.rlog       the copy, renamed; from here on readers see the lower times
    <base>.idx        written again: until then it leads readers to a place before the right one
    dedup             replaced, after all segments of the log

A crash leaves each file either old or new, and the segments change before the other files, so receive times still never
decrease. ``run`` can be repeated.

Knows segments, indexes and ``dedup``, but no other repair (``repair``). Offline only, one thread.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from radiator.errors import StorageError
from radiator.storage import dedup_file, index, layout
from radiator.storage.files import (
    FileSystem,
    opened,
    read_file,
    read_fully,
    replace_file,
    storage_error,
    write_all,
)
from radiator.storage.format import clamp_times
from radiator.storage.segment import Window, whole_batches
from radiator.storage.store import Store
from radiator.upkeep import check_files
from radiator.upkeep.check_segment import CHUNK_BYTES
from radiator.upkeep.findings import Finding
from radiator.upkeep.fsck import Fsck, PartitionCheck

REMEDY = "stop it first: receive times are only lowered while no broker runs"


class ClampTimes:
    """Lower receive times; used as a context manager, which locks the directory.

    Args:
        root: The data directory; it must have been closed as a broker closes it (``Repair``).
        latest_ns: The latest receive time that is allowed, in nanoseconds since 1970.
        fs: The file system.
        on_bytes: Called with how many bytes a check has read since the last call.

    Raises:
        StorageError: A broker has locked the directory.
    """

    def __init__(
        self,
        root: str,
        latest_ns: int,
        fs: FileSystem | None = None,
        on_bytes: Callable[[int], None] | None = None,
    ) -> None:
        self.fs = fs or FileSystem()
        self._root = root
        self._on_bytes = on_bytes
        self._latest_ns = latest_ns
        self._store = Store(root, self.fs)

    def __enter__(self) -> ClampTimes:
        self._store.acquire(REMEDY)
        return self

    def __exit__(self, *_: Any) -> None:
        self._store.release()

    def check(self) -> tuple[Fsck, list[Finding]]:
        """Check the whole store, and return the check and its findings."""
        fsck = Fsck(self._root, self.fs, self._on_bytes, live=False, latest_ns=self._latest_ns)
        return fsck, list(fsck.run())

    def run(self) -> Iterator[str]:
        """Lower the times of all logs.

        Yields:
            What was done, or why a log was left as it is, in words.

        Raises:
            StorageError: A file cannot be read or written, a newer radiator wrote a batch, or a transaction is not in
                all its logs yet: it would not be recognised there.
        """
        fsck, findings = self.check()
        for finding in findings:
            if finding.kind == "decided":
                raise StorageError(f"{finding}; receive times are lowered after that")
        for partition in fsck.checked:
            try:
                yield from self._partition(partition)
            except OSError as error:
                raise storage_error(partition.directory, "lower receive times", error) from error

    def _partition(self, partition: PartitionCheck) -> Iterator[str]:
        fs, directory = self.fs, partition.directory
        late = [each.base_offset for each in partition.segments if each.latest_ns > self._latest_ns]
        first = partition.first_late
        if first is not None and (reason := check_files.needed_by_archive(fs, directory, first)):
            yield f"{directory}: left as it is: {reason}"
            return
        for base in late:
            if records := self._segment(directory, base):
                yield f"{layout.segment_path(directory, base)}: {records} receive times lowered"
        if ids := self._ids(directory):
            yield f"{layout.dedup_path(directory)}: times of {ids} message ids lowered"
        fs.sync_dir(directory)

    def _segment(self, directory: str, base: int) -> int:
        """Lower the times in one segment and its index, and return how many records had later ones."""
        fs, path = self.fs, layout.segment_path(directory, base)
        new = path + layout.NEW_SUFFIX
        with contextlib.suppress(FileNotFoundError):
            fs.remove(new)
        with opened(fs, fs.open_read(path)) as source, opened(fs, fs.open(new, create=True)) as target:
            records = self._copy(Window(fs, source, CHUNK_BYTES, path), target, base)
            if records:
                fs.fdatasync(target)
        if not records:
            fs.remove(new)
            return 0
        fs.rename(new, path)
        fs.sync_dir(directory)
        self._index(directory, base)
        return records

    def _copy(self, window: Window, target: int, base: int) -> int:
        fs, size, done, records = self.fs, window.fs.size(window.fd), 0, 0
        for position, header in whole_batches(window, 0, size, base):
            if header.max_receive_ns <= self._latest_ns:
                continue  # copied together with the next changed batch
            self._copy_unchanged(window.fd, target, done, position)
            place = window.at(position, header.total_len)
            data, lowered = clamp_times(window.data[place : place + header.total_len], header, self._latest_ns)
            write_all(fs, target, [data], position)
            records += lowered
            done = position + header.total_len
        self._copy_unchanged(window.fd, target, done, size)
        return records

    def _copy_unchanged(self, source: int, target: int, start: int, end: int) -> None:
        for at in range(start, end, CHUNK_BYTES):
            write_all(self.fs, target, [read_fully(self.fs, source, min(CHUNK_BYTES, end - at), at)], at)

    def _index(self, directory: str, base: int) -> None:
        path = layout.index_path(directory, base)
        raw = read_file(self.fs, path)
        entries = index.decode(raw, base)
        if raw and entries:
            lowered = [each._replace(min_receive_ns=min(each.min_receive_ns, self._latest_ns)) for each in entries]
            replace_file(self.fs, path, index.encode_head(base) + index.encode_entries(lowered), layout.NEW_SUFFIX)

    def _ids(self, directory: str) -> int:
        """Lower the times of the ids that a log remembers, and return how many were later."""
        found = dedup_file.decode(read_file(self.fs, layout.dedup_path(directory)) or b"")
        first, second, offsets, times = dedup_file.columns_of(found.rows)
        late = sum(time > self._latest_ns for time in times)
        if late and found.covered is not None:
            lowered = array("q", [min(time, self._latest_ns) for time in times])
            rows = dedup_file.rows_of((first, second, offsets, lowered))
            dedup_file.replace(self.fs, directory, found.covered, rows, synced=True)
        return late
