"""Checkpoints: sync segments, write a snapshot of cursors and definitions, and release files of the journal.

    encode  event loop, some in each turn: cursors and definitions, for the snapshot
    begin   disk thread: a new file of the journal begins; the logs that were written since the last checkpoint, and
            their ends, are noted. If the journal has failed, this finds out whether it can go on
    run     threads of its own: the snapshot is written, each of these segments is synced (many of them by one
            ``syncfs``), and so are the names of new ones
    end     disk thread: each log notes how far it is synced, and files of the journal are released

What is written meanwhile is in the new file, for the next checkpoint. A checkpoint releases nothing if the snapshot
cannot be written or a segment cannot be synced; the log of that segment continues in another one (``reopen``). The next
checkpoint is then a retry, after RETRY_EVERY_NS. It begins no file of the journal if the present one can be written: it
releases the files before that.

Files are opened by their names, so that no descriptor is shared between threads. Linux reports an unreported write-back
error also to those who open the file afterwards.

This module knows logs, the journal and when to retry. It does not know the contents of messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from radiator import limits
from radiator.clock import MonoNs, Now
from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.cursor_store import CursorStore
from radiator.storage.files import FileSystem, storage_error
from radiator.storage.jobs import Job
from radiator.storage.journal.dirty_logs import DirtyLogs
from radiator.storage.journal.snapshots import Snapshot, Snapshots
from radiator.storage.log import Log
from radiator.storage.segment_states import State
from radiator.timers import NEVER_NS

RETRY_EVERY_NS = 2_000_000_000  # how soon a checkpoint that failed is tried again


class Target(NamedTuple):
    """A segment to be synced, and where it ended when the checkpoint began."""

    log: Log
    base_offset: int
    position: int
    next_offset: int
    names: int  # how many its log had made; 0: all of them are on the disk


class Checkpoint:
    """One checkpoint, from its beginning to its end."""

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        snapshot: Snapshot,
        first_entry: int,
        targets: list[Target],
        first_needed: int,
        incomplete: bool,
        one_by_one: bool,
        dirty: DirtyLogs,
    ) -> None:
        self.snapshot = snapshot
        self.first_entry = first_entry  # of the journal, not in the snapshot
        self.targets = targets
        self.syncfs_failed = False  # syncfs reports an error once: the next checkpoint must not rely on it
        self._one_by_one = one_by_one  # the segments are synced, without syncfs
        self._dirty = dirty
        self.incomplete = incomplete  # a log has failed and not continued: only the journal has the rest
        self.first_needed = first_needed  # the first journal file to keep: earlier files are released
        self.errors: dict[Target, OSError] = {}
        self.error: StorageError | None = None  # of the directory of all logs
        self.snapshot_error: StorageError | None = None
        self._fs = fs
        self._root = root

    def run(self, threads: int = limits.CHECKPOINT_THREADS) -> None:
        """Write the snapshot and sync the segments, on threads of its own."""
        self._save()
        targets = self.targets
        if len(targets) >= limits.SYNC_ALL_LOGS_MIN and not self._one_by_one:
            targets = self._sync_all(targets)
        if any(target.names for target in targets):
            path = layout.partitions_path(self._root)
            try:
                self._fs.sync_dir(path)
            except OSError as error:
                self.error = storage_error(path, "sync the directory", error)
        if threads > 1 and len(targets) > 1:
            from concurrent.futures import ThreadPoolExecutor  # which a start does not need

            with ThreadPoolExecutor(min(threads, len(targets)), "radiator-sync") as pool:
                list(pool.map(self._sync, targets))
        else:
            for target in targets:
                self._sync(target)

    def _save(self) -> None:
        try:
            self.snapshot.write(self._fs, self._root, self.first_entry)
        except OSError as error:
            self.snapshot_error = storage_error(error.filename, "write the snapshot", error)

    def _sync_all(self, targets: list[Target]) -> list[Target]:
        """Sync the whole file system at once. Return the targets that this has not synced."""
        fs = self._fs
        try:
            device = fs.device(self._root)
            if not fs.sync_all(self._root):
                return targets
        except OSError:
            self.syncfs_failed = True
            for log in self._dirty.written_logs():  # the error may be about one of these, and is reported only once
                log.suspect_file(log.base_offset)
            return targets  # the sync of the segment in question fails as well
        return [target for target in targets if not self._is_covered(target, device)]

    def _is_covered(self, target: Target, device: int) -> bool:
        """Return whether syncfs has synced this segment too.

        It has not if an earlier sync of the segment failed, and it does not report errors from before this run.
        """
        log = target.log
        try:
            log.check_file(target.base_offset)
            at_home = self._fs.device(log.directory) == device  # otherwise it is a link to another file system
            return at_home and not log.inherited
        except OSError:
            return False

    def _sync(self, target: Target) -> None:
        fs, log = self._fs, target.log
        log.write_mark()
        try:
            if target.names:
                fs.sync_dir(log.directory)
            fd = fs.open(layout.segment_path(log.directory, target.base_offset))
            try:
                fs.fdatasync(fd)
                log.check_file(target.base_offset)
            except OSError:
                log.suspect_file(target.base_offset)
                raise
            finally:
                fs.close(fd)
        except FileNotFoundError:
            pass  # deleted by retention
        except OSError as error:
            self.errors[target] = error


class Checkpoints:
    """When a checkpoint is due, and which one is in progress. The event loop owns it."""

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        dirty: DirtyLogs,
        snapshots: Snapshots,
        fail: Callable[[Log, StorageError, Now], None],
    ) -> None:
        self.snapshots = snapshots
        self.fail = fail  # reports the partition whose segment could not be synced
        self.made = 0  # so far, for metrics
        self.failed: StorageError | None = None  # why the last one has released nothing, if no log is the reason
        self._fs = fs
        self._root = root
        self._dirty = dirty
        self._journal = dirty.journal
        self._begun: Checkpoint | None = None  # and not yet handed out
        self._synced: Checkpoint | None = None  # to be ended
        self._encoding = False  # the next snapshot
        self._under_way = False
        self._requested = False  # by an operator, and not yet begun
        self._serves_request = False  # the one under way was requested
        self._one_by_one = False  # disk thread: the next checkpoint syncs the segments without syncfs
        self._retry_due_ns: MonoNs | None = None
        self._again = False  # disk thread: one has begun since the last that released files

    def jobs(self, now: Now) -> list[Job]:
        """Return the jobs for the next group."""
        if self._synced is not None:
            checkpoint, self._synced = self._synced, None
            return [EndJob(self, checkpoint)]
        failed = self._journal.failed is not None or self.snapshots.wanted
        wanted = failed or self._journal.wants_checkpoint or self._requested
        if not wanted:
            self._retry_due_ns = None
        elif failed and self._retry_due_ns is None:
            self._retry_due_ns = MonoNs(now.mono + RETRY_EVERY_NS)
        waits = self._retry_due_ns is not None and now.mono < self._retry_due_ns
        if (self._encoding or (wanted and not waits)) and not self._under_way:
            snapshot = self.snapshots.encode()
            self._encoding = snapshot is None
            if snapshot is not None:
                self._under_way = True
                self._serves_request, self._requested = self._requested, False
                self._retry_due_ns = None
                return [BeginJob(self, snapshot)]
        return []

    @property
    def under_way(self) -> bool:
        """Whether a checkpoint has begun and not ended."""
        return self._under_way

    @property
    def deadline_ns(self) -> MonoNs:
        """When ``jobs`` has work to do by itself; NEVER_NS if nothing is planned."""
        if self._under_way:
            return MonoNs(NEVER_NS)
        if self._encoding or (self._requested and self._retry_due_ns is None):
            return MonoNs(0)
        return MonoNs(NEVER_NS) if self._retry_due_ns is None else self._retry_due_ns

    def request(self) -> None:
        """Make a checkpoint soon, although none is due."""
        self._requested = True

    @property
    def requested(self) -> bool:
        """Whether a requested checkpoint has not ended."""
        return self._requested or self._serves_request

    def take(self) -> Checkpoint | None:
        """Return a checkpoint to be run, or None."""
        begun, self._begun = self._begun, None
        return begun

    def done(self, checkpoint: Checkpoint) -> None:
        """Take back a checkpoint that was run."""
        self._synced = checkpoint

    def begun(self, checkpoint: Checkpoint) -> None:
        """Set the checkpoint to be run."""
        self._begun = checkpoint

    def ended(self, checkpoint: Checkpoint | None, released: bool, now: Now) -> list[Any]:
        """Note that a checkpoint has ended.

        Args:
            checkpoint: The checkpoint; None if it could not begin, for a reason that the journal has.
            released: Whether it released files of the journal.
            now: The time.

        Returns:
            The waiters for a snapshot that could not be written.
        """
        self._under_way = self._serves_request = False
        self.made += released
        if not released:
            self._retry_due_ns = MonoNs(now.mono + RETRY_EVERY_NS)
        if checkpoint is None or checkpoint.snapshot_error is not None:
            return self.snapshots.not_written()
        self.snapshots.written(checkpoint.snapshot, checkpoint.first_entry)
        return []

    # --- the disk thread ----------------------------------------------------------------------------------------------

    def begin(self, snapshot: Snapshot) -> Checkpoint:
        """Begin a checkpoint on the disk thread. Raises StorageError."""
        first_needed = self._journal.begin_file(self._again)
        self._again = True
        first_entry = self._journal.next_entry
        self._dirty.copy_unwritten(first_needed)
        targets = []
        incomplete = False
        for log in self._dirty.take():
            if log.state is State.FAILED:
                incomplete = True
                self._dirty.written(log)
            elif log.syncs:
                log.sync_begins()
                names = log.names_made if log.names_synced < log.names_made else 0
                targets.append(Target(log, log.base_offset, log.position, log.next_offset, names))
            else:
                log.mark_unjournaled()
        return Checkpoint(
            self._fs,
            self._root,
            snapshot,
            first_entry,
            targets,
            first_needed,
            incomplete,
            self._one_by_one,
            self._dirty,
        )

    def end(self, checkpoint: Checkpoint) -> dict[Log, StorageError]:
        """End a checkpoint on the disk thread.

        Returns:
            The logs that could not be synced, with the reason.

        Raises:
            StorageError: Files of the journal cannot be released.
        """
        failed: dict[Log, StorageError] = {}
        self._one_by_one = checkpoint.syncfs_failed
        for target in checkpoint.targets:
            log, error = target.log, checkpoint.errors.get(target)
            if error is None and log.state is State.FAILED:
                checkpoint.incomplete = True
                self._dirty.written(log)
            elif error is not None:
                if log.base_offset == target.base_offset and log.state is not State.FAILED:
                    failed[log] = log.sync_has_failed(error)
                self._dirty.written(log)
            else:
                log.was_synced(target.base_offset, target.position, target.next_offset)
                if checkpoint.error is None:
                    log.names_are_synced(target.names)
        failure = checkpoint.error or checkpoint.snapshot_error
        if failure is None and not (checkpoint.errors or checkpoint.incomplete):
            try:
                self._journal.release(checkpoint.first_needed)
                self._again = False
                return failed
            except OSError as error:
                failure = storage_error(self._journal.directory, "release files", error)
        self._journal.request_checkpoint()
        if failure is not None:
            for target in checkpoint.targets:
                if target.names:
                    self._dirty.written(target.log)
            raise failure
        return failed


class CheckpointJob(Job):
    """A step of a checkpoint. ``waiters``: those of a snapshot that could not be written."""

    __slots__ = ("_checkpoints",)

    def __init__(self, checkpoints: Checkpoints) -> None:
        super().__init__()
        self._checkpoints = checkpoints

    @property
    def component(self) -> CursorStore | None:
        """The store of the cursors, if receipts wait for the snapshot."""
        return self._checkpoints.snapshots.cursors if self.waiters else None


class BeginJob(CheckpointJob):
    """Begin a checkpoint (``Checkpoints.begin``)."""

    __slots__ = ("_checkpoint", "_snapshot")

    def __init__(self, checkpoints: Checkpoints, snapshot: Snapshot) -> None:
        super().__init__(checkpoints)
        self._snapshot = snapshot
        self._checkpoint: Checkpoint | None = None

    def write(self) -> None:
        """Begin the checkpoint. The disk thread calls it."""
        try:
            self._checkpoint = self._checkpoints.begin(self._snapshot)
        except StorageError as error:
            self.error = error

    def done(self, now: Now) -> None:
        """Hand the checkpoint over to be run."""
        if self._checkpoint is None:
            self.waiters = self._checkpoints.ended(None, False, now)
        else:
            self._checkpoints.begun(self._checkpoint)


class EndJob(CheckpointJob):
    """End a checkpoint (``Checkpoints.end``)."""

    __slots__ = ("_checkpoint", "_failed")

    def __init__(self, checkpoints: Checkpoints, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoints)
        self._checkpoint = checkpoint
        self._failed: dict[Log, StorageError] = {}

    def write(self) -> None:
        """End the checkpoint. The disk thread calls it."""
        try:
            self._failed = self._checkpoints.end(self._checkpoint)
        except StorageError as error:
            self.error = error

    def done(self, now: Now) -> None:
        """Fail the logs that could not be synced."""
        self._checkpoints.failed = self.error
        for log, error in self._failed.items():
            self._checkpoints.fail(log, error, now)
            self.error = error
        released = self.error is None and not self._checkpoint.incomplete
        self.waiters = self._checkpoints.ended(self._checkpoint, released, now)
