"""All logs and cursors of one data directory.

    open()       lock, recover; then any number of times:
    take(now)    -> jobs: everything that was appended and acked since the last time
    take_apart(now) -> units of jobs: what need not be in the same group (``apart``)
    tick(now)    what time brings: interval syncs, rolls, retention; they come with the next take()
    close()      what is open is written and synced

Knows: directories, who owns what. Must not know: destinations' rules, sockets, threads (it only says which is meant).
Owned by the hub. ``open`` and ``close`` do I/O; they run while no other thread does. Nothing else here does.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from typing import Any

from radiator import limits
from radiator.errors import StorageError
from radiator.storage import dedup_file, dedup_recovery, layout, missing, salt, transaction_log
from radiator.storage.apart import Apart, logs_of
from radiator.storage.care import Caretaker
from radiator.storage.care_jobs import SettledJob
from radiator.storage.cursor import Cursor
from radiator.storage.cursor_store import CursorJob, CursorStore
from radiator.storage.dedup_recovery import Identify
from radiator.storage.definitions import Definitions
from radiator.storage.file_partition import FilePartition
from radiator.storage.files import FileSystem, close_quietly, lock_holder, storage_error
from radiator.storage.format import UnknownVersion
from radiator.storage.jobs import AppendJob, DirectoriesJob, Job, RemoveJob
from radiator.storage.log import Log
from radiator.storage.memory import MemoryBudget, MemoryPartition
from radiator.storage.names_recovery import Allowance
from radiator.storage.open_logs import OpenLogs
from radiator.storage.options import PartitionOptions, SyncPolicy
from radiator.storage.partition import Agenda, Partition
from radiator.storage.recovery import RecoveryNote, partition_names, recover
from radiator.storage.redo import Redo
from radiator.storage.sweep import Sweep
from radiator.storage.tail import Budget, ColdCache, Tail
from radiator.storage.transaction_job import Outcome, TransactionJob, defer
from radiator.storage.transaction_log import TransactionLog

__all__ = ["PartitionOptions", "RecoveryNote", "Store", "SyncPolicy"]

FAILURES_TOLD_MAX = 10  # one disk fails them all at once
NEW_FILES_MAX = limits.NEW_FILES_MAX


class Store:
    """One data directory. ``fs`` is the seam to the operating system."""

    def __init__(
        self,
        root: str,
        files: FileSystem,
        *,
        tail_bytes_max: int = limits.TAIL_BYTES_MAX,
        memory_bytes_max: int = limits.MEMORY_BYTES_MAX,
        open_logs_max: int = limits.OPEN_LOGS_MAX,
        identify: Identify | None = None,
        together_synced_max: int = limits.TOGETHER_SYNCED_MAX,
    ) -> None:
        self.root = root
        self.fs = files
        self.partitions: dict[str, Partition] = {}
        self._identify = identify  # which message a stored one is, for ids that are remembered
        self._open_logs = OpenLogs(open_logs_max)
        self.cursors = CursorStore(files, layout.cursors_path(root), self._open_logs.again)
        self.definitions = Definitions(files, layout.subscriptions_path(root))
        self._agenda = Agenda()
        self._apart = Apart(self._agenda)
        self.care = Caretaker(self._agenda.removals)
        self._sweep = Sweep(self.partitions, self._agenda)
        self._budget = Budget(tail_bytes_max)
        self._memory = MemoryBudget(memory_bytes_max)
        self._cold = ColdCache(min(limits.COLD_BYTES_MAX, tail_bytes_max))
        self._lock = -1
        self._key = b""  # of the salts
        self._transactions = TransactionLog(files, root, self._open_logs.again)
        self._synced_max = together_synced_max
        self._together: dict[Partition, None] = {}  # whose open batches hold parts of transactions over several files
        self._awaited: list[tuple[Partition, int]] = []  # messages under way without which those do not hold
        self._outcomes: list[Outcome] = []
        self.transaction_waiters: list[Any] = []  # who waits for the next take()'s transactions to be decided
        self._now_ns = 0  # as it was last told

    # --- opening and closing ------------------------------------------------------------------------------------------

    def open(self, now_ns: int, allowance: Allowance | None = None) -> list[RecoveryNote]:
        """Takes the directory, brings every file in order, and says what was not as it should be. ``allowance``: how
        much of the logs may be read to make lists of names whole. Raises StorageError if another broker has the
        directory, or if the disk does not let us."""
        notes: list[RecoveryNote] = []
        self.acquire()
        try:
            self._key = salt.make_key(self.fs, self.root)
            allowance = allowance or Allowance()
            for name in partition_names(self.fs, self.root, notes):
                partition = self._file_partition(name, PartitionOptions())
                try:
                    found = recover(partition.log, notes, allowance)
                except UnknownVersion as error:
                    raise UnknownVersion(f"{partition.directory}: {error}") from None
                partition.recovered(found)
                self.partitions[name] = partition
            path = self.cursors.directory
            decided = transaction_log.load(self.fs, self.root)
            redo = Redo(self._recovered_partition, decided)
            ends = {name: partition.next_offset for name, partition in self.partitions.items()}
            notes += [RecoveryNote(path, text, "cursors") for text in self.cursors.load(ends | redo.ends(), redo.acks)]
            redo.append(notes, now_ns)
            notes += [RecoveryNote(self.definitions.path, text, "subscriptions") for text in self.definitions.load()]
            notes += missing.notes(self.cursors, self.partitions)
            if self._identify is not None:
                dedup_recovery.recover_all(self.partitions.values(), ends, notes, self._identify)
            if self._agenda.postponing or self.cursors.failed is not None:
                self._transactions.goes_on(decided)
            else:
                self._transactions.clear()
            # Names that an earlier run made, and could not sync, must not vanish under what is promised from now on.
            for directory in (
                os.path.dirname(os.path.abspath(self.root)),
                self.root,
                layout.partitions_path(self.root),
            ):
                self.fs.sync_dir(directory)
        except OSError as error:
            self._unlock()
            raise storage_error(self.root, "open the data directory", error) from error
        except StorageError:
            self._unlock()
            raise
        return notes

    def _recovered_partition(self, name: str) -> FilePartition | None:
        partition = self.partitions.get(name)
        if partition is None:  # its directory was not synced when the power failed
            partition = self.partitions[name] = self._file_partition(name, PartitionOptions())
        return partition if isinstance(partition, FilePartition) else None

    def acquire(self, remedy: str = "stop that one, or give this one another data_dir") -> None:
        """Takes the directory, if we do not have it: the first part of ``open``, for tools that have something to do
        before the files are brought in order. Raises StorageError."""
        if self._lock >= 0:
            return
        path = layout.lock_path(self.root)
        try:
            self.fs.mkdir(layout.partitions_path(self.root))
            self._lock = self.fs.lock(path)
        except BlockingIOError:
            holder = lock_holder(self.fs, path)
            raise StorageError(f"{self.root}: in use by another broker (process {holder}); {remedy}") from None
        except OSError as error:
            elsewhere = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG)
            told = "there can be no directory of that name; choose another data_dir" if elsewhere else None
            raise storage_error(self.root, "open the data directory", error, told) from error

    def release(self) -> None:
        """Gives the directory back: for those who only acquired it. ``close`` does it for the others."""
        self._unlock()

    def _unlock(self) -> None:
        close_quietly(self.fs, self._lock)
        self._lock = -1

    def close(self, late: Callable[[], bool] = bool) -> int:
        """Writes and syncs what is still open, and gives the directory back. The first error is raised at the end. Once
        it is ``late`` no file is begun: what waits for one is given up, unreceipted. Returns how many messages."""
        errors: list[StorageError] = []
        while jobs := [*self.take(self._now_ns, apart=(hurry := late())), *(self._apart.syncs() if hurry else [])]:
            for job in jobs:
                job.write()
            for job in jobs:
                if job.needs_sync:
                    job.sync()
                job.done(self._now_ns)
                if job.error is not None:
                    errors.append(job.error)
        for partition in self.partitions.values():
            if isinstance(partition, FilePartition):
                for job in partition.take_cuts():
                    job.write()
                dedup_file.close(partition)
                try:
                    partition.log.close()
                except StorageError as error:
                    errors.append(error)
        try:
            self.cursors.close()
            agenda = self._agenda
            if not (errors or agenda.postponing or agenda.owing) and self.cursors.failed is None:
                self._transactions.clear()
        except StorageError as error:
            errors.append(error)
        except OSError as error:
            errors.append(storage_error(self.root, "clear the transactions", error))
        self._transactions.close()
        self._unlock()
        if errors:
            raise errors[0]
        return sum(each.untaken for each in self._apart.makers)

    # --- partitions ---------------------------------------------------------------------------------------------------

    def partition(self, name: str, options: PartitionOptions) -> Partition:
        """The partition of that name, made if it is new (its files come with its first write); ``options`` hold from
        now on. Raises ValueError if the name cannot be a directory's."""
        partition = self.partitions.get(name)
        if partition is None:
            layout.encode_name(name)
            if options.store == "memory":
                partition = MemoryPartition(name, options, self.fs, self._memory, self._agenda)
            else:
                partition = self._file_partition(name, options)
            self.partitions[name] = partition
        else:
            partition.set_options(options)
        return partition

    def _file_partition(self, name: str, options: PartitionOptions) -> FilePartition:
        directory = layout.partition_path(self.root, name)
        log = Log(self.fs, directory, name, options, self._open_logs, salt.of_partition(self._key, directory))
        return FilePartition(name, options, log, Tail(self._budget), self._cold, self._agenda)

    def forget(self, partition: Partition) -> None:
        """Nobody needs this one any more (temporary queues, names that nothing was sent to). A log with files stays if
        anything was ever appended to it, even in vain: two writers of one file must never be."""
        if isinstance(partition, MemoryPartition):
            partition.discard()
        elif not partition.untouched:
            return
        partition.on_forced = partition.settled_in = None
        self._agenda.forget(partition)
        self.partitions.pop(partition.name, None)

    # --- the turn -----------------------------------------------------------------------------------------------------

    def take(self, now_ns: int, apart: bool = False) -> list[Job]:
        """What there is to do, in order. Only NEW_FILES_MAX logs begin a file; then ``dirty`` stays, and
        the next call goes on. ``apart``: only a transaction's do; ``take_apart`` has the others."""
        self._see(now_ns)
        under_way, waiting = self._apart.under_way, self._apart.makers
        if under_way and any(each in under_way for each in (*self._together, *(each for each, _ in self._awaited))):
            return []  # parts of one transaction are written in one group, and this one's would not be all there
        jobs: list[Job] = []
        files_max = 0 if apart else NEW_FILES_MAX
        makers: list[Partition] = [partition for partition in self._together if partition in waiting]
        makers += [each for each in waiting if each not in self._together][: max(files_max - len(makers), 0)]
        for partition in makers:
            self._apart.leave(partition)
        dirty = self._agenda.dirty
        visit = dirty.copy()
        dirty.clear()
        for partition in visit:
            if partition in under_way:
                dirty.append(partition)
            elif not partition.makes_files:
                jobs += partition.take(now_ns)
            elif len(makers) < files_max or partition in self._together:
                makers.append(partition)
            else:
                waiting[partition] = None
                if partition.segments:  # it only rolls: messages need not wait for that
                    jobs += partition.take(now_ns, may_roll=False)
        new = logs_of(makers)
        if len(new) > 1:
            jobs.append(DirectoriesJob(new))
        for partition in makers:
            jobs += partition.take(now_ns)
        before, behind = self.definitions.take(now_ns)
        jobs += [*before, *self.cursors.take(now_ns), *behind]
        if not apart:
            jobs += self._apart.syncs()
        if self._outcomes:
            jobs.insert(0, self._transaction(jobs))
        removals = self._agenda.removals
        if removals:  # behind the acks that let them go
            for job in removals:
                if isinstance(job, RemoveJob | SettledJob) and job.partition.retain_from is not None:
                    job.sync_cursors = self.cursors.log.sync
            jobs += removals
            removals.clear()
        return jobs

    def take_apart(self, now_ns: int) -> list[list[Job]]:
        """Units of jobs, each of which is to be done as a whole, in order, between two group commits. None while a
        transaction waits for its group: that takes its logs from among those that wait here."""
        return [] if self._together else self._apart.take(now_ns)

    def _transaction(self, jobs: list[Job]) -> TransactionJob:
        appends = [job for job in jobs if isinstance(job, AppendJob) and job.atomic]
        cursors = next((job for job in jobs if isinstance(job, CursorJob) and job.together), None)
        start_over = not self._agenda.postponing and self.cursors.failed is None
        if len(appends) > self._synced_max:
            defer(appends, jobs)
        waiters, outcomes = self.transaction_waiters, self._outcomes
        vain = [partition for partition, offset in self._awaited if offset >= partition.kept_to]
        self._together, self._awaited, self.transaction_waiters, self._outcomes = {}, [], [], []
        owing = [each for each in self._agenda.owing if isinstance(each, FilePartition)]
        job = TransactionJob(self._transactions, appends, cursors, start_over, owing, waiters, outcomes)
        if vain:
            job.error = StorageError(f"partition {vain[0].name}: a repeated message was not stored the first time")
        return job

    def together(
        self,
        partitions: Iterable[Partition],
        repeats: Iterable[tuple[Partition, int]],
        acks: Iterable[tuple[Cursor, list[int]]],
        outcome: Outcome,
    ) -> None:
        """What has just been appended to these partitions, and these acks, hold together or not at all, whatever
        happens to the process or the machine; and only if the messages at the offsets of ``repeats``, which may be
        under way, hold. The acks have no effect yet: the caller settles them when ``outcome`` is told True. Everything
        else in the same open batches comes along."""
        for partition in partitions:
            partition.open_batch.atomic = True
            self._together[partition] = None
        for partition, offset in repeats:
            if partition.bind(offset):
                self._together[partition] = None
            else:
                self._awaited.append((partition, offset))
        for cursor, offsets in acks:
            self.cursors.together(cursor, offsets)
        self._outcomes.append(outcome)

    def take_finished(self, now_ns: int) -> list[Job]:
        """Only what needs no disk (memory partitions), for turns in which the disk thread is at work."""
        dirty = self._agenda.dirty
        memory = [partition for partition in dirty if isinstance(partition, MemoryPartition)]
        if not memory:
            return []
        dirty[:] = [partition for partition in dirty if not isinstance(partition, MemoryPartition)]
        return [job for partition in memory for job in partition.take(now_ns)]

    @property
    def dirty(self) -> bool:
        """Whether there is something to do for a partition, or being done apart."""
        return bool(self._agenda.dirty or self._apart)

    def tick(self, now_ns: int) -> None:
        """Marks what is due."""
        self._see(now_ns)
        for partition in self._agenda.due(now_ns):
            partition.tick(now_ns)
        swept = self._sweep.take(now_ns)
        for partition in swept:
            partition.sweep()
        self.care.sweep(now_ns, swept)

    def next_deadline_ns(self, now_ns: int) -> int | None:
        """When tick() has something to do; None if nothing is planned."""
        self._see(now_ns)
        deadlines = (self._agenda.next_ns(), self.cursors.deadline_ns, self.definitions.deadline_ns)
        return min((each for each in deadlines if each is not None), default=None)

    def _see(self, now_ns: int) -> None:
        """A wall clock may be set back; what was due a second from then is due a second from now."""
        if now_ns < self._now_ns:
            self._agenda.clock_went_back(now_ns)
            self.cursors.clock_went_back(now_ns)
            self.definitions.clock_went_back(now_ns)
            self._sweep.clock_went_back(now_ns)
        self._now_ns = now_ns

    def failures(self) -> list[str]:
        """What cannot be stored now, and why, in words."""
        failed = list(self._agenda.failed)
        told = [f"partition {each.name}: {each.failed}" for each in failed[:FAILURES_TOLD_MAX]]
        if len(failed) > len(told):
            told.append(f"{len(failed) - len(told)} more partitions")
        if self.cursors.failed is not None:
            told.append(f"cursors: {self.cursors.failed}")
        if self.definitions.failed is not None:
            told.append(f"subscriptions: {self.definitions.failed}")
        if self._transactions.failed is not None:
            told.append(f"transactions: {self._transactions.failed}")
        return told

    @property
    def memory_is_full(self) -> bool:
        """Memory partitions hold more than they may together, and all of it is needed."""
        return self._memory.bytes > self._memory.bytes_max

    def facts(self) -> dict[str, Any]:
        """Numbers for metrics."""
        return {
            "tail_bytes": self._budget.bytes,
            "cold_bytes": self._cold.bytes,
            "memory_bytes": self._memory.bytes,
            "partitions": len(self.partitions),
            "partitions_failed": len(self._agenda.failed),
            "syncs": self._open_logs.syncs,
            **{f"care_{name}": count for name, count in self.care.counts.items()},
        }
