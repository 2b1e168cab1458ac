"""An hour of samples on the monotonic clock."""

from __future__ import annotations

from radiator.broker.monitoring.history import COUNTERS, SAMPLES_MAX, STEP_NS, VALUES, History
from radiator.clock import NS_PER_SECOND, MonoNs, Now, WallNs
from tests.broker.admin.asking import done
from tests.broker.harness import World


def at(seconds: float, wall: float | None = None) -> Now:
    shown = 1_000_000 + (seconds if wall is None else wall)
    return Now(WallNs(int(shown * NS_PER_SECOND)), MonoNs(int(seconds * NS_PER_SECOND)))


def numbers(count: int) -> dict[str, int]:
    return {**dict.fromkeys(COUNTERS, count), **dict.fromkeys(VALUES, count)}


def test_counters_become_rates_and_values_stay_as_they_are() -> None:
    history = History()
    for index, count in enumerate((0, 100, 100, 350)):
        assert history.is_due(at(10 * index))
        history.add(at(10 * index), numbers(count))
        assert not history.is_due(at(10 * index + 9.9))
    series = history.series()
    assert series["published"] == [10.0, 0.0, 25.0]
    assert series["ready"] == [100, 100, 350]
    assert history.end_ns == at(30).wall


def test_a_step_of_the_wall_clock_changes_no_rate() -> None:
    history = History()
    history.add(at(0), numbers(0))
    history.add(at(10, wall=-5000), numbers(100))
    history.add(at(20, wall=90_000), numbers(200))
    assert history.series()["published"] == [10.0, 10.0]


def test_a_late_sample_has_the_rate_of_the_time_that_has_passed_and_missed_ones_are_unknown() -> None:
    history = History()
    history.add(at(0), numbers(0))
    history.add(at(12.5), numbers(100))
    history.add(at(45), numbers(200))
    assert history.series()["published"] == [8.0, None, None, None]
    assert history.series()["connections"] == [100, None, None, 200]
    history.add(at(55), numbers(210))
    assert history.series()["published"][-1] == 1.0
    assert history.rates(at(55), {})["published"] == 1.0


def test_the_memory_is_bounded_however_long_it_runs_and_sleeps() -> None:
    history = History()
    for index in range(3 * SAMPLES_MAX):
        history.add(at(10 * index), numbers(index))
    assert {len(each) for each in history.series().values()} == {SAMPLES_MAX}
    history.add(at(10**7), numbers(0))
    assert {len(each) for each in history.series().values()} == {SAMPLES_MAX}
    assert history.series()["ready"][-2:] == [None, 0]


def test_a_number_that_nobody_counts_is_unknown() -> None:
    history = History()
    for index in range(3):
        history.add(at(10 * index), {"published": index})
    assert history.series()["delivered"] == [None, None]
    assert history.rates(at(30), {})["delivered"] == 0.0


def test_the_broker_takes_a_sample_every_ten_seconds() -> None:
    world = World()
    client = world.connect()
    world.tick()
    assert done(client, "rates")["series"]["published"] == []
    for _ in range(30):
        client.publish("/queue/a", "xxxx", "yyyy")
        world.settle()
        world.tick(1)
    answer = done(client, "rates")
    assert answer["step_seconds"] * NS_PER_SECOND == STEP_NS
    series = answer["series"]
    assert [round(each, 1) for each in series["published"]] == [2.0, 2.0, 2.0]
    assert [round(each, 1) for each in series["published_bytes"]] == [8.0, 8.0, 8.0]
    assert series["connections"] == [1, 1, 1]
    assert series["ready"] == sorted(series["ready"]) and series["ready"][-1] >= 50
    assert set(series) == {*COUNTERS, *VALUES}
    rates = done(client, "overview")["rates"]
    assert round(rates["published"], 1) == 2.0 and set(rates) < set(COUNTERS)


def test_rates_are_known_before_the_second_sample() -> None:
    world = World()
    client = world.connect()
    world.tick()
    client.publish("/queue/a", *(["x"] * 10))
    world.settle()
    world.tick(4)
    assert round(done(client, "overview")["rates"]["published"], 1) == 2.5
