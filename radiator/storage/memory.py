"""A log in memory, with the interface of a partition on disk and nothing to wait for. It ends with the process.

take() commits at once, so its jobs are finished when they are made. Records are dropped as follows:

    settled     what is below ``retain_from`` as soon as that moves (but not if the log keeps ``history``)
    retention   by the rule's age and count; by its size, or MEMORY_PARTITION_BYTES_MAX
    budget      all memory partitions of a store together, within limits.memory: the oldest batch first, in any
                partition

Nothing at or above ``retain_from`` is ever dropped: if everything is still needed, appends are refused. Only messages
that tell an operator the reason may exceed the budget (``append_past_budget``), never the partition's own limit.

The event loop owns it.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from itertools import count

from radiator import limits
from radiator.clock import Now, WallNs
from radiator.config import Settings
from radiator.errors import MemoryFull
from radiator.memory import MemoryShare
from radiator.storage.batch import densify
from radiator.storage.files import FileSystem
from radiator.storage.jobs import DENSIFY_RECORDS_MIN, FinishedJob, Job
from radiator.storage.partition import IDLE, Agenda, Partition
from radiator.storage.reads import ReadJob
from radiator.storage.tail import Budget, Tail


class MemoryBudget(Budget):
    """The bytes of all memory partitions of a store, and which of them may have something to drop.

    Args:
        share: The share of ``limits.memory`` that these bytes are counted in.
    """

    __slots__ = ("_givers", "_numbers", "share")

    def __init__(self, share: MemoryShare) -> None:
        super().__init__(share.bytes_max)
        self.share = share
        self._givers: list[tuple[int, int, MemoryPartition]] = []  # a heap by the age of the oldest batch, or less
        self._numbers = count()  # of offers

    def added(self, tail: Tail, end: int, cost: int) -> None:
        """Count a batch."""
        self.resize(cost)

    def resize(self, cost: int) -> None:
        """Count ``cost`` more bytes, or fewer if it is negative."""
        self.bytes += cost
        self.share.add(cost)

    def offer(self, partition: MemoryPartition) -> None:
        """Note that a partition may have batches that no cursor needs."""
        since_ns = partition.spare_since_ns
        if since_ns is not None and not partition.offered:
            partition.offered = True
            heappush(self._givers, (since_ns, next(self._numbers), partition))

    def evict(self) -> None:
        """Drop the oldest unneeded batches while the share is full."""
        givers = self._givers
        while self.share.full and givers:
            since_ns, number, partition = givers[0]
            spare_since_ns = partition.spare_since_ns
            if spare_since_ns is None:
                partition.offered = False
                heappop(givers)
            elif spare_since_ns != since_ns:
                heapreplace(givers, (spare_since_ns, number, partition))
            else:
                partition.drop_oldest()


class MemoryPartition(Partition):
    """A log in memory. Its tail is the whole log, and is not evicted by itself."""

    __slots__ = ("_gone", "_past_budget", "_retain_from", "budget", "bytes_max", "offered")

    def __init__(self, name: str, settings: Settings, fs: FileSystem, budget: MemoryBudget, agenda: Agenda) -> None:
        self._gone = False
        self._past_budget = False
        self._retain_from: int | None = None
        self.budget = budget
        self.offered = False  # to the budget
        super().__init__(name, settings, fs, "", Tail(budget), agenda)
        self.bytes_max = settings.retention_bytes or limits.MEMORY_PARTITION_BYTES_MAX

    def configure(self, settings: Settings) -> None:
        """Set the settings of the rule."""
        self.settings = settings
        self.bytes_max = settings.retention_bytes or limits.MEMORY_PARTITION_BYTES_MAX
        if settings.dedup_window_ns is None:
            self.dedup = None
        elif self.dedup is not None:
            self.dedup.set_limits(settings.dedup_window_ns, settings.dedup_count)
        self.want_retention()

    @property
    def retain_from(self) -> int | None:
        """The lowest offset that a cursor needs; None: no cursor needs anything."""
        return self._retain_from

    @retain_from.setter
    def retain_from(self, offset: int | None) -> None:
        if offset == self._retain_from:
            return
        self._retain_from = offset
        if offset is not None and not self.history:
            self.drop_before(min(offset, self.high_watermark))
        else:
            self.queue()  # messages it retained may go, if retention allows
            self.budget.offer(self)

    @property
    def size_bytes(self) -> int:
        """The memory that committed records take."""
        return self.tail.bytes

    def discard(self) -> None:
        """Drop all records, which are not read again; open batches are still committed for their receipts."""
        self._gone = True
        self.tail.drop_below(self.next_offset)

    def check(self) -> None:
        """Raise StorageError if appends are refused now."""
        super().check()
        if self.tail.bytes > self.bytes_max:
            self.trim(self.last_receive_ns)
            if self.tail.bytes > self.bytes_max:
                raise MemoryFull(
                    f"memory partition {self.name}: full ({self.bytes_max} bytes) of messages that are not settled; "
                    "consume them, or give its rule `store: file` or a larger `retention: {size: ...}`",
                    everywhere=False,
                )
        share = self.budget.share
        if share.account.bytes > share.together_bytes_max:  # ``share.full``, without a call for each message
            self.budget.evict()
            if share.full and not self._past_budget:
                raise MemoryFull(
                    f"memory partition {self.name}: all memory partitions together are full of messages that are not "
                    f"settled: {share.usage()}; consume them, or set `store: file`",
                    everywhere=True,
                )

    @property
    def held_bytes(self) -> int:
        """The bytes of all records, committed or not."""
        return self.tail.bytes + sum(each.size_bytes for each in (*self._closed, self.open_batch))

    def append_past_budget(self, destination: str, block: bytes, body: bytes, receive_ns: WallNs) -> int:
        """Append a record, also while all memory partitions together are full. The caller must do this rarely.

        Raises:
            StorageError: This partition is full.
        """
        self._past_budget = True
        try:
            return self.append(destination, block, body, receive_ns)
        finally:
            self._past_budget = False

    def want_retention(self) -> None:
        """Check retention with the next take()."""
        self.queue()

    def take(self, now: Now, may_roll: bool = True) -> list[Job]:
        """Commit what was appended, and return it as finished jobs."""
        self.queued = False
        builders = self._closed if self.open_batch is IDLE else [*self._closed, self.open_batch]
        self.open_batch, self._closed = IDLE, []
        jobs: list[Job] = []
        for builder in builders:
            batch = builder.finish()
            job = FinishedJob(self, batch, builder)
            if len(batch) >= DENSIFY_RECORDS_MIN:
                densify(batch)
            self.destinations.update(dict.fromkeys(batch.names))
            self.tail.add(batch)
            self.high_watermark = batch.next_offset
            jobs.append(job)
        self.trim(now.wall)
        self.budget.offer(self)
        self.budget.evict()
        return jobs

    @property
    def floor(self) -> int:
        """The offset below which no cursor needs anything."""
        return self.high_watermark if self._retain_from is None else min(self._retain_from, self.high_watermark)

    @property
    def spare_since_ns(self) -> int | None:
        """The time of the oldest batch, if no cursor needs it; None otherwise."""
        batch = self.tail.oldest()
        return None if batch is None or batch.next_offset > self.floor else batch.receive_ns[-1]

    def drop_oldest(self) -> None:
        """Drop the oldest batch."""
        batch = self.tail.oldest()
        if batch is not None:
            self.drop_before(batch.next_offset)

    def trim(self, now_ns: WallNs) -> None:
        """Drop what retention does not keep: exactly by count, otherwise by whole batches."""
        tail, settings = self.tail, self.settings
        age_ns = settings.retention_age_ns
        if self._gone:
            tail.drop_below(self.high_watermark)
            return
        floor = self.floor
        if self._retain_from is not None and not self.history:
            self.drop_before(floor)
        if settings.retention_count is not None:
            self.drop_before(min(floor, self.high_watermark - settings.retention_count))
        batch = tail.oldest()
        while batch is not None and batch.next_offset <= floor:
            too_old = age_ns is not None and batch.receive_ns[-1] < now_ns - age_ns
            if not too_old and tail.bytes <= self.bytes_max:
                break
            self.drop_before(batch.next_offset)
            batch = tail.oldest()
        if batch is not None and age_ns is not None:
            deadline_ns = WallNs(batch.receive_ns[-1] + age_ns + 1)
            if deadline_ns > now_ns:  # else only ``retain_from`` retains it, and reports when it moves
                self._agenda.wake_at_wall(self, deadline_ns)

    def tick(self, now: Now) -> None:
        """Apply retention."""
        self.trim(now.wall)

    def fetch(self, offset: int, bytes_max: int = limits.READ_CHUNK_BYTES) -> ReadJob:
        """Return a finished job: a record that is not in memory does not exist."""
        return ReadJob(self, offset, bytes_max, None)

    def fetched(self, job: ReadJob) -> None:
        """Do nothing."""
