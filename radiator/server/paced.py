"""Run long work of the admin listener in slices, so that clients are served in between.

The work is a generator or a loop in the greenlet of a request. Between two slices the greenlet sleeps, so the event
loop looks at the sockets and runs its timers. If the event loop is busy, a sleep takes long. The next slice is then
longer too, in proportion, so that the work also ends under load.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import gevent

from radiator import clock

SLICE_NS, SLICE_NS_MAX = clock.NS_PER_MS, 5 * clock.NS_PER_MS
PAUSE_SHARE = 4  # a slice takes a quarter of the pause before it
PAUSE_SECONDS = 0.001  # a timer, so that sockets are polled; a pause of 0 would only run callbacks

Result = TypeVar("Result")


class Pace:
    """The slices of one piece of work."""

    __slots__ = ("_until_ns",)

    def __init__(self) -> None:
        self._until_ns = clock.MonoNs(clock.monotonic_ns() + SLICE_NS)

    def pause(self) -> None:
        """Sleep if the slice is over. The caller calls it about every tenth of a millisecond."""
        begun_ns = clock.monotonic_ns()
        if begun_ns >= self._until_ns:
            gevent.sleep(PAUSE_SECONDS)
            ended_ns = clock.monotonic_ns()
            slice_ns = min(max((ended_ns - begun_ns) // PAUSE_SHARE, SLICE_NS), SLICE_NS_MAX)
            self._until_ns = clock.MonoNs(ended_ns + slice_ns)

    def run(self, steps: Generator[Any, None, Result]) -> Result:
        """Run all steps, with pauses between them, and return the result of the generator."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            self.pause()
