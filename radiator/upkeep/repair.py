"""Repair a store, under the lock that brokers take: what a start repairs, and what would take a start too long.

    1  check; damage in the middle is copied to the quarantine, and stays where it is
    2  wrong lists of destinations and indexes are written again, leftovers removed, modes narrowed
    3  the store is opened as a broker opens it (``recovery``): torn tails are cut, heads and the cursors' snapshot
       written; cursors are set behind what is missing from the start of their logs
    4  the store is closed, so that nothing of it is only in the journal
    5  check again; gaps that only show now are marked as known

Nothing that holds a message is ever removed or changed, except what a start cuts off: bytes behind the last whole
batch, which were never committed. Where ``head`` is lost that is unknown, so they are copied to the quarantine too.

Knows what to do about each finding, but not how it was found (``fsck``). Offline only, one thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from radiator.clock import Now
from radiator.storage import index, layout, names
from radiator.storage.dedup_recovery import Identify
from radiator.storage.file_partition import FilePartition
from radiator.storage.files import FileSystem, opened, read_file, read_fully, replace_file, storage_error, write_all
from radiator.storage.names_recovery import Allowance
from radiator.storage.store import Store
from radiator.upkeep.check_segment import CHUNK_BYTES
from radiator.upkeep.findings import Finding, SegmentCheck
from radiator.upkeep.fsck import Fsck, NoSuchStore, PartitionCheck, known, quarantine_of

REMEDY = "stop it first: while a broker runs, fsck only checks"
EVERYTHING = 1 << 63  # bytes of logs that may be read to make lists of names whole

# Kinds that opening the store mends, and how that is reported.
BY_OPENING = {
    "head": "head written again",
    "key": "new key written",
    "zeros": "zeros at the end cut off",
    "uncommitted": "whole batches after head kept and committed",
    "snapshot": "a snapshot of the cursors written again",
    "copy": "a snapshot of the cursors written again",
    "journal": "readable entries written to their segments",
    "decided": "decided entries written to their segments",
    "tail": "torn end skipped",
    "ids": "ids rebuilt",
    "cursor": "a snapshot of the cursors written again",
    "delivered": "size of the file corrected",
}


class Repair:
    """Repair a store; used as a context manager, which locks the directory.

    Args:
        root: The data directory.
        now: The clock.
        fs: The file system.
        on_bytes: Called with how many bytes a check has read since the last call.
        identify: Returns the ids of messages, for the list of ids.
        latest_ns: The latest receive time that is not reported; None to report none.

    Raises:
        StorageError: A broker has locked the directory, or there is no store.
    """

    def __init__(
        self,
        root: str,
        now: Now,
        fs: FileSystem | None = None,
        on_bytes: Callable[[int], None] | None = None,
        identify: Identify | None = None,
        latest_ns: int | None = None,
    ) -> None:
        self.root = root
        self._latest_ns = latest_ns
        self.fs = fs or FileSystem()
        self._now = now
        self._on_bytes = on_bytes
        self._store = Store(root, self.fs, identify=identify)
        self._opened = False

    def __enter__(self) -> Repair:
        if layout.PARTITIONS not in self.fs.listdir(self.root):
            raise NoSuchStore(f"{self.root}: no radiator store here; expected the data_dir of a broker")
        self._store.acquire(REMEDY)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._opened:
            self._store.close()
        else:
            self._store.release()

    def check(self) -> tuple[Fsck, list[Finding]]:
        """Check the whole store, and return what ``run`` needs: the check and its findings."""
        fsck = Fsck(self.root, self.fs, self._on_bytes, live=False, latest_ns=self._latest_ns)
        return fsck, list(fsck.run())

    def run(self, fsck: Fsck, findings: list[Finding]) -> Iterator[str]:
        """Repair what a check has found, and yield what was done, in words."""
        for partition in fsck.checked:
            yield from self._files_of(partition)
        for finding in findings:
            yield from self._other_file(finding)
        self._opened = True
        for note in self._store.open(self._now, Allowance(EVERYTHING)):
            if note.kind == "torn":
                yield str(note)
        yield from self._missing()
        for path, kind in {(finding.path, finding.kind): None for finding in findings if finding.kind in BY_OPENING}:
            yield f"{path}: {BY_OPENING[kind]}"
        for partition in fsck.checked:
            yield from self._restart(partition)
        self._opened = False
        self._store.close()
        self._store = Store(self.root, self.fs)
        self._store.acquire(REMEDY)

    def _files_of(self, partition: PartitionCheck) -> Iterator[str]:
        """Copy the damaged bytes of a partition, and write its caches again."""
        kinds = {finding.kind for finding in partition.findings}
        for finding in partition.findings:
            if finding.kind in ("damaged", "gap") or (finding.kind == "torn" and "head" in kinds):
                yield from self._put_aside(finding)
        yield from self._names(partition, kinds)
        for segment in partition.segments:
            yield from self._index(partition, segment)

    def _other_file(self, finding: Finding) -> Iterator[str]:
        """Remove a file that is left over, or set the mode of one that others may read."""
        if finding.kind == "leftover":
            self._run(finding.path, "remove", self.fs.remove, finding.path)
            yield f"{finding.path}: removed"
        elif finding.kind == "mode":
            facts = self.fs.stat(finding.path)
            mode = layout.DIRECTORY_MODE if facts is not None and facts.is_dir else layout.FILE_MODE
            self._run(finding.path, "change the mode", self.fs.chmod, finding.path, mode)
            yield f"{finding.path}: mode {mode:04o}"

    def _restart(self, partition: PartitionCheck) -> Iterator[str]:
        """Begin a segment in a partition that has lost all of them, where its offsets go on."""
        opened = self._store.partitions.get(partition.name)
        if not isinstance(opened, FilePartition) or opened.segments or opened.postponed:
            return  # what is postponed begins a segment
        if partition.next_offset:
            begin = (empty_log, self.fs, partition.directory, partition.next_offset)
            self._run(partition.directory, "begin a segment", *begin)
            yield f"{partition.directory}: restarted at offset {partition.next_offset}"

    def _missing(self) -> Iterator[str]:
        """Set the cursors of queues behind what is missing from the start of their logs."""
        cursors, moved = self._store.cursors, []
        for name, partition_name in cursors.names():
            partition, cursor = self._store.partitions.get(partition_name), cursors.get(name, partition_name)
            if partition is not None and cursor is not None and cursor.floor < partition.log_start_offset:
                cursor.ack_range(cursor.floor, partition.log_start_offset)
                path = layout.partition_path(self.root, partition_name)
                moved.append(f"{path}: {name} continues at offset {cursor.floor}")
        self._store.store_cursors(self._now)
        yield from moved

    def recheck(self) -> tuple[Fsck, list[Finding], list[str]]:
        """Check again, and copy damage that only shows now. Return the check, its findings, and what was done."""
        fsck, findings = self.check()
        repairs = [
            done for finding in findings if finding.kind in ("damaged", "gap") for done in self._put_aside(finding)
        ]
        return fsck, [known(self.fs, self.root, finding) for finding in findings], repairs

    def _put_aside(self, finding: Finding) -> Iterator[str]:
        path = quarantine_of(self.root, finding)
        if path is None or finding.start is None or finding.end is None:
            return
        self._run(path, "copy damaged bytes", self._copy, finding.path, finding.start, finding.end, path)
        size = finding.end - finding.start
        yield f"{finding.path}: {f'{size} damaged bytes at {finding.start} copied' if size else 'gap noted'} to {path}"

    def _copy(self, source: str, start: int, end: int, target: str) -> None:
        fs, directory = self.fs, target.rpartition("/")[0]
        new = target + ".tmp"
        fs.mkdir(directory)
        with contextlib.suppress(FileNotFoundError):
            fs.remove(new)
        with opened(fs, fs.open_read(source)) as read, opened(fs, fs.open(new, create=True)) as write:
            for at in range(start, end, CHUNK_BYTES):
                data = read_fully(fs, read, min(CHUNK_BYTES, end - at), at)
                write_all(fs, write, [data], at - start)
            fs.fdatasync(write)
        fs.rename(new, target)
        for each in (directory, directory.rpartition("/")[0], self.root):
            fs.sync_dir(each)

    def _names(self, partition: PartitionCheck, kinds: set[str]) -> Iterator[str]:
        if "names" not in kinds:
            return
        path = layout.names_path(partition.directory)
        listed, _ = names.decode(read_file(self.fs, path) or b"")
        self._replace(path, b"".join(map(names.encode_entry, sorted({*partition.destinations, *listed}))))
        yield f"{path}: written again"

    def _index(self, partition: PartitionCheck, segment: SegmentCheck) -> Iterator[str]:
        path = layout.index_path(partition.directory, segment.base_offset)
        if any(finding.path == path and finding.kind == "index" for finding in segment.findings):
            decided = [finding.first_offset for finding in partition.findings if finding.kind == "decided"]
            stop = min((first for first in decided if first is not None), default=segment.next_offset)
            # A start reads the last segment from the last entry on, so there is none behind what it has to restore.
            entries = [entry for entry in segment.entries if entry.base_offset < stop]
            self._replace(path, index.encode_head(segment.base_offset) + index.encode_entries(entries))
            yield f"{path}: written again, {len(entries)} entries"

    def _replace(self, path: str, data: bytes) -> None:
        self._run(path, "write", replace_file, self.fs, path, data)

    def _run(self, path: str, doing: str, function: Callable[..., None], *args: Any) -> None:
        try:
            function(*args)
        except OSError as error:
            raise storage_error(path, doing, error) from error


def empty_log(fs: FileSystem, directory: str, next_offset: int) -> None:
    """Write an empty segment, and a head that lets offsets go on at ``next_offset``."""
    fs.close(fs.open(layout.segment_path(directory, next_offset), create=True))
    fs.sync_dir(directory)
    head = layout.encode_head(next_offset, 0, next_offset)
    replace_file(fs, layout.head_path(directory), head.ljust(layout.HEAD_FILE_BYTES, b"\0"))
