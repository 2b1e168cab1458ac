"""The findings of sections, from rows alone: no claim that the figures beside it do not bear."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from radiator.spark.sections import latency, traffic

pytestmark = pytest.mark.spark
START = datetime(2013, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(("seconds", "told"), [(0.001, False), (1.0, True)])
def test_a_silence_shorter_than_the_precision_of_the_times_is_none(seconds: float, told: bool) -> None:
    """Twenty-one messages, each so long after the one before, and then nothing for forty times that."""
    last = START + timedelta(seconds=20 * seconds)
    row = {"destination": "/topic/a", "messages": 21, "first_received": START, "last_received": last}
    said = traffic._silent_since([row], last + timedelta(seconds=40 * seconds))
    silent = "/topic/a has been silent since 2013-01-31 12:00:20; before, a message came every 1 s on average"
    assert (said == [silent]) is told
    assert told or said == []


@pytest.mark.parametrize(
    ("p50_ms", "words"),
    [(3_000.0, "p50 3 s, p99 3 s"), (500.0, "p50 500 ms, p99 3 s")],
)
def test_the_slowest_destination_is_named_with_its_percentiles(p50_ms: float, words: str) -> None:
    def row(name: str, p50: float, p99: float) -> dict[str, Any]:
        leg = {"leg": "event to receive", "p50_ms": p50, "p99_ms": p99, "first_negative": 0}
        return {"destination": name, **leg}

    rows = [row("/topic/fast", 10.0, 20.0), row("/topic/slow", p50_ms, 3_000.0)]
    (line,) = latency._findings([], rows, row("all together", 10.0, 3_000.0))
    assert line.startswith(f"the slowest is /topic/slow: {words}")
