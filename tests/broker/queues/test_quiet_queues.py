"""Many queues in one log: a commit costs what it concerns, and nobody's place in the log depends on it."""

from __future__ import annotations

import random
import sys
from types import FrameType
from typing import Any

import pytest

from tests.broker.harness import World

SHARED = "destinations: [{match: '/*/*', partition: shared}]"


def crowd(count: int) -> World:
    world = World(SHARED)
    client = world.connect()
    for number in range(count):
        client.publish(f"/queue/{number}", "m")
        if number % 2:
            client.subscribe(f"/queue/{number}", id=str(number), ack="auto")
    world.settle()
    client.flush()
    return world


def calls_of_a_commit(world: World) -> int:
    sender = next(client for client in world.clients)
    sender.publish("/queue/1", "x")
    world.take()
    world.write()
    world.sync()
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        world.completed()
        world.pump()
    finally:
        sys.setprofile(None)
    return calls


def test_a_commit_costs_what_it_concerns_and_not_what_queues_there_are() -> None:
    assert calls_of_a_commit(crowd(400)) <= calls_of_a_commit(crowd(8)) + 20


def test_a_consumer_whose_queue_was_quiet_gets_what_comes_without_a_look_at_what_was_others() -> None:
    world = World(SHARED, tail_bytes_max=1)
    client, sender = world.connect(), world.connect()
    client.subscribe("/queue/quiet", ack="auto")
    for number in range(200):
        sender.publish("/queue/busy", str(number).ljust(20_000))
        world.settle()
    sender.publish("/queue/quiet", "at last")
    opened = world.fs.calls["open_read"]
    world.settle()
    assert client.bodies() == ["at last"]
    assert world.fs.calls["open_read"] - opened <= 4, "what holds one message"


def test_quiet_queues_let_the_log_go_after_a_while() -> None:
    world = World(SHARED)
    client, sender = world.connect(), world.connect()
    client.subscribe("/queue/quiet", id="0")
    client.subscribe("/queue/busy", id="1", ack="auto")
    for number in range(50):
        sender.publish("/queue/busy", str(number))
        world.settle()
    world.tick(20)
    assert world.store.partitions["shared"].retain_from == 50


@pytest.mark.parametrize("seed", range(20))
def test_each_queue_gets_its_own_messages_once_while_consumers_come_and_go(seed: int) -> None:
    """Queues, durable subscriptions and a topic's readers in one log, with holds, returns and restarts."""
    choose, world = random.Random(seed), World(SHARED, tail_bytes_max=random.Random(seed).choice([1, 1 << 26]))
    names = [f"/queue/{number}" for number in range(6)]
    sent: dict[str, list[str]] = {name: [] for name in names}
    heard: dict[str, set[str]] = {name: set() for name in names}
    consumers: dict[str, Any] = {}
    held: list[tuple[Any, Any]] = []
    number = 0

    def hear() -> None:
        for name, client in consumers.items():
            for message in client.messages():
                assert message.headers["destination"] == name
                held.append((client, message))

    def settle_some(share: float) -> None:
        for client, message in held[:]:
            if client.session.closed:
                held.remove((client, message))
            elif choose.random() < share:
                client.ack(message)
                name, body = message.headers["destination"], message.body.decode()
                assert body not in heard[name], "twice"
                heard[name].add(body)
                held.remove((client, message))

    for _ in range(150):
        what = choose.choice(["send", "send", "send", "join", "leave", "settle", "tick", "ack"])
        if what == "send":
            sender = world.connect()
            for _ in range(choose.choice([1, 1, 3])):
                name = choose.choice(names[: choose.choice([1, 6])])
                sender.publish(name, str(number))
                sent[name].append(str(number))
                number += 1
            world.settle()
            sender.drop()
        elif what == "join":
            name = choose.choice(names)
            if name not in consumers:
                consumers[name] = world.connect()
                consumers[name].subscribe(name, prefetch_count=choose.choice([1, 5]))
        elif what == "leave" and consumers:
            hear()
            name = choose.choice(list(consumers))
            consumers.pop(name).drop()
            settle_some(0)
        elif what == "tick":
            world.tick(11)
        elif what == "ack":
            world.settle()
            hear()
            settle_some(0.6)
        else:
            world.settle()
    world.settle()
    hear()
    settle_some(1.0)
    world.settle()
    world.restart()
    for name in names:
        last = world.connect()
        last.subscribe(name, ack="auto")
        world.settle()
        heard[name].update(last.bodies())
        assert sorted(heard[name]) == sorted(sent[name]), name
