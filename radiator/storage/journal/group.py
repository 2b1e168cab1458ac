"""A group commit as jobs: an entry of the journal, then the segments.

    event loop   Store.take() -> [GroupJob, AppendJob..., CursorJob]
    disk thread  the batches are encoded, and written as one entry; synced, if one of them needs it. Then they are
                 written, as the same bytes, to their segments, which are only synced by a checkpoint
    event loop   done(): the batches become visible, one after the other, without other work in between

If the entry cannot be written, or not synced, all messages and transactions in it are refused. Once it is stored, its
batches are *decided*: whatever happens to the files of a partition, they will be there. A batch whose segment cannot be
written is *postponed*: it stays in memory and in the journal, and is written when the partition accepts messages again.
Acks outside of transactions have happened already: if messages are refused they get an entry of their own.

A transaction is in one entry, with its acks. A group with messages that need a sync and messages that do not has an
entry for each of the two, so that the latter need not wait for the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from radiator.clock import Now
from radiator.errors import StorageError
from radiator.storage.batch import densify
from radiator.storage.file_partition import AppendJob
from radiator.storage.jobs import DENSIFY_RECORDS_MIN, SHORT_BYTES_MAX, Job
from radiator.storage.journal.format import CURSORS, NAMES, EntryBuilder
from radiator.storage.journal.journal import Journal

if TYPE_CHECKING:
    from radiator.storage.cursor_store import CursorJob
    from radiator.storage.definitions import DefinitionsJob

Outcome = Callable[[bool], None]  # called with whether the transaction is stored


class GroupJob(Job):
    """Write the entry of a group commit. It is the first of the jobs that it decides."""

    __slots__ = ("_cursors", "_journal", "_names", "_outcomes", "appends")
    what = "transaction"

    def __init__(
        self,
        journal: Journal,
        appends: list[AppendJob],
        needs_sync: bool,
        cursors: CursorJob | None = None,
        names: DefinitionsJob | None = None,
        waiters: list[Any] | None = None,
        outcomes: list[Outcome] | None = None,
    ) -> None:
        super().__init__(needs_sync=needs_sync)
        self.waiters = waiters or []
        self.appends = appends
        self._journal = journal
        self._cursors = cursors
        self._names = names
        self._outcomes = outcomes or []

    @property
    def is_transaction(self) -> bool:
        """Whether all of it is stored or nothing, and the result is reported."""
        return bool(self._outcomes)

    @property
    def short(self) -> bool:
        """Whether the job is a single small write."""
        return not self._outcomes and sum(job.batch.size_bytes for job in self.appends) <= SHORT_BYTES_MAX

    @property
    def refused_count(self) -> int:
        """Nothing: the appends count the messages of a refused transaction."""
        return 0

    def write(self) -> None:
        """Write the entry, and decide or refuse the batches. The disk thread calls it."""
        entry = EntryBuilder()
        appends = []
        for job in self.appends:
            log, batch = job.partition.log, job.batch
            if log.failed is not None:
                if self.is_transaction:
                    self._refuse(log.failed)
                    return
                job.fail(StorageError(str(log.failed)))  # the other logs have not failed
                continue
            if len(batch.blocks) >= DENSIFY_RECORDS_MIN:
                densify(batch)
            entry.add_batch(job.partition.name.encode(), job.encode())
            appends.append(job)
        if self._cursors is not None and self._cursors.together:
            entry.add(CURSORS, self._cursors.together)
        self._add_metadata(entry)
        error = self._store(entry)
        if error is not None:
            self._refuse(error)
            return
        for job in appends:
            job.decide()

    def _add_metadata(self, entry: EntryBuilder) -> None:
        """Add changes that are stored whatever becomes of messages and transactions."""
        if self._cursors is not None and self._cursors.records:
            entry.add(CURSORS, self._cursors.records)
        if self._names is not None and self._names.changes:
            entry.add(NAMES, self._names.data)

    def _store(self, entry: EntryBuilder) -> StorageError | None:
        """Write the entry, and sync it if needed. Return the error, or None."""
        journal = self._journal
        number = journal.next_entry
        try:
            if entry.length:
                journal.write(entry)
            if self.needs_sync:
                journal.sync()
        except StorageError as error:
            if journal.next_entry > number:
                journal.take_back(number, journal.position - entry.size_bytes)
            return error
        if self._cursors is not None:
            self._cursors.stored(self.needs_sync)
        return None

    def _refuse(self, error: StorageError) -> None:
        self.error = error
        for job in self.appends:
            job.refuse(error)
        if self.appends or self.is_transaction:
            entry = EntryBuilder()
            self._add_metadata(entry)
            metadata_error = self._store(entry)
        else:
            metadata_error = error
        for metadata_job in (self._cursors, self._names):
            if metadata_job is not None and metadata_error is not None:
                metadata_job.fail(metadata_error)

    def done(self, now: Now) -> None:
        """Report the result to partitions and transactions."""
        for job in self.appends:
            if job.decided:
                job.partition.was_decided(job.batch)
        for outcome in self._outcomes:
            outcome(self.error is None)
