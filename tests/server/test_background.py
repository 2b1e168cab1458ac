"""Background work makes way: it rests after each short slice, and stops when it is told to."""

from __future__ import annotations

import sys

from radiator.server.background import (
    REST_FACTOR,
    REST_SECONDS_MAX,
    SLICE_NS,
    SWITCH_SECONDS,
    BackgroundThrottle,
    run_maintenance,
)


class Clock:
    """Work takes what it takes; sleep is told."""

    def __init__(self) -> None:
        self.now = 1
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += int(seconds * 1e9)


def test_short_steps_gather_to_a_slice_and_a_long_one_is_followed_by_a_long_rest() -> None:
    clock = Clock()
    throttle = BackgroundThrottle(lambda: clock.now, clock.sleep)
    assert throttle()
    clock.now += SLICE_NS
    assert throttle()
    clock.slept.clear()
    for _ in range(10):
        clock.now += SLICE_NS // 10
        assert throttle()
    assert clock.slept == [REST_FACTOR * SLICE_NS / 1e9]
    clock.now += 20 * SLICE_NS
    assert throttle() and clock.slept[-1] == REST_FACTOR * 20 * SLICE_NS / 1e9
    clock.now += 60_000_000_000
    assert throttle() and clock.slept[-1] == REST_SECONDS_MAX


def test_it_stops_without_another_rest() -> None:
    clock = Clock()
    throttle = BackgroundThrottle(lambda: clock.now, clock.sleep)
    throttle()
    clock.slept.clear()
    throttle.stopping = True
    clock.now += 100 * SLICE_NS
    assert not throttle() and clock.slept == []


def test_the_lock_is_asked_back_sooner_while_there_is_a_job_and_only_then() -> None:
    before = sys.getswitchinterval()
    seen: list[float] = []

    class Job:
        def run(self, throttle: BackgroundThrottle) -> None:
            seen.append(sys.getswitchinterval())

    job = Job()
    assert run_maintenance(job, BackgroundThrottle()) is job
    assert abs(seen[0] - SWITCH_SECONDS) < 1e-5 and sys.getswitchinterval() == before
