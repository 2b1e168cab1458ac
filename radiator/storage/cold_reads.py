"""What is behind the tail of one partition, as the hub sees it: reads under way, what they brought, where they ended.

Several readers at one offset share a read. Its result joins the cold cache of the store, on this partition's shelf.

Knows: reads as jobs. Must not know: descriptors, threads, who waits. Owned by the hub.
Invariant: what a rewritten file has lost is not given from here, nor from a read that began before.
"""

from __future__ import annotations

from radiator.storage.batch import RecordBatch
from radiator.storage.reads import Hint, ReadableLog, ReadJob
from radiator.storage.tail import ColdCache, find_cold

HINTS_MAX = 1_024  # remembered file positions of readers that go on


class ColdReads:
    """See the top of the file."""

    __slots__ = ("_cache", "_cached", "hints", "pending")

    def __init__(self, cache: ColdCache) -> None:
        self._cache = cache
        self._cached: list[RecordBatch] = []
        self.hints: dict[int, Hint] = {}
        self.pending: dict[int, ReadJob] = {}

    def find(self, offset: int) -> RecordBatch | None:
        return find_cold(self._cached, offset) if self._cached else None

    def fetch(self, partition: ReadableLog, offset: int, bytes_max: int) -> ReadJob:
        """Whoever finds the job ``submitted`` only adds itself to its ``waiters``."""
        job = self.pending.get(offset)
        if job is None:
            job = ReadJob(partition, offset, bytes_max, self.hints.get(offset))
            if not job.finished:
                self.pending[offset] = job
        return job

    def fetched(self, job: ReadJob, log_start_offset: int) -> None:
        """A cold read came back."""
        self.pending.pop(job.offset, None)
        if job.result is not None and not job.outdated and job.result.base_offset >= log_start_offset:
            self._cache.add(self._cached, job.result)
        if job.next_hint is not None:
            if len(self.hints) >= HINTS_MAX:
                self.hints.clear()
            self.hints.pop(job.offset, None)
            self.hints[job.next_hint[0]] = job.next_hint[1]

    def removed(self, base_offset: int, end_offset: int) -> None:
        """Records are gone from this segment's file: what was read of it before is not what is there."""
        self._cache.drop(self._cached, base_offset, end_offset)
        for job in self.pending.values():
            job.was_rewritten(base_offset)
