"""How one group of disk jobs is done: where, and in which order.

Everything is written, then one sync per file covers what was written before it. Jobs of partitions that ask for no sync
in this group are told before the syncs: a rule with ``fsync: never`` does not wait for the disk of the others.

``Shortcut`` decides whether the loop does a group itself. The hop to the disk thread and back is a sixth of what a lone
synchronous producer waits for (``docs/adr/0011-inline-sync-for-one.md``), but whoever else is connected would wait for
the disk as well. So: one session, a small group, a thread with nothing to do, a disk that was quick when last asked.

Knows: jobs by what storage says of them. Must not know: what is in them. ``run_jobs`` and ``sync_jobs`` run on the
thread that has the group.
"""

from __future__ import annotations

from typing import Any

from radiator import clock

SLOW_NS = 2 * clock.NS_PER_MS  # a disk that took longer than this is left to its thread for a while
SLOW_FOR_NS = clock.NS_PER_SECOND


def run_jobs(jobs: list[Any]) -> list[Any]:
    """All of it."""
    for job in jobs:
        job.write()
    return sync_jobs(jobs)


def sync_jobs(jobs: list[Any]) -> list[Any]:
    for job in jobs:
        if job.needs_sync and job.error is None:
            job.sync()
    return jobs


def split(jobs: list[Any]) -> tuple[list[Any], list[Any]]:
    """Those that can be told before the syncs of this group, and the others. A partition's jobs stay together, in
    order; a group with a transaction over several files is not split."""
    if any(job.indivisible for job in jobs):
        return [], jobs
    syncing = {job.partition for job in jobs if job.needs_sync}
    if not syncing:
        return [], jobs
    early = [job for job in jobs if job.partition not in syncing]
    return (early, [job for job in jobs if job.partition in syncing]) if early else ([], jobs)


class Shortcut:
    """Whether the loop may do a group itself. Of the loop."""

    __slots__ = ("_not_before_ns", "taken")

    def __init__(self) -> None:
        self._not_before_ns = 0
        self.taken = 0  # groups, for metrics

    def allows(self, jobs: list[Any], sessions: int) -> bool:
        return sessions == 1 and all(job.short for job in jobs) and clock.monotonic_ns() >= self._not_before_ns

    def run(self, jobs: list[Any]) -> list[Any]:
        started_ns = clock.monotonic_ns()
        run_jobs(jobs)
        ended_ns = clock.monotonic_ns()
        if ended_ns - started_ns > SLOW_NS:
            self._not_before_ns = ended_ns + SLOW_FOR_NS
        self.taken += 1
        return jobs
