"""A log with files, as the event loop uses it: jobs for the disk thread and the read thread, and their results.

    take() -> AppendJob ...disk thread... -> committed(): the high watermark moves, the batch joins the tail
    fetch() -> ReadJob ...read thread... -> fetched(): the batch joins the cold cache
    tick() notes what is due: an interval's sync, a daily roll, retention; take() returns it as jobs

This module knows facts of segments and what is due. It does not know bytes or descriptors (``log``, ``reads``), or
other partitions. The event loop owns it, except ``log``, which belongs to the disk thread; jobs carry it there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from radiator import limits
from radiator.clock import MonoNs, Now, WallNs
from radiator.config import Settings
from radiator.errors import StorageError
from radiator.storage import archived, layout
from radiator.storage.batch import RecordBatch
from radiator.storage.cold_reads import ColdReads
from radiator.storage.dedup_file import DedupFile, ForgetJob
from radiator.storage.files import storage_error
from radiator.storage.jobs import SHORT_BYTES_MAX, AfterAcksJob, Job
from radiator.storage.journal.dirty_logs import DirtyLogs
from radiator.storage.log import Log
from radiator.storage.partition import IDLE, Agenda, BatchBuilder, Partition
from radiator.storage.reads import ReadJob
from radiator.storage.recovery import Recovered
from radiator.storage.reopen import Reopened, cut, reopen
from radiator.storage.retention import count_to_drop, roll_due_ns
from radiator.storage.retention_checks import RetentionChecks
from radiator.storage.segment import SegmentInfo
from radiator.storage.segment_states import Event, State
from radiator.storage.tail import ColdCache, Tail
from radiator.storage.turn import Place, Turn

SHORT_RECORDS_MAX = 4  # messages in progress of a producer that waits for each receipt
RETRY_EVERY_NS = 2_000_000_000  # how soon a partition that failed takes messages again when the disk lets it


class PendingSync:
    """Receipts that wait for a sync of written or unwritten messages. ``offset``: the highest of these messages."""

    __slots__ = ("offset", "turn", "waiters")

    def __init__(self) -> None:
        self.offset = -1
        self.turn = Turn()
        self.turn.begins()
        self.waiters: list[Any] = []


class FilePartition(Partition):
    """A log with files. ``log`` belongs to the disk thread; everything else to the event loop."""

    __slots__ = (
        "_cut_due_ns",
        "_under_way",
        "_retain_from",
        "_retry_due_ns",
        "_retry_wanted",
        "_rolled_ns",
        "_pending_sync",
        "cold",
        "decided_to",
        "dirty",
        "dedup_file",
        "leaving",
        "log",
        "retention",
        "roll_due_ns",
        "roll_wanted",
        "settlements",
        "sync_due_ns",
        "sync_wanted",
        "synced_to",
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
        dirty: DirtyLogs,
    ) -> None:
        self.dirty = dirty  # of the store; belongs to the disk thread
        self.retention = RetentionChecks()
        self.settlements = 0  # how often cursors have moved
        super().__init__(name, settings, log.fs, log.directory, tail, agenda)
        self.synced_to = 0  # messages with an id below are known to be synced
        self._pending_sync = PendingSync()  # the next sync is for these
        self.log = log
        self._rolled_ns = WallNs(0)  # the daily moment that was last met: no clock brings it back
        self.sync_wanted = self.roll_wanted = False
        self.sync_due_ns: MonoNs | None = None
        self.roll_due_ns: WallNs | None = None
        self._retry_due_ns: MonoNs | None = None
        self._retry_wanted = False
        # In the journal, and not in the segment: they will be there, at these offsets.
        self.unwritten: list[RecordBatch] = []
        self._under_way: list[RecordBatch] = []  # batches of ``unwritten`` that are being written
        self.decided_to = 0  # where the last batch that is in the journal ends
        self._cut_due_ns: MonoNs | None = None  # of failed files
        self.dedup_file: DedupFile | None = None  # once there was an id
        self.leaving = False  # it is being removed
        self.cold = ColdReads(cold_cache)

    def configure(self, settings: Settings) -> None:
        """Set the settings of the rule.

        They are known when the destination of a recovered partition is created, and may change later.
        """
        self.settings = settings
        self.log.configure(settings)
        self.set_deadlines()
        self._adopt_ids()
        self._agenda.sweep_candidates[self] = None
        if len(self.segments) > 1:
            self.want_retention()

    @property
    def retain_from(self) -> int | None:
        """The lowest offset that a cursor needs; None: no cursor needs anything."""
        return self._retain_from

    @retain_from.setter
    def retain_from(self, offset: int | None) -> None:
        self._retain_from = offset
        self.settlements += 1
        self._agenda.sweep_candidates[self] = None
        if offset is not None and offset >= self.retention.reclaim_at:
            self.retention.settled()
            self.want_retention()

    def want_retention(self) -> None:
        """Check retention with the next take()."""
        self.retention.want()
        self.queue()

    def sweep(self) -> None:
        """Check now and then what may be removed."""
        super().sweep()
        if self.retention.undeleted or self._may_be_held_back():
            self._agenda.sweep_candidates[self] = None  # time or an archive allows removal without a notification
        if not self.roll_wanted and self.failed is None and self._is_settled_and_large():
            self.roll_wanted = True
            self.queue()

    @property
    def is_healthy(self) -> bool:
        """Whether the files have not failed and are not being repaired."""
        return self.failed is None and not any(
            segment.state is State.FAILED or segment.state is State.CUTTING for segment in self.segments
        )

    def recovered(self, found: Recovered) -> None:
        """Take over the facts that recovery has found."""
        self.segments = found.segments
        self.destinations = dict.fromkeys(found.destinations)
        self.whole = found.whole
        self.log_start_offset = found.segments[0].base_offset if found.segments else found.next_offset
        self.next_offset = self.high_watermark = found.next_offset
        self.synced_to = self.log_start_offset if not found.segments else found.segments[-1].base_offset
        self.last_receive_ns = WallNs(found.last_receive_ns)

    @property
    def makes_files(self) -> bool:  # type: ignore[override]
        """Whether the next take() begins a file."""
        return self.roll_wanted or self._retry_wanted or not (self.segments or self.open_batch is IDLE)

    def _turn(self) -> Turn:
        if not self.segments:
            return Turn()  # it may have to wait until it may begin a file
        return self._agenda.turn_synced if self.settings.sync.always else self._agenda.turn_unsynced

    def request_file(self) -> None:
        """Begin the first file before there is a message for it."""
        self.begun = self.roll_wanted = True
        self.queue()

    def take(self, now: Now, may_roll: bool = True) -> list[Job]:
        """Return the open batches, and what tick() found due, as jobs."""
        self.queued = False
        roll = self.roll_wanted and may_roll and self.failed is None
        self.roll_wanted = self.roll_wanted and not roll
        jobs: list[Job] = [] if self.dedup is None and self.dedup_file is None else self._take_ids()
        if self.unwritten and self.failed is None:
            jobs += [self._decided_again(each) for each in self.unwritten]
            self._under_way, self.unwritten = self.unwritten, []
        builders = self._closed
        if self.open_batch is not IDLE:
            builders.append(self.open_batch)
            self.open_batch = IDLE
        if builders:
            self._closed = []
            jobs += self._appends(builders, roll)
        elif roll:
            jobs.append(RollJob(self, self.next_offset))
        if self.sync_wanted:
            jobs += self._take_sync()
        if self._retry_wanted and may_roll:
            self._retry_wanted = False
            jobs.append(RetryJob(self, self.tail.newest_first()[::-1]))
        if self.retention.wanted:
            jobs += self._take_retention(now)
        return jobs

    def _appends(self, builders: list[BatchBuilder], roll: bool) -> list[Job]:
        """Return a job for each open batch. With ``roll`` the first one begins a segment."""
        always = self.settings.sync.interval_ns == 0
        atomic = -1
        for place, builder in enumerate(builders):
            if builder.atomic:
                atomic = place
        jobs: list[Job] = []
        for place, builder in enumerate(builders):
            needs_sync = always or builder.sync_requested or place <= atomic
            if needs_sync and self.dedup is not None:
                self.dedup.to_be_synced(builder)
            job = AppendJob(self, builder.finish(), builder, needs_sync, roll)
            job.atomic = place <= atomic  # and everything before it: decided offsets must be dense
            jobs.append(job)
            roll = False
        return jobs

    def _take_retention(self, now: Now) -> list[Job]:
        """Remove the segments that retention no longer keeps, or return the job that first reads what is archived."""
        if not self.retention.begin(self.settings):
            return [ArchivedJob(self)]
        removed = self.retention.take_removed(self._drop_segments(now.wall))
        if removed:
            self._agenda.removals.append(RemoveJob(self, removed))
        return []

    def committed(self, job: AppendJob, now_ns: MonoNs) -> None:
        """Take back an append: make its records visible, or fail."""
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
        """Commit the batch of an append that is decided. Its segment may not have it yet."""
        batch = job.batch
        if job.again:
            self._under_way.remove(batch)
        if job.error is not None:
            job.postponed = True
            self.unwritten.append(batch)
            self._agenda.postponed_partitions[self] = None
        if job.again:
            return
        assert batch.base_offset >= self.high_watermark
        if len(batch.names) > 1 or batch.names[0] not in self.destinations:
            self.destinations.update(dict.fromkeys(batch.names))
        self.high_watermark = batch.next_offset
        if self.dedup is not None:
            self._count_ids(batch)
        if job.needs_sync and (job.covers or batch.base_offset <= self.synced_to):
            self.synced_to = batch.next_offset
        if self.sync_due_ns is None and not job.needs_sync and self.settings.sync.interval_ns is not None:
            self.sync_due_ns = MonoNs(now_ns + self.settings.sync.interval_ns)
            self._agenda.wake(self, self.sync_due_ns)

    def _written(self, job: AppendJob) -> None:
        """Add a batch that its segment has to the tail."""
        batch = job.batch
        if job.rolled:
            self.begin_segment(batch.base_offset, batch.receive_ns[0])
        segment = self.segments[-1]
        if not segment.size_bytes:  # its day begins with its first record
            segment.begin(batch.receive_ns[0])
            self.set_deadlines()
        segment.grow(job.position, batch.receive_ns[-1])
        self.roll_wanted |= self._has_many_commits()  # with what comes next
        if job.position > self.retention.full_at_bytes:
            self.retention.grown()
            self.want_retention()
        self.tail.add(batch)
        if job.again and not self.postponed:
            self._agenda.postponed_partitions.pop(self, None)

    def was_decided(self, batch: RecordBatch) -> None:
        """Note that the journal has this batch."""
        self.decided_to = batch.next_offset

    def adopt_batch(self, batch: RecordBatch) -> None:
        """Take over a batch with fixed offsets, from the journal or from another store."""
        self.next_offset = batch.next_offset
        self.last_receive_ns = WallNs(max(self.last_receive_ns, batch.receive_ns[-1]))

    def was_synced(self, end_offset: int) -> None:
        """Note that everything below ``end_offset`` is synced."""
        self.synced_to = max(self.synced_to, end_offset)

    def wait_point(self, offset: int, synced: bool) -> Place | None:
        """Return where a receipt for a repeated message waits (see ``Partition.wait_point``)."""
        if not (synced or self.settings.sync.always):
            return super().wait_point(offset, synced)
        if offset >= self.high_watermark:
            under_way = None if self.dedup is None else self.dedup.in_flight_at(offset)
            if under_way is None:
                return None  # of an earlier run: the journal has it
            opened = [each for each in (*self._closed, self.open_batch) if each is under_way.place]
            for builder in opened:
                builder.request_sync()
            if opened or under_way.synced:
                return under_way.place
        elif offset < self.synced_to:
            return None
        self._pending_sync.offset = max(self._pending_sync.offset, offset)
        self.sync_wanted = True
        self.queue()
        return self._pending_sync

    def _take_sync(self) -> list[Job]:
        """Return the sync that is due, for an interval or for waiting receipts."""
        waiting, self._pending_sync, self.sync_wanted = self._pending_sync, PendingSync(), False
        jobs: list[Job] = [SyncJob(self)]
        if waiting.offset >= self.high_watermark:  # a write in progress has failed
            jobs.append(UnstoredJob(self))
            jobs[-1].fail(StorageError(f"partition {self.name}: the first copy of a repeated message was not stored"))
        jobs[-1].end_place(waiting)
        return jobs

    @property
    def postponed(self) -> list[RecordBatch]:
        """Decided batches that wait to be written, in order."""
        return [*self._under_way, *self.unwritten]

    def newest_first(self) -> list[RecordBatch]:
        """Return the postponed batches and the tail."""
        return [*self.postponed[::-1], *self.tail.newest_first()]

    @property
    def written_to(self) -> int:
        """The offset at which the segments end."""
        return min((batch.base_offset for batch in self.postponed), default=self.high_watermark)

    @property
    def rollback_to(self) -> int:
        """The offset from which on offsets are taken back if a write fails."""
        return max(self.decided_to, self.high_watermark)

    def _decided_again(self, batch: RecordBatch) -> AppendJob:
        job = AppendJob(self, batch, None, True, False)
        job.decided = job.again = True
        return job

    def begin_segment(self, base_offset: int, first_receive_ns: int, ends: Event = Event.SEAL) -> None:
        """Add a segment that begins at ``base_offset``, if there is none. ``ends`` happens to the one before."""
        last = self.segments[-1] if self.segments else None
        if last is not None:  # the clock may have been set back
            first_receive_ns = max(first_receive_ns, last.last_receive_ns)
        if last is None or last.base_offset != base_offset:
            if last is not None:
                last.on(ends)
            self.segments.append(SegmentInfo(base_offset, first_receive_ns, first_receive_ns, 0))
        self.set_deadlines()
        self._agenda.sweep_candidates[self] = None
        if len(self.segments) > 1:
            self._write_ids()
            self.want_retention()

    def set_deadlines(self) -> None:
        """Compute when the active segment rolls, and when retention is checked."""
        settings, segments = self.settings, self.segments
        self.roll_due_ns = None
        if segments and settings.roll_at_seconds is not None:
            since_ns = max(segments[-1].first_receive_ns, self._rolled_ns)
            self.roll_due_ns = roll_due_ns(since_ns, settings.roll_at_seconds)
        self.retention.set_limits(segments, settings)
        self._wake()

    def _wake(self) -> None:
        for due_ns in (self.sync_due_ns, self._retry_due_ns, self._cut_due_ns):
            if due_ns is not None:
                self._agenda.wake(self, due_ns)
        for wall_ns in (self.roll_due_ns, self.retention.age_due_ns):
            if wall_ns is not None:
                self._agenda.wake_at_wall(self, wall_ns)

    def fail(self, error: StorageError, now_ns: MonoNs) -> None:
        """Refuse messages until the disk was tried again."""
        super().fail(error, now_ns)
        self.roll_due_ns = None  # an interval's sync stays due: complete batches are still unsynced
        if self._retry_due_ns is None:
            self._retry_due_ns = MonoNs(now_ns + RETRY_EVERY_NS)
            self._agenda.wake(self, self._retry_due_ns)

    def retried(self, job: RetryJob, now_ns: MonoNs) -> None:
        """Take back a RetryJob: accept messages again, or fail again."""
        if job.error is not None:
            self.fail(job.error, now_ns)
            return
        self.failed = None
        self._agenda.failed.pop(self, None)
        self._agenda.sweep_candidates[self] = None
        self.roll_wanted |= self.begun and not self.segments  # what was to be begun still is
        if self.unwritten or self.roll_wanted:
            self.queue()
        self._retry_due_ns = None  # set again if an append of the same group came back with the old error
        self._retry_wanted = False
        if job.reopened is not None:
            self._continue_in(job.reopened, now_ns)
        self.set_deadlines()

    def _continue_in(self, found: Reopened, now_ns: MonoNs) -> None:
        """Go on in the segment that replaces or follows the failed active one."""
        first_receive_ns = self.last_receive_ns if found.first_receive_ns is None else found.first_receive_ns
        self.cold.hints.clear()
        self._lose_ids(found.lost)
        ends = Event.SEAL
        if self.segments and self.segments[-1].base_offset == found.failed_base != found.base_offset:
            failed = self.segments[-1]
            failed.set_end(found.kept_bytes, min(failed.last_receive_ns, first_receive_ns))
            if found.kept_bytes:
                ends = Event.FAIL
                self._cut_due_ns = MonoNs(now_ns + RETRY_EVERY_NS)  # reads in progress use the old file
        self.begin_segment(found.base_offset, first_receive_ns, ends)
        segment = self.segments[-1]
        self.was_synced(self.written_to)
        segment.set_end(found.size_bytes, max(segment.first_receive_ns, found.last_receive_ns))

    def take_cuts(self) -> list[Job]:
        """Return jobs that truncate failed files: no read uses their old contents any more."""
        return [CutJob(self, segment) for segment in self.segments if segment.state is State.FAILED]

    # --- retention ----------------------------------------------------------------------------------------------------

    def _drop_segments(self, now_ns: WallNs) -> list[SegmentInfo]:
        """Remove the segments that may be deleted from the log, and return them.

        If the rule forces that, ``on_forced`` is called first, so that cursors move on.
        """
        segments, needed = self.segments, self.retain_from
        settled = self.high_watermark if needed is None else needed
        reclaims = self.settings.reclaim_acked and needed is not None and not self.history
        archived_to = self.retention.archived_to
        drop = count_to_drop(segments, self.settings, self.high_watermark, settled, reclaims, archived_to, now_ns)
        if not drop:
            return []
        removable_to = self.ids_removable_to(now_ns)
        while drop and segments[drop].base_offset > removable_to:
            drop -= 1
        removed = segments[:drop]
        if drop:
            for segment in removed:
                segment.on(Event.REMOVE)
            del segments[:drop]
            start = segments[0].base_offset
            self.drop_before(start)
            self.set_deadlines()
            if start > settled and self.on_forced is not None:
                self.on_forced(start)
        return removed

    def _is_settled_and_large(self) -> bool:
        """Return whether the active segment should be sealed because its queues have settled all of it.

        That pays off when it is large enough.
        """
        segments, settings = self.segments, self.settings
        return (
            bool(segments)
            and settings.reclaim_acked
            and not self.history
            and self.retain_from == self.high_watermark == self.next_offset
            and segments[-1].size_bytes >= min(limits.RECLAIM_ROLL_BYTES, settings.segment_bytes)
        )

    @property
    def is_read_again(self) -> bool:
        """Whether the log is read more than once, so that rewriting it pays off.

        A log whose settled messages are reclaimed is read once, mostly from memory, and deleted. A log that waits for
        an archive may wait long, and the archiver reads it. For a log without a rule this is not known.
        """
        settings = self.settings
        return self.history or not settings.reclaim_acked or settings.wait_for_archive

    def _has_many_commits(self) -> bool:
        """Return whether the active segment has so many commits that it should be sealed.

        It is then rewritten with large batches.
        """
        if self.segments[-1].commits % limits.SEGMENT_COMMITS:
            return False
        settings = self.settings
        return settings.compress is not None or (settings.merge_commits and self.is_read_again)

    def _may_be_held_back(self) -> bool:
        """Return whether segments may wait for an archive or for remembered ids, not for a cursor."""
        segments, needed = self.segments, self.retain_from
        if len(segments) < 2:
            return False
        settled = needed is not None and segments[1].base_offset <= needed and not self.history
        return settled or self.settings.wait_for_archive or self.dedup is not None

    # --- ids of messages ----------------------------------------------------------------------------------------------

    def _adopt_ids(self) -> None:
        """Apply the rule's settings for message ids."""
        file, window_ns = self.dedup_file, self.settings.dedup_window_ns
        if window_ns is None:
            self.dedup = None
            if file is not None:
                self.queue()
        elif self.dedup is not None:
            self.dedup.set_limits(window_ns, self.settings.dedup_count)
        elif file is not None and (restored := file.take_restored()) is not None:
            self.dedup = self.new_dedup()
            self.dedup.restore(restored, self.last_receive_ns)

    def adopt_file(self, file: DedupFile) -> None:
        """Take over the file of ids that recovery has found."""
        self.dedup_file = file

    def _count_ids(self, batch: RecordBatch) -> None:
        file, dedup = self.dedup_file, self.dedup
        if file is None or dedup is None:
            return
        file.committed(batch)
        if file.due(dedup):
            self.queue()

    def _write_ids(self) -> None:
        """Write the ids of a segment before the segment can be deleted."""
        if self.dedup_file is not None:
            self.dedup_file.request_block()
            self.queue()

    def ids_removable_to(self, now_ns: WallNs) -> int:
        """Return the offset below which the log is not needed to restore message ids after a crash.

        If a segment could be deleted once the file has its ids, request that the file is written soon.
        """
        file, window_ns = self.dedup_file, self.settings.dedup_window_ns
        if file is None or self.dedup is None or window_ns is None:
            return self.high_watermark
        for segment, following in pairwise(self.segments):
            if following.base_offset > file.synced_to and now_ns - segment.last_receive_ns < window_ns:
                if file.request_before_removal():
                    self.queue()
                return segment.base_offset
        return self.high_watermark

    def _lose_ids(self, lost: Sequence[tuple[int, int]]) -> None:
        """Forget the ids of messages that were receipted and are lost.

        Args:
            lost: The first and the last offset of each run of them.
        """
        file, dedup = self.dedup_file, self.dedup
        if dedup is None or not lost:
            return
        for low, high in lost:
            dedup.lose(low, high)
        if file is not None:
            file.lost()
            self.queue()

    def _take_ids(self) -> list[Job]:
        """Return the job that is due for the file of ids, which runs before appends."""
        file, dedup = self.dedup_file, self.dedup
        if dedup is None:
            if file is None or self.settings.dedup_window_ns is not None:
                return []
            self.dedup_file = None
            return [ForgetJob(self)]
        if file is None:
            file = self.dedup_file = DedupFile()
        return [file.block(self, dedup)] if file.due(dedup) else []

    def close_ids(self) -> None:
        """Write the file of ids at a clean stop: the next start need not search the log."""
        file, dedup = self.dedup_file, self.dedup
        if file is None or dedup is None or file.covered == self.high_watermark:
            return
        file.request_block()
        job = file.block(self, dedup)
        job.write()
        if job.needs_sync and job.error is None:
            job.sync()
        file.written(job)

    # --- removal ------------------------------------------------------------------------------------------------------

    @property
    def is_removable(self) -> bool:
        """Whether nothing is unwritten, being read or being repaired, so that the whole log may be removed."""
        quiet = self.open_batch is IDLE and not self._closed and self.next_offset == self.high_watermark
        return quiet and self.is_healthy and not (self.leaving or self.postponed or self.cold.pending)

    def leave(self, leaving: bool) -> None:
        """Note that the log is being removed, or that it stays after all."""
        self.leaving = leaving

    def retire(self) -> None:
        """Drop everything that is in memory: the log is gone, and nothing uses it any more."""
        self.queued = True  # take() is not called again
        self.tail.drop_below(self.next_offset)
        self.cold.removed(0, self.next_offset)
        self.dedup = self.dedup_file = None
        self._agenda.forget(self)
        self._agenda.postponed_partitions.pop(self, None)
        with contextlib.suppress(ValueError):
            self._agenda.dirty.remove(self)

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, offset: int) -> RecordBatch | None:
        """Return the batch in memory that contains ``offset``, or None."""
        batch = self.tail.find(offset)
        if batch is None and offset >= self.log_start_offset:
            batch = self.cold.find(offset)
        if batch is None and offset >= self.written_to:
            batch = next((each for each in self.postponed if each.base_offset <= offset < each.next_offset), None)
        return batch

    def fetch(self, offset: int, bytes_max: int = limits.READ_CHUNK_BYTES) -> ReadJob:
        """Return the job that reads from ``offset`` on."""
        return self.cold.fetch(self, offset, bytes_max)

    def journaled(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the batches between two offsets that the journal has. Any thread may call it. Raises OSError."""
        return self.dirty.batches(self.name, start, end)

    def fetched(self, job: ReadJob) -> None:
        """Take back a cold read."""
        self.cold.fetched(job, self.log_start_offset)

    def removed(self, base_offset: int, end_offset: int) -> None:
        """Drop removed records of a segment from memory; readers continue from the file."""
        self.tail.cut_below(end_offset)
        self.cold.removed(base_offset, end_offset)

    # --- time ---------------------------------------------------------------------------------------------------------

    def tick(self, now: Now) -> None:
        """Note what is due; the next take() returns it as jobs."""
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
            if self._cut_due_ns is None:
                self._agenda.removals.extend(self.take_cuts())
                self.queue()
        if self.retention.is_too_old(now.wall):
            self.want_retention()
        self._wake()


# --- jobs -------------------------------------------------------------------------------------------------------------


class AppendJob(Job):
    """Append one batch to one partition."""

    __slots__ = (
        "again",
        "atomic",
        "covers",
        "decided",
        "bypasses_journal",
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
        self.bypasses_journal = False  # it is large, so it passes the journal by, and is synced where it is written
        self.postponed = False  # decided, but could not be written yet
        self.again = False  # it was postponed before
        self.refused = False  # the journal did not take it: nothing is wrong with this partition
        self.pieces: list[bytes] | None = None  # the batch, if it has been encoded already
        self.partition = partition
        self.batch: RecordBatch = batch
        self.place = place  # None: no receipt waits for it
        self.waiters = [] if place is None else place.waiters
        self.needs_sync = needs_sync
        self.error = None
        self.roll = roll
        self.rolled = False
        self.position = 0

    def encode(self) -> list[bytes]:
        """Return the bytes of the batch, for the journal and the segment. The disk thread calls it."""
        self.pieces = self.partition.log.encode(self.batch)
        return self.pieces

    def decide(self) -> None:
        """Note, on the disk thread, that the journal has the batch, so the log will have it."""
        self.decided = True

    def refuse(self, error: StorageError) -> None:
        """Refuse the batch, on the disk thread: the journal cannot store it, nor what follows in this log."""
        self.error, self.refused = error, True
        self.partition.log.refuse(error)

    def bypass_journal(self) -> None:
        """Write and sync the batch, which is large, in its segment only."""
        self.bypasses_journal = True

    def set_encoded(self, pieces: list[bytes]) -> None:
        """Set the bytes of the batch, which is encoded already."""
        self.pieces = pieces

    @property
    def short(self) -> bool:
        """Whether the job is a single small write."""
        batch, partition = self.batch, self.partition
        if self.roll or self.atomic or len(batch.blocks) > SHORT_RECORDS_MAX or batch.size_bytes > SHORT_BYTES_MAX:
            return False
        segments = partition.segments  # no file is begun, now or by rolling
        return bool(segments) and segments[-1].size_bytes + 2 * SHORT_BYTES_MAX <= partition.settings.segment_bytes

    def write(self) -> None:
        """Append the batch to its log. The disk thread calls it."""
        if self.error is not None:  # it was refused
            return
        partition = self.partition
        log = partition.log
        try:
            stored = (self.needs_sync and not self.bypasses_journal) or partition.settings.sync.never
            self.rolled = log.append(self.batch, stored, self.roll, self.pieces)
            self.position = log.position
        except StorageError as error:
            self.error = error
            if self.decided:
                partition.dirty.not_written(log, self.batch)
        else:
            partition.dirty.written(log, self.batch if self.again else None)
        if self.needs_sync and not log.sync_required:
            log.require_sync()
        self.covers = self.bypasses_journal or not (
            log.unjournaled or log.inherited or partition.dirty.journal.doubtful
        )
        if self.bypasses_journal:
            log.mark_unjournaled()

    def sync(self) -> None:
        """Sync the segment of a batch that bypasses the journal. The disk thread calls it."""
        if self.bypasses_journal and self.error is None:
            try:
                self.partition.log.sync()
            except StorageError as error:
                self.error = error

    def done(self, now: Now) -> None:
        """Report the result to the partition."""
        self.partition.committed(self, now.mono)


class SyncJob(Job):
    """Sync what was written: an interval is over, or receipts wait for it."""

    __slots__ = ("_end_offset", "_journal")
    partition: FilePartition
    what = "message"

    def __init__(self, partition: FilePartition) -> None:
        super().__init__(partition, needs_sync=True)
        self._journal = partition.dirty.journal
        self._end_offset = partition.high_watermark

    def sync(self) -> None:
        """Sync the journal, or the segment if the journal is not enough. The disk thread calls it."""
        log, journal = self.partition.log, self._journal
        try:
            if journal.doubtful or log.unjournaled or log.inherited:
                self._sync_segment()
                return
            try:
                journal.sync()
            except StorageError:
                self._sync_segment()  # it has everything as well
            else:
                log.require_sync()
                log.publish_head()
        except StorageError as error:
            self.error = error

    def _sync_segment(self) -> None:
        log = self.partition.log
        if log.next_offset < self._end_offset:
            raise StorageError(f"partition {self.partition.name}: messages wait to be written ({log.failed})")
        log.sync()

    def done(self, now: Now) -> None:
        """Report the result to the partition."""
        if self.error is not None:
            self.partition.fail(self.error, now.mono)
        else:
            self.partition.was_synced(self._end_offset)


class UnstoredJob(Job):
    """Refuse receipts that wait for a message which could not be stored."""

    __slots__ = ()
    what = "message"


class RollJob(Job):
    """Begin a segment: the active one is due and nothing is being written, or the first one is requested."""

    __slots__ = ("base_offset", "rolled")
    partition: FilePartition

    def __init__(self, partition: FilePartition, base_offset: int) -> None:
        super().__init__(partition)
        self.base_offset = base_offset
        self.rolled = False

    def write(self) -> None:
        """Roll the log. The disk thread calls it."""
        try:
            self.rolled = self.partition.log.roll(self.base_offset)
        except StorageError as error:
            self.error = error

    def done(self, now: Now) -> None:
        """Report the result to the partition."""
        if self.error is not None:
            self.partition.fail(self.error, now.mono)
        elif self.rolled:
            self.partition.begin_segment(self.base_offset, now.wall)


class RetryJob(Job):
    """Try a failed partition again: is there room, or does a new file work?

    Args:
        partition: The partition.
        recent: Its batches in memory, oldest first.
    """

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
        """Retry the log or reopen it. The disk thread calls it."""
        log = self.partition.log
        try:
            if log.must_reopen(self.next_offset):
                self.reopened = found = reopen(log, self.next_offset, self.recent, self.partition.dirty.batches)
                self.lost = found.lost
                self.note = (
                    f"{log.directory}: continues in segment {found.base_offset} after a failure; {found.saved} "
                    f"messages after the last sync were written again"
                )
            else:
                log.retry(self.next_offset)
        except StorageError as error:
            self.error = error
        self.recent = ()

    def done(self, now: Now) -> None:
        """Report the result to the partition."""
        self.partition.retried(self, now.mono)


class CutJob(Job):
    """Truncate a failed file behind its last sync; no read uses that part any more."""

    __slots__ = ("segment",)
    partition: FilePartition

    def __init__(self, partition: FilePartition, segment: SegmentInfo) -> None:
        super().__init__(partition)
        self.segment = segment
        segment.on(Event.CUT)

    def write(self) -> None:
        """Truncate the file. The disk thread calls it."""
        try:
            cut(self.partition.log, self.segment.base_offset, self.segment.size_bytes)
        except StorageError as error:
            self.error = error  # reported, not fatal: it only takes space

    def done(self, now: Now) -> None:
        """Note that the segment is like others from now on."""
        self.segment.on(Event.SEAL)
        self.partition.want_retention()


class RemoveJob(AfterAcksJob):
    """Delete sealed segments for retention. The event loop has moved ``log_start_offset`` past them already.

    An error is not fatal: the files stay until the next retention.
    """

    __slots__ = ("removed",)
    partition: FilePartition

    def __init__(self, partition: FilePartition, removed: list[SegmentInfo]) -> None:
        super().__init__(partition)
        self.removed = removed

    def act(self) -> None:
        """Delete the segments. The disk thread calls it."""
        self.partition.log.remove([segment.base_offset for segment in self.removed])

    def done(self, now: Now) -> None:
        """Note which segments were deleted."""
        if self.error is not None:
            self.partition.retention.keep_undeleted(self.removed)
            return
        for segment in self.removed:
            segment.on(Event.DELETE)


class ArchivedJob(Job):
    """Read how far an archive has the log: retention waits for it."""

    __slots__ = ("next_offset",)
    partition: FilePartition

    def __init__(self, partition: FilePartition) -> None:
        super().__init__(partition)
        self.next_offset = 0

    def write(self) -> None:
        """Read the file ``archived``. The disk thread calls it."""
        log = self.partition.log
        try:
            self.next_offset = archived.read(log.fs, log.directory)
        except OSError as error:
            self.error = storage_error(layout.archived_path(log.directory), "read", error)
        except StorageError as error:
            self.error = error

    def done(self, now: Now) -> None:
        """Report the result to the partition."""
        partition, text = self.partition, "" if self.error is None else str(self.error)
        if not partition.retention.archive_read(self.next_offset, text):
            self.error = None  # reported once
        partition.want_retention()
