"""The last hour of the broker in numbers: a sample every ten seconds, in a bounded ring.

A sample has counters since the start and current values. ``series`` returns rates per second of the counters and the
current values as they are. The time between two samples is taken from the monotonic clock, so a step of the wall clock
changes no rate. A sample that was missed is None in every series.

The module knows numbers and times. It does not know what is counted, and reads no clock.
Invariant: at most ``SAMPLES_MAX`` samples.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Final, NamedTuple

from radiator.clock import NS_PER_SECOND, MonoNs, Now, WallNs

STEP_NS: Final = 10 * NS_PER_SECOND
SAMPLES_MAX: Final = 360  # an hour
COUNTERS: Final = ("published", "delivered", "acknowledged", "dead_lettered", "published_bytes")
VALUES: Final = ("connections", "ready")
RATES: Final = ("published", "delivered", "acknowledged", "published_bytes")  # of an overview


class Sample(NamedTuple):
    """The numbers at one time; a number that is unknown is missing."""

    mono: MonoNs
    numbers: dict[str, int]


class History:
    """The samples of one broker."""

    __slots__ = ("_samples", "end_ns")

    def __init__(self) -> None:
        self._samples: deque[Sample | None] = deque(maxlen=SAMPLES_MAX + 1)  # a rate needs two
        self.end_ns = WallNs(0)  # the wall time of the last sample

    def is_due(self, now: Now) -> bool:
        """Return True if it is time for the next sample."""
        return not self._samples or now.mono - self._last.mono >= STEP_NS

    @property
    def _last(self) -> Sample:
        last = self._samples[-1]
        assert last is not None
        return last

    def add(self, now: Now, numbers: dict[str, int]) -> None:
        """Add a sample, and None for each one that was missed before it."""
        if self._samples:
            missed = (now.mono - self._last.mono) // STEP_NS - 1
            self._samples.extend([None] * min(missed, SAMPLES_MAX))
        self._samples.append(Sample(now.mono, numbers))
        self.end_ns = now.wall

    def series(self) -> dict[str, list[float | None]]:
        """Return the samples by name, the oldest first, without the first one, which has no rate."""
        pairs = list(pairwise(self._samples))
        found: dict[str, list[float | None]] = {name: [_rate(*pair, name) for pair in pairs] for name in COUNTERS}
        for name in VALUES:
            found[name] = [None if later is None else later.numbers.get(name) for _, later in pairs]
        return found

    def rates(self, now: Now, numbers: dict[str, int]) -> dict[str, float]:
        """Return the rates of the last ten seconds, up to the last sample.

        Args:
            now: The present time.
            numbers: The numbers now, for the time before the second sample.
        """
        samples = [each for each in self._samples if each is not None][-2:]
        if len(samples) < 2:
            samples.append(Sample(now.mono, numbers))
        first, last = samples[0], samples[-1]
        return {name: _rate(first, last, name) or 0.0 for name in RATES}


def _rate(before: Sample | None, after: Sample | None, name: str) -> float | None:
    if before is None or after is None or name not in before.numbers or name not in after.numbers:
        return None
    seconds = (after.mono - before.mono) / NS_PER_SECOND
    return round((after.numbers[name] - before.numbers[name]) / seconds, 3) if seconds > 0 else None
