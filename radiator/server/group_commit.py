"""Run a group of disk jobs, and decide on which thread and when.

The jobs of a group are written in order; a group commit is one entry of the journal and one sync. Jobs that need no
sync come first, and are reported before the sync, so a rule with ``fsync: never`` does not wait for the disk.

``InlineCommit`` decides whether the event loop runs a group itself. The hop to the disk thread and back is a sixth of
the time that a single synchronous producer waits (``docs/adr/0011-inline-sync-for-one.md``), but all other clients
would wait for the disk too. So it needs few sessions, a small group, an idle disk thread, and a disk that was fast
lately.

``CommitDelay`` decides whether the next group waits for more messages, as PostgreSQL's ``commit_delay`` does. Clients
send their next messages when receipts come. Those whose messages came during a group are in the group after it, so the
clients split into two halves that alternate, and each half pays for a group: two entries and two syncs instead of one.
So the next group waits until as much is pending as at the end of the last one. For clients that do not wait for
receipts this is only a delay: after a wait without effect, the next groups of few logs are not delayed. Groups of many
logs still are, because a second group costs more than a wait.

Must not know the contents of jobs. ``run_group`` runs on the thread that has the group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from radiator import clock
from radiator.storage.jobs import run

SESSIONS_MAX = 4  # so many may wait for each other's syncs
JOBS_MAX = 8  # in a small group
SLOW_NS = 2 * clock.NS_PER_MS  # after a slower sync the disk thread takes over for a while ...
SLOW_SHARED_NS = clock.NS_PER_MS // 2  # ... and after this one, with several sessions
DELAY_JOBS_MIN = 32  # a group of so many jobs always delays the next one
DELAY_MESSAGES_MIN = 16  # in a group of fewer jobs; with fewer messages a delay costs more than it saves
DELAY_NS_MIN = clock.NS_PER_MS  # a delay is as long as the last group took, at least this ...
DELAY_NS_MAX = 5 * clock.NS_PER_MS  # ... and at most this
DELAY_PAUSE = 32  # small groups without a delay after a delay without effect
SLOW_FOR = 50  # times the sync: the event loop spends at most a fiftieth of its time on slow syncs


def run_group(jobs: list[Any], report: Callable[[list[Any]], None]) -> list[Any]:
    """Run the jobs. Report those before the first that needs a sync as soon as they are done, and return the others."""
    place = next((place for place, job in enumerate(jobs) if job.needs_sync), len(jobs))
    early, others = jobs[:place], jobs[place:]
    if not others:
        return run(early)
    if early:
        report(run(early))
    return run(others)


class CommitDelay:
    """Decide whether the next group waits for more messages. Used on the event loop."""

    __slots__ = ("_begun_ns", "_is_large", "_pause", "_pending_bytes", "_until_ns", "_waiting")

    def __init__(self) -> None:
        self._begun_ns = 0
        self._is_large = False
        self._pause = 0  # small groups that are not followed by a delay
        self._pending_bytes = 0
        self._until_ns = 0  # the end of the delay
        self._waiting = False

    def started(self, jobs: list[Any], now_ns: clock.MonoNs) -> None:
        """Note that these jobs are submitted to the disk."""
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
        """Note that the group is done and its receipts are on their way.

        Args:
            pending_bytes: The bytes that were open or under way before that, including the group's.
            now_ns: The monotonic time.
        """
        if self._is_large:
            self._pending_bytes = pending_bytes
            self._until_ns = now_ns + min(max(now_ns - self._begun_ns, DELAY_NS_MIN), DELAY_NS_MAX)

    def wanted(self, pending_bytes: int, now_ns: clock.MonoNs) -> bool:
        """Return True if the next group should wait, with ``pending_bytes`` open now."""
        wanting = 0 < pending_bytes < self._pending_bytes
        waited, self._waiting = self._waiting, wanting and now_ns < self._until_ns
        if waited and wanting and not self._waiting:
            self._pause = DELAY_PAUSE
        return self._waiting


class InlineCommit:
    """Decide whether the event loop runs a group itself. Used on the event loop.

    Attributes:
        taken: The number of groups that it ran.
    """

    __slots__ = ("_not_before_ns", "_not_shared_before_ns", "taken")

    def __init__(self) -> None:
        self._not_before_ns = 0
        self._not_shared_before_ns = 0  # the same with several sessions
        self.taken = 0  # groups

    def allows(self, jobs: list[Any], sessions: int) -> bool:
        """Return True if the event loop may run these jobs now, with ``sessions`` connected."""
        if not 0 < sessions <= SESSIONS_MAX or len(jobs) > JOBS_MAX or not all(job.short for job in jobs):
            return False
        return clock.monotonic_ns() >= (self._not_before_ns if sessions == 1 else self._not_shared_before_ns)

    def run(self, jobs: list[Any]) -> list[Any]:
        """Run the jobs and return them."""
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
