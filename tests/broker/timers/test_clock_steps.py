"""The clock is set an hour forward or back, while the broker runs and while it does not: order, replays by time, syncs,
rolls and retention."""

from __future__ import annotations

from random import Random

import pytest

from radiator.clock import NS_PER_SECOND
from radiator.config import Settings
from tests.broker.harness import NOW, World
from tests.clocks import stepped
from tests.storage.driving import ALWAYS, answer, commit, opened, put, read_all
from tests.storage.faults import FaultyFileSystem

HOUR = 3_600 * NS_PER_SECOND
TOPIC = "/topic/t"
STEPS = {"forward": [HOUR], "back": [-HOUR], "there and back": [HOUR, -HOUR], "back and there": [-HOUR, HOUR]}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("life", ["runs", "restarts", "is killed"])
def test_receive_times_never_fall_and_a_replay_by_time_hides_nothing_that_came_since(
    life: str, steps: list[int]
) -> None:
    """Whatever time is asked for, what comes is a tail of the log that has everything received at or after it."""
    world = World()
    client = world.connect()
    stamps: list[int] = []
    for number in range(12):
        if number and not number % 4 and steps[number // 4 - 1 :]:
            world.now += steps[number // 4 - 1]
            if life != "runs":
                world.restart() if life == "restarts" else world.kill()
                client = world.connect()
        world.now += NS_PER_SECOND
        client.publish(TOPIC, str(number))
        world.settle()
        stamps.append(world.now)
    reader = world.connect()
    reader.subscribe(TOPIC, ack="auto", start_position="first")
    world.settle()
    heard = reader.messages()
    times = [int(frame.headers["receive-time"]) for frame in heard]
    assert [frame.body.decode() for frame in heard] == [str(number) for number in range(12)]
    assert times == sorted(times) and all(time >= stamp for time, stamp in zip(times, stamps, strict=True))
    for number, start in enumerate({*times, *stamps, *[time + 1 for time in times]}):
        reader.subscribe(TOPIC, id=f"t{number}", ack="auto", start_position=f"time:{start}", stop_position="end")
        world.settle()
        found = [frame.body.decode() for frame in reader.messages() if "replay-end" not in frame.headers]
        assert found == [str(each) for each in range(12) if times[each] >= start]
        assert {str(each) for each in range(12) if stamps[each] >= start} <= set(found)


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_what_was_just_received_is_within_the_last_minute(step: int) -> None:
    world = World()
    client = world.connect()
    client.publish(TOPIC, "before")
    world.settle()
    world.now += step
    client.publish(TOPIC, "after")
    world.settle()
    client.subscribe(TOPIC, ack="auto", start_position="ago:1m")
    world.settle()
    assert client.bodies() == (["after"] if step > 0 else ["before", "after"])
    client.publish(TOPIC, "live")
    world.settle()
    assert client.bodies() == ["live"]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_retention_by_age_takes_nothing_that_is_younger_by_the_clock_and_goes_on(step: int, restarted: bool) -> None:
    """A clock that was ahead leaves messages that stay longer; none goes before its age, by any clock it has seen."""
    fs = FaultyFileSystem()
    options = Settings(segment_bytes=1_000, retention_age_ns=2 * HOUR)
    store, _ = opened(fs)
    partition = store.partition("q", options)
    now, latest, born = NOW, NOW, dict[int, int]()
    for number in range(80):
        now += HOUR // 10 + (step if number == 40 else 0)
        clocks = stepped(NOW + (number + 1) * HOUR // 10, step if number >= 40 else 0)
        latest = max(latest, now)
        if number == 60 and restarted:
            fs.kill()
            store, _ = opened(fs)
            partition = store.partition("q", options)
        (offset,) = put(partition, b"x" * 300, at=now)
        born[offset] = now
        store.tick(clocks)
        commit(store, clocks)
        commit(store, clocks)
        kept = read_all(partition)
        assert {offset for offset, at in born.items() if at >= latest - 2 * HOUR} <= set(kept)
    assert len(kept) < 40, "and retention still works"


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_segment_rolls_at_its_time_of_day_once_although_the_clock_has_stepped(step: int) -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", Settings(roll_at_seconds=0))
    midnight = NOW // (24 * HOUR) * 24 * HOUR + 24 * HOUR
    now = midnight - 2 * HOUR
    put(partition, b"x", at=now)
    commit(store, now)
    now += step
    bases = []
    for minute in range(5 * 60):
        now += HOUR // 60
        clocks = stepped(midnight - 2 * HOUR + (minute + 1) * HOUR // 60, step)
        if not now // (HOUR // 60) % 10:
            put(partition, b"x", at=now)
        store.tick(clocks)
        commit(store, clocks)
        bases.append(partition.segments[-1].base_offset)
    assert len(set(bases)) == 2, "the day that ended, and the one that began"
    begun = partition.segments[-1].first_receive_ns
    assert midnight <= begun < midnight + HOUR


@pytest.mark.thorough
def test_any_walk_of_the_clock_keeps_order_and_search() -> None:
    for seed in range(40):
        random = Random(seed)
        fs = FaultyFileSystem()
        store, _ = opened(fs)
        now, stamps = NOW, list[int]()
        for _ in range(30):
            now += random.choice([1, NS_PER_SECOND, HOUR, -HOUR, -NS_PER_SECOND])
            if random.random() < 0.2:
                fs.kill()
                store, _ = opened(fs)
            partition = store.partition("q", random.choice([ALWAYS, Settings(segment_bytes=1_000)]))
            put(partition, b"x" * random.choice([1, 400]), at=now)
            commit(store, now)
            stamps.append(max([now, *stamps[-1:]]))
        for start in [*stamps, *[stamp + 1 for stamp in stamps]]:
            expected = next((offset for offset, stamp in enumerate(stamps) if stamp >= start), 30)
            assert answer(partition.offset_for_time(start)) == expected
