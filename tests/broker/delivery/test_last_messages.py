"""``last:N`` where a destination has several logs: the newest of all, whatever the logs look like."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radiator.storage import last_messages, layout
from tests.broker.harness import Client, World
from tests.storage.rewriting import swap
from tests.tiers import sampled

ALONE = "destinations: [{match: '/topic/*', partitions: 3, segment: {size: 64KiB}}]"
SHARED = "destinations: [{match: '/topic/*', partition: all, partitions: 3, segment: {size: 64KiB}}]"
MEMORY = "destinations: [{match: '/topic/*', partitions: 3, store: memory}]"
PRIORITIES = "destinations: [{match: '/queue/*', priority: true}]"
MIXED = (
    "destinations: [{match: /topic/b, partition: all-1}, {match: /topic/c, partition: c}, "
    "{match: '/topic/*', partition: all, partitions: 3}]"
)
ABC = ("a", "b", "c")
Heard = tuple[int, int, int]  # when it was received, its partition's number, its offset


def filled(config: str, seed: int, count: int, cold: bool = False, size: int = 3_000) -> World:
    """Messages to three destinations in any order, many at the same nanosecond."""
    world, choose = World(config, **({"tail_bytes_max": 1} if cold else {})), random.Random(seed)
    sender = world.connect()
    queue = "priority" in config
    for number in range(count):
        where = {"priority": choose.choice("4479")} if queue else {"partition": choose.choice("012")}
        name = choose.choice(ABC)
        if name != "a" and config == MIXED:
            where = {}
        sender.publish(f"/{'queue' if queue else 'topic'}/{name}", str(number).ljust(size), **where)
        world.now += choose.choice((0, 0, 1, 5_000))
        if choose.random() < 0.3:
            world.settle()
    world.settle()
    sender.drop()
    return world


def looked(world: World, name: str, **headers: str) -> dict[str, list[Heard]]:
    """What such a subscription is given, by destination, in the order of receipt."""
    client = world.connect()
    client.subscribe(name, ack="auto", **headers)
    world.settle()
    found = heard(world, client)
    client.drop()
    return found


def heard(world: World, client: Client) -> dict[str, list[Heard]]:
    found: dict[str, list[Heard]] = {}
    for message in client.messages():
        if "replay-end" not in message.headers:
            headers = message.headers
            assert "gap" not in headers
            partitions = world.broker.destinations[headers["destination"]].policy.partitions
            facts = (int(headers["receive-time"]), partitions.index(headers["partition"]), int(headers["offset"]))
            found.setdefault(headers["destination"], []).append(facts)
    return {name: sorted(each) for name, each in found.items()}


def cut(found: dict[str, list[Heard]], start: int | None, stop: int | None) -> dict[str, list[Heard]]:
    return {name: each[start:stop] for name, each in found.items() if each[start:stop]}


@pytest.mark.parametrize("number", sampled([1, 2, 7, 20, 1_000], 2))
@pytest.mark.parametrize("cold", [False, True], ids=["memory", "files"])
@pytest.mark.parametrize("config", [ALONE, SHARED, MEMORY, MIXED], ids=["alone", "shared", "store memory", "mixed"])
def test_the_last_n_are_the_newest_of_each_topic_whatever_its_logs(config: str, cold: bool, number: int) -> None:
    world = filled(config, 1, 90, cold)
    every = looked(world, "/topic/>", start_position="first", stop_position="end")
    assert sum(map(len, every.values())) == 90
    assert len({partition for _, partition, _ in every["/topic/a"]}) == 3
    position = f"last:{number}"
    for pattern, names in (("/topic/>", ABC), ("/topic/a", "a"), ("/topic/a,/topic/c", "ac")):
        mine = {f"/topic/{name}": every[f"/topic/{name}"] for name in names}
        assert looked(world, pattern, start_position=position) == cut(mine, -number, None)
        assert looked(world, pattern, start_position="first", stop_position=position) == cut(mine, None, -number)
        both = looked(world, pattern, start_position=f"last:{2 * number}", stop_position=position)
        assert both == cut(cut(mine, -2 * number, None), None, -number)
        assert looked(world, pattern, start_position="last:0", stop_position="end") == {}
        durable = {"durable": "true", "subscription_name": f"{pattern}{number}".replace("/", "")}
        assert looked(world, pattern, start_position=position, **durable) == cut(mine, -number, None)


@pytest.mark.parametrize("number", [1, 5, 12])
def test_the_last_n_of_a_queue_with_priorities_are_the_newest_of_all_priorities(number: int) -> None:
    world = filled(PRIORITIES, 2, 60)
    every = looked(world, "/queue/>", start_position="first", stop_position="end")
    position = f"last:{number}"
    assert looked(world, "/queue/>", start_position=position, stop_position="end") == cut(every, -number, None)
    assert looked(world, "/queue/b", browser="true", start_position=position) == cut(
        {"/queue/b": every["/queue/b"]}, -number, None
    )
    assert looked(world, "/queue/>", start_position="first", stop_position=position) == cut(every, None, -number)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1_000), st.integers(1, 40), st.sampled_from([ALONE, SHARED]), st.integers(2, 5))
def test_what_was_taken_out_of_the_files_does_not_count(seed: int, number: int, config: str, every_nth: int) -> None:
    world = filled(config, seed, 90, cold=True, size=4_000)
    world.stop()
    for name, partition in world.store.partitions.items():
        for segment in partition.segments[:-1]:
            directory = layout.partition_path("/data", name)
            swap(world.fs, directory, segment.base_offset, lambda offset: bool(offset % every_nth), 3, 4)
    world.start()
    every = looked(world, "/topic/>", start_position="first", stop_position="end")
    position = f"last:{number}"
    assert looked(world, "/topic/>", start_position=position) == cut(every, -number, None)
    assert looked(world, "/topic/>", start_position="first", stop_position=position) == cut(every, None, -number)


@pytest.mark.parametrize("config", [ALONE, SHARED])
def test_what_was_sent_before_counts_though_it_is_not_stored_yet(config: str) -> None:
    world = filled(config, 3, 30)
    client = world.connect()
    for number in range(5):
        client.publish("/topic/a", f"new {number}")
        world.now += 1
    world.take()  # it is being written
    for number in range(5, 9):
        client.publish("/topic/a", f"new {number}")
        world.now += 1
    client.subscribe("/topic/a", ack="auto", start_position="last:6")
    client.publish("/topic/a", "after")
    world.write()
    world.sync()
    world.completed()
    world.settle()
    assert sorted(client.bodies()) == ["after", *(f"new {number}" for number in range(3, 9))]


def test_a_disk_that_fails_leaves_what_is_stored_to_be_counted() -> None:
    world = filled(ALONE, 3, 30)
    every = looked(world, "/topic/a", start_position="first", stop_position="end")
    sender, client = world.connect(), world.connect()
    sender.publish("/topic/a", "lost")
    client.subscribe("/topic/a", ack="auto", start_position="last:6")
    world.fs.fail("pwritev", under="/journal/")
    world.settle()
    world.tick(10)
    assert heard(world, client) == cut(every, -6, None)


def test_a_name_begins_there_after_a_restart_too_and_goes_on() -> None:
    world = filled(SHARED, 4, 90)
    every = looked(world, "/topic/>", start_position="first", stop_position="end")
    client = world.connect()
    named = {"durable": "true", "subscription_name": "me"}
    client.subscribe("/topic/>", start_position="last:5", **named)
    client.drop()
    world.settle()
    world.power_cut()
    world.connect().publish("/topic/b", "live")
    world.settle()
    found = looked(world, "/topic/>", **named)
    assert found.pop("/topic/b")[:-1] == cut(every, -5, None)["/topic/b"]
    assert found == {name: each[-5:] for name, each in every.items() if name != "/topic/b"}


def test_it_is_done_in_goes_that_let_others_read_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_messages, "RUN_BATCHES", 4)
    world = filled(ALONE, 5, 90, cold=True)
    every = looked(world, "/topic/a", start_position="first", stop_position="end")
    client = world.connect()
    client.subscribe("/topic/a", ack="auto", start_position="last:20")
    goes = 0
    while reads := world.broker.take_reads():
        (read,) = reads
        read.run()
        world.broker.read_done(read)
        goes += 1
        if read.job.finished:
            break
    assert goes > 2
    world.settle()
    assert heard(world, client) == cut(every, -20, None)


def test_a_client_that_leaves_meanwhile_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_messages, "RUN_BATCHES", 2)
    world = filled(ALONE, 5, 90, cold=True)
    client = world.connect()
    opened = len(world.fs.descriptors)
    client.subscribe("/topic/a", ack="auto", start_position="last:20")
    (read,) = world.broker.take_reads()
    read.run()
    assert len(world.fs.descriptors) > opened
    client.drop()
    world.broker.read_done(read)
    assert not world.broker.take_reads()
    del read
    world.settle()
    assert len(world.fs.descriptors) == opened


def test_as_many_as_there_are_need_no_look_at_the_files() -> None:
    world = filled(ALONE, 6, 90, cold=True)
    every = looked(world, "/topic/a", start_position="first", stop_position="end")
    opened = world.fs.calls["open_read"]
    client = world.connect()
    client.subscribe("/topic/a", ack="auto", start_position=f"last:{10**18}")
    for read in world.broker.take_reads():
        assert read.job.finished
        world.broker.read_done(read)
    assert world.fs.calls["open_read"] == opened
    world.settle()
    assert heard(world, client) == every
