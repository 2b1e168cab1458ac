"""The wall time that decides whether something is too old to be kept.

A wall clock that steps forward makes every message older at once. If the step was a mistake, expiry and retention by
age would destroy what they should have kept. So the core does not follow a step forward until it is confirmed: by an
operator, or by time, as a wrong clock is usually put right soon. Until then the trusted time goes on with the
monotonic clock from where it was. A step back is followed at once: it makes nothing older.

Receive times are trusted times, so a short wrong moment leaves none in the future. See ``docs/adr/0030-two-clocks.md``.

Knows: moments. Must not know: what they are used for.
"""

from __future__ import annotations

import logging
from typing import Final

from radiator import limits
from radiator.clock import NS_PER_SECOND, MonoNs, Now, WallNs

log = logging.getLogger("radiator.broker")

STEP_NS: Final = NS_PER_SECOND  # what the two clocks drift apart between two looks is far less
HOLD_NS_MAX: Final = int(limits.CLOCK_HOLD_SECONDS_MAX * NS_PER_SECOND)


class TrustedClock:
    """The trusted wall clock of one broker.

    Attributes:
        ahead_ns: How far the wall clock is ahead of the trusted time, in nanoseconds; 0 if it is trusted.
    """

    __slots__ = ("_offset_ns", "_until_ns", "ahead_ns")

    def __init__(self) -> None:
        self._offset_ns: int | None = None  # of the trusted wall clock, from the monotonic clock
        self._until_ns = MonoNs(0)  # then the step is confirmed by time
        self.ahead_ns = 0

    def see(self, now: Now) -> Now:
        """Take note of both clocks.

        Args:
            now: What the clocks show.

        Returns:
            The trusted wall time, with the same monotonic time.
        """
        offset_ns = now.wall - now.mono
        if self._offset_ns is None:
            self._offset_ns = offset_ns
        ahead_ns = offset_ns - self._offset_ns
        if ahead_ns <= STEP_NS:
            if self.ahead_ns:
                log.warning(
                    "clock: the step forward was taken back before it was confirmed; expiry and retention go on"
                )
                self.ahead_ns = 0
            self._offset_ns = offset_ns
            return now
        if abs(ahead_ns - self.ahead_ns) > STEP_NS:
            hold_ns = min(ahead_ns, HOLD_NS_MAX)
            self._until_ns = MonoNs(now.mono + hold_ns)
            log.error(
                "clock: the wall clock has stepped forward by %d s. Nothing expires or is removed by age because of "
                "that until the step is confirmed: in %d s, or by `radiator clock --accept`. If the clock is wrong, "
                "put it right",
                round(ahead_ns / NS_PER_SECOND),
                round(hold_ns / NS_PER_SECOND),
            )
        self.ahead_ns = ahead_ns
        if now.mono >= self._until_ns:
            log.warning("clock: the step forward of %d s is confirmed by time", round(ahead_ns / NS_PER_SECOND))
            self._offset_ns, self.ahead_ns = offset_ns, 0
            return now
        return Now(WallNs(now.mono + self._offset_ns), now.mono)

    def accept(self) -> int:
        """Trust the wall clock as it is now: an operator has confirmed the step.

        Returns:
            How far it was ahead, in nanoseconds; 0 if it was trusted already.
        """
        ahead_ns, self.ahead_ns = self.ahead_ns, 0
        if ahead_ns:
            assert self._offset_ns is not None
            self._offset_ns += ahead_ns
            log.warning("clock: the step forward of %d s is confirmed by an operator", round(ahead_ns / NS_PER_SECOND))
        return ahead_ns

    @property
    def ahead_seconds(self) -> int:
        """``ahead_ns``, for people."""
        return round(self.ahead_ns / NS_PER_SECOND)

    def confirmed_in_ns(self, now_ns: MonoNs) -> int:
        """How long until a step is confirmed by time, in nanoseconds."""
        return max(0, self._until_ns - now_ns) if self.ahead_ns else 0
