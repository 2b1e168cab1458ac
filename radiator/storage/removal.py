"""Remove whole logs, so that after a crash at any point each of them either exists as it was or is gone.

    event loop   Store.remove() -> take() -> IntendJob
    disk thread  IntendJob writes the file ``removals``: from now on the logs are gone
    event loop   retire: their cursors are deleted; the names stay blocked
    disk thread  MoveJob, once the deletions of the cursors are stored, moves the directories to ``removed``, syncs
                 that, notes the removal in the journal, deletes the file ``removals`` and then what was moved
    event loop   the names can be used again, with offsets from 0

The journal may have batches of a removed log, which a start must not append to the next log of that name. Those in
entries below the number that the file ``removals`` has do not count, nor those before an entry that notes the removal.
A directory in ``partitions`` is always that of the present log, because no log begins while its name is blocked.

This module knows directories and the journal. It does not know destinations, and of cursors only that somebody deletes
them. Invariants: a log has no job, no reader and nothing unwritten when it is removed; one batch of removals is on its
way at a time.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from radiator import limits
from radiator.clock import MonoNs, Now
from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.definitions import decode, encode
from radiator.storage.file_partition import FilePartition
from radiator.storage.files import FileSystem, read_file, replace_file, storage_error
from radiator.storage.jobs import AfterAcksJob, Job
from radiator.storage.journal.dirty_logs import DirtyLogs
from radiator.storage.journal.format import REMOVED, EntryBuilder
from radiator.storage.open_logs import OpenLogs
from radiator.timers import NEVER_NS

HEAD = b"radiator removals 1 "
RETRY_EVERY_NS = 2_000_000_000
TOGETHER_MAX = 256  # destinations whose logs are removed at once


class Intent(NamedTuple):
    """The contents of the file ``removals``.

    Attributes:
        entry: The logs have no batch in entries of the journal from this number on.
        partitions: The names of the logs.
    """

    entry: int
    partitions: list[str]


def load(fs: FileSystem, root: str) -> Intent | None:
    """Return the removals that an earlier run has begun and not ended, or None.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is damaged.
    """
    data = read_file(fs, layout.removals_path(root))
    if data is None:
        return None
    found = decode(data, HEAD)["removal"]
    return Intent(int(found["entry"]), [str(name) for name in found["partitions"]])


def move(fs: FileSystem, root: str, intent: Intent) -> None:
    """Move the directories of removed logs out of ``partitions``, and sync that. It may be repeated. Raises OSError."""
    place = layout.removed_path(root)
    fs.mkdir(place)
    for number, name in enumerate(intent.partitions):
        new = f"{place}/{intent.entry}-{number}"
        with contextlib.suppress(FileNotFoundError):
            fs.rename(layout.partition_path(root, name), new)
    fs.sync_dir(place)
    fs.sync_dir(layout.partitions_path(root))
    fs.sync_dir(root)


def clear(fs: FileSystem, root: str) -> None:
    """Delete what was moved to ``removed``. Raises OSError."""
    place = layout.removed_path(root)
    if not fs.has_name(place):
        return
    for name in fs.listdir(place):
        directory = f"{place}/{name}"
        try:
            for each in fs.listdir(directory):
                fs.remove(f"{directory}/{each}")
            fs.rmdir(directory)
        except NotADirectoryError:  # a link that an operator has put in the place of the directory
            fs.remove(directory)
    fs.rmdir(place)


class Removal:
    """The logs of one destination.

    Args:
        partitions: The logs.
        committed: Called once the logs are gone whatever happens; or with the error, if they stay.
    """

    __slots__ = ("committed", "names", "partitions")

    def __init__(
        self, partitions: Sequence[FilePartition], committed: Callable[[StorageError | None], None] | None = None
    ) -> None:
        self.partitions = partitions
        self.names = [each.name for each in partitions]
        self.committed = committed


class Removals:
    """The removals of one store. The event loop owns it.

    Args:
        fs: The file system.
        root: The data directory.
        dirty: The written logs, with the journal; it belongs to the disk thread.
        open_logs: The logs that hold descriptors; it belongs to the disk thread.
        retire: Drops a log from memory.
        release: Returns whether no background work uses a log, and drops what it remembers of the log.

    Attributes:
        names: The names of logs that are being removed: no log of these may begin.
        failed: Why they are not gone yet, if the disk is the reason.
    """

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        dirty: DirtyLogs,
        open_logs: OpenLogs,
        retire: Callable[[FilePartition], None],
        release: Callable[[FilePartition], bool],
    ) -> None:
        self.fs = fs
        self.root = root
        self.dirty = dirty
        self.open_logs = open_logs
        self.names: set[str] = set()
        self.failed: StorageError | None = None
        self._retire = retire
        self._release = release
        self._new: list[Removal] = []
        self._batch: list[Removal] = []
        self._intent: Intent | None = None  # it is on the disk
        self._busy = False  # a job is under way
        self._retry_due_ns: MonoNs | None = None

    def resume(self, intent: Intent) -> None:
        """Continue what an earlier run has begun; its directories are moved."""
        self._intent = intent
        self.names.update(intent.partitions)

    def add(self, removal: Removal) -> None:
        """Remove the logs of a destination."""
        self._new.append(removal)
        self.names.update(removal.names)

    @property
    def waiting(self) -> bool:
        """Whether ``jobs`` should be called."""
        return bool((self._new or self._batch or self._intent) and not self._busy and self._retry_due_ns is None)

    @property
    def deadline_ns(self) -> MonoNs:
        """When a failed removal is tried again; NEVER_NS if none has failed."""
        return MonoNs(NEVER_NS) if self._retry_due_ns is None or self._busy else self._retry_due_ns

    def jobs(self, now: Now, in_checkpoint: bool) -> list[Job]:
        """Return the next step as a job, if there is one.

        Args:
            now: The time.
            in_checkpoint: Whether a checkpoint is under way: it syncs files by their names, so none is moved meanwhile.
        """
        if self._retry_due_ns is not None and now.mono >= self._retry_due_ns:
            self._retry_due_ns = None
        if not self.waiting:
            return []
        if self._intent is None:
            if not self._batch:
                self._batch, self._new = self._new[:TOGETHER_MAX], self._new[TOGETHER_MAX:]
            self._busy = True
            return [IntendJob(self, [name for each in self._batch for name in each.names])]
        partitions = [partition for each in self._batch for partition in each.partitions]
        if in_checkpoint or not all(self._release(each) for each in partitions):
            return []
        self._busy = True
        return [MoveJob(self, self._intent, partitions)]

    def intended(self, job: IntendJob, now: Now) -> None:
        """Take back an IntendJob: the logs are gone, or stay."""
        self._busy = False
        if job.error is not None and job.uncertain:
            self._fail(job.error, now)
            return
        self.failed = None
        if job.error is None:
            self._intent = job.intent
            for each in self._batch:
                for partition in each.partitions:
                    self._retire(partition)
        else:
            self.names.difference_update(job.names)
        batch = self._batch
        if job.error is not None:
            self._batch = []
        for removal in batch:
            if removal.committed is not None:
                removal.committed(job.error)

    def moved(self, job: MoveJob, now: Now) -> None:
        """Take back a MoveJob: the names can be used again."""
        self._busy = False
        if job.error is not None:
            self._fail(job.error, now)
            return
        self.failed = None
        self._intent, self._batch = None, []
        self.names.difference_update(job.intent.partitions)

    def _fail(self, error: StorageError, now: Now) -> None:
        self.failed = error
        self._retry_due_ns = MonoNs(now.mono + RETRY_EVERY_NS)


class IntendJob(Job):
    """Write the file ``removals``. It runs behind all other jobs of the logs."""

    __slots__ = ("_removals", "intent", "names", "uncertain")
    what = "removal"

    def __init__(self, removals: Removals, names: list[str]) -> None:
        super().__init__(None)
        self._removals = removals
        self.names = names
        self.intent: Intent | None = None
        self.uncertain = False  # it failed, and the file may exist

    def write(self) -> None:
        """Write the file. The disk thread calls it."""
        fs, root = self._removals.fs, self._removals.root
        path = layout.removals_path(root)
        self.intent = Intent(self._removals.dirty.journal.next_entry, self.names)
        try:
            replace_file(fs, path, encode({"removal": self.intent._asdict()}, HEAD))
        except OSError as error:
            self.error = storage_error(path, "write", error)
            try:
                with contextlib.suppress(FileNotFoundError):
                    fs.remove(path)
                fs.sync_dir(root)
            except OSError:
                self.uncertain = True

    def done(self, now: Now) -> None:
        """Report the result."""
        self._removals.intended(self, now)


class MoveJob(AfterAcksJob):
    """Move the directories of removed logs away and delete them.

    Without the file ``removals`` a start takes the cursors of these logs for those of the next logs of their names.

    Args:
        removals: The removals of the store.
        intent: The contents of the file ``removals``.
        partitions: The logs; none after a start, which has moved the directories.
    """

    __slots__ = ("_partitions", "_removals", "intent", "note")
    what = "removal"

    def __init__(self, removals: Removals, intent: Intent, partitions: Iterable[FilePartition]) -> None:
        super().__init__(None)
        self._removals = removals
        self._partitions = list(partitions)
        self.intent = intent
        self.note = ""

    def act(self) -> None:
        """Move and delete. The disk thread calls it."""
        removals = self._removals
        fs, root, journal = removals.fs, removals.root, removals.dirty.journal
        for partition in self._partitions:
            removals.dirty.forget(partition.log)
            removals.open_logs.forget(partition.log)
            partition.log.release()
        try:
            clear(fs, root)
            move(fs, root, self.intent)
            entry = EntryBuilder()
            entry.add(REMOVED, json.dumps(self.intent.partitions, ensure_ascii=False).encode())
            journal.write(entry)
            journal.sync()
            with contextlib.suppress(FileNotFoundError):
                fs.remove(layout.removals_path(root))
            fs.sync_dir(root)
        except OSError as error:
            raise storage_error(layout.removed_path(root), "remove partitions", error) from error
        try:
            clear(fs, root)
        except OSError as error:  # the next removal, or the next start, tries again
            self.note = str(storage_error(layout.removed_path(root), "delete removed partitions", error))

    def done(self, now: Now) -> None:
        """Report the result."""
        self._removals.moved(self, now)


assert TOGETHER_MAX * limits.DESTINATION_BYTES_MAX < limits.MIB  # an entry of the journal, of destinations with one log
