"""Decide on the event loop which sealed segments are rewritten, and why. Another thread does the work.

    sweep()   now and then: reads the partitions' facts, and makes jobs
    take()    the next job, one at a time, for the maintenance thread: job.run(may_continue), then job.done()

    reclaim      of a log that has only queues: segments lose their settled half. The acks are synced before
    compaction   of a log without queues: records that a later record with the same key replaces, oldest segment first
    compression  the rest, if the rule demands it; the others are compressed while they are rewritten
    merging      otherwise: segments of many small commits get large batches

The first headers of a segment show what has been done, and its state remembers it (``segment_states``); if that is
uncertain, work is repeated. A damaged segment is not changed, and is reported once. After an error the partition is
left alone for a while.

This module knows partitions' facts and what is due. It does not know bytes (``rewrite``, ``compaction``), threads, or
what a key is. Invariants: no record is removed that the rule keeps for an archive, or that is needed to restore message
ids after a crash; one job at a time rewrites a segment, and retention does not delete it meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import pairwise

from radiator import limits
from radiator.clock import NS_PER_SECOND, MonoNs, Now, WallNs
from radiator.storage.compaction import KeyOf
from radiator.storage.file_partition import FilePartition
from radiator.storage.jobs import Job
from radiator.storage.maintenance_jobs import Compaction, MaintenanceJob, ScanJob, SegmentJob, SettledJob
from radiator.storage.partition import Partition
from radiator.storage.segment import SegmentInfo
from radiator.storage.segment_states import Event, State
from radiator.storage.settled_scan import SCAN_COST_MAX, SettledScan

RECLAIMS_AT_ONCE_MAX = 16  # segments with their intervals in memory
NEW_PART = 8  # a log is compacted when one part in so many is new
REST_NS_MIN, REST_NS_MAX = 10 * NS_PER_SECOND, 600 * NS_PER_SECOND


class PartitionState:
    """The maintenance state of a partition. Each of its segments has a state of its own."""

    def __init__(self) -> None:
        self.busy = 0  # unfinished jobs
        self.compacted_to = 0
        self.scan: SettledScan | None = None  # in progress
        self.fingerprint: tuple[int, ...] = ()  # of the last scan, if that found no segment
        self.compaction: Compaction | None = None
        self.failures = 0
        self.rest_until_ns = MonoNs(0)
        self.rewritten = 0  # segments, since the start
        self.on_request = False  # compact once, however little is new


class Maintenance:
    """Background maintenance of sealed segments. ``removals``: jobs for the disk thread, behind a turn's acks."""

    def __init__(self, removals: list[Job]) -> None:
        self.key_of: Callable[[str], KeyOf] | None = None  # returns the key for ``compact_by``; set by the broker
        self.tombstone_ns = int(limits.TOMBSTONE_SECONDS * NS_PER_SECOND)
        self.keys_max = limits.COMPACT_KEYS_MAX
        self.counts = dict.fromkeys(("rewritten", "removed_records", "saved_bytes", "failed", "damaged"), 0)
        self._removals = removals
        self._states: dict[FilePartition, PartitionState] = {}
        self._revisit: dict[FilePartition, None] = {}  # to be checked in the next turn
        self._cost = SCAN_COST_MAX  # that scans may still take in this turn
        self._ready: deque[MaintenanceJob] = deque()
        self._running: MaintenanceJob | None = None

    # --- calls of the shell ------------------------------------------------------------------------------------------

    def use_keys(self, key_of: Callable[[str], KeyOf]) -> None:
        """Set what ``compact_by`` means: a function from its value to the key of a stored header block."""
        self.key_of = key_of

    def take(self) -> MaintenanceJob | None:
        """Return the next job, if none is in progress."""
        while self._ready and self._running is None:
            job = self._ready.popleft()
            if job.begin():
                self._running = job
                return job
            self._finish(job)
        return None

    def done(self, job: MaintenanceJob, now: Now) -> str:
        """Take back a job. Return a message for the operator, or ""."""
        self._running = None
        partition, state = job.partition, self._states[job.partition]
        job.finish()
        if isinstance(job, SegmentJob):
            self._count(job)
        note = ""
        if job.error is not None:
            self.counts["failed"] += 1
            state.failures += 1
            rest_ns = min(REST_NS_MIN << min(state.failures - 1, 10), REST_NS_MAX)
            state.rest_until_ns = MonoNs(now.mono + rest_ns)
            self._postpone(partition, state)
            note = f"{job.error} (background work; tried again in {rest_ns // NS_PER_SECOND} s)"
        elif not job.stopped:
            state.failures = 0
            if isinstance(job, ScanJob):
                self._scanned(job, state)
            if isinstance(job, SegmentJob) and job.damage:
                self.counts["damaged"] += 1
                note = f"{job.path}: damaged, so it is not rewritten: {job.damage}"
        self._finish(job)
        if not state.busy:
            self._cost = SCAN_COST_MAX
            self._plan(partition, now)
        return note

    def sweep(self, now: Now, partitions: Iterable[Partition]) -> None:
        """Plan work for these partitions, and for those with unfinished work."""
        self._cost = SCAN_COST_MAX
        again, self._revisit = self._revisit, {}
        for partition in dict.fromkeys([*again, *partitions]):
            if isinstance(partition, FilePartition) and (len(partition.segments) > 1 or partition in self._states):
                self._plan(partition, now)

    # --- on request ---------------------------------------------------------------------------------------------------

    def plan_now(self, partition: FilePartition, now: Now) -> None:
        """Plan work for a partition now: also if little of it is new, and after errors."""
        state = self._states.setdefault(partition, PartitionState())
        state.rest_until_ns, state.fingerprint, state.on_request = MonoNs(0), (), True
        self._plan(partition, now)

    def is_busy(self, partition: FilePartition) -> bool:
        """Return whether a partition has unfinished work."""
        state = self._states.get(partition)
        return state is not None and (state.busy > 0 or state.scan is not None or state.compaction is not None)

    def rewritten_in(self, partition: FilePartition) -> int:
        """Return the number of rewritten segments of a partition since the start."""
        state = self._states.get(partition)
        return 0 if state is None else state.rewritten

    def forget(self, partition: FilePartition) -> bool:
        """Drop a log that is removed. Return False, with nothing dropped, while a job uses it."""
        state = self._states.get(partition)
        if state is not None and state.busy:
            return False
        self._states.pop(partition, None)
        self._revisit.pop(partition, None)
        return True

    # --- planning -------------------------------------------------------------------------------------------

    def _plan(self, partition: FilePartition, now: Now) -> None:
        state = self._states.get(partition)
        if state is None:
            state = self._states[partition] = PartitionState()
        resting = state.rest_until_ns > now.mono
        if resting or state.compaction is not None:
            self._revisit[partition] = None
        if state.busy or resting or partition.leaving or not partition.is_healthy or len(partition.segments) < 2:
            return
        if not (self._compact(partition, state, now.wall) or self._reclaim(partition, state, now.wall)):
            self._compress_or_merge(partition, state)

    def _sealed(self, partition: FilePartition, removing_at_ns: WallNs | None) -> list[tuple[SegmentInfo, int]]:
        """Return (segment, base offset of the next) of the segments that may be rewritten.

        Args:
            partition: The partition.
            removing_at_ns: The time, if records are to be removed; None if all are kept.
        """
        end = partition.high_watermark
        if removing_at_ns is not None:
            end = min(end, partition.ids_removable_to(removing_at_ns))
            if partition.settings.wait_for_archive:
                end = min(end, partition.retention.archived_to)
        return [
            (segment, following.base_offset)
            for segment, following in pairwise(partition.segments)
            if following.base_offset <= end and segment.can(Event.REWRITE)
        ]

    def _add(self, job: MaintenanceJob, state: PartitionState) -> None:
        state.busy += 1
        self._ready.append(job)

    def _compress_or_merge(self, partition: FilePartition, state: PartitionState) -> None:
        done, bytes_min = [State.COMPRESSED], 0
        if partition.settings.compress is None:
            if not (partition.settings.merge_commits and partition.is_read_again):
                return
            done, bytes_min = [State.MERGED, State.COMPRESSED], limits.MERGED_SEGMENT_BYTES_MIN
        for segment, end in self._sealed(partition, None):
            if segment.state not in done and segment.size_bytes >= bytes_min:
                self._add(SegmentJob(partition, segment, end), state)

    def _reclaim(self, partition: FilePartition, state: PartitionState, now_ns: WallNs) -> bool:
        settings, settled_in, needed = partition.settings, partition.settled_in, partition.retain_from
        if not settings.reclaim_acked or partition.history or needed is None or settled_in is None:
            state.scan = None
            return False
        scan = state.scan
        if scan is None or needed < scan.needed:  # a new reader needs what others have settled
            sealed = self._sealed(partition, now_ns)
            fingerprint = (partition.settlements, len(sealed), sealed[-1][1] if sealed else 0)
            if fingerprint == state.fingerprint:
                return False
            scan = state.scan = SettledScan(sealed, RECLAIMS_AT_ONCE_MAX, needed, fingerprint)
        self._cost = scan.advance(settled_in, self._cost, partition.pins)
        if not scan.done:
            self._revisit[partition] = None
            return True
        state.scan, state.fingerprint = None, () if scan.found else scan.fingerprint
        jobs = [SegmentJob(partition, found.segment, found.end, found) for found in scan.found]
        if jobs:
            state.busy += 1
            self._removals.append(SettledJob(partition, lambda done: self._settled(done, jobs, state)))
        return bool(jobs)

    def _settled(self, done: SettledJob, jobs: list[SegmentJob], state: PartitionState) -> None:
        """Add the jobs whose acks are on disk; drop them if the acks are not."""
        state.busy -= 1
        for job in jobs if done.error is None else ():
            self._add(job, state)

    def _compact(self, partition: FilePartition, state: PartitionState, now_ns: WallNs) -> bool:
        settings = partition.settings
        if settings.compact_by is None or self.key_of is None or partition.retain_from is not None:
            return False
        if not partition.whole:
            return False  # an unknown queue may have messages here
        sealed = self._sealed(partition, now_ns)
        size = sum(segment.size_bytes for segment, _ in sealed)
        new = sum(segment.size_bytes for segment, end in sealed if end > state.compacted_to)
        if not sealed or not new or (new * NEW_PART < size and not state.on_request):
            state.on_request = False
            return False
        if state.compaction is None:
            state.compaction = Compaction(self.key_of(settings.compact_by), self.keys_max)
        damaged = any(segment.state is State.DAMAGED for segment in partition.segments)
        state.compaction.begin(sealed[-1][1], now_ns - self.tombstone_ns, tombstones_go=not damaged)
        self._add(ScanJob(partition, state.compaction, sealed), state)
        return True

    def _scanned(self, job: ScanJob, state: PartitionState) -> None:
        if job.damaged:
            job.compaction.keep_tombstones()
        for segment, end in job.affected():
            self._add(SegmentJob(job.partition, segment, end, compaction=job.compaction), state)

    # --- results ----------------------------------------------------------------------------------------------

    def _count(self, job: SegmentJob) -> None:
        rewrite = job.rewrite
        if rewrite is not None and rewrite.swapped:
            self.counts["rewritten"] += 1
            self._states[job.partition].rewritten += 1
            self.counts["removed_records"] += rewrite.removed
            self.counts["saved_bytes"] += rewrite.old_bytes - rewrite.size_bytes
        if job.compaction is not None and (job.damage or job.error is not None):
            job.compaction.keep_tombstones()

    def _finish(self, job: MaintenanceJob) -> None:
        state = self._states[job.partition]
        state.busy -= 1
        if state.busy or state.compaction is None:
            return
        if state.compaction.next_class():
            return  # the next sweep covers the other keys
        state.compacted_to = state.compaction.end_offset
        state.compaction = None
        state.on_request = False

    def _postpone(self, partition: FilePartition, state: PartitionState) -> None:
        """Drop all jobs planned for a partition."""
        for job in [each for each in self._ready if each.partition is partition]:
            self._ready.remove(job)
            state.busy -= 1
        state.fingerprint = ()
        state.compaction = None
