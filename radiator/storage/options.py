"""What a rule decides about one partition, in storage's own words. Plain immutable data: any thread.

``SyncPolicy`` is the promise: when may a receipt go out, and when is the disk told to hurry.
"""

from __future__ import annotations

from dataclasses import dataclass

from radiator import limits


@dataclass(frozen=True, slots=True)
class SyncPolicy:
    """0 = always (receipt after fdatasync), None = never, else at most this long after the write."""

    interval_ns: int | None = 0

    @property
    def always(self) -> bool:
        return self.interval_ns == 0

    @property
    def never(self) -> bool:
        return self.interval_ns is None


@dataclass(frozen=True, slots=True)
class PartitionOptions:
    store: str = "file"  # or "memory"
    sync: SyncPolicy = SyncPolicy()
    segment_bytes: int = limits.SEGMENT_BYTES
    roll_at_seconds: int | None = None  # second of the UTC day
    retention_age_ns: int | None = None
    retention_bytes: int | None = None
    retention_count: int | None = None
    dedup_window_ns: int | None = limits.DEDUP_WINDOW_NS  # None: ids are not remembered
    dedup_count: int = limits.DEDUP_COUNT
    reclaim_acked: bool = True  # of a log that holds only queues: what all have settled goes
    retention_force: bool = False  # limits hold against cursors too
    wait_for_archive: bool = False
    compress: str | None = None  # "zstd"
    merge_commits: bool = True  # of sealed segments that are history: small batches become large ones
    compact_by: str | None = None  # what keys are: a word for the function that finds them
