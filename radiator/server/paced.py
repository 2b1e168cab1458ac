"""Run long work of the admin listener in slices, so that clients are served in between.

The work is a generator or a loop in the greenlet of a request. Between two slices the greenlet sleeps, so the event
loop looks at the sockets and runs its timers.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import gevent

from radiator import clock

SLICE_NS = clock.NS_PER_MS
PAUSE_SECONDS = 0.001  # a timer, so that sockets are polled; a pause of 0 would only run callbacks

Result = TypeVar("Result")


class Pace:
    """The slices of one piece of work."""

    __slots__ = ("_until_ns",)

    def __init__(self) -> None:
        self._until_ns = clock.monotonic_ns() + SLICE_NS

    def pause(self) -> None:
        """Sleep if the slice is over. The caller calls it about every tenth of a millisecond."""
        if clock.monotonic_ns() >= self._until_ns:
            gevent.sleep(PAUSE_SECONDS)
            self._until_ns = clock.monotonic_ns() + SLICE_NS

    def run(self, steps: Generator[Any, None, Result]) -> Result:
        """Run all steps, with pauses between them, and return the result of the generator."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            self.pause()
