"""A log with files, as the hub sees it: jobs for the disk thread, jobs for the read thread, and what came of them.

    take() -> AppendJob ...disk thread... -> committed(): the high watermark moves, the batch joins the tail
    fetch() -> ReadJob ...read thread... -> fetched(): the batch joins the cold cache
    tick() marks what time brings: an interval's sync, a segment's day, retention; take() turns it into jobs

Knows: segments by their facts, what is due. Must not know: bytes, descriptors (``log``, ``reads``), other partitions.
Owned by the hub, except ``log``, which belongs to the disk thread; the hub only passes it on in jobs.
"""

from __future__ import annotations

from typing import Any

from radiator import limits
from radiator.errors import StorageError
from radiator.storage import dedup_file
from radiator.storage.batch import RecordBatch
from radiator.storage.cold import Cold
from radiator.storage.dedup_file import DedupFile
from radiator.storage.jobs import AppendJob, ArchivedJob, CutJob, Job, RemoveJob, RetryJob, RollJob, SyncJob
from radiator.storage.log import Log
from radiator.storage.options import PartitionOptions
from radiator.storage.partition import IDLE, NEVER_NS, Agenda, Partition
from radiator.storage.reads import ReadJob
from radiator.storage.recovery import Recovered
from radiator.storage.reopen import Reopened
from radiator.storage.retention import held_back, many_commits, roll_due_ns, settled_and_large, size_due_bytes, to_drop
from radiator.storage.segment import SegmentInfo
from radiator.storage.tail import ColdCache, Tail

RETRY_EVERY_NS = 2_000_000_000  # how soon a partition that failed takes messages again when the disk lets it


