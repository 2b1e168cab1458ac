"""All logs and cursors of one data directory.

    open()       lock, recover; then any number of times:
    take(now)    -> jobs: everything that was appended and acked since the last time, one group commit
    checkpoints  a checkpoint to be run on threads of its own, now and then
    tick(now)    what is due: interval syncs, rolls, retention; the next take() returns it
    close()      write and sync what is open

This module knows directories and their owners. It does not know the rules of destinations, sockets or threads (it only
says which thread runs a job). The event loop owns it. ``open`` and ``close`` do I/O, while no other thread runs.
Nothing else here does.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import Any

from radiator import limits
from radiator.clock import BEFORE, MonoNs, Now
from radiator.config import Settings, SyncPolicy
from radiator.errors import StorageError
from radiator.memory import MESSAGES, MemoryAccount
from radiator.storage import cursor_files, dedup_recovery, layout, missing, removal, salt, transaction_log
from radiator.storage.cursor import Cursor, ranges
from radiator.storage.cursor_store import CursorJob, CursorStore
from radiator.storage.dedup_recovery import Identify
from radiator.storage.definitions import Definitions, DefinitionsJob
from radiator.storage.file_partition import AppendJob, FilePartition
from radiator.storage.files import NO_ROOM, DirectoryLock, FileSystem, lock_holder, storage_error, sync_ancestors
from radiator.storage.header import UnknownVersion
from radiator.storage.jobs import AfterAcksJob, Job, run
from radiator.storage.journal.checkpoint import Checkpoints
from radiator.storage.journal.dirty_logs import DirtyLogs
from radiator.storage.journal.format import Entry
from radiator.storage.journal.group import GroupJob, Outcome
from radiator.storage.journal.journal import Journal
from radiator.storage.journal.reading import JournalFiles
from radiator.storage.journal.redo import Redo
from radiator.storage.journal.snapshots import Snapshots
from radiator.storage.log import Log
from radiator.storage.maintenance import Maintenance
from radiator.storage.memory import MemoryBudget, MemoryPartition
from radiator.storage.names_recovery import Allowance
from radiator.storage.open_logs import OpenLogs
from radiator.storage.partition import Agenda, EndOffsets, Partition
from radiator.storage.recovery import RecoveryNote, partition_names, recover
from radiator.storage.removal import Removal, Removals
from radiator.storage.segment_states import State
from radiator.storage.sweep import Sweep
from radiator.storage.tail import Budget, ColdCache, Tail

__all__ = ["RecoveryNote", "Settings", "Store", "SyncPolicy"]

FAILURES_SHOWN_MAX = 10  # one disk fails them all at once
NEW_FILES_MAX = limits.NEW_FILES_MAX


class Store:
    """One data directory. ``files`` makes its system calls."""

    def __init__(
        self,
        root: str,
        files: FileSystem,
        *,
        tail_bytes_max: int = limits.TAIL_BYTES_MAX,
        memory: MemoryAccount | None = None,
        open_logs_max: int = limits.OPEN_LOGS_MAX,
        identify: Identify | None = None,
        journal_file_bytes: int = limits.JOURNAL_FILE_BYTES,
    ) -> None:
        self.root = root
        self.fs = files
        self.partitions: dict[str, Partition] = {}
        self._identify = identify  # which message a stored one is, for ids that are remembered
        self._open_logs = OpenLogs(open_logs_max)
        self.definitions = Definitions(files, layout.subscriptions_path(root))
        self._agenda = Agenda()
        self.journal = Journal(files, root, self._open_logs.with_descriptors, journal_file_bytes)
        self.cursors = CursorStore(files, layout.cursors_path(root), self.journal)
        self._snapshots = Snapshots(files, root, self.cursors, self.definitions)
        self._dirty = DirtyLogs(files, root, self.journal)
        self.checkpoints = Checkpoints(files, root, self._dirty, self._snapshots, self._fail)
        self._file_creators: dict[Partition, None] = {}  # they wait for their turn to begin a file, in order
        self.maintenance = Maintenance(self._agenda.removals)
        self.removals = Removals(files, root, self._dirty, self._open_logs, self._retire, self.maintenance.forget)
        self._sweep = Sweep(self.partitions, self._agenda)
        self._budget = Budget(tail_bytes_max)
        self.memory = memory or MemoryAccount(limits.MEMORY_BYTES_MAX)
        self._memory = MemoryBudget(self.memory.shares[MESSAGES])
        self._cold = ColdCache(min(limits.COLD_BYTES_MAX, tail_bytes_max))
        self._lock: DirectoryLock | None = None
        self._key = b""  # of the salts
        self._together: dict[
            Partition, None
        ] = {}  # partitions with parts of multi-log transactions in their open batch
        self._outcomes: list[Outcome] = []
        self.transaction_waiters: list[Any] = []  # waiters for the transactions of the next take()
        self.damages: list[str] = []  # damage in files that the start has found
        self.restored = 0  # messages that the start has appended from the journal, those of damaged segments apart
        self._now = BEFORE  # at the last call

    # --- opening and closing ------------------------------------------------------------------------------------------

    def open(self, now: Now, allowance: Allowance | None = None) -> list[RecoveryNote]:
        """Lock the directory and bring every file in order.

        Args:
            now: The time.
            allowance: How much of the logs may be read to complete lists of destinations.

        Returns:
            What was not in order.

        Raises:
            StorageError: Another broker has the directory, or a file cannot be read or written.
        """
        notes: list[RecoveryNote] = []
        self.acquire()
        try:
            self._key = salt.make_key(self.fs, self.root)
            files = JournalFiles(self.fs, self.root)
            allowance = allowance or Allowance()
            removed = self._finish_removal(notes)
            for name in partition_names(self.fs, self.root, notes):
                partition = self._file_partition(name, Settings())
                try:
                    facts = recover(partition.log, notes, allowance, files)
                except UnknownVersion as error:
                    raise UnknownVersion(f"{partition.directory}: {error}") from None
                partition.recovered(facts)
                self.partitions[name] = partition
            decided = transaction_log.load(self.fs, self.root)  # by an earlier version
            redo = Redo(self._recovered_partition, decided, files.entries(), removed)
            for name in redo.gone:
                self.partitions.pop(name, None)
            ends = {name: partition.next_offset for name, partition in self.partitions.items()}
            files.sync()  # before a snapshot has only a part of their changes
            notes += self._load_metadata(redo, ends | redo.ends, decided, removed)
            redo.append(notes, now)
            self.restored = redo.appended
            notes += files.notes()
            notes += missing.notes(self.cursors, self.partitions)
            if self._identify is not None:
                dedup_recovery.recover_all(self.partitions.values(), ends, notes, self._identify)
            files.hand_over(self.journal, self.cursors.entries_to)
            for job in run(self._removal_jobs(now, [])):
                job.done(now)
            if decided and not self._agenda.postponed_partitions and self.cursors.failed is None:
                for partition in redo.partitions.values():
                    partition.log.sync()
                transaction_log.remove(self.fs, self.root)
            # Directory entries that an earlier run could not sync must be durable before anything is acknowledged.
            self.fs.sync_dir(layout.partitions_path(self.root))
            self.fs.sync_dir(self.root)
            sync_ancestors(self.fs, self.root)
        except OSError as error:
            self._unlock()
            raise storage_error(self.root, "open the data directory", error) from error
        except StorageError:
            self._unlock()
            raise
        self.damages = [str(note) for note in notes if note.kind == "damage"][: limits.DAMAGES_REPORTED_MAX]
        return notes

    def _finish_removal(self, notes: list[RecoveryNote]) -> dict[str, int]:
        """Move away the directories of partitions that an earlier run has removed.

        Returns:
            The partitions, with the entry of the journal below which their batches do not count.

        Raises:
            OSError: They cannot be moved.
        """
        fs, root = self.fs, self.root
        try:
            intent = removal.load(fs, root)
        except (ValueError, KeyError, TypeError) as error:
            notes.append(RecoveryNote(layout.removals_path(root), f"could not be read ({error}); ignored", "removals"))
            intent = None
        if intent is not None:
            removal.move(fs, root, intent)
            self.removals.resume(intent)
        with contextlib.suppress(OSError):  # the next removal tries again
            removal.clear(fs, root)
        return {} if intent is None else dict.fromkeys(intent.partitions, intent.entry)

    def _load_metadata(
        self, redo: Redo, ends: dict[str, int], decided: list[Entry], removed: Container[str] = ()
    ) -> list[RecoveryNote]:
        """Read cursors and definitions. Raises OSError."""
        cursors, definitions, directory = self.cursors, self.definitions, self.cursors.directory
        self.fs.mkdir(directory)
        found = cursor_files.read(self.fs, directory, redo.cursors, [entry.cursors for entry in decided])
        since = found.since
        lost = [number for number, state in found.states.items() if state.partition in removed]
        if lost:  # of partitions that are removed; their cursors were about to be deleted
            for number in lost:
                del found.states[number]
            found = found._replace(changed=True)
        self._snapshots.begin_at(since)
        faults = definitions.load(data for number, data in redo.names if number >= since)
        notes = [RecoveryNote(definitions.path, text, "subscriptions") for text in faults]
        notes += [RecoveryNote(directory, text, "cursors") for text in cursors.load(found, ends)]
        if cursors.changed:  # saved at once, independent of pages that an earlier run failed to sync
            try:
                self._snapshots.save(cursors.entries_to)
            except OSError as error:
                if error.errno not in NO_ROOM or cursors.set_back:  # new messages would count as settled
                    raise
                failed = storage_error(directory, "write the snapshot", error)
                cursors.fail(failed)
                text = str(failed).removeprefix(f"{directory}: ")  # the note has the path
                notes.append(
                    RecoveryNote(directory, f"{text}; acknowledgements are not stored until there is room", "cursors")
                )
        else:
            self.fs.sync_dir(directory)  # an earlier run may have renamed the snapshot and failed to
        return notes

    def _recovered_partition(self, name: str) -> FilePartition | None:
        partition = self.partitions.get(name)
        if partition is None:  # its directory was not synced when the power failed
            partition = self.partitions[name] = self._file_partition(name, Settings())
        return partition if isinstance(partition, FilePartition) else None

    def acquire(self, remedy: str = "stop that one, or use another data_dir for this one") -> None:
        """Lock the directory, if it is not locked.

        It is the first part of ``open``, for tools that work before the files are brought in order.

        Raises:
            StorageError: Another broker has the directory, or it cannot be made.
        """
        if self._lock is not None:
            return
        try:
            self.fs.mkdir(self.root)
            self._lock = self.fs.lock(self.root)
            self.fs.mkdir(layout.partitions_path(self.root))
        except BlockingIOError:
            holder = lock_holder(self.fs, self.root)
            raise StorageError(f"{self.root}: in use by another broker (process {holder}); {remedy}") from None
        except OSError as error:
            elsewhere = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG)
            other_remedy = "there can be no directory of that name; choose another data_dir" if elsewhere else None
            raise storage_error(self.root, "open the data directory", error, other_remedy) from error

    def release(self) -> None:
        """Unlock the directory after ``acquire`` alone; ``close`` does it after ``open``."""
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self.fs.unlock(self._lock)
            self._lock = None

    @property
    def in_place(self) -> bool:
        """Whether ``root`` still leads to the directory that was opened, if it is open. One system call."""
        return self._lock is None or self.fs.in_place(self._lock)

    def close(self, late: Callable[[], bool] = bool) -> int:
        """Write and sync what is open, and unlock the directory.

        Args:
            late: Returns True once the stop has taken too long: then no file is begun (messages that need one are given
                up, unreceipted), and no more segments are synced (the journal stays for the next start).

        Returns:
            How many messages were given up.

        Raises:
            StorageError: The first error, after everything was tried.
        """
        errors: list[StorageError] = []
        while jobs := self.take(self._now, makes_files=not late()):
            for job in run(jobs):
                job.done(self._now)
                if job.error is not None:
                    errors.append(job.error)
        files = [partition for partition in self.partitions.values() if isinstance(partition, FilePartition)]
        in_segments = not self._agenda.postponed_partitions
        for partition in files:
            try:
                for job in partition.take_cuts():
                    job.write()
                if late():
                    in_segments = False
                    partition.log.release()
                else:
                    partition.close_ids()
                    partition.log.close()
            except StorageError as error:
                errors.append(error)
            in_segments &= partition.log.state is not State.FAILED
        try:
            if in_segments and not errors and self._save_metadata():
                self.journal.clear()
            else:
                self.journal.sync()  # the next start recovers from it what no synced segment has
        except StorageError as error:
            errors.append(error)
        except OSError as error:
            errors.append(storage_error(self.root, "clear the journal", error))
        self.cursors.close()
        self.journal.close()
        self._unlock()
        if errors:
            raise errors[0]
        return sum(each.untaken for each in self._file_creators)

    def _save_metadata(self) -> bool:
        """Return whether the snapshot has all that the journal's entries say of cursors and definitions."""
        try:
            if self.journal.next_entry > self._snapshots.first_entry or self.cursors.failed is not None:
                self._snapshots.save(self.journal.next_entry)
        except OSError:
            return False  # a full disk: the next start takes it from the entries
        return True

    # --- partitions ---------------------------------------------------------------------------------------------------

    def partition(self, name: str, settings: Settings) -> Partition:
        """Return the partition of a name, with these settings from now on.

        A new one makes its files with its first write.

        Raises:
            ValueError: The name cannot be that of a directory.
        """
        partition = self.partitions.get(name)
        if partition is None:
            layout.encode_name(name)
            if settings.store == "memory":
                partition = MemoryPartition(name, settings, self.fs, self._memory, self._agenda)
            else:
                partition = self._file_partition(name, settings)
            self.partitions[name] = partition
        else:
            partition.configure(settings)
        return partition

    def limit_tail(self, bytes_max: int) -> None:
        """Set how many bytes of recent messages may be in memory, over all partitions."""
        self._budget.limit(bytes_max)
        self._cold.limit(min(limits.COLD_BYTES_MAX, bytes_max))

    def _file_partition(self, name: str, settings: Settings) -> FilePartition:
        directory = layout.partition_path(self.root, name)
        log = Log(self.fs, directory, name, settings, self._open_logs, salt.of_partition(self._key, directory))
        return FilePartition(name, settings, log, Tail(self._budget), self._cold, self._agenda, self._dirty)

    def _fail(self, log: Log, error: StorageError, now: Now) -> None:
        partition = self.partitions.get(log.name)
        if partition is not None:  # it was not removed since
            partition.fail(error, now.mono)

    def forget(self, partition: Partition) -> None:
        """Drop a partition that is not needed any more (a temporary queue, or a name that nothing was sent to).

        A log with files stays if anything was ever appended to it, even in vain: a file must never have two writers.
        """
        if isinstance(partition, MemoryPartition):
            partition.discard()
        elif not partition.untouched:
            return
        partition.forget_readers()
        self._agenda.forget(partition)
        self.partitions.pop(partition.name, None)

    def remove(self, partitions: Iterable[Partition], committed: Callable[[StorageError | None], None]) -> None:
        """Remove the logs of a destination, with all messages: all of them, or none if that fails.

        Nothing uses them any more. Their names are in ``removals.names`` until logs of these names may begin again.

        Args:
            partitions: The logs. Those with files are ``is_removable``.
            committed: Called once the logs are gone whatever happens, so that their cursors may be deleted; with the
                error if they stay.
        """
        stored: list[FilePartition] = []
        for partition in partitions:
            if isinstance(partition, FilePartition) and not partition.untouched:
                partition.leave(True)
                stored.append(partition)
            else:
                self.forget(partition)
        if not stored:
            committed(None)
            return

        def ended(error: StorageError | None) -> None:
            for each in stored if error is not None else ():
                each.leave(False)
            committed(error)

        self.removals.add(Removal(stored, ended))

    def _retire(self, partition: FilePartition) -> None:
        partition.forget_readers()
        partition.retire()
        self._file_creators.pop(partition, None)
        self.partitions.pop(partition.name, None)

    # --- the turn -----------------------------------------------------------------------------------------------------

    def take(self, now: Now, makes_files: bool = True) -> list[Job]:
        """Return the work of this turn, in order, as one group commit.

        Args:
            now: The time.
            makes_files: Whether logs may begin a file. At most NEW_FILES_MAX logs do; the others stay ``dirty``, and
                the next call continues.
        """
        self._now = now
        jobs: list[Job] = []
        waiting, together = self._file_creators, self._together
        files_max = NEW_FILES_MAX if makes_files else 0
        creators = [partition for partition in waiting if partition in together]
        creators += [each for each in waiting if each not in together][: max(files_max - len(creators), 0)]
        for partition in creators:
            del waiting[partition]
        self._agenda.begin_turn()
        dirty = self._agenda.dirty
        visit = dirty.copy()
        dirty.clear()
        for partition in visit:
            if not partition.makes_files:
                jobs += partition.take(now)
            elif len(creators) < files_max or partition in together:
                creators.append(partition)
            else:
                waiting[partition] = None
                if partition.segments:  # it only rolls: messages need not wait for that
                    jobs += partition.take(now, may_roll=False)
        for partition in creators:
            jobs += partition.take(now)
        cursor_jobs = self.cursors.take(now.mono)
        definition_jobs = self.definitions.take(now.mono, beside=bool(jobs or cursor_jobs or self._outcomes))
        # First: the acks of transactions in this group are in no snapshot yet, so its entry is for the next checkpoint.
        jobs = self.checkpoints.jobs(now) + self._group_commit(jobs, cursor_jobs, definition_jobs)
        removals = self._agenda.removals
        if removals:  # behind the acks that let them go
            for job in removals:
                if isinstance(job, AfterAcksJob) and job.partition.retain_from is not None:
                    job.sync_first(self._acks_sync(cursor_jobs))
            jobs += removals
            removals.clear()
        if self.removals.waiting or self.removals.failed is not None:
            jobs += self._removal_jobs(now, cursor_jobs)
        return jobs

    def _removal_jobs(self, now: Now, cursor_jobs: list[CursorJob]) -> list[Job]:
        jobs = self.removals.jobs(now, self.checkpoints.under_way)
        for job in jobs:
            if isinstance(job, AfterAcksJob):
                job.sync_first(self._acks_sync(cursor_jobs))
        return jobs

    def _acks_sync(self, cursor_jobs: list[CursorJob]) -> Callable[[], None]:
        """Return ``_sync_acks`` for the cursor changes of this turn."""
        return partial(self._sync_acks, cursor_jobs, self.cursors.failed, self.journal.sync_error)

    def _sync_acks(
        self, cursor_jobs: list[CursorJob], failed: StorageError | None, sync_error: StorageError | None
    ) -> None:
        """Sync, on the disk thread, all cursor changes of this turn and before. Raises StorageError.

        Args:
            cursor_jobs: The changes of the turn.
            failed: Why earlier changes could not be stored.
            sync_error: Of the journal, before the turn.
        """
        for error in (failed, *(job.error for job in cursor_jobs)):
            if error is not None:
                raise StorageError(str(error))
        self.journal.sync()
        error = self.journal.sync_error
        if error is not None and (self.journal.doubtful or error is not sync_error):
            raise StorageError(str(error))

    def store_cursors(self, now: Now) -> None:
        """Write and sync the changes of cursors, while no other thread runs.

        Raises:
            StorageError: They, or earlier changes, are not stored.
        """
        self.cursors.sync_soon()
        jobs = run(self._group_commit([], self.cursors.take(now.mono), []))
        for job in jobs:
            job.done(now)
        for error in (*(job.error for job in jobs), self.cursors.failed):
            if error is not None:
                raise StorageError(str(error))

    def _group_commit(
        self, jobs: list[Job], cursor_jobs: list[CursorJob], definition_jobs: list[DefinitionsJob]
    ) -> list[Job]:
        """Return the jobs behind those that decide them. Jobs without a sync come first, in their own entry."""
        appends = [job for job in jobs if type(job) is AppendJob and not job.again]
        early = [job for job in jobs if job.before_entry]
        if early:
            jobs = [job for job in jobs if not job.before_entry]
        jobs += [*cursor_jobs, *definition_jobs]
        cursors, names = (cursor_jobs[0] if cursor_jobs else None), (definition_jobs[0] if definition_jobs else None)
        if self._outcomes:
            waiters, outcomes = self.transaction_waiters, self._outcomes
            self._together, self.transaction_waiters, self._outcomes = {}, [], []
            return [*early, GroupJob(self.journal, appends, True, cursors, names, waiters, outcomes), *jobs]
        unsynced = _without_sync(appends)
        syncs = len(unsynced) < len(appends)
        strict = names is not None or (cursors is not None and (cursors.needs_sync or (cursors.creates and syncs)))
        if sum([job.batch.size_bytes for job in appends]) >= limits.JOURNAL_PASSED_BYTES_MIN:
            _bypass_journal(appends)
            appends, unsynced = ([job for job in each if not job.bypasses_journal] for each in (appends, unsynced))
        if not (appends or cursor_jobs or definition_jobs):
            return early + jobs
        needs_sync = strict or len(unsynced) < len(appends)
        if unsynced and needs_sync:
            return early + self._unsynced_first(unsynced, appends, jobs, cursors, names)
        return [*early, GroupJob(self.journal, appends, needs_sync, cursors, names), *jobs]

    def _unsynced_first(
        self,
        unsynced: list[AppendJob],
        appends: list[AppendJob],
        jobs: list[Job],
        cursors: CursorJob | None,
        names: DefinitionsJob | None,
    ) -> list[Job]:
        """Return the jobs of two entries: one without a sync, which nobody waits for, and one for the rest."""
        first = {job.partition for job in unsynced}
        synced = [job for job in appends if job.partition not in first]
        writes = [job for job in jobs if type(job) is AppendJob and job.partition in first]
        behind = [job for job in jobs if not (type(job) is AppendJob and job.partition in first)]
        groups = GroupJob(self.journal, unsynced, False), GroupJob(self.journal, synced, True, cursors, names)
        return [groups[0], *writes, groups[1], *behind]

    def together(
        self,
        partitions: Iterable[Partition],
        acks: Iterable[tuple[Cursor, list[int]]],
        outcome: Outcome,
    ) -> None:
        """Store what was just appended to these partitions, and these acks, atomically: all of it or nothing.

        The acks have no effect yet: the caller applies them when ``outcome`` is called with True. Other messages in the
        same open batches are included.
        """
        for partition in partitions:
            partition.open_batch.make_atomic()
            self._together[partition] = None
        for cursor, offsets in acks:
            self.cursors.together(cursor, ranges(offsets))
        self._outcomes.append(outcome)

    def take_finished(self, now: Now) -> list[Job]:
        """Return the jobs that need no disk (memory partitions), for turns in which the disk thread is busy."""
        dirty = self._agenda.dirty
        memory = [partition for partition in dirty if isinstance(partition, MemoryPartition)]
        if not memory:
            return []
        dirty[:] = [partition for partition in dirty if not isinstance(partition, MemoryPartition)]
        return [job for partition in memory for job in partition.take(now)]

    def end_offsets(self) -> EndOffsets:
        """Return where all logs end now, for work over many partitions in several turns."""
        return EndOffsets(self._agenda.end_offsets, (*self._agenda.dirty, *self._file_creators))

    @property
    def dirty(self) -> bool:
        """Whether a partition has work to do."""
        return bool(self._agenda.dirty or self._file_creators or self.removals.waiting)

    def tick(self, now: Now) -> None:
        """Note what is due."""
        self._now = now
        for partition in self._agenda.due(now):
            partition.tick(now)
        swept = self._sweep.take(now.mono)
        for partition in swept:
            partition.sweep()
        self.maintenance.sweep(now, swept)

    def next_deadline_ns(self, now: Now) -> MonoNs:
        """Return when tick() has work to do; NEVER_NS if nothing is planned."""
        return min(
            self._agenda.next_ns(now),
            self.cursors.deadline_ns,
            self.definitions.deadline_ns,
            self.checkpoints.deadline_ns,
            self.removals.deadline_ns,
        )

    def failures(self) -> list[str]:
        """Return what cannot be stored now, and why, as texts."""
        failed = list(self._agenda.failed)
        texts = [f"partition {each.name}: {each.failed}" for each in failed[:FAILURES_SHOWN_MAX]]
        if len(failed) > len(texts):
            texts.append(f"{len(failed) - len(texts)} more partitions")
        if self.cursors.failed is not None:
            texts.append(f"cursors: {self.cursors.failed}")
        if self.definitions.failed is not None:
            texts.append(f"subscriptions: {self.definitions.failed}")
        if self.journal.failed is not None:
            texts.append(f"journal: {self.journal.failed}")
        if self.removals.failed is not None:
            texts.append(f"removal of partitions: {self.removals.failed}")
        if self.checkpoints.failed is not None:
            texts.append(f"checkpoint: {self.checkpoints.failed}")
        return texts

    @property
    def memory_is_full(self) -> bool:
        """Whether memory partitions may not grow: ``limits.memory`` is used up, by messages that are needed."""
        return self._memory.share.full

    @property
    def checkpoints_behind(self) -> bool:
        """Whether the journal is as large as it may be: no messages should be accepted before a checkpoint."""
        return self.journal.full

    def facts(self) -> dict[str, Any]:
        """Return numbers for metrics."""
        return {
            "tail_bytes": self._budget.bytes,
            "cold_bytes": self._cold.bytes,
            "memory_bytes": self._memory.bytes,
            "partitions": len(self.partitions),
            "partitions_failed": len(self._agenda.failed),
            "syncs": self._open_logs.syncs + self.journal.syncs,
            "journal_bytes": self.journal.bytes,
            "checkpoints": self.checkpoints.made,
            **{f"maintenance_{name}": count for name, count in self.maintenance.counts.items()},
        }


def _without_sync(appends: list[AppendJob]) -> list[AppendJob]:
    """Return the appends to logs of which no batch needs a sync."""
    if all(job.needs_sync for job in appends):
        return []
    syncing = {job.partition for job in appends if job.needs_sync}
    return [job for job in appends if job.partition not in syncing]


def _bypass_journal(appends: list[AppendJob]) -> None:
    """Mark large appends, which are synced where they are written: writing them twice would take longer."""
    sizes: dict[Partition, int] = {}
    for job in appends:
        sizes[job.partition] = sizes.get(job.partition, 0) + job.batch.size_bytes
    for job in appends:
        if sizes[job.partition] >= limits.JOURNAL_PASSED_BYTES_MIN:
            job.bypass_journal()
