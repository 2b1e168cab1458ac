"""Cold reads of one partition: the reads in progress, their results, and the file positions where they ended.

Readers at the same offset share one read. Its result goes to the cold cache of the store.

This module knows reads as jobs. It does not know descriptors, threads or readers. The event loop owns it. Invariant:
records that a rewrite has removed are not returned from here, nor by a read that began before the rewrite.
"""

from __future__ import annotations

from radiator.storage.batch import RecordBatch
from radiator.storage.reads import Hint, ReadableLog, ReadJob
from radiator.storage.tail import ColdCache, find_cold

HINTS_MAX = 1_024  # remembered file positions, for readers that continue


class ColdReads:
    """Cold reads and cached results of one partition."""

    __slots__ = ("_cache", "_cached", "hints", "pending")

    def __init__(self, cache: ColdCache) -> None:
        self._cache = cache
        self._cached: list[RecordBatch] = []
        self.hints: dict[int, Hint] = {}
        self.pending: dict[int, ReadJob] = {}

    def find(self, offset: int) -> RecordBatch | None:
        """Return the cached batch that contains ``offset``, or None."""
        return find_cold(self._cached, offset) if self._cached else None

    def fetch(self, partition: ReadableLog, offset: int, bytes_max: int) -> ReadJob:
        """Return the job that reads from ``offset`` on: a new one, or the one in progress."""
        job = self.pending.get(offset)
        if job is None:
            job = ReadJob(partition, offset, bytes_max, self.hints.get(offset))
            if not job.finished:
                self.pending[offset] = job
        return job

    def fetched(self, job: ReadJob, log_start_offset: int) -> None:
        """Add the result of a finished read to the cache."""
        self.pending.pop(job.offset, None)
        if job.result is not None and not job.outdated and job.result.base_offset >= log_start_offset:
            self._cache.add(self._cached, job.result)
        if job.next_hint is not None:
            if len(self.hints) >= HINTS_MAX:
                self.hints.clear()
            self.hints.pop(job.offset, None)
            self.hints[job.next_hint[0]] = job.next_hint[1]

    def removed(self, base_offset: int, end_offset: int) -> None:
        """Drop what was read of a segment before records were removed from its file."""
        self._cache.drop(self._cached, base_offset, end_offset)
        for job in self.pending.values():
            job.was_rewritten(base_offset)
