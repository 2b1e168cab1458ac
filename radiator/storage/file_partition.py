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
from radiator.clock import MonoNs, Now, WallNs
from radiator.config import Settings
from radiator.errors import StorageError
from radiator.storage import dedup_file
from radiator.storage.batch import RecordBatch
from radiator.storage.cold import Cold
from radiator.storage.dedup_file import DedupFile
from radiator.storage.jobs import AppendJob, ArchivedJob, CutJob, Job, RemoveJob, RetryJob, RollJob, SyncJob, VainJob
from radiator.storage.journal.checkpoint import Checkpoints
from radiator.storage.log import Log
from radiator.storage.partition import IDLE, Agenda, Partition
from radiator.storage.reads import ReadJob
from radiator.storage.recovery import Recovered
from radiator.storage.reopen import Reopened
from radiator.storage.retention import held_back, many_commits, roll_due_ns, settled_and_large, size_due_bytes, to_drop
from radiator.storage.segment import SegmentInfo
from radiator.storage.tail import ColdCache, Tail
from radiator.storage.turn import Place, Turn

NOWHERE = 1 << 63  # an offset
RETRY_EVERY_NS = 2_000_000_000  # how soon a partition that failed takes messages again when the disk lets it


class ToSync:
    """Receipts that wait for a sync of what is written, or under way. ``offset``: the highest that they wait for."""

    __slots__ = ("offset", "turn", "waiters")

    def __init__(self) -> None:
        self.offset = -1
        self.turn = Turn()
        self.turn.begins()
        self.waiters: list[Any] = []


