"""Background work makes way: it rests after each short slice, and stops when it is told to."""

from __future__ import annotations

import sys

from radiator.server.pace import REST, REST_SECONDS_MAX, SLICE_NS, SWITCH_SECONDS, Pace, run_care


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
    pace = Pace(lambda: clock.now, clock.sleep)
    assert pace()
    clock.now += SLICE_NS
    assert pace()
    clock.slept.clear()
    for _ in range(10):
        clock.now += SLICE_NS // 10
        assert pace()
    assert clock.slept == [REST * SLICE_NS / 1e9]
    clock.now += 20 * SLICE_NS
    assert pace() and clock.slept[-1] == REST * 20 * SLICE_NS / 1e9
    clock.now += 60_000_000_000
    assert pace() and clock.slept[-1] == REST_SECONDS_MAX


def test_it_stops_without_another_rest() -> None:
    clock = Clock()
    pace = Pace(lambda: clock.now, clock.sleep)
    pace()
    clock.slept.clear()
    pace.stopping = True
    clock.now += 100 * SLICE_NS
    assert not pace() and clock.slept == []


def test_the_lock_is_asked_back_sooner_while_there_is_a_job_and_only_then() -> None:
    before = sys.getswitchinterval()
    seen: list[float] = []

    class Job:
        def run(self, pace: Pace) -> None:
            seen.append(sys.getswitchinterval())

    job = Job()
    assert run_care(job, Pace()) is job
    assert abs(seen[0] - SWITCH_SECONDS) < 1e-5 and sys.getswitchinterval() == before
