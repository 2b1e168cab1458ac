"""Histograms of durations: buckets, several values at once, quantiles."""

from __future__ import annotations

from itertools import pairwise

from radiator.histogram import BOUNDS_SECONDS, Histogram

MS = 1_000_000


def test_a_value_counts_in_the_first_bucket_that_is_large_enough() -> None:
    histogram = Histogram()
    for duration_ns in (MS, MS + 1, 0, -5, 3_600_000 * MS):
        histogram.observe(duration_ns)
    millisecond = BOUNDS_SECONDS.index(0.001)
    assert histogram.counts[millisecond] == histogram.counts[millisecond + 1] == 1
    assert histogram.counts[0] == 2, "nothing and a step of the clock"
    assert histogram.counts[-1] == 1, "above the last bound"
    assert histogram.count == 5


def test_a_batch_counts_its_value_for_each_message() -> None:
    one_by_one, together = Histogram(), Histogram()
    for _ in range(7):
        one_by_one.observe(3 * MS)
    together.observe(3 * MS, 7)
    assert (one_by_one.counts, one_by_one.sum_ns) == (together.counts, together.sum_ns)


def test_a_quantile_is_the_bound_of_its_bucket() -> None:
    histogram = Histogram()
    assert histogram.quantile(0.5) == 0
    histogram.observe(MS, 98)
    histogram.observe(40 * MS, 2)
    assert histogram.quantile(0.5) == 0.001 and histogram.quantile(0.99) == 0.05


def test_the_bounds_grow() -> None:
    assert all(lower < upper for lower, upper in pairwise(BOUNDS_SECONDS))
