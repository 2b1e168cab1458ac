"""What a queue has lost is told to its consumers: by ``gap``, on the first message that goes out after it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from radiator.broker.queues import queue as queue_module
from radiator.stomp.frames import Frame
from tests.broker.harness import Client, World
from tests.broker.logs.test_damage import QUEUE, flip, stored
from tests.broker.queues.test_retention import FORCE, Q, consumer, filled, on_disk, world_of


def gaps(messages: list[Frame]) -> dict[int, int]:
    return {int(each.headers["offset"]): int(each.headers["gap"]) for each in messages if "gap" in each.headers}


def damaged(*batches: int) -> World:
    """A queue of 16 messages, two in a batch, some batches flipped."""
    world = World()
    found = stored(world, QUEUE)
    for each in batches:
        flip(world, found[each])
    world.start()
    return world


def drain(world: World, *clients: Client, ack: bool = True) -> list[Frame]:
    heard: list[Frame] = []
    world.settle()
    while any(found := [client.messages() for client in clients]):
        for client, messages in zip(clients, found, strict=True):
            heard += messages
            for message in messages if ack else ():
                client.ack(message)
        world.settle()
    return heard


@pytest.mark.parametrize("ack", ["auto", "client-individual"])
@pytest.mark.parametrize("lost", [0, 3, 7])
def test_damage_is_reported_by_the_message_behind_it(lost: int, ack: str) -> None:
    world = damaged(lost)
    client = world.connect()
    client.subscribe(QUEUE, ack=ack, prefetch_count=100)
    client.publish(QUEUE, "behind")
    heard = drain(world, client, ack=ack != "auto")
    assert len(heard) == 15
    assert gaps(heard) == {2 * lost + 2: 2}


@pytest.mark.parametrize("prefetch", [1, 4, 100])
def test_of_several_consumers_one_gets_the_gap_once(prefetch: int) -> None:
    world = damaged(1, 2, 5)
    clients = [world.connect() for _ in range(3)]
    for client in clients:
        client.subscribe(QUEUE, prefetch_count=prefetch)
    heard = drain(world, *clients)
    assert len(heard) == 10
    assert gaps(heard) == {6: 4, 12: 2}
    assert world.broker.stats.lost_to_retention == 6


@pytest.mark.parametrize("end", ["dies", "refuses", "is late"])
def test_a_redelivered_message_has_its_gap_again_and_no_other_has(end: str) -> None:
    world = damaged(0)
    first, second = world.connect(), world.connect()
    first.subscribe(QUEUE)
    world.settle()
    (told,) = first.messages()
    assert told.headers["gap"] == "2"
    if end == "dies":
        first.drop()
    else:
        first.nack(told, delay="0ms" if end == "refuses" else "50ms")
        first.say("UNSUBSCRIBE", id="0")
    second.subscribe(QUEUE)
    heard = drain(world, second)
    if end == "is late":
        assert not gaps(heard)
        world.tick(1)
        heard = drain(world, second)
    assert heard[0].headers["offset"] == "2" and heard[0].headers["redelivered"] == "true"
    assert gaps(heard) == {2: 2}


def test_a_redelivered_message_also_reports_later_losses() -> None:
    world = damaged(0, 2)
    first, second = world.connect(), world.connect()
    first.subscribe(QUEUE, prefetch_count=2)
    world.settle()
    assert gaps(first.messages()) == {2: 2}
    first.drop()
    second.subscribe(QUEUE)
    assert gaps(drain(world, second)) == {2: 2, 6: 2}


def test_the_memory_of_reported_losses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "REPORTED_MAX", 2)
    world = damaged(0, 2, 4, 6)
    client = world.connect()
    client.subscribe(QUEUE, prefetch_count=100)
    world.settle()
    assert gaps(client.messages()) == {2: 2, 6: 2, 10: 2, 14: 2}
    client.drop()
    again = world.connect()
    again.subscribe(QUEUE, prefetch_count=100)
    assert gaps(drain(world, again)) == {10: 2, 14: 2}


def test_after_a_restart_a_redelivered_message_reports_its_gap_and_settled_messages_are_not_lost() -> None:
    world = World()
    found = stored(world, QUEUE)
    world.start()
    client = world.connect()
    client.subscribe(QUEUE, prefetch_count=6)
    world.settle()
    held = client.messages()
    client.ack(held[2])
    world.settle()
    world.stop()
    flip(world, found[1])
    world.start()
    client = world.connect()
    client.subscribe(QUEUE, prefetch_count=100)
    heard = drain(world, client)
    assert [int(each.headers["offset"]) for each in heard] == [0, 1, *range(4, 16)]
    assert gaps(heard) == {4: 1}, "offset 2 was settled, offset 3 is lost"
    assert heard[2].headers["redelivered"] == "true" and heard[2].headers["delivery-count"] == "2"
    assert world.broker.stats.lost_to_retention == 1


def test_messages_that_forced_retention_removes_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = world_of(FORCE, tmp_path)
    client = consumer(world, prefetch_count=2)
    caplog.set_level(logging.WARNING)
    filled(world)
    world.tick(20)
    start = on_disk(world)[0]
    assert [int(each.headers["offset"]) for each in client.messages()] == [0, 1]
    client.drop()  # what it held is lost now, too
    other = consumer(world, prefetch_count=1)
    heard = drain(world, other)
    assert [int(each.headers["offset"]) for each in heard] == list(range(start, 12))
    assert gaps(heard) == {start: start}
    lines = [line.getMessage() for line in caplog.records if line.getMessage().startswith(f"{Q}: ")]
    assert lines[0].startswith(f"{Q}: 2 messages") and lines[0].endswith(f"among them offsets 2 to 3 of {Q}")
    assert lines[-1].startswith(f"{Q}: 2 messages") and lines[-1].endswith(f"among them offsets 0 to 1 of {Q}")


def test_in_a_shared_log_each_queue_reports_to_its_own_consumers(tmp_path: Path) -> None:
    world = world_of(FORCE.replace("max_messages", "partition: both, max_messages"), tmp_path)
    sender = world.connect()
    for number in range(12):
        sender.publish(f"/queue/{'ab'[number % 2]}", f"m{number}".ljust(30_000))
        world.settle()
    world.tick(20)
    start = on_disk(world, "both")[0]
    assert start > 0
    for name in ("/queue/a", "/queue/b"):
        client = world.connect()
        client.subscribe(name, prefetch_count=100)
        heard = drain(world, client)
        assert list(gaps(heard)) == [min(int(each.headers["offset"]) for each in heard)]
