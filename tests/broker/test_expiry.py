"""Messages whose time is over: expires, message_ttl."""

from __future__ import annotations

from radiator.clock import NS_PER_MS
from tests.broker.harness import NOW, World

NOW_MS = NOW // NS_PER_MS
TTL = "destinations: [{match: /queue/ttl, message_ttl: 10s}]"


def test_an_expired_message_is_never_delivered_and_is_counted() -> None:
    world = World()
    client = world.connect()
    client.publish("/queue/a", "never")
    client.publish("/queue/a", "old", expires=NOW_MS + 1_000)
    client.publish("/queue/a", "zero", expires=0)
    client.publish("/queue/a", "new", expires=NOW_MS + 100_000)
    world.tick(1)
    client.subscribe("/queue/a", prefetch_count=10)
    world.settle()
    assert client.bodies() == ["never", "zero", "new"]
    assert world.broker.stats.expired == 1


def test_a_message_that_comes_back_may_have_expired_meanwhile() -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a")
    client.publish("/queue/a", "x", expires=NOW_MS + 1_000)
    world.settle()
    (message,) = client.messages()
    world.tick(1)
    client.nack(message)
    world.settle()
    assert client.bodies() == []
    assert world.broker.stats.expired == 1
    world.restart()
    client = world.connect()
    client.subscribe("/queue/a")
    world.settle()
    assert client.bodies() == []
    assert world.broker.stats.expired == 0


def test_message_ttl_counts_from_the_receipt() -> None:
    world = World(TTL)
    client = world.connect()
    client.publish("/queue/ttl", "old")
    world.tick(9)
    client.publish("/queue/ttl", "new", expires=0)
    world.tick(1)
    client.subscribe("/queue/ttl", prefetch_count=10)
    world.settle()
    assert client.bodies() == ["new"]
    assert world.broker.stats.expired == 1


def test_a_message_that_expires_before_it_is_due_is_never_delivered() -> None:
    world = World()
    client = world.connect()
    client.subscribe("/queue/a")
    client.publish("/queue/a", "x", expires=NOW_MS + 1_000, delay="5s")
    world.tick(1)
    assert world.broker.stats.expired == 1
    world.tick(10)
    assert client.bodies() == []
