"""Jobs for the threads. The event loop makes jobs, hands them over, and takes them back with ``done``.

    event loop   Store.take() -> [Job]  ......................................  job.done(now), in order
    disk thread                  every job.write(), then every job.sync() that needs it

A group of jobs shares its syncs: ``sync`` of a file that was just synced costs nothing, so the caller need not count
files. If ``error`` is set after write or sync, the job has failed for good.

A job belongs to one thread at a time: to the event loop until it is handed over, to the disk thread until it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from radiator.clock import Now
from radiator.errors import StorageError
from radiator.storage.batch import RecordBatch
from radiator.storage.turn import Place

SHORT_BYTES_MAX = 32 * 1024
DENSIFY_RECORDS_MIN = 16  # below, an array costs more than the list it replaces


class Job:
    """A piece of work that does nothing by itself; the base of all others.

    ``finished`` jobs (of memory partitions) need no thread, only ``done``.
    """

    __slots__ = ("batch", "error", "needs_sync", "partition", "place", "waiters")
    finished = False
    before_entry = False  # it runs before the journal's entry of its group, and may refuse batches of it
    postponed = again = False  # decided, and not written yet; retried after that (``AppendJob``)
    lost: Sequence[tuple[int, int]] = ()  # first and last of offsets that were receipted and are gone
    note = ""  # for the operator's log
    what = "acknowledgement"  # what could not be stored, for the message if the job has no batch

    def __init__(self, partition: Any = None, needs_sync: bool = False) -> None:
        self.partition = partition
        self.batch: RecordBatch | None = None
        self.place: Place | None = None  # where receipts wait for it
        self.waiters: list[Any] = []
        self.needs_sync = needs_sync
        self.error: StorageError | None = None

    @property
    def short(self) -> bool:
        """Whether this is a single small write, and maybe its sync: an idle event loop may do it itself."""
        return False

    @property
    def component(self) -> Any:
        """The component that accepts nothing while its ``failed`` is set, if this job failed; None: no component."""
        return self.partition

    @property
    def refused_count(self) -> int:
        """The number of messages, or of receipts that wait for the job, which are refused if it fails."""
        if self.batch is None:
            return len(self.waiters) + (0 if self.place is None else len(self.place.turn.waiters))
        return 0 if self.postponed else len(self.batch)

    def end_place(self, place: Place) -> None:
        """Let the receipts of a place wait for this job."""
        self.place, self.waiters = place, place.waiters

    def fail(self, error: StorageError) -> None:
        """Set the error with which the job has failed."""
        self.error = error

    def write(self) -> None:
        """Do the writes. The disk thread calls it."""

    def sync(self) -> None:
        """Do the syncs. The disk thread calls it."""

    def done(self, now: Now) -> None:
        """Make the result visible. The event loop calls it."""


def run(jobs: list[Job]) -> list[Job]:
    """Do one group commit on the disk thread: write everything in order, then sync. Return the jobs."""
    for job in jobs:
        job.write()
    for job in jobs:
        if job.needs_sync and job.error is None:
            job.sync()
    return jobs


class AfterAcksJob(Job):
    """A job that relies on the acks of its turn, which are synced before. It runs in ``sync``, so no receipt waits."""

    __slots__ = ("_sync_acks",)

    def __init__(self, partition: Any) -> None:
        super().__init__(partition, needs_sync=True)
        self._sync_acks: Callable[[], None] | None = None

    def sync_first(self, sync_acks: Callable[[], None]) -> None:
        """Set what syncs the acks; it raises StorageError."""
        self._sync_acks = sync_acks

    def sync(self) -> None:
        """Sync the acks, then act. The disk thread calls it."""
        try:
            if self._sync_acks is not None:
                self._sync_acks()
            self.act()
        except StorageError as error:
            self.error = error

    def act(self) -> None:
        """Do what relies on the acks. Raises StorageError."""


class FinishedJob(Job):
    """A job of a memory partition, which was done when it was made.

    Args:
        partition: The partition.
        batch: What was appended.
        place: Where receipts wait for it.
    """

    __slots__ = ()
    finished = True

    def __init__(self, partition: Any, batch: RecordBatch, place: Place) -> None:
        super().__init__(partition)
        self.batch = batch
        self.end_place(place)
