"""A log that lives in memory: the interface of a partition on disk, with nothing to wait for.

take() commits at once, so its jobs are finished when they are made. What is kept is bounded by the rule's retention, or
by MEMORY_PARTITION_BYTES_MAX; but nothing at or above ``retain_from`` is dropped: a log that is full of what somebody
still needs refuses appends instead. It ends with the process.

Owned by the hub.
"""

from __future__ import annotations

from radiator import limits
from radiator.errors import StorageError
from radiator.storage.batch import densify
from radiator.storage.files import FileSystem
from radiator.storage.jobs import DENSIFY_RECORDS_MIN, FinishedJob, Job
from radiator.storage.options import PartitionOptions
from radiator.storage.partition import IDLE, Agenda, Partition
from radiator.storage.reads import ReadJob
from radiator.storage.tail import Budget, Tail

NO_LIMIT = 1 << 62


class MemoryPartition(Partition):
    __slots__ = ("_retain_from", "bytes_max")

    def __init__(self, name: str, options: PartitionOptions, fs: FileSystem, agenda: Agenda) -> None:
        # The tail keeps its bytes, but does not evict: trim() knows what may go.
        self._retain_from: int | None = None
        super().__init__(name, options, fs, "", Tail(Budget(NO_LIMIT)), agenda)
        self.bytes_max = options.retention_bytes or limits.MEMORY_PARTITION_BYTES_MAX

    def set_options(self, options: PartitionOptions) -> None:
        self.options = options
        self.bytes_max = options.retention_bytes or limits.MEMORY_PARTITION_BYTES_MAX

    @property
    def retain_from(self) -> int | None:
        return self._retain_from

    @retain_from.setter
    def retain_from(self, offset: int | None) -> None:
        if offset != self._retain_from:
            self._retain_from = offset
            self.queue()  # what it held back may go

    @property
    def size_bytes(self) -> int:
        return self.tail.budget.bytes

    def check(self) -> None:
        super().check()
        if self.tail.budget.bytes > self.bytes_max:
            self.trim(self.last_receive_ns)
            if self.tail.budget.bytes > self.bytes_max:
                raise StorageError(
                    f"memory partition {self.name}: full ({self.bytes_max} bytes), all of it is still needed; "
                    "consume it, or give its rule `store: file` or a larger `retention: {size: ...}`"
                )

    def want_retention(self) -> None:
        self.queue()

    def take(self, now_ns: int) -> list[Job]:
        self.queued = False
        builders = self._closed if self.open_batch is IDLE else [*self._closed, self.open_batch]
        self.open_batch, self._closed = IDLE, []
        jobs: list[Job] = []
        for builder in builders:
            job = FinishedJob(self)
            job.batch = batch = builder.finish()
            job.waiters = builder.waiters
            if len(batch) >= DENSIFY_RECORDS_MIN:
                densify(batch)
            self.destinations.update(batch.names)
            self.tail.add(batch)
            self.high_watermark = batch.next_offset
            jobs.append(job)
        self.trim(now_ns)
        return jobs

    def trim(self, now_ns: int) -> None:
        """Drops what retention no longer keeps: by count to the record, else by whole batches."""
        tail, options = self.tail, self.options
        tail.budget.order.clear()
        floor = self.high_watermark if self.retain_from is None else min(self.retain_from, self.high_watermark)
        if options.retention_count is not None:
            self.drop_before(min(floor, self.high_watermark - options.retention_count))
        batch = tail.oldest()
        while batch is not None and batch.next_offset <= floor:
            too_old = options.retention_age_ns is not None and batch.receive_ns[-1] < now_ns - options.retention_age_ns
            if not too_old and tail.budget.bytes <= self.bytes_max:
                break
            self.drop_before(batch.next_offset)
            batch = tail.oldest()
        if batch is not None and options.retention_age_ns is not None:
            deadline_ns = batch.receive_ns[-1] + options.retention_age_ns + 1
            if deadline_ns > now_ns:  # else only ``retain_from`` keeps it, and that tells when it moves
                self._agenda.wake(self, deadline_ns)

    def tick(self, now_ns: int) -> None:
        self.trim(now_ns)

    def fetch(self, offset: int, bytes_max: int = limits.READ_CHUNK_BYTES) -> ReadJob:
        """Finished when made: what is not in memory is nowhere."""
        job = ReadJob(self, min(max(offset, 0), self.high_watermark), bytes_max, None)
        job.offset = offset
        job.finished = True
        return job

    def fetched(self, job: ReadJob) -> None:
        pass
