"""What rules say of messages (time to live, deliveries, dead letters) holds for their topic's, also under a name that
reads several topics."""

from __future__ import annotations

import pytest

from tests.broker.admin.test_cursor_verbs import ask
from tests.broker.durable.test_subscriptions import durable
from tests.broker.harness import World
from tests.broker.queues.test_queue import drain, fill

A, B, DEAD = "/topic/a", "/topic/b", "/queue/dead"
TTL = "destinations: [{match: /topic/b, message_ttl: 10s}, {match: /topic/a}]"
TTL_SHARED = "destinations: [{match: /topic/b, message_ttl: 10s, partition: s}, {match: /topic/a, partition: s}]"
LETTERS = """
destinations:
  - match: /topic/b
  - match: /topic/a
    redeliver: {max: 1}
    dead_letter: /queue/dead
  - match: /queue/dead
    max_messages: 1
    on_full: reject
"""
TIMEOUTS = "destinations: [{match: /topic/b, ack_timeout: 1s}, {match: /topic/a, ack_timeout: 60s}]"
TIMEOUTS_SHARED = """
destinations:
  - {match: /topic/b, ack_timeout: 60s, partition: s}
  - {match: /topic/a, ack_timeout: 1s, partition: s}
"""


@pytest.mark.parametrize("end", ["tick", "restart"])
def test_a_time_to_live_deletes_what_its_own_topic_has(end: str) -> None:
    world = World(TTL)
    durable(world, f"{A},{B}").drop()
    sent = fill(world, 2, A)
    fill(world, 2, B)
    if end == "restart":
        world.restart()
    world.tick(700)
    assert drain(durable(world, f"{A},{B}")) == sent
    assert world.broker.stats.expired == 2


def test_in_a_log_that_topics_share_a_message_lives_as_long_as_any_of_them_says() -> None:
    world = World(TTL_SHARED)
    durable(world, f"{A},{B}").drop()
    fill(world, 1, B)
    sent = fill(world, 2, A)
    world.restart()
    world.tick(700)
    assert drain(durable(world, f"{A},{B}"))[-2:] == sent


@pytest.mark.parametrize("held", [True, False])
def test_a_dead_letter_keeps_its_queue_when_a_topic_with_another_policy_is_created(held: bool) -> None:
    world = World(LETTERS)
    client = durable(world, "/topic/>")
    sent = fill(world, 2 if held else 1, A)
    for message in client.messages():
        client.nack(message, requeue="false")
    if held:
        world.settle()
        assert world.broker.stats.dead_lettered == 1
        fill(world, 1, B)
    else:
        world.take()
        world.connect().publish(B, "born")
        world.write()
        world.sync()
        world.completed()
    world.tick(5)
    taker = world.connect()
    taker.subscribe(DEAD, ack="auto")
    world.settle()
    world.tick(70)
    assert taker.bodies() == sent


def test_each_topic_has_its_own_ack_timeout() -> None:
    world = World(TIMEOUTS)
    client = durable(world, f"{A},{B}")
    fill(world, 1, A)
    late = fill(world, 1, B)
    assert len(client.messages()) == 2
    world.tick(2)
    assert client.bodies() == late


def test_a_topic_that_joins_in_the_same_log_gives_more_time_for_what_is_with_a_consumer_already() -> None:
    world = World(TIMEOUTS_SHARED)
    client = durable(world, "/topic/*")
    sent = fill(world, 1, A)
    world.settle()
    assert client.bodies() == sent
    fill(world, 1, B)
    client.messages()
    world.tick(2)
    assert client.bodies() == []
    world.tick(60)
    assert sent[0] in client.bodies()


def test_what_an_older_cursor_planned_for_is_forgotten_when_the_cursor_is_set(world: World) -> None:
    world.connect().publish("/queue/a", "1", "2", "3", delay="1h")
    consumer = world.connect()
    consumer.subscribe("/queue/a")
    world.settle()
    for _ in range(3):
        ask(world, "cursors.set", name="queue:/queue/a", position="first")
    assert world.broker.timing.deferred == 3
    ask(world, "cursors.set", name="queue:/queue/a", position="next")
    assert world.broker.timing.deferred == 0


@pytest.mark.parametrize("headers", [{"requeue": "false"}, {"delay": "1h"}, {}])
def test_a_delivery_of_before_the_cursor_was_set_means_nothing(headers: dict[str, str]) -> None:
    world = World("destinations: [{match: /queue/a, dead_letter: /queue/dead}]")
    sent = fill(world, 1, "/queue/a")
    consumers = [world.connect() for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe("/queue/a", prefetch_count="1")
        world.settle()
    (old,) = consumers[0].messages()
    ask(world, "cursors.set", name="queue:/queue/a", position="first")
    (new,) = consumers[1].messages()
    assert old.body == new.body == sent[0].encode()
    consumers[0].nack(old, **headers)
    world.settle()
    assert world.broker.stats.dead_lettered == 0
    assert world.broker.timing.deferred == 0
    consumers[1].ack(new)
    world.tick(5)
    assert [consumer.bodies() for consumer in consumers] == [[], []]


@pytest.mark.parametrize(("headers", "owner"), [({"subscription_name": "n"}, "sub:n"), ({"group": "g"}, "group:g")])
def test_a_dead_letter_has_the_name_of_its_subscription(headers: dict[str, str], owner: str) -> None:
    world = World("destinations: [{match: '/topic/>', dead_letter: /queue/dead}]")
    client = world.connect()
    client.subscribe(A, **headers)
    sender = world.connect()
    sender.publish(A, "x", dlq_subscription="forged")
    sender.publish("sub:n", "a topic of that name")
    world.settle()
    (message,) = client.messages()
    client.nack(message, requeue="false")
    world.settle()
    client.subscribe("/queue/dead", id="dead")
    world.settle()
    (letter,) = client.messages()
    assert (letter.headers["dlq-subscription"], letter.headers["dlq-destination"]) == (owner, A)


def test_a_dead_letter_of_a_queue_has_no_subscription_name() -> None:
    world = World("destinations: [{match: /queue/a, dead_letter: /queue/dead}]")
    client = world.connect()
    client.subscribe("/queue/a")
    client.publish("/queue/a", "x", dlq_subscription="forged")
    world.settle()
    client.nack(client.messages()[0], requeue="false")
    client.subscribe("/queue/dead", id="dead")
    world.settle()
    (letter,) = client.messages()
    assert "dlq-subscription" not in letter.headers
