"""How one group of disk jobs is done: where, and in which order.

Everything is written, in order; a group commit is one entry of the journal, and one sync. What need not be synced
stands first in its group, and is told before the sync: a rule with ``fsync: never`` does not wait for the disk.

``InlineCommit`` decides whether the loop does a group itself. The hop to the disk thread and back is a sixth of what
a lone synchronous producer waits for (``docs/adr/0011-inline-sync-for-one.md``), but whoever else is connected waits
for the disk as well. So: few sessions, a small group, a thread with nothing to do, a disk that was quick lately.

``CommitDelay`` decides whether the next group waits for more messages. Clients send their next messages when receipts
come. Those whose messages came while a group was under way are in the group after it, so the clients fall into two
halves that take turns, and each half pays for a group: two entries and two syncs instead of one, and all logs twice. So
the next group waits until as much has come as was pending when the last one ended. Clients that do not wait for
receipts would only be delayed by that: after a wait in vain groups of few logs are not followed by a wait for a while.
Groups of many logs are: for them another half costs more than a wait.

Knows: jobs by what storage says of them. Must not know: what is in them. ``run_group`` runs on the thread that has the
group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from radiator import clock
from radiator.storage.jobs import run

SESSIONS_MAX = 4  # that may wait for each other's syncs
JOBS_MAX = 8  # of a small group
SLOW_NS = 2 * clock.NS_PER_MS  # a disk that took longer than this is left to its thread for a while ...
SLOW_SHARED_NS = clock.NS_PER_MS // 2  # ... and this, if several sessions are there
DELAY_JOBS_MIN = 32  # in a group, for the next one to wait in any case: about as many logs
DELAY_MESSAGES_MIN = 16  # in a group of fewer logs: with fewer messages a wait costs more time than it saves
DELAY_NS_MIN = clock.NS_PER_MS  # the next group waits as long as the last one took, and this long in any case ...
DELAY_NS_MAX = 5 * clock.NS_PER_MS  # ... but no longer than this
DELAY_PAUSE = 32  # groups of few logs without a wait behind them, after one that was in vain
SLOW_FOR = 50  # times what it took: the loop waits for slow syncs a fiftieth of its time at most


def run_group(jobs: list[Any], report: Callable[[list[Any]], None]) -> list[Any]:
    """Do the jobs. Those that are done before the first that needs a sync are told at once; returns the others."""
    place = next((place for place, job in enumerate(jobs) if job.needs_sync), len(jobs))
    early, others = jobs[:place], jobs[place:]
    if not others:
        return run(early)
    if early:
        report(run(early))
    return run(others)


class CommitDelay:
    """Whether the next group waits for more messages. Of the loop."""

    __slots__ = ("_begun_ns", "_is_large", "_pause", "_pending_bytes", "_until_ns", "_waiting")

    def __init__(self) -> None:
        self._begun_ns = 0
        self._is_large = False
        self._pause = 0  # so many groups of few logs are not followed by a wait
        self._pending_bytes = 0
        self._until_ns = 0  # the next group waits no longer than that
        self._waiting = False

    def started(self, jobs: list[Any], now_ns: clock.MonoNs) -> None:
        """These jobs go to the disk."""
        if len(jobs) >= DELAY_JOBS_MIN:
            self._is_large = True
        elif self._pause:
            self._pause -= 1
            self._is_large = False
        else:
            messages = sum(len(job.batch) for job in jobs if job.batch is not None)
            self._is_large = messages >= DELAY_MESSAGES_MIN
        self._begun_ns = now_ns

    def finished(self, pending_bytes: int, now_ns: clock.MonoNs) -> None:
        """They are done, and their receipts are on their way; ``pending_bytes``: of what was open and under way before
        that, theirs included."""
        if self._is_large:
            self._pending_bytes = pending_bytes
            self._until_ns = now_ns + min(max(now_ns - self._begun_ns, DELAY_NS_MIN), DELAY_NS_MAX)

    def wanted(self, pending_bytes: int, now_ns: clock.MonoNs) -> bool:
        """Return whether to wait, with ``pending_bytes`` open now."""
        wanting = 0 < pending_bytes < self._pending_bytes
        waited, self._waiting = self._waiting, wanting and now_ns < self._until_ns
        if waited and wanting and not self._waiting:
            self._pause = DELAY_PAUSE
        return self._waiting


class InlineCommit:
    """Whether the loop may do a group itself. Of the loop."""

    __slots__ = ("_not_before_ns", "_not_shared_before_ns", "taken")

    def __init__(self) -> None:
        self._not_before_ns = 0
        self._not_shared_before_ns = 0  # the same, where others are connected
        self.taken = 0  # groups, for metrics

    def allows(self, jobs: list[Any], sessions: int) -> bool:
        """Return whether to do these jobs at once, with so many sessions connected."""
        if not 0 < sessions <= SESSIONS_MAX or len(jobs) > JOBS_MAX or not all(job.short for job in jobs):
            return False
        return clock.monotonic_ns() >= (self._not_before_ns if sessions == 1 else self._not_shared_before_ns)

    def run(self, jobs: list[Any]) -> list[Any]:
        """Do these jobs. Returns them."""
        started_ns = clock.monotonic_ns()
        run(jobs)
        ended_ns = clock.monotonic_ns()
        took_ns = ended_ns - started_ns
        if took_ns > SLOW_SHARED_NS:
            self._not_shared_before_ns = ended_ns + SLOW_FOR * took_ns
        if took_ns > SLOW_NS:
            self._not_before_ns = ended_ns + SLOW_FOR * took_ns
        self.taken += 1
        return jobs
