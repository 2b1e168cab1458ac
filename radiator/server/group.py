"""How one group of disk jobs is done: where, and in which order.

Everything is written, in order; a group commit is one entry of the journal, and one sync. What need not be synced
stands first in its group, and is told before the sync: a rule with ``fsync: never`` does not wait for the disk.

``Shortcut`` decides whether the loop does a group itself. The hop to the disk thread and back is a sixth of what a lone
synchronous producer waits for (``docs/adr/0011-inline-sync-for-one.md``), but whoever else is connected would wait for
the disk as well. So: one session, a small group, a thread with nothing to do, a disk that was quick when last asked.

``Gathering`` decides whether the next group waits for more messages. A group costs so much for each log that it has
something of, however little that is. Whoever sends on when a receipt comes would be in every other group only, and each
of these would have something of all logs. So the next group waits until as much has come as the last one took away.

Knows: jobs by what storage says of them. Must not know: what is in them. ``run_group`` runs on the thread that has the
group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from radiator import clock
from radiator.storage.jobs import run

SLOW_NS = 2 * clock.NS_PER_MS  # a disk that took longer than this is left to its thread for a while
GATHER_JOBS_MIN = 32  # about as many logs: with fewer their cost is no more than that of the messages
GATHER_NS_MAX = 5 * clock.NS_PER_MS  # the next group waits as long as the last one took, but no longer than this
SLOW_FOR = 50  # times what it took: the loop waits for slow syncs a fiftieth of its time at most


def run_group(jobs: list[Any], tell: Callable[[list[Any]], None]) -> list[Any]:
    """Do the jobs. Those that are done before the first that needs a sync are told at once; returns the others."""
    place = next((place for place, job in enumerate(jobs) if job.needs_sync), len(jobs))
    early, others = jobs[:place], jobs[place:]
    if not others:
        return run(early)
    if early:
        tell(run(early))
    return run(others)


class Gathering:
    """Whether the next group waits for more messages. Of the loop."""

    __slots__ = ("_begun_ns", "_is_large", "_pending_bytes", "_until_ns")

    def __init__(self) -> None:
        self._begun_ns = 0
        self._is_large = False
        self._pending_bytes = 0
        self._until_ns = 0  # the next group waits no longer than that

    def begins(self, jobs: list[Any], now_ns: clock.MonoNs) -> None:
        """These jobs go to the disk."""
        self._is_large = len(jobs) >= GATHER_JOBS_MIN
        self._begun_ns = now_ns

    def ended(self, pending_bytes: int, now_ns: clock.MonoNs) -> None:
        """They are done, and their receipts are on their way; ``pending_bytes``: of what was open and under way before
        that, theirs included."""
        if self._is_large:
            self._pending_bytes = pending_bytes
            self._until_ns = now_ns + min(now_ns - self._begun_ns, GATHER_NS_MAX)

    def waits(self, pending_bytes: int, now_ns: clock.MonoNs) -> bool:
        """Return whether to wait, with ``pending_bytes`` open now."""
        return now_ns < self._until_ns and 0 < pending_bytes < self._pending_bytes


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
        run(jobs)
        ended_ns = clock.monotonic_ns()
        if ended_ns - started_ns > SLOW_NS:
            self._not_before_ns = ended_ns + SLOW_FOR * (ended_ns - started_ns)
        self.taken += 1
        return jobs