class FilePartition(Partition):
    """A log with files. ``log`` belongs to the disk thread; everything else to the hub."""

    __slots__ = (
        "_cut_due_ns",
        "_cuts",
        "_cutting",
        "archive_error",
        "archive_known",
        "_postponed",
        "_reclaim_at",
        "_retain_from",
        "_retry_due_ns",
        "_retry_wanted",
        "_rolled_ns",
        "_size_due_bytes",
        "age_due_ns",
        "archived_to",
        "cold",
        "decided_to",
        "dedup_file",
        "log",
        "owed",
        "retention_wanted",
        "rewriting",
        "roll_due_ns",
        "roll_wanted",
        "settlements",
        "sync_due_ns",
        "sync_wanted",
        "undeleted",
    )

    def __init__(
        self, name: str, options: PartitionOptions, log: Log, tail: Tail, cold_cache: ColdCache, agenda: Agenda
    ) -> None:
        self._reclaim_at = NEVER_NS  # where the oldest segment ends, if it may go as soon as it is settled
        self._size_due_bytes: int | None = None  # of the active segment: then the oldest is to go
        self.settlements = 0  # how often cursors have moved
        super().__init__(name, options, log.fs, log.directory, tail, agenda)
        self.log = log
        self.rewriting: int | None = None  # base offset of the segment that the caretaker has
        self.archived_to = 0  # as of the last look
        self.archive_known = False  # that look was for the retention that comes next
        self.archive_error = ""
        self._rolled_ns = 0  # the daily moment that was last met: no clock brings it back
        self.sync_wanted = self.roll_wanted = self.retention_wanted = False
        self.sync_due_ns: int | None = None
        self.roll_due_ns: int | None = None
        self.age_due_ns: int | None = None
        self._retry_due_ns: int | None = None
        self._retry_wanted = False
        # Of decided transactions: they will be there, at these offsets.
        self._postponed: list[tuple[RecordBatch, list[Any]]] = []
        self.decided_to = 0  # where the last batch of those ends
        self.owed: list[RecordBatch] = []  # the last one, decided and written: in memory until it is synced
        self._cuts: list[tuple[int, int]] = []  # failed files, and how much of them is still of use
        self._cutting: set[int] = set()  # those whose job is under way
        self._cut_due_ns: int | None = None
        self.dedup_file: DedupFile | None = None  # once there was an id
        self.undeleted: list[int] = []  # segments that could not be removed: they go first, or there would be holes
        self.cold = Cold(cold_cache)

    def set_options(self, options: PartitionOptions) -> None:
        """The rule's options, when it is known which rule owns a recovered partition, or when it has changed."""
        self.options = self.log.options = options  # immutable, so the disk thread sees the old ones or the new
        self.set_deadlines()
        dedup_file.adopt(self)
        self._agenda.moved[self] = None
        if len(self.segments) > 1:
            self.want_retention()

    @property
    def retain_from(self) -> int | None:
        return self._retain_from

    @retain_from.setter
    def retain_from(self, offset: int | None) -> None:
        self._retain_from = offset
        self.settlements += 1
        self._agenda.moved[self] = None
        if offset is not None and offset >= self._reclaim_at:
            self._reclaim_at = NEVER_NS  # asked once; should it be held back, the sweep asks again
            self.want_retention()

    def want_retention(self) -> None:
        self.retention_wanted = True
        self.queue()

    def sweep(self) -> None:
        super().sweep()
        if self.undeleted or held_back(self):
            self._agenda.moved[self] = None  # time, or others, let it go: they do not tell
        if not self.roll_wanted and self.failed is None and settled_and_large(self):
            self.roll_wanted = True
            self.queue()

    @property
    def at_ease(self) -> bool:
        """Nothing is wrong with its files, and nothing is being put right."""
        return self.failed is None and not (self._cuts or self._cutting) and self.rewriting is None

    def recovered(self, found: Recovered) -> None:
        """The facts that an earlier run left."""
        self.segments = found.segments
        self.destinations = found.destinations
        self.whole = found.whole
        self.log_start_offset = found.segments[0].base_offset if found.segments else found.next_offset
        self.next_offset = self.high_watermark = found.next_offset
        self.last_receive_ns = found.last_receive_ns

    @property
    def makes_files(self) -> bool:  # type: ignore[override]
        return self.roll_wanted or self._retry_wanted or not (self.segments or self.open_batch is IDLE)

    def want_file(self) -> None:
        """The first file is to be begun ahead of what will be in it."""
        self.begun = self.roll_wanted = True
        self.queue()

    def take(self, now_ns: int, may_roll: bool = True) -> list[Job]:
        """Closes what is open and turns it, and what tick() found due, into jobs."""
        self.queued = False
        roll, self.roll_wanted = self.roll_wanted and may_roll, self.roll_wanted and not may_roll
        jobs = dedup_file.take(self)
        if self._postponed and self.failed is None:
            jobs += [self._decided_again(*each) for each in self._postponed]
            self._postponed = []
        builders = self._closed
        if self.open_batch is not IDLE:
            builders = [*builders, self.open_batch]
            self.open_batch = IDLE
        if builders:
            self._closed = []
            always = self.options.sync.interval_ns == 0
            atomic = max((place for place, builder in enumerate(builders) if builder.atomic), default=-1)
            for place, builder in enumerate(builders):
                needs_sync = always or builder.sync_requested or place <= atomic
                job = AppendJob(self, builder.finish(), builder.waiters, needs_sync, roll)
                job.atomic = place <= atomic  # and what stands before it: no decided offset may hang in the air
                jobs.append(job)
                roll = False
        elif roll:
            jobs.append(RollJob(self, self.next_offset))
        if self.sync_wanted:
            self.sync_wanted = False
            jobs.append(SyncJob(self, needs_sync=True))
        if self._retry_wanted and may_roll:
            self._retry_wanted = False
            jobs.append(RetryJob(self, self.tail.newest_first()[::-1] or self.owed))
        if self._cuts and self._cut_due_ns is None:
            jobs += self.take_cuts()
        if self.retention_wanted:
            self.retention_wanted = False
            if self.options.wait_for_archive and not self.archive_known:
                jobs.append(ArchivedJob(self))
            else:
                self.archive_known = False
                bases = self.undeleted + to_drop(self, now_ns)
                if bases:
                    self.undeleted = []
                    self._agenda.removals.append(RemoveJob(self, bases))
        return jobs

    def committed(self, job: AppendJob, now_ns: int) -> None:
        """An append came back: its records become visible, or the partition has failed."""
        if job.error is None and self.failed is not None:  # an earlier batch of this group asked for a sync, in vain
            job.error = StorageError(str(self.failed))
        if job.error is not None:
            if job.decided:
                self._postpone(job)
            self.fail(job.error, now_ns)
            if job.refused:
                self._retry_wanted = True
                self.queue()
            return
        batch = job.batch
        assert batch.base_offset >= self.high_watermark
        if job.rolled:
            self.begin_segment(batch.base_offset, batch.receive_ns[0])
        segment = self.segments[-1]
        if not segment.size_bytes:  # its day begins with its first record
            segment.first_receive_ns = batch.receive_ns[0]
            self.set_deadlines()
        segment.grow(job.position, batch.receive_ns[-1])
        self.roll_wanted |= many_commits(self)  # with what comes next
        if self._size_due_bytes is not None and job.position > self._size_due_bytes:
            self._size_due_bytes = None
            self.want_retention()
        if len(batch.names) > 1 or batch.names[0] not in self.destinations:
            self.destinations.update(batch.names)
        self.high_watermark = batch.next_offset
        self.tail.add(batch)
        if self.dedup is not None:
            dedup_file.committed(self, batch)
        if job.decided and not self._postponed:
            self._agenda.postponing.pop(self, None)
        self.was_synced()  # what was deferred, before this was written
        if job.deferred:
            self.owed.append(batch)
            self._agenda.owing[self] = None
        elif self.sync_due_ns is None and not job.needs_sync and self.options.sync.interval_ns is not None:
            self.sync_due_ns = now_ns + self.options.sync.interval_ns
            self._agenda.wake(self, self.sync_due_ns)

    def _postpone(self, job: AppendJob) -> None:
        """It could not be written, and holds all the same: it keeps its offsets until it can be."""
        job.postponed = True
        waiters, job.waiters = job.waiters, job.waiters.copy()
        waiters.clear()  # who comes from now on waits until it is written
        self._postponed.append((job.batch, waiters))
        self.decided_to = max(self.decided_to, job.batch.next_offset)
        self._agenda.postponing[self] = None

    def was_synced(self) -> None:
        """What was owed is safe."""
        if self.owed:
            self.owed = []
            del self._agenda.owing[self]

    @property
    def postponed(self) -> list[RecordBatch]:
        """Decided batches that wait to be written, in order."""
        return [batch for batch, _ in self._postponed]

    @property
    def kept_to(self) -> int:
        return max(self.decided_to, self.high_watermark)

    def _decided_again(self, batch: RecordBatch, waiters: list[Any]) -> AppendJob:
        job = AppendJob(self, batch, waiters, True, False)
        job.decided = job.again = True
        return job

    def begin_segment(self, base_offset: int, first_receive_ns: int) -> None:
        if self.segments:  # the clock may have been set back
            first_receive_ns = max(first_receive_ns, self.segments[-1].last_receive_ns)
        if not self.segments or self.segments[-1].base_offset != base_offset:
            self.segments.append(SegmentInfo(base_offset, first_receive_ns, first_receive_ns, 0))
        self.set_deadlines()
        self._agenda.moved[self] = None
        if len(self.segments) > 1:
            dedup_file.seal(self)
            self.want_retention()

    def set_deadlines(self) -> None:
        """When the active segment's day ends, and when the oldest sealed one is too old."""
        options, segments = self.options, self.segments
        self.roll_due_ns = self.age_due_ns = None
        if segments and options.roll_at_seconds is not None:
            since_ns = max(segments[-1].first_receive_ns, self._rolled_ns)
            self.roll_due_ns = roll_due_ns(since_ns, options.roll_at_seconds)
        self._reclaim_at = segments[1].base_offset if len(segments) > 1 and options.reclaim_acked else NEVER_NS
        self._size_due_bytes = size_due_bytes(self)
        if len(segments) > 1 and options.retention_age_ns is not None:
            self.age_due_ns = segments[0].last_receive_ns + options.retention_age_ns + 1
        self._wake()

    def _wake(self) -> None:
        dues = (self.sync_due_ns, self.roll_due_ns, self.age_due_ns, self._retry_due_ns, self._cut_due_ns)
        if (deadline_ns := min((due for due in dues if due is not None), default=None)) is not None:
            self._agenda.wake(self, deadline_ns)

    def fail(self, error: StorageError, now_ns: int) -> None:
        super().fail(error, now_ns)
        self.roll_due_ns = None  # an interval's sync stays due: what is whole is still to be synced
        if self._retry_due_ns is None:
            self._retry_due_ns = now_ns + RETRY_EVERY_NS
            self._agenda.wake(self, self._retry_due_ns)

    def retried(self, job: RetryJob, now_ns: int) -> None:
        """The disk was asked again."""
        if job.error is not None:
            self.fail(job.error, now_ns)
            return
        self.failed = None
        self._agenda.failed.pop(self, None)
        self._agenda.moved[self] = None
        self.roll_wanted |= self.begun and not self.segments  # what was to be begun still is
        if self._postponed or self.roll_wanted:
            self.queue()
        self._retry_due_ns = None  # set again if an append of the same group came back with the old error
        self._retry_wanted = False
        if job.reopened is not None:
            self._goes_on_in(job.reopened, now_ns)
        self.set_deadlines()

    def _goes_on_in(self, found: Reopened, now_ns: int) -> None:
        """The active segment has failed, and another has taken its place or follows it."""
        first_receive_ns = self.last_receive_ns if found.first_receive_ns is None else found.first_receive_ns
        self.cold.hints.clear()
        dedup_file.lose(self, found.lost)
        if self.segments and self.segments[-1].base_offset == found.failed_base != found.base_offset:
            failed = self.segments[-1]
            failed.size_bytes = found.kept_bytes
            failed.last_receive_ns = min(failed.last_receive_ns, first_receive_ns)
            if found.kept_bytes:
                # Reads that are under way know the log as it was: they are given time to end.
                self._cuts.append((failed.base_offset, found.kept_bytes))
                self._cut_due_ns = now_ns + RETRY_EVERY_NS
        self.begin_segment(found.base_offset, first_receive_ns)
        segment = self.segments[-1]
        segment.size_bytes = found.size_bytes
        segment.last_receive_ns = max(segment.first_receive_ns, found.last_receive_ns)

    def take_cuts(self) -> list[Job]:
        """Nobody reads the failed files as they were any more."""
        cuts, self._cuts = self._cuts, []
        self._cutting.update(base_offset for base_offset, _ in cuts)
        return [CutJob(self, base_offset, size_bytes) for base_offset, size_bytes in cuts]

    def was_cut(self, base_offset: int) -> None:
        """Or could not be: from now on the file is like others."""
        self._cutting.discard(base_offset)

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, offset: int) -> RecordBatch | None:
        batch = self.tail.find(offset)
        if batch is None and offset >= self.log_start_offset:
            batch = self.cold.find(offset)
        return batch

    def fetch(self, offset: int, bytes_max: int = limits.READ_CHUNK_BYTES) -> ReadJob:
        return self.cold.fetch(self, offset, bytes_max)

    def fetched(self, job: ReadJob) -> None:
        self.cold.fetched(job, self.log_start_offset)

    def removed(self, base_offset: int, end_offset: int) -> None:
        """Records are gone from this segment's file, so they go from memory; who reads here goes on from the file."""
        self.tail.cut_below(end_offset)
        self.cold.removed(base_offset, end_offset)

    # --- time ---------------------------------------------------------------------------------------------------------

    def tick(self, now_ns: int) -> None:
        """Marks what is due; it happens in the next take()."""
        if self.sync_due_ns is not None and self.sync_due_ns <= now_ns:
            self.sync_due_ns = None
            self.sync_wanted = True
            self.queue()
        if self.roll_due_ns is not None and self.roll_due_ns <= now_ns:
            self._rolled_ns, self.roll_due_ns = self.roll_due_ns, None
            self.roll_wanted = self.segments[-1].size_bytes > 0 or self.open_batch is not IDLE
            self.queue()
        if self._retry_due_ns is not None and self._retry_due_ns <= now_ns:
            self._retry_due_ns = None
            self._retry_wanted = True
            self.queue()
        if self._cut_due_ns is not None and self._cut_due_ns <= now_ns:
            self._cut_due_ns = now_ns + RETRY_EVERY_NS if self.cold.pending else None
            self.queue()
        if self.age_due_ns is not None and self.age_due_ns <= now_ns:
            self.age_due_ns = None  # what is held back by retain_from is looked at again by the store's sweep
            self.want_retention()
        self._wake()

    def clock_went_back(self, now_ns: int) -> None:
        if self.sync_due_ns is not None:
            self.sync_due_ns = min(self.sync_due_ns, now_ns + (self.options.sync.interval_ns or 0))
        if self._retry_due_ns is not None:
            self._retry_due_ns = min(self._retry_due_ns, now_ns + RETRY_EVERY_NS)
        if self._cut_due_ns is not None:
            self._cut_due_ns = min(self._cut_due_ns, now_ns + RETRY_EVERY_NS)
        self._wake()
