"""Measure the lag of the event loop: how late a repeated timer fires.

A timer is late for as long as the event loop is busy with other callbacks. So its delay is the time that a client
waits until the event loop looks at its socket.
"""

from __future__ import annotations

from typing import Final

from radiator.clock import MonoNs
from radiator.histogram import Histogram


class LoopLag:
    """The delays of one timer.

    Args:
        histogram: Gets each delay.
        interval_ns: The interval of the timer.
        now_ns: The time at which the timer is started.
    """

    __slots__ = ("_due_ns", "_histogram", "_interval_ns")

    def __init__(self, histogram: Histogram, interval_ns: int, now_ns: MonoNs) -> None:
        self._histogram: Final = histogram
        self._interval_ns: Final = interval_ns
        self._due_ns = MonoNs(now_ns + interval_ns)

    def fired(self, now_ns: MonoNs) -> None:
        """Note that the timer fires. It is due again an interval after it was due, or after now if that is over."""
        due_ns = min(self._due_ns, now_ns)
        self._histogram.observe(now_ns - due_ns)
        next_ns = due_ns + self._interval_ns
        self._due_ns = MonoNs(next_ns if next_ns > now_ns else now_ns + self._interval_ns)
