"""What storage asks the threads to do. The hub makes jobs, hands them over, and takes them back with ``done``.

    hub          Store.take() -> [Job]  ......................................  job.done(now), in order
    disk thread                  every job.write(), then every job.sync() that needs it

A group of jobs shares its syncs: ``sync`` of a file that a sync has just covered costs nothing, so "once per file"
needs no bookkeeping by the caller. ``error`` set after write or sync: the promise of this job will never hold.

A job belongs to one thread at a time: the hub until it is handed over, the disk thread until it comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from radiator.clock import Now
from radiator.errors import StorageError
from radiator.storage import archived, layout
from radiator.storage.batch import RecordBatch
from radiator.storage.files import storage_error
from radiator.storage.reopen import Reopened, cut, reopen
from radiator.storage.turn import Place

if TYPE_CHECKING:
    from radiator.storage.file_partition import FilePartition

SHORT_RECORDS_MAX = 4  # what a producer that waits for each receipt has under way
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
    def keeper(self) -> Any:
        """Who takes nothing more while its ``failed`` is set, if it was this job that failed; None: nobody."""
        return self.partition

    @property
    def refusals(self) -> int:
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
    """Of a memory partition: it was done when it was made."""

    __slots__ = ()
    finished = True


class AppendJob(Job):
    """One batch of one partition."""

    __slots__ = (
        "again",
        "atomic",
        "covers",
        "decided",
        "direct",
        "pieces",
        "position",
        "postponed",
        "refused",
        "roll",
        "rolled",
    )
    partition: FilePartition

    def __init__(
        self, partition: FilePartition, batch: RecordBatch, place: Place | None, needs_sync: bool, roll: bool
    ) -> None:
        self.atomic = False  # part of a transaction over several logs
        self.decided = False  # in the journal: whatever happens to this partition's files, this batch will be there
        self.covers = False  # when it is synced, so is everything before it
        self.direct = False  # it is large, so it passes the journal by, and is synced where it is written
        self.postponed = False  # decided, but could not be written yet
        self.again = False  # it was postponed before
        self.refused = False  # the journal did not take it: nothing is wrong with this partition
        self.pieces: list[bytes] | None = None  # the batch, if it has been encoded already
        self.partition = partition
        self.batch: RecordBatch = batch
        self.place = place  # None: nobody waits for it
        self.waiters = [] if place is None else place.waiters
        self.needs_sync = needs_sync
        self.error = None
        self.roll = roll
        self.rolled = False
        self.position = 0

    @property
    def short(self) -> bool:
        batch, partition = self.batch, self.partition
        if self.roll or self.atomic or len(batch.blocks) > SHORT_RECORDS_MAX or batch.size_bytes > SHORT_BYTES_MAX:
            return False
        segments = partition.segments  # no file is begun, now or by rolling
        return bool(segments) and segments[-1].size_bytes + 2 * SHORT_BYTES_MAX <= partition.settings.segment_bytes

    def write(self) -> None:
        if self.error is not None:  # it was refused
            return
        partition = self.partition
        log = partition.log
        try:
            stored = (self.needs_sync and not self.direct) or partition.settings.sync.never
            self.rolled = log.append(self.batch, stored, self.roll, self.pieces)
            self.position = log.position
        except StorageError as error:
            self.error = error
            if self.decided:
                partition.checkpoints.not_written(partition, self.batch)
        else:
            partition.checkpoints.written(partition, self.batch if self.again else None)
        log.owes_sync |= self.needs_sync
        self.covers = self.direct or not (log.left_out or log.inherited or partition.checkpoints.journal.doubtful)
        log.left_out |= self.direct

    def sync(self) -> None:
        if self.direct and self.error is None:
            try:
                self.partition.log.sync()
            except StorageError as error:
                self.error = error

    def done(self, now: Now) -> None:
        self.partition.committed(self, now.mono)


class SyncJob(Job):
    """What was written is to be synced: an interval is over, or receipts wait for it."""

    __slots__ = ("_end_offset", "_journal")
    partition: FilePartition
    what = "message"

    def __init__(self, partition: FilePartition) -> None:
        super().__init__(partition, needs_sync=True)
        self._journal = partition.checkpoints.journal
        self._end_offset = partition.high_watermark

    @property
    def refusals(self) -> int:
        return waiting(self)

    def sync(self) -> None:
        log, journal = self.partition.log, self._journal
        try:
            if journal.doubtful or log.left_out or log.inherited:
                self._sync_segment()
                return
            try:
                journal.sync()
            except StorageError:
                self._sync_segment()  # it has everything as well
            else:
                log.owes_sync = True
                log.cover()
        except StorageError as error:
            self.error = error

    def _sync_segment(self) -> None:
        log = self.partition.log
        if log.next_offset < self._end_offset:
            raise StorageError(f"partition {self.partition.name}: messages wait to be written ({log.failed})")
        log.sync()

    def done(self, now: Now) -> None:
        if self.error is not None:
            self.partition.fail(self.error, now.mono)
        else:
            self.partition.was_synced(self._end_offset)


class VainJob(Job):
    """What receipts wait for will not come."""

    __slots__ = ()
    what = "message"

    @property
    def refusals(self) -> int:
        return waiting(self)


class RollJob(Job):
    """A segment's time is over and nothing is being written; or the first one is wanted ahead of what will be in it."""

    __slots__ = ("base_offset", "rolled")
    partition: FilePartition

    def __init__(self, partition: FilePartition, base_offset: int) -> None:
        super().__init__(partition)
        self.base_offset = base_offset
        self.rolled = False

    def write(self) -> None:
        try:
            self.rolled = self.partition.log.roll(self.base_offset)
        except StorageError as error:
            self.error = error

    def done(self, now: Now) -> None:
        if self.error is not None:
            self.partition.fail(self.error, now.mono)
        elif self.rolled:
            self.partition.begin_segment(self.base_offset, now.wall)


