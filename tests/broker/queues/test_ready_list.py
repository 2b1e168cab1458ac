"""A queue over many logs looks only at those that have something."""

from __future__ import annotations

from unittest.mock import patch

from radiator.broker.delivery import dispatch
from radiator.broker.durable.subscription import BEGIN_UNITS, CLOSE_UNITS
from radiator.broker.queues.queue import Queue, QueueSource
from tests.broker.durable.test_subscriptions import durable
from tests.broker.harness import World
from tests.broker.queues.test_queue import drain, fill

TOPICS = 30


def topics(world: World, number: int = TOPICS) -> Queue:
    for index in range(number):
        fill(world, 1, f"/topic/{index}")
    return next(iter(world.broker.durable.by_key.values())).queue


def test_a_name_that_has_read_everything_looks_at_no_topic(world: World) -> None:
    client = durable(world, "/topic/>", ack="auto")
    queue = topics(world)
    assert len(client.messages()) == TOPICS and len(queue.sources) == TOPICS
    dispatch.pump(queue)
    assert len(queue.ready_list) == 0
    with patch.object(QueueSource, "ready", property(lambda _: 1 / 0)):
        assert dispatch.pump(queue) == 0


def test_of_many_topics_it_looks_at_the_one_that_has_something(world: World) -> None:
    client = durable(world, "/topic/>", ack="auto")
    queue = topics(world)
    client.messages()
    dispatch.pump(queue)
    world.connect().publish("/topic/7", "one more")
    world.commit()
    assert [source.feed.partition.name for source in queue.ready_list.turns()] == ["/topic/7"]
    world.settle()
    assert client.bodies() == ["one more"]


def test_topics_take_turns_and_each_is_read_to_its_end(world: World) -> None:
    durable(world, "/topic/>").drop()
    for _ in range(2):
        for index in range(3):
            fill(world, 1, f"/topic/{index}")
    client = durable(world, "/topic/>", prefetch_count="1")
    heard = []
    for _ in range(6):
        (message,) = client.messages()
        heard.append(message.headers["destination"])
        client.ack(message)
        world.settle()
    assert sorted(heard) == [f"/topic/{index}" for index in (0, 0, 1, 1, 2, 2)]
    assert len(set(heard[:3])) > 1


def test_a_message_that_is_requeued_to_an_idle_topic_is_found(world: World) -> None:
    client = durable(world, "/topic/>", prefetch_count="100")
    queue = topics(world, 5)
    held = client.messages()
    dispatch.pump(queue)
    assert len(held) == 5 and len(queue.ready_list) == 0
    client.nack(held[3])
    world.settle()
    (again,) = client.messages()
    assert again.body == held[3].body
    client.drop()
    world.settle()
    assert len(drain(durable(world, "/topic/>"))) == 5


def test_topics_that_a_name_joins_are_work_that_lets_others_have_their_turn(world: World) -> None:
    for index in range(TOPICS):
        fill(world, 1, f"/topic/{index}")
    client = world.connect()
    client.subscribe("/topic/>", subscription_name="me")
    assert world.broker.budget.spent >= BEGIN_UNITS * TOPICS
    client.say("UNSUBSCRIBE", id="0", subscription_name="me")
    assert world.broker.budget.spent >= CLOSE_UNITS * TOPICS
