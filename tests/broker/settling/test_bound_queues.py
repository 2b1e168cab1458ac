"""One subscription to several children of a ``fan_out``: each hands it the same message, and each delivery counts."""

from __future__ import annotations

import pytest

from tests.broker.harness import Client, World

CONFIG = """
destinations:
  - {match: '/queue/p,/topic/p', fan_out: [/queue/k.1, /queue/k.2]}
  - {match: /queue/k.*, prefetch: 10, ack_timeout: 1m, redeliver: {delay: 0ms}}
"""
BOTH = "/queue/k.*"


def rest(world: World) -> dict[str, list[str]]:
    """What is left in each of the two, for who comes later."""
    left = {}
    for name in ("/queue/k.1", "/queue/k.2"):
        client = world.connect()
        client.subscribe(name, ack="auto")
        world.settle()
        left[name] = client.bodies()
        client.drop()
    return left


def consumer(world: World, parent: str = "/queue/p", pattern: str = BOTH, **headers: str) -> Client:
    client = world.connect(**{name: headers.pop(name) for name in ("version", "max_in_flight") if name in headers})
    world.connect().publish(parent, "m0", "m1")
    world.settle()
    client.subscribe(pattern, **headers)
    world.settle()
    return client


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_an_ack_for_each_delivery_settles_the_message_in_each_of_them(version: str) -> None:
    world = World(CONFIG)
    client = consumer(world, version=version)
    messages = client.messages()
    assert sorted(each.body for each in messages) == [b"m0", b"m0", b"m1", b"m1"]
    for message in messages:
        client.ack(message)
    world.settle()
    client.drop()
    world.restart()
    assert rest(world) == {"/queue/k.1": [], "/queue/k.2": []}


def test_an_ack_of_one_delivery_leaves_the_other() -> None:
    world = World(CONFIG)
    client = consumer(world)
    messages = client.messages()
    for message in messages[:3]:
        client.ack(message)
    client.drop()
    assert sum(map(len, rest(world).values())) == 1


def test_what_was_not_acknowledged_comes_again_from_each_of_them() -> None:
    world = World(CONFIG)
    client = consumer(world)
    assert len(client.messages()) == 4
    client.drop()
    assert rest(world) == {"/queue/k.1": ["m0", "m1"], "/queue/k.2": ["m0", "m1"]}


def test_an_ack_that_comes_twice_settles_nothing_else() -> None:
    world = World(CONFIG)
    client = consumer(world)
    messages = client.messages()
    assert len({each.headers["ack"] for each in messages}) == 4
    for message in [messages[0], messages[-1]]:
        client.ack(message)
        client.ack(message)
    world.settle()
    assert world.broker.stats.late_acks == 2
    client.drop()
    assert sum(map(len, rest(world).values())) == 2


def test_a_cumulative_ack_covers_every_delivery_before_it() -> None:
    world = World(CONFIG)
    client = consumer(world, ack="client")
    messages = client.messages()
    client.ack(messages[1])
    client.ack(messages[-2])
    client.drop()
    assert sum(map(len, rest(world).values())) == 1


def test_each_refusal_brings_one_back() -> None:
    world = World(CONFIG)
    client = consumer(world)
    for message in client.messages():
        client.nack(message)
    world.settle()
    again = client.messages()
    assert [each.headers["delivery-count"] for each in again] == ["2"] * 4


def test_each_that_is_not_answered_in_time_goes_back() -> None:
    world = World(CONFIG)
    client = consumer(world)
    assert len(client.messages()) == 4
    world.tick(61)
    assert [each.headers["delivery-count"] for each in client.messages()] == ["2"] * 4
    assert world.broker.stats.ack_timeouts == 4


def test_the_window_is_free_again_after_the_last_ack() -> None:
    world = World(CONFIG)
    client = consumer(world, max_in_flight="2")
    heard = 0
    while messages := client.messages():
        heard += len(messages)
        for message in messages:
            client.ack(message)
        world.settle()
    assert heard == 4


def test_a_topic_and_the_queue_that_it_feeds_are_two() -> None:
    world = World(CONFIG)
    client = world.connect()
    client.subscribe("/topic/p,/queue/k.1")
    client.publish("/topic/p", "m0")
    world.settle()
    messages = client.messages()
    assert len(messages) == 2
    for message in messages:
        client.ack(message)
    client.drop()
    assert rest(world) == {"/queue/k.1": [], "/queue/k.2": ["m0"]}