class RetryJob(Job):
    """A write or a sync has failed a while ago: is there room again, does a new file work? ``recent`` is what is in
    memory, oldest first."""

    __slots__ = ("lost", "next_offset", "note", "recent", "reopened")
    partition: FilePartition

    def __init__(self, partition: FilePartition, recent: Sequence[RecordBatch]) -> None:
        super().__init__(partition)
        self.next_offset = partition.written_to
        self.recent = recent
        self.reopened: Reopened | None = None
        self.lost = ()
        self.note = ""

    def write(self) -> None:
        log = self.partition.log
        try:
            if log.must_reopen(self.next_offset):
                self.reopened = found = reopen(log, self.next_offset, self.recent, self.partition.checkpoints.batches)
                self.lost = found.lost
                self.note = (
                    f"{log.directory}: goes on in segment {found.base_offset} after a failure; "
                    f"{found.saved} messages behind the last sync were written again"
                )
            else:
                log.retry(self.next_offset)
        except StorageError as error:
            self.error = error
        self.recent = ()

    def done(self, now: Now) -> None:
        self.partition.retried(self, now.mono)


class CutJob(Job):
    """What a failed file holds behind its last sync is read by nobody any more."""

    __slots__ = ("base_offset", "size_bytes")
    partition: FilePartition

    def __init__(self, partition: FilePartition, base_offset: int, size_bytes: int) -> None:
        super().__init__(partition)
        self.base_offset = base_offset
        self.size_bytes = size_bytes

    def write(self) -> None:
        try:
            cut(self.partition.log, self.base_offset, self.size_bytes)
        except StorageError as error:
            self.error = error  # told, not fatal: it only takes space

    def done(self, now: Now) -> None:
        self.partition.was_cut(self.base_offset)


class RemoveJob(Job):
    """Retention: sealed segments to delete. The hub has already moved log_start_offset past them. ``sync_acks``
    makes sure first that the acks which let them go are on disk; it is all done in ``sync``, so that nobody's receipt
    waits."""

    __slots__ = ("bases", "sync_acks")
    partition: FilePartition

    def __init__(self, partition: FilePartition, bases: list[int]) -> None:
        super().__init__(partition, needs_sync=True)
        self.bases = bases
        self.sync_acks: Callable[[], None] | None = None

    def sync(self) -> None:
        try:
            if self.sync_acks is not None:
                self.sync_acks()
            self.partition.log.remove(self.bases)
        except StorageError as error:
            self.error = error  # told, not fatal: the files stay until the next retention

    def done(self, now: Now) -> None:
        if self.error is not None:
            self.partition.undeleted = self.bases + self.partition.undeleted


class ArchivedJob(Job):
    """How far an archive has come: retention waits for it."""

    __slots__ = ("next_offset",)
    partition: FilePartition

    def __init__(self, partition: FilePartition) -> None:
        super().__init__(partition)
        self.next_offset = 0

    def write(self) -> None:
        log = self.partition.log
        try:
            self.next_offset = archived.read(log.fs, log.directory)
        except OSError as error:
            self.error = storage_error(layout.archived_path(log.directory), "read", error)
        except StorageError as error:
            self.error = error

    def done(self, now: Now) -> None:
        partition, text = self.partition, "" if self.error is None else str(self.error)
        if text == partition.archive_error:
            self.error = None  # told once
        partition.archive_error, partition.archived_to, partition.archive_known = text, self.next_offset, True
        partition.want_retention()
