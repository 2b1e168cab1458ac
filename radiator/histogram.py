"""A histogram of durations with fixed bounds, as Prometheus has them.

One call of ``observe`` may count a value several times, so the hot path observes a batch and not each message. Any
thread may observe, but only one at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

BOUNDS_SECONDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""The upper bounds of the buckets. A last bucket without a bound follows."""

_BOUNDS_NS = [round(bound * 1_000_000_000) for bound in BOUNDS_SECONDS]


class Histogram:
    """Durations since the start.

    Attributes:
        counts: The number of values in each bucket, and at the end of those above the last bound.
        sum_ns: The sum of all values, in nanoseconds.
    """

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS_NS) + 1)
        self.sum_ns = 0

    def observe(self, duration_ns: int, count: int = 1) -> None:
        """Count a duration in nanoseconds ``count`` times. A negative one counts as 0."""
        if duration_ns > 0:
            self.counts[bisect_left(_BOUNDS_NS, duration_ns)] += count
            self.sum_ns += duration_ns * count
        else:
            self.counts[0] += count

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def quantile(self, share: float) -> float:
        """Return the duration in seconds that this share of the values does not exceed, as the bound of a bucket.

        Args:
            share: Between 0 and 1.

        Returns:
            0.0 without values; infinity if the value is above the last bound.
        """
        wanted = share * self.count
        below = 0
        for bound, count in zip((*BOUNDS_SECONDS, float("inf")), self.counts, strict=True):
            below += count
            if count and below >= wanted:
                return bound
        return 0.0
