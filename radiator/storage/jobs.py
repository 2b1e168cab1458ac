"""What storage asks the threads to do. The hub makes jobs, hands them over, and takes them back with ``done``.

    hub          Store.take() -> [Job]  ......................................  job.done(now), in order
    disk thread                  every job.write(), then every job.sync() that needs it

A group of jobs shares its syncs: ``sync`` of a file that a sync has just covered costs nothing, so "once per file"
needs no bookkeeping by the caller. ``error`` set after write or sync: the promise of this job will never hold.

A job belongs to one thread at a time: the hub until it is handed over, the disk thread until it comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from radiator.clock import Now
from radiator.errors import StorageError
from radiator.storage.batch import RecordBatch
from radiator.storage.turn import Place

SHORT_BYTES_MAX = 32 * 1024
DENSIFY_RECORDS_MIN = 16  # below, an array costs more than the list it replaces


class Job:
    """Base: does nothing. ``finished`` jobs (memory partitions) need no thread: only ``done``."""

    __slots__ = ("batch", "error", "needs_sync", "partition", "place", "waiters")
    finished = False
    before_entry = False  # it comes before the journal's entry of its group, and may refuse what that is about
    postponed = again = False  # it could not be done, and holds all the same; was so before (``AppendJob``)
    lost: Sequence[tuple[int, int]] = ()  # offsets, first and last, that were told as stored and are gone
    note = ""  # for the operator's log
    what = "acknowledgement"  # could not be stored, if it fails and there is no batch

    def __init__(self, partition: Any = None, needs_sync: bool = False) -> None:
        self.partition = partition
        self.batch: RecordBatch | None = None
        self.place: Place | None = None  # where receipts wait for it
        self.waiters: list[Any] = []
        self.needs_sync = needs_sync
        self.error: StorageError | None = None

    @property
    def short(self) -> bool:
        """A single small write, and maybe its sync: it may be done at once by a loop that has nothing else to do."""
        return False

    @property
    def component(self) -> Any:
        """Who takes nothing more while its ``failed`` is set, if it was this job that failed; None: nobody."""
        return self.partition

    @property
    def refused_count(self) -> int:
        """How many messages or acknowledgements are refused if it fails."""
        return 0 if self.batch is None or self.postponed else len(self.batch)

    def write(self) -> None:
        """Disk thread."""

    def sync(self) -> None:
        """Disk thread."""

    def done(self, now: Now) -> None:
        """Hub: what was done becomes visible."""


def run(jobs: list[Job]) -> list[Job]:
    """Disk thread: one group commit. Everything is written in order, then synced; returns the jobs."""
    for job in jobs:
        job.write()
    for job in jobs:
        if job.needs_sync and job.error is None:
            job.sync()
    return jobs


def waiting(job: Job) -> int:
    """Return how many wait for a job."""
    return len(job.waiters) + (0 if job.place is None else len(job.place.turn.waiters))


class FinishedJob(Job):
    """Of a memory partition: it was done when it was made.

    Args:
        partition: the partition.
        batch: what was appended.
        place: where receipts wait for it.
    """

    __slots__ = ()
    finished = True

    def __init__(self, partition: Any, batch: RecordBatch, place: Place) -> None:
        super().__init__(partition)
        self.batch = batch
        self.place, self.waiters = place, place.waiters
