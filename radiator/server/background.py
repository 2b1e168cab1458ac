"""Throttle background work: after a short slice of work the thread sleeps for several times as long.

The maintenance thread and the event loop share Python's lock. While the thread computes, the event loop waits whenever
it returns from a system call. So the thread calls ``BackgroundThrottle`` between its steps and sleeps when a slice is
over. During a job Python switches threads after 0.5 ms instead of 5 ms, so that a long step does not stall the event
loop.

Only the maintenance thread uses this, except for ``stop``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

SLICE_NS = 500_000
REST_FACTOR = 4  # times the slice: background work takes a fifth of a core at most
REST_SECONDS_MAX = 0.2
SWITCH_SECONDS = 0.0005


class BackgroundThrottle:
    """Limit the share of time that a job takes. Called between two steps of the job."""

    def __init__(
        self, now_ns: Callable[[], int] = time.perf_counter_ns, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.stopping = False
        self._now_ns = now_ns
        self._sleep = sleep
        self._since_ns = 0

    def stop(self) -> None:
        """Ask the job under way to end at its next step."""
        self.stopping = True

    def __call__(self) -> bool:
        """Sleep if the slice is over. Return False if the job should end."""
        worked_ns = self._now_ns() - self._since_ns
        if worked_ns >= SLICE_NS and not self.stopping:
            self._sleep(min(worked_ns * REST_FACTOR / 1e9, REST_SECONDS_MAX) if self._since_ns else 0.0)
            self._since_ns = self._now_ns()
        return not self.stopping


def run_maintenance(job: Any, throttle: BackgroundThrottle) -> Any:
    """Run a job of the maintenance thread and return it."""
    usual_seconds = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        job.run(throttle)
    finally:
        sys.setswitchinterval(usual_seconds)
    return job
