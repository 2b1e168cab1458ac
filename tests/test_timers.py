"""One heap of timers: each key has one, the earliest; the heap stays small."""

from __future__ import annotations

import gc
import weakref
from random import Random

from radiator.timers import NEVER_NS, STALE_MAX, Timers


def test_of_several_times_the_earliest_counts_and_each_key_fires_once() -> None:
    timers: Timers[int, str] = Timers()
    for due in (50, 30, 70, 30, 60):
        timers.at(due, "first")
    timers.at(40, "second")
    assert timers.next_ns == 30 and len(timers) == 2
    assert timers.due(29) == []
    assert timers.due(45) == ["first", "second"]
    assert timers.next_ns == NEVER_NS and timers.due(100) == []


def test_timers_of_equal_time_fire_in_the_order_in_which_they_were_set() -> None:
    timers: Timers[int, str] = Timers()
    for key in "dbca":
        timers.at(7, key)
    assert timers.due(7) == ["d", "b", "c", "a"]


def test_a_cancelled_timer_does_not_fire() -> None:
    timers: Timers[int, str] = Timers()
    timers.at(7, "a")
    timers.at(8, "b")
    timers.forget("a")
    timers.forget("nobody")
    assert timers.next_ns == 8 and timers.due(9) == ["b"]


def test_a_timer_that_is_set_and_cancelled_again_and_again_takes_no_memory() -> None:
    timers: Timers[int, int] = Timers()
    timers.at(10**9, -1)
    for due in range(10_000, 0, -1):
        timers.at(due, 1)
    for number in range(10_000):
        timers.at(number, number)
        timers.forget(number)
    assert len(timers._heap) <= 2 * len(timers) + STALE_MAX
    assert timers.next_ns == 10**9


def test_a_cancelled_timer_holds_its_key_no_longer() -> None:
    class Held:
        """A key that may be large."""

    timers: Timers[int, Held] = Timers()
    cancelled, moved = Held(), Held()
    gone = [weakref.ref(cancelled), weakref.ref(moved)]
    timers.at(1_000, cancelled)
    timers.at(1_000, moved)
    timers.at(5, moved)
    timers.forget(cancelled)
    assert timers.due(5) == [moved]
    del cancelled, moved
    gc.collect()
    assert [each() for each in gone] == [None, None]


def test_the_next_time_is_that_of_the_earliest_timer_after_each_change() -> None:
    random = Random(7)
    timers: Timers[int, int] = Timers()
    moments: dict[int, int] = {}
    for _ in range(5_000):
        key, due = random.randrange(12), random.randrange(100)
        match random.randrange(4):
            case 0:
                timers.forget(key)
                moments.pop(key, None)
            case 1:
                now = min(moments.values(), default=0) + random.randrange(3)
                assert sorted(timers.due(now)) == sorted(key for key, moment in moments.items() if moment <= now)
                moments = {key: moment for key, moment in moments.items() if moment > now}
            case _:
                timers.at(due, key)
                moments[key] = min(due, moments.get(key, due))
        assert timers.next_ns == min(moments.values(), default=NEVER_NS)
