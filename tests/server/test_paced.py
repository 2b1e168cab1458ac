"""Long work in slices, and the lag of the event loop."""

from __future__ import annotations

from collections.abc import Generator

import gevent
import pytest

from radiator.clock import NS_PER_MS, MonoNs
from radiator.histogram import BOUNDS_SECONDS, Histogram
from radiator.server import paced
from radiator.server.loop_lag import LoopLag
from radiator.server.paced import Pace


class Clock:
    """A monotonic clock in milliseconds that work and pauses advance."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pause_ms: int) -> None:
        self.now_ms = 0
        self.pauses: list[int] = []
        self._pause_ms = pause_ms
        monkeypatch.setattr(paced.clock, "monotonic_ns", lambda: self.now_ms * NS_PER_MS)
        monkeypatch.setattr(paced.gevent, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(self.now_ms)
        self.now_ms += self._pause_ms

    def work(self, steps: int) -> Generator[None, None, str]:
        for _ in range(steps):
            self.now_ms += 1
            yield
        return "done"


def test_work_pauses_after_each_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, pause_ms=1)
    assert Pace().run(clock.work(4)) == "done"
    assert clock.pauses == [1, 3, 5, 7]


def test_after_a_long_pause_a_slice_is_longer_but_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, pause_ms=12)
    Pace().run(clock.work(7))
    assert clock.pauses == [1, 16, 31], "3 ms of work after 12 ms of pause"
    clock = Clock(monkeypatch, pause_ms=1_000)
    Pace().run(clock.work(11))
    assert clock.pauses == [1, 1_006, 2_011]


def test_others_run_in_the_pauses() -> None:
    ran: list[str] = []
    gevent.spawn(ran.append, "other")

    def work() -> Generator[None, None, None]:
        while not ran:
            yield

    with gevent.Timeout(20):
        Pace().run(work())


def lags(*fired_ms: float) -> list[int]:
    """The number of values above 1 ms, after a timer of 20 ms that was started at 0 has fired at these times."""
    histogram = Histogram()
    lag = LoopLag(histogram, 20 * NS_PER_MS, MonoNs(0))
    late = []
    for time_ms in fired_ms:
        lag.fired(MonoNs(int(time_ms * NS_PER_MS)))
        late.append(sum(histogram.counts[BOUNDS_SECONDS.index(0.001) + 1 :]))
    return late


def test_a_timer_that_fires_in_time_has_no_lag() -> None:
    assert lags(20, 40, 60, 80) == [0, 0, 0, 0]


def test_a_late_timer_counts_once_and_catches_up() -> None:
    assert lags(20, 47, 60, 80) == [0, 1, 1, 1]
    assert lags(20, 240, 260, 280) == [0, 1, 1, 1], "an event loop that did something else for a while"
    assert lags(20, 240, 240.1, 260, 280) == [0, 1, 1, 1, 1], "it fires at once for the time that it has missed"


def test_a_timer_that_fires_early_has_no_lag() -> None:
    assert lags(19, 39, 59) == [0, 0, 0]
