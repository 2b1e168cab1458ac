"""Queues and the files under them: what is settled goes, what is not stays, unless the rule forces it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from radiator.storage import layout
from radiator.storage.files import FileSystem
from tests.broker.harness import Client, World

Q, T = "/queue/a", "/topic/a"
FORCE = (
    "destinations: [{match: '/queue/*', max_messages: 99, segment: {size: 64KiB}, retention: {count: 3, force: true}}]"
)


def world_of(config: str, root: Path) -> World:
    return World(config, FileSystem(), str(root), tail_bytes_max=1)


def filled(world: World, count: int = 12, destination: str = Q) -> None:
    """Two messages fill a segment."""
    sender = world.connect()
    for number in range(count):
        sender.publish(destination, f"m{number}".ljust(30_000))
        world.settle()


def on_disk(world: World, name: str = Q) -> list[int]:
    names = world.fs.listdir(layout.partition_path(world.root, name))
    return [base for base in map(layout.segment_base, names) if base is not None]


def consumer(world: World, **headers: object) -> Client:
    client = world.connect()
    client.subscribe(Q, **headers)
    world.settle()
    return client


def numbers(client: Client) -> list[int]:
    return [int(message.headers["offset"]) for message in client.messages()]


def test_what_a_slow_queue_loses_by_force_is_counted_once_and_named_and_the_queue_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = world_of(FORCE, tmp_path)
    client = consumer(world)
    caplog.set_level(logging.WARNING)
    filled(world)
    world.tick(20)
    start = on_disk(world)[0]
    assert start >= 6
    partition = world.store.partitions[Q]
    assert partition.log_start_offset == start
    assert world.store.cursors.get(f"queue:{Q}", Q).floor == start  # type: ignore[union-attr]
    (held,) = client.messages()  # delivered before it went, and still good for an ACK
    assert held.headers["offset"] == "0"
    assert world.broker.stats.lost_to_retention == start - 1
    told = [int(line.getMessage().split()[1]) for line in caplog.records if line.getMessage().startswith(f"{Q}: ")]
    assert sum(told) == start - 1 and all(told)
    client.ack(held)
    world.settle()
    rest = []
    while found := client.messages():
        rest += [int(message.headers["offset"]) for message in found]
        for message in found:
            client.ack(message)
        world.settle()
    assert rest == list(range(start, 12))
    source = world.broker.destinations[Q].queue.sources[0]  # type: ignore[union-attr]
    assert source.backlog == 0 and world.broker.stats.lost_to_retention == start - 1
    world.restart()
    assert numbers(consumer(world)) == [] and world.broker.stats.lost_to_retention == 0


def test_what_a_consumer_gives_back_after_it_was_taken_by_force_is_lost_then(tmp_path: Path) -> None:
    world = world_of(FORCE, tmp_path)
    client = consumer(world, prefetch_count=2)
    filled(world)
    world.tick(20)
    start = on_disk(world)[0]
    assert world.broker.stats.lost_to_retention == start - 2
    client.drop()
    world.settle()
    assert world.broker.stats.lost_to_retention == start
    other = consumer(world, prefetch_count=20)
    assert numbers(other) == list(range(start, 12))


def test_a_cut_of_the_power_after_a_forced_loss_leaves_a_queue_that_goes_on(tmp_path: Path) -> None:
    world = World(FORCE)
    client = world.connect()
    for number in range(12):
        client.publish(Q, f"m{number}".ljust(30_000))
        world.settle()
    world.tick(20)
    start = on_disk(world)[0]
    world.power_cut()
    assert numbers(consumer(world, prefetch_count=20)) == list(range(start, 12))
    assert world.broker.stats.lost_to_retention == 0, "the cursor had moved on before anything was deleted"


def test_a_replay_that_retention_overtakes_gets_a_gap(tmp_path: Path) -> None:
    config = "destinations: [{match: '/topic/*', segment: {size: 64KiB}, retention: {count: 3}}]"
    world = world_of(config, tmp_path)
    filled(world, 2, T)
    reader = world.connect()
    reader.subscribe(T, ack="client", start_position="first", prefetch_count=1)
    world.settle()
    (first,) = reader.messages()
    filled(world, 10, T)
    world.tick(20)
    reader.ack(first)
    world.settle()
    (second,) = reader.messages()
    assert int(second.headers["gap"]) == int(second.headers["offset"]) - 1 > 3


def test_the_space_of_settled_messages_is_given_back_while_others_are_in_flight(tmp_path: Path) -> None:
    world = world_of("defaults: {segment: {size: 64KiB}}", tmp_path)
    filled(world)
    client = consumer(world, prefetch_count=20)
    held = client.messages()
    for message in held[:7]:
        client.ack(message)
    world.settle()
    assert on_disk(world) == [6, 8, 10]
    client.drop()
    world.settle()
    assert numbers(consumer(world, prefetch_count=20)) == list(range(7, 12))
    assert world.broker.stats.lost_to_retention == 0


@pytest.mark.parametrize(
    "config",
    [
        "defaults: {segment: {size: 64KiB}, retention: {acked: keep}}",
        "defaults: {segment: {size: 64KiB}}\ndestinations: [{match: '#', partition: all}]",
    ],
    ids=["as the rule says", "for the topics that share the log"],
)
def test_settled_messages_stay_as_history(config: str, tmp_path: Path) -> None:
    world = world_of(config, tmp_path)
    if "all" in config:
        filled(world, 2, T)
    filled(world)
    client = consumer(world, prefetch_count=20, ack="client")
    client.ack(client.messages()[-1])
    world.settle()
    world.tick(20)
    log = "all" if "all" in config else Q
    assert on_disk(world, log)[0] == 0
    world.restart()
    world.tick(20)
    assert on_disk(world, log)[0] == 0
    browser = world.connect()
    browser.subscribe(Q, browser="true", start_position="first")
    world.settle()
    assert len(browser.messages()) == 12


def test_a_log_that_a_topic_once_used_is_history_even_if_only_a_queue_is_known_now(tmp_path: Path) -> None:
    world = world_of("defaults: {segment: {size: 64KiB}}\ndestinations: [{match: '#', partition: all}]", tmp_path)
    filled(world, 4, T)
    filled(world, 4)
    world.stop()
    world.config = world_of(
        "defaults: {segment: {size: 64KiB}}\ndestinations: [{match: '/queue/*', partition: all}]", tmp_path / "x"
    ).config
    world.start()
    client = consumer(world, prefetch_count=20, ack="client")
    client.ack(client.messages()[-1])
    world.settle()
    world.tick(20)
    assert on_disk(world, "all")[0] == 0
