"""Deciding a transaction over several files, in the group commit that writes them.

    hub          Store.together(): which open batches, which acks, who wants to know
                 Store.take() -> [TransactionJob, AppendJob..., CursorJob]
    disk thread  the entry in the redo log, written and synced: decided. Then everything is written and synced where it
                 belongs, in the same group
    hub          done(): the acks take effect; then the batches become visible, one after the other, with nobody between

If the entry cannot be written, or a message that a transaction repeats was not stored the first time, all of it fails:
no batch is written, no ack is. If a file fails afterwards, the transaction holds all the same: its batch is
*postponed*, kept in memory and in the redo log, and written when the partition takes messages again, or by the next
start.

A group's transactions share one entry; other messages in the same open batches come along.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from radiator.errors import StorageError
from radiator.storage.batch import densify
from radiator.storage.jobs import DENSIFY_RECORDS_MIN, AppendJob, Job
from radiator.storage.transaction_log import TransactionLog, encode_acks_part, encode_batch_part

if TYPE_CHECKING:
    from radiator.storage.cursor_store import CursorJob

Outcome = Callable[[bool], None]  # told whether the transaction holds


class TransactionJob(Job):
    """First of its group."""

    __slots__ = ("_cursors", "_log", "_outcomes", "_start_over", "appends")
    indivisible = True

    def __init__(
        self,
        log: TransactionLog,
        appends: list[AppendJob],
        cursors: CursorJob | None,
        start_over: bool,
        waiters: list[Any],
        outcomes: list[Outcome],
    ) -> None:
        super().__init__()
        self.waiters = waiters
        self._log = log
        self.appends = appends
        self._cursors = cursors
        self._start_over = start_over
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
            self._log.write(parts, self._start_over)
        except StorageError as error:
            self._refuse(error)
            return
        for job in self.appends:
            job.decided = True

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
