"""Deciding a transaction over several files, in the group commit that writes them.

    hub          Store.together(): which open batches, which acks, who wants to know
                 Store.take() -> [TransactionJob, AppendJob..., CursorJob]
    disk thread  the entry in the redo log, written and synced: decided. Then everything is written and synced where it
                 belongs, in the same group; if these are many files, they are synced later (``defer``)
    hub          done(): the acks take effect; then the batches become visible, one after the other, with nobody between

If the entry cannot be written, or a message that a transaction repeats was not stored the first time, all of it fails:
no batch is written, no ack is. If a file fails afterwards, the transaction holds all the same: its batch is
*postponed*, kept in memory and in the redo log, and written when the partition takes messages again, or by the next
start.

A group's transactions share one entry; other messages in the same open batches come along.

Deferred: the redo log keeps the entry until the last of the files is synced, so that nothing depends on their syncs but
that log's size. Until then such a file is as it is in the middle of a group: the batch is the last one in it.

Whoever has another batch for a file with a decided one that is not synced, in the same group too, syncs it first. Else
a power cut could leave the later batch and take the decided one, and a start would find a log that ends behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from radiator import limits
from radiator.errors import StorageError
from radiator.storage.batch import densify
from radiator.storage.jobs import DENSIFY_RECORDS_MIN, AppendJob, Job
from radiator.storage.transaction_log import TransactionLog, encode_acks_part, encode_batch_part

if TYPE_CHECKING:
    from radiator.storage.cursor_store import CursorJob
    from radiator.storage.file_partition import FilePartition

Outcome = Callable[[bool], None]  # told whether the transaction holds


def defer(appends: Sequence[AppendJob], group: Sequence[Job]) -> None:
    """The syncs of these need not be in their group, except where it has more for the same file."""
    batches = Counter(job.partition for job in group if isinstance(job, AppendJob))
    for job in appends:
        if batches[job.partition] == 1:
            job.deferred, job.needs_sync = True, False


class TransactionJob(Job):
    """First of its group."""

    __slots__ = ("_cursors", "_log", "_outcomes", "_owing", "_start_over", "appends")
    indivisible = True

    def __init__(
        self,
        log: TransactionLog,
        appends: list[AppendJob],
        cursors: CursorJob | None,
        start_over: bool,
        owing: list[FilePartition],
        waiters: list[Any],
        outcomes: list[Outcome],
    ) -> None:
        super().__init__()
        self.waiters = waiters
        self._log = log
        self.appends = appends
        self._cursors = cursors
        self._start_over = start_over  # but for those that owe a sync
        self._owing = owing
        self._outcomes = outcomes

    def write(self) -> None:
        if self.error is not None:  # what it hangs on has failed
            self._refuse(self.error)
            return
        for job in self.appends:
            if job.partition.log.failed is not None:
                self._refuse(job.partition.log.failed)
                return
        parts = []
        for job in self.appends:
            if len(job.batch.blocks) >= DENSIFY_RECORDS_MIN:
                densify(job.batch)
            log = job.partition.log
            job.pieces = log.encode(job.batch)
            parts.append(encode_batch_part(job.partition.name, job.pieces))
        if self._cursors is not None:
            parts.append(encode_acks_part(self._cursors.together))
        try:
            self._log.write(parts, self._start_over and self._settled(sum(map(len, parts))))
        except StorageError as error:
            self._refuse(error)
            return
        for job in self.appends:
            job.decided = True

    def _settled(self, more_bytes: int) -> bool:
        """Nothing is deferred any more, or is not from now on: the redo log would become too large for that."""
        if not self._owing or self._log.position + more_bytes <= limits.DEFERRED_BYTES_MAX:
            return not self._owing
        try:
            for partition in self._owing:
                partition.log.sync()
        except StorageError:
            return False  # its own job will say so
        return True

    def _refuse(self, error: StorageError) -> None:
        self.error = error
        for job in self.appends:
            job.error = error
            job.refused = True
            job.partition.log.refuse(error)
        if self._cursors is not None:
            self._cursors.together = b""

    def done(self, now_ns: int) -> None:
        if self.error is None:
            for job in self.appends:
                job.partition.decided_to = job.batch.next_offset
        for outcome in self._outcomes:
            outcome(self.error is None)
