"""The caretaker: which sealed segments are to be rewritten, and why. It decides on the hub, the work is done elsewhere.

    sweep()   now and then: looks at the partitions' facts, and makes jobs
    take()    the next job, one at a time, for the caretaker's thread: job.run(breathe), then job.done() on the hub

    holes        of a log that holds only queues: segments of which half is settled lose it. The acks are on disk first
    compaction   of a log without queues: what a later record of the same key has replaced goes, oldest segment first
    compression  the rest, where the rule says so; the others are compressed while they are rewritten

What has been done is known from a segment's first header, and remembered in this run; to be unsure costs work, and
nothing else. A segment that is damaged is left alone, and told once. After an error the partition has rest for a while.

Knows: partitions' facts, what is due. Must not know: bytes (``rewrite``, ``compaction``), threads, what a key is.
Invariants: nothing is removed that a rule lets wait for an archive that does not have it, or that is needed to know
the ids of messages after a crash; a segment is rewritten by one job at a time, and retention leaves it alone meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import pairwise

from radiator import limits
from radiator.clock import NS_PER_SECOND
from radiator.storage import dedup_file
from radiator.storage.care_jobs import CareJob, Round, ScanJob, SegmentJob, SettledJob
from radiator.storage.compaction import KeyOf
from radiator.storage.file_partition import FilePartition
from radiator.storage.jobs import Job
from radiator.storage.partition import Partition
from radiator.storage.segment import SegmentInfo

HOLES_AT_ONCE_MAX = 16  # segments whose intervals are held in memory
NEW_PART = 8  # a log is compacted when one part in so many is new
REST_NS_MIN, REST_NS_MAX = 10 * NS_PER_SECOND, 600 * NS_PER_SECOND


class State:
    """What is remembered of one partition."""

    __slots__ = ("busy", "compacted_to", "compressed", "damaged", "failures", "left", "rest_until_ns", "round")

    def __init__(self) -> None:
        self.busy = 0  # jobs that are made and not done
        self.compacted_to = 0
        self.compressed: set[int] = set()  # base offsets; also of those that would not get smaller
        self.damaged: set[int] = set()
        self.left: dict[int, int] = {}  # by base offset: records that a rewritten segment still had, about
        self.round: Round | None = None
        self.failures = 0
        self.rest_until_ns = 0


class Caretaker:
    """Hub only. ``removals`` is where jobs for the disk thread go that come behind the acks of a turn."""

    def __init__(self, partitions: Mapping[str, Partition], removals: list[Job]) -> None:
        self.key_of: Callable[[str], KeyOf] | None = None  # what ``compact_by`` means; set by the broker
        self.tombstone_ns = int(limits.TOMBSTONE_SECONDS * NS_PER_SECOND)
        self.keys_max = limits.COMPACT_KEYS_MAX
        self.counts = dict.fromkeys(("rewritten", "removed_records", "saved_bytes", "failed", "damaged"), 0)
        self._partitions = partitions
        self._removals = removals
        self._states: dict[FilePartition, State] = {}
        self._ready: deque[CareJob] = deque()
        self._running: CareJob | None = None

    # --- what the shell asks ------------------------------------------------------------------------------------------

    def take(self) -> CareJob | None:
        """The next job, if none is being done."""
        while self._ready and self._running is None:
            job = self._ready.popleft()
            if job.begin():
                self._running = job
                return job
            self._ended(job)
        return None

    def done(self, job: CareJob, now_ns: int) -> str:
        """A job came back. Returns what an operator should know, or nothing."""
        self._running = None
        partition, state = job.partition, self._states[job.partition]
        job.finish()
        if isinstance(job, SegmentJob):
            self._count(job, state)
        note = ""
        if job.error is not None:
            self.counts["failed"] += 1
            state.failures += 1
            rest_ns = min(REST_NS_MIN << min(state.failures - 1, 10), REST_NS_MAX)
            state.rest_until_ns = now_ns + rest_ns
            self._give_up(partition, state)
            note = f"{job.error} (background work; tried again in {rest_ns // NS_PER_SECOND} s)"
        elif not job.stopped:
            state.failures = 0
            if isinstance(job, ScanJob):
                self._scanned(job, state)
            if isinstance(job, SegmentJob) and job.damage and job.info.base_offset not in state.damaged:
                state.damaged.add(job.info.base_offset)
                self.counts["damaged"] += 1
                note = f"{job.path}: damaged, so it is not rewritten but left as it is: {job.damage}"
        self._ended(job)
        if not state.busy:
            self._consider(partition, now_ns)
        return note

    def sweep(self, now_ns: int) -> None:
        """Looks for what there is to do."""
        for gone in [each for each in self._states if self._partitions.get(each.name) is not each]:
            if not self._states[gone].busy:
                del self._states[gone]
        for partition in self._partitions.values():
            if isinstance(partition, FilePartition) and len(partition.segments) > 1:
                self._consider(partition, now_ns)

    # --- what is to be done -------------------------------------------------------------------------------------------

    def _consider(self, partition: FilePartition, now_ns: int) -> None:
        state = self._states.get(partition)
        if state is None:
            state = self._states[partition] = State()
        if state.rest_until_ns - now_ns > REST_NS_MAX:
            state.rest_until_ns = 0  # the clock was set back
        if state.busy or now_ns < state.rest_until_ns or not partition.at_ease or len(partition.segments) < 2:
            return
        if not (self._compact(partition, state, now_ns) or self._holes(partition, state, now_ns)):
            self._compress(partition, state)

    def _sealed(
        self, partition: FilePartition, state: State, removing_at_ns: int | None
    ) -> list[tuple[SegmentInfo, int]]:
        """(segment, where the next begins) of those that may be rewritten; so that something goes, if it does now."""
        end = partition.high_watermark
        if removing_at_ns is not None:
            end = min(end, dedup_file.removable_to(partition, removing_at_ns))
            if partition.options.wait_for_archive:
                end = min(end, partition.archived_to)
        return [
            (segment, following.base_offset)
            for segment, following in pairwise(partition.segments)
            if following.base_offset <= end and segment.base_offset not in state.damaged
        ]

    def _add(self, job: CareJob, state: State) -> None:
        state.busy += 1
        self._ready.append(job)

    def _compress(self, partition: FilePartition, state: State) -> None:
        if partition.options.compress is None:
            return
        for segment, end in self._sealed(partition, state, None):
            if segment.base_offset not in state.compressed:
                self._add(SegmentJob(partition, segment, end), state)

    def _holes(self, partition: FilePartition, state: State, now_ns: int) -> bool:
        options, settled_in = partition.options, partition.settled_in
        if not options.reclaim_acked or partition.history or partition.retain_from is None or settled_in is None:
            return False
        jobs: list[SegmentJob] = []
        for segment, end in self._sealed(partition, state, now_ns):
            base = segment.base_offset
            settled = settled_in(base, end)
            left = end - base - sum(stop - start for start, stop in settled)
            before = state.left.get(base, end - base)
            if 2 * (left + 1) <= before:
                state.left[base] = left + 1
                jobs.append(SegmentJob(partition, segment, end, settled))
                if len(jobs) == HOLES_AT_ONCE_MAX:
                    break  # the others when these are done
        if jobs:
            state.busy += 1
            self._removals.append(SettledJob(partition, lambda done: self._settled(done, jobs, state)))
        return bool(jobs)

    def _settled(self, done: SettledJob, jobs: list[SegmentJob], state: State) -> None:
        """The acks are on disk, so what they settled may go; or they are not."""
        state.busy -= 1
        for job in jobs:
            if done.error is None:
                self._add(job, state)
            else:
                state.left.pop(job.info.base_offset, None)

    def _compact(self, partition: FilePartition, state: State, now_ns: int) -> bool:
        options = partition.options
        if options.compact_by is None or self.key_of is None or partition.retain_from is not None:
            return False
        if not partition.whole:
            return False  # a queue that is not known may have its messages here
        sealed = self._sealed(partition, state, now_ns)
        size = sum(segment.size_bytes for segment, _ in sealed)
        new = sum(segment.size_bytes for segment, end in sealed if end > state.compacted_to)
        if not sealed or not new or new * NEW_PART < size:
            return False
        if state.round is None:
            state.round = Round(self.key_of(options.compact_by), self.keys_max)
        state.round.begin(now_ns - self.tombstone_ns)
        self._add(ScanJob(partition, state.round, sealed, tombstones_go=not state.damaged), state)
        return True

    def _scanned(self, job: ScanJob, state: State) -> None:
        if job.damaged:
            job.round.tombstones_go = False
        for segment, end in job.worth_it():
            self._add(SegmentJob(job.partition, segment, end, compaction=job.round), state)
        job.round.end_offset = job.sealed[-1][1]

    # --- what came of it ----------------------------------------------------------------------------------------------

    def _count(self, job: SegmentJob, state: State) -> None:
        base = job.info.base_offset
        if job.swapped:
            self.counts["rewritten"] += 1
            self.counts["removed_records"] += job.removed
            self.counts["saved_bytes"] += job.saved_bytes
        if job.level and not job.stopped and job.error is None:
            state.compressed.add(base)
        if job.stopped or job.error is not None:
            state.left.pop(base, None)
        if job.compaction is not None and (job.damage or job.error is not None):
            job.compaction.tombstones_go = False  # what they replace may still be there

    def _ended(self, job: CareJob) -> None:
        state = self._states[job.partition]
        state.busy -= 1
        if state.busy or state.round is None:
            return
        if state.round.next_class():
            return  # the other keys have their turn in the next sweep
        state.compacted_to = state.round.end_offset
        state.round = None

    def _give_up(self, partition: FilePartition, state: State) -> None:
        """What else was planned for it: later."""
        for job in [each for each in self._ready if each.partition is partition]:
            self._ready.remove(job)
            state.busy -= 1
        state.left.clear()
        state.round = None
