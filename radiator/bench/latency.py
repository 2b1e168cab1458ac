"""Latencies with their counts, and the quantiles of them.

A burst of receipts shares one arrival time and often one sending time, so a latency is kept once with its count.
"""

from __future__ import annotations


class Latencies:
    """Latencies in nanoseconds, each with the number of messages that had it."""

    def __init__(self) -> None:
        self._samples: list[tuple[int, int]] = []
        self.count = 0

    def add(self, latency_ns: int, count: int = 1) -> None:
        """Count ``count`` messages with this latency."""
        self._samples.append((latency_ns, count))
        self.count += count

    def quantiles_ms(self, *fractions: float) -> list[float | None]:
        """Return the latency in milliseconds below which each fraction of all messages is; None without samples."""
        if not self.count:
            return [None for _ in fractions]
        samples = sorted(self._samples)
        found: list[float | None] = []
        for fraction in fractions:
            wanted = max(1, round(fraction * self.count))
            seen = 0
            value = samples[-1][0]
            for latency, count in samples:
                seen += count
                if seen >= wanted:
                    value = latency
                    break
            found.append(value / 1e6)
        return found
