"""How background work makes way: a short slice, then rest for a few times as long.

Python's lock is shared: while the caretaker's thread computes, the loop waits for it whenever it comes back from a
system call. So the thread asks between its steps, and sleeps when a slice is over. And while it has a job the lock is
asked back after half a millisecond instead of Python's five, so that a long step does not stall the loop either.

Maintenance thread only, but for ``stopping``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

SLICE_NS = 500_000
REST = 4  # times the slice: background work takes a fifth of a core at most
REST_SECONDS_MAX = 0.2
SWITCH_SECONDS = 0.0005


class Pace:
    """Called between two steps; False: stop where you are."""

    def __init__(
        self, now_ns: Callable[[], int] = time.perf_counter_ns, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.stopping = False
        self._now_ns = now_ns
        self._sleep = sleep
        self._since_ns = 0

    def __call__(self) -> bool:
        worked_ns = self._now_ns() - self._since_ns
        if worked_ns >= SLICE_NS and not self.stopping:
            self._sleep(min(worked_ns * REST / 1e9, REST_SECONDS_MAX) if self._since_ns else 0.0)
            self._since_ns = self._now_ns()
        return not self.stopping


def run_care(job: Any, pace: Pace) -> Any:
    """On the caretaker's thread."""
    usual_seconds = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        job.run(pace)
    finally:
        sys.setswitchinterval(usual_seconds)
    return job