class FilePartition(Partition):
    """A log with files. ``log`` belongs to the disk thread; everything else to the hub."""

    __slots__ = (
        "_cut_due_ns",
        "_cuts",
        "_cutting",
        "archive_error",
        "archive_known",
        "_under_way",
        "_reclaim_at",
        "_retain_from",
        "_retry_due_ns",
        "_retry_wanted",
        "_rolled_ns",
        "_size_due_bytes",
        "_to_sync",
        "age_due_ns",
        "checkpoints",
        "archived_to",
        "cold",
        "decided_to",
        "dedup_file",
        "log",
        "retention_wanted",
        "rewriting",
        "roll_due_ns",
        "roll_wanted",
        "settlements",
        "sync_due_ns",
        "sync_wanted",
        "synced_to",
        "undeleted",
        "unwritten",
    )

    def __init__(
        self,
        name: str,
        settings: Settings,
        log: Log,
        tail: Tail,
        cold_cache: ColdCache,
        agenda: Agenda,
        checkpoints: Checkpoints,
    ) -> None:
        self.checkpoints = checkpoints  # of the store
        self._reclaim_at = NOWHERE  # where the oldest segment ends, if it may go as soon as it is settled
        self._size_due_bytes: int | None = None  # of the active segment: then the oldest is to go
        self.settlements = 0  # how often cursors have moved
        super().__init__(name, settings, log.fs, log.directory, tail, agenda)
        self.synced_to = 0  # messages with an id below are known to be synced
        self._to_sync = ToSync()  # the next sync is for these
        self.log = log
        self.rewriting: int | None = None  # base offset of the segment that the caretaker has
        self.archived_to = 0  # as of the last look
        self.archive_known = False  # that look was for the retention that comes next
        self.archive_error = ""
        self._rolled_ns = WallNs(0)  # the daily moment that was last met: no clock brings it back
        self.sync_wanted = self.roll_wanted = self.retention_wanted = False
        self.sync_due_ns: MonoNs | None = None
        self.roll_due_ns: WallNs | None = None
        self.age_due_ns: WallNs | None = None
        self._retry_due_ns: MonoNs | None = None
        self._retry_wanted = False
        # In the journal, and not in the segment: they will be there, at these offsets.
        self.unwritten: list[RecordBatch] = []
        self._under_way: list[RecordBatch] = []  # of those: being written
        self.decided_to = 0  # where the last batch that is in the journal ends
        self._cuts: list[tuple[int, int]] = []  # failed files, and how much of them is still of use
        self._cutting: set[int] = set()  # those whose job is under way
        self._cut_due_ns: MonoNs | None = None
        self.dedup_file: DedupFile | None = None  # once there was an id
        self.undeleted: list[int] = []  # segments that could not be removed: they go first, or there would be holes
        self.cold = Cold(cold_cache)

    def configure(self, settings: Settings) -> None:
        """The rule's settings, when it is known which rule owns a recovered partition, or when it has changed."""
        self.settings = self.log.settings = settings  # immutable, so the disk thread sees the old ones or the new
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
            self._reclaim_at = NOWHERE  # asked once; should it be held back, the sweep asks again
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
        self.destinations = dict.fromkeys(found.destinations)
        self.whole = found.whole
        self.log_start_offset = found.segments[0].base_offset if found.segments else found.next_offset
        self.next_offset = self.high_watermark = found.next_offset
        self.synced_to = self.log_start_offset if not found.segments else found.segments[-1].base_offset
        self.last_receive_ns = WallNs(found.last_receive_ns)

    @property
    def makes_files(self) -> bool:  # type: ignore[override]
        return self.roll_wanted or self._retry_wanted or not (self.segments or self.open_batch is IDLE)

    def _turn(self) -> Turn:
        if not self.segments:
            return Turn()  # it may have to wait until it may begin a file
        return self._agenda.turn_synced if self.settings.sync.always else self._agenda.turn_unsynced

    def want_file(self) -> None:
        """The first file is to be begun ahead of what will be in it."""
        self.begun = self.roll_wanted = True
        self.queue()

    def take(self, now: Now, may_roll: bool = True) -> list[Job]:
        """Closes what is open and turns it, and what tick() found due, into jobs."""
        self.queued = False
        roll = self.roll_wanted and may_roll and self.failed is None
        self.roll_wanted = self.roll_wanted and not roll
        jobs: list[Job] = [] if self.dedup is None is self.dedup_file else dedup_file.take(self)
        if self.unwritten and self.failed is None:
            jobs += [self._decided_again(each) for each in self.unwritten]
            self._under_way, self.unwritten = self.unwritten, []
        builders = self._closed
        if self.open_batch is not IDLE:
            builders.append(self.open_batch)
            self.open_batch = IDLE
        if builders:
            self._closed = []
            always = self.settings.sync.interval_ns == 0
            atomic = -1
            for place, builder in enumerate(builders):
                if builder.atomic:
                    atomic = place
            for place, builder in enumerate(builders):
                needs_sync = always or builder.sync_requested or place <= atomic
                if needs_sync and self.dedup is not None:
                    self.dedup.to_be_synced(builder)
                job = AppendJob(self, builder.finish(), builder, needs_sync, roll)
                job.atomic = place <= atomic  # and what stands before it: no decided offset may hang in the air
                jobs.append(job)
                roll = False
        elif roll:
            jobs.append(RollJob(self, self.next_offset))
        if self.sync_wanted:
            jobs += self._take_sync()
        if self._retry_wanted and may_roll:
            self._retry_wanted = False
            jobs.append(RetryJob(self, self.tail.newest_first()[::-1]))
        if self._cuts and self._cut_due_ns is None:
            jobs += self.take_cuts()
        if self.retention_wanted:
            self.retention_wanted = False
            if self.settings.wait_for_archive and not self.archive_known:
                jobs.append(ArchivedJob(self))
            else:
                self.archive_known = False
                bases = self.undeleted + to_drop(self, now.wall)
                if bases:
                    self.undeleted = []
                    self._agenda.removals.append(RemoveJob(self, bases))
        return jobs

    def committed(self, job: AppendJob, now_ns: MonoNs) -> None:
        """An append came back: its records become visible, or the partition has failed."""
        if (
            job.error is None and self.failed is not None and not job.decided
        ):  # an earlier sync of this group has failed
            job.error = StorageError(str(self.failed))
        if job.error is None or job.decided:
            self._holds(job, now_ns)
        if job.error is None:
            self._written(job)
            return
        self.roll_wanted |= job.roll
        self.fail(job.error, now_ns)
        if job.refused:
            self._retry_wanted = True
            self.queue()

    def _holds(self, job: AppendJob, now_ns: MonoNs) -> None:
        """What an append has brought is promised, and readers have it; its segment may not have it yet."""
        batch = job.batch
        if job.again:
            self._under_way.remove(batch)
        if job.error is not None:
            job.postponed = True
            self.unwritten.append(batch)
            self._agenda.postponing[self] = None
        if job.again:
            return
        assert batch.base_offset >= self.high_watermark
        if len(batch.names) > 1 or batch.names[0] not in self.destinations:
            self.destinations.update(dict.fromkeys(batch.names))
        self.high_watermark = batch.next_offset
        if self.dedup is not None:
            dedup_file.committed(self, batch)
        if job.needs_sync and (job.covers or batch.base_offset <= self.synced_to):
            self.synced_to = batch.next_offset
        if self.sync_due_ns is None and not job.needs_sync and self.settings.sync.interval_ns is not None:
            self.sync_due_ns = MonoNs(now_ns + self.settings.sync.interval_ns)
            self._agenda.wake(self, self.sync_due_ns)

    def _written(self, job: AppendJob) -> None:
        """The segment has it."""
        batch = job.batch
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
        self.tail.add(batch)
        if job.again and not self.postponed:
            self._agenda.postponing.pop(self, None)

    def was_synced(self, end_offset: int) -> None:
        """All below ``end_offset`` is safe."""
        self.synced_to = max(self.synced_to, end_offset)

    def waiting_for(self, offset: int, synced: bool) -> Place | None:
        if not (synced or self.settings.sync.always):
            return super().waiting_for(offset, synced)
        if offset >= self.high_watermark:
            under_way = None if self.dedup is None else self.dedup.in_flight_at(offset)
            if under_way is None:
                return None  # of an earlier run: the journal has it
            opened = [each for each in (*self._closed, self.open_batch) if each is under_way.place]
            for builder in opened:
                builder.sync_requested = True
            if opened or under_way.synced:
                return under_way.place
        elif offset < self.synced_to:
            return None
        self._to_sync.offset = max(self._to_sync.offset, offset)
        self.sync_wanted = True
        self.queue()
        return self._to_sync

    def _take_sync(self) -> list[Job]:
        """The sync that is due, for an interval or for those who wait for it."""
        waiting, self._to_sync, self.sync_wanted = self._to_sync, ToSync(), False
        jobs: list[Job] = [SyncJob(self)]
        if waiting.offset >= self.high_watermark:  # what was under way could not be written
            jobs.append(VainJob(self))
            jobs[-1].error = StorageError(f"partition {self.name}: a repeated message was not stored the first time")
        jobs[-1].waiters, jobs[-1].place = waiting.waiters, waiting
        return jobs

    @property
    def postponed(self) -> list[RecordBatch]:
        """Decided batches that wait to be written, in order."""
        return [*self._under_way, *self.unwritten]

    @property
    def written_to(self) -> int:
        """Where its segments end."""
        return min((batch.base_offset for batch in self.postponed), default=self.high_watermark)

    @property
    def kept_to(self) -> int:
        return max(self.decided_to, self.high_watermark)

    def _decided_again(self, batch: RecordBatch) -> AppendJob:
        job = AppendJob(self, batch, None, True, False)
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
        settings, segments = self.settings, self.segments
        self.roll_due_ns = self.age_due_ns = None
        if segments and settings.roll_at_seconds is not None:
            since_ns = max(segments[-1].first_receive_ns, self._rolled_ns)
            self.roll_due_ns = roll_due_ns(since_ns, settings.roll_at_seconds)
        self._reclaim_at = segments[1].base_offset if len(segments) > 1 and settings.reclaim_acked else NOWHERE
        self._size_due_bytes = size_due_bytes(self)
        if len(segments) > 1 and settings.retention_age_ns is not None:
            self.age_due_ns = WallNs(segments[0].last_receive_ns + settings.retention_age_ns + 1)
        self._wake()

    def _wake(self) -> None:
        for due_ns in (self.sync_due_ns, self._retry_due_ns, self._cut_due_ns):
            if due_ns is not None:
                self._agenda.wake(self, due_ns)
        for wall_ns in (self.roll_due_ns, self.age_due_ns):
            if wall_ns is not None:
                self._agenda.wake_at_wall(self, wall_ns)

    def fail(self, error: StorageError, now_ns: MonoNs) -> None:
        super().fail(error, now_ns)
        self.roll_due_ns = None  # an interval's sync stays due: what is whole is still to be synced
        if self._retry_due_ns is None:
            self._retry_due_ns = MonoNs(now_ns + RETRY_EVERY_NS)
            self._agenda.wake(self, self._retry_due_ns)

    def retried(self, job: RetryJob, now_ns: MonoNs) -> None:
        """The disk was asked again."""
        if job.error is not None:
            self.fail(job.error, now_ns)
            return
        self.failed = None
        self._agenda.failed.pop(self, None)
        self._agenda.moved[self] = None
        self.roll_wanted |= self.begun and not self.segments  # what was to be begun still is
        if self.unwritten or self.roll_wanted:
            self.queue()
        self._retry_due_ns = None  # set again if an append of the same group came back with the old error
        self._retry_wanted = False
        if job.reopened is not None:
            self._goes_on_in(job.reopened, now_ns)
        self.set_deadlines()

    def _goes_on_in(self, found: Reopened, now_ns: MonoNs) -> None:
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
                self._cut_due_ns = MonoNs(now_ns + RETRY_EVERY_NS)
        self.begin_segment(found.base_offset, first_receive_ns)
        segment = self.segments[-1]
        self.synced_to = self.high_watermark
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
        if batch is None and offset >= self.written_to:
            batch = next((each for each in self.postponed if each.base_offset <= offset < each.next_offset), None)
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

    def tick(self, now: Now) -> None:
        """Marks what is due; it happens in the next take()."""
        if self.sync_due_ns is not None and self.sync_due_ns <= now.mono:
            self.sync_due_ns = None
            self.sync_wanted = True
            self.queue()
        if self.roll_due_ns is not None and self.roll_due_ns <= now.wall:
            self._rolled_ns, self.roll_due_ns = self.roll_due_ns, None
            self.roll_wanted = self.segments[-1].size_bytes > 0 or self.open_batch is not IDLE
            self.queue()
        if self._retry_due_ns is not None and self._retry_due_ns <= now.mono:
            self._retry_due_ns = None
            self._retry_wanted = True
            self.queue()
        if self._cut_due_ns is not None and self._cut_due_ns <= now.mono:
            self._cut_due_ns = MonoNs(now.mono + RETRY_EVERY_NS) if self.cold.pending else None
            self.queue()
        if self.age_due_ns is not None and self.age_due_ns <= now.wall:
            self.age_due_ns = None  # what is held back by retain_from is looked at again by the store's sweep
            self.want_retention()
        self._wake()
