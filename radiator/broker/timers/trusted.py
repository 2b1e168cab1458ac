"""The trusted wall time, which decides about expiry and retention by age.

A forward step of the wall clock makes every message older at once. If the step was a mistake, expiry and retention by
age would delete messages too early. The broker therefore does not follow a forward step until the step is confirmed: by
an operator, or by time, because a wrong clock is usually corrected soon. Until then the trusted time advances with the
monotonic clock. A backward step is followed at once, because no message gets older.

Receive times are trusted times, so a short forward step stores none in the future. See ``docs/adr/0030-two-clocks.md``.
"""

from __future__ import annotations

import logging
from typing import Final

from radiator import limits
from radiator.clock import NS_PER_SECOND, MonoNs, Now, WallNs

log = logging.getLogger("radiator.broker")

STEP_NS: Final = NS_PER_SECOND  # the normal drift between two calls is far smaller
HOLD_NS_MAX: Final = int(limits.CLOCK_HOLD_SECONDS_MAX * NS_PER_SECOND)


class TrustedClock:
    """The trusted wall clock of one broker.

    Attributes:
        ahead_ns: How far the wall clock is ahead of the trusted time, in nanoseconds; 0 if the wall clock is trusted.
    """

    __slots__ = ("_offset_ns", "_until_ns", "ahead_ns")

    def __init__(self) -> None:
        self._offset_ns: int | None = None  # trusted wall time minus monotonic time
        self._until_ns = MonoNs(0)  # when the step is confirmed by time
        self.ahead_ns = 0

    def see(self, now: Now) -> Now:
        """Return the present time with the trusted wall time.

        Args:
            now: Both clocks.

        Returns:
            The trusted wall time, and the same monotonic time.
        """
        offset_ns = now.wall - now.mono
        if self._offset_ns is None:
            self._offset_ns = offset_ns
        ahead_ns = offset_ns - self._offset_ns
        if ahead_ns <= STEP_NS:
            if self.ahead_ns:
                log.warning(
                    "clock: the step forward was reversed before it was confirmed; expiry and retention continue"
                )
                self.ahead_ns = 0
            self._offset_ns = offset_ns
            return now
        if abs(ahead_ns - self.ahead_ns) > STEP_NS:
            hold_ns = min(ahead_ns, HOLD_NS_MAX)
            self._until_ns = MonoNs(now.mono + hold_ns)
            log.error(
                "clock: the wall clock has stepped forward by %d s. Expiry and retention by age ignore the step "
                "until it is confirmed: in %d s, or by `radiator clock --accept`. If the clock is wrong, "
                "correct it",
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
        """Trust the wall clock as it is now, because an operator has confirmed the step.

        Returns:
            How far the wall clock was ahead, in nanoseconds; 0 if it was trusted already.
        """
        ahead_ns, self.ahead_ns = self.ahead_ns, 0
        if ahead_ns:
            assert self._offset_ns is not None
            self._offset_ns += ahead_ns
            log.warning("clock: the step forward of %d s is confirmed by an operator", round(ahead_ns / NS_PER_SECOND))
        return ahead_ns

    @property
    def ahead_seconds(self) -> int:
        """``ahead_ns`` in seconds, rounded."""
        return round(self.ahead_ns / NS_PER_SECOND)

    def confirmed_in_ns(self, now_ns: MonoNs) -> int:
        """Return the time until a step is confirmed, in nanoseconds; 0 without a step."""
        return max(0, self._until_ns - now_ns) if self.ahead_ns else 0
