"""Names with wildcards, and topics that nobody has sent to: they cost nothing until somebody does, and lose nothing."""

from __future__ import annotations

from random import Random

import pytest

from radiator.clock import NS_PER_SECOND
from tests.broker.durable.test_subscriptions import SHARED, T, U, again, durable
from tests.broker.harness import Client, World
from tests.broker.queues.test_queue import drain, fill
from tests.tiers import sampled

ALL = "/topic/>"
CONFIGS = ["", SHARED, "defaults: {store: memory}", "destinations: [{match: '/topic/>', partitions: 2}]"]
ENDS = [None, "restart", "kill", "power_cut"]


def listen(world: World, *topics: str) -> Client:
    """Somebody who is only subscribed."""
    client = world.connect()
    for each in topics:
        client.subscribe(each, id=each)
    world.settle()
    return client


def cursors(world: World) -> list[tuple[str, str]]:
    return [each for each in world.store.cursors.names() if each[0] == "sub:me"]


@pytest.mark.parametrize("first", ["name", "listener"])
@pytest.mark.parametrize("config", CONFIGS)
def test_a_topic_that_others_are_only_subscribed_to_is_not_kept(config: str, first: str) -> None:
    world = World(config)
    if first == "name":
        durable(world, ALL).drop()
    listener = listen(world, *(f"/topic/{number}" for number in range(5)))
    if first == "listener":
        durable(world, ALL).drop()
    assert cursors(world) == [] and len(world.broker.destinations) == 5
    listener.drop()
    world.settle()
    assert len(world.broker.destinations) == 0 and len(world.store.partitions) == 0


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("position", [{}, {"start_position": "first"}, {"start_position": "last:3"}])
@pytest.mark.parametrize("config", CONFIGS[:2])
def test_its_first_message_is_the_names_too(config: str, position: dict[str, str], end: str | None) -> None:
    world = World(config)
    listen(world, T)
    durable(world, ALL, **position).drop()
    fill(world, 1, U)
    fill(world, 2, T)
    if end is not None:
        getattr(world, end)()
    assert sorted(again(world, ALL)) == ["m0", "m0", "m1"]
    assert again(world, ALL) == []


def test_the_cursor_is_made_with_the_turn_of_the_first_message() -> None:
    world = World()
    listen(world, T)
    client = durable(world, ALL)
    sender = world.connect()
    sender.publish(T, "1", receipt="r")
    assert cursors(world) == [("sub:me", T)]
    world.take()
    world.write()
    world.power_cut()
    client = durable(world, ALL)
    sender = world.connect()
    sender.publish(T, "2")
    assert drain(client)[-1:] == ["2"]


def test_what_a_transaction_and_what_dies_send_there_is_the_names_too() -> None:
    world = World("destinations: [{match: /queue/a, dead_letter: /topic/dead, redeliver: {max: 1}}]")
    listen(world, T, "/topic/dead")
    durable(world, ALL).drop()
    client = world.connect()
    client.say("BEGIN", transaction="t")
    client.publish(T, "committed", transaction="t")
    client.say("COMMIT", transaction="t")
    client.publish("/queue/a", "dead")
    client.subscribe("/queue/a", id="q")
    world.settle()
    client.nack(client.messages()[0])
    world.settle()
    assert sorted(again(world, ALL)) == ["committed", "dead"]


def test_a_name_that_says_what_the_topic_is_called_keeps_its_place_there() -> None:
    world = World()
    durable(world, f"{T},/topic/x.>").drop()
    assert cursors(world) == [("sub:me", T)]


def test_a_position_to_come_holds_for_a_topic_that_was_silent_then() -> None:
    world = World()
    listen(world, T)
    durable(world, ALL, start_position=f"time:{world.now + 5 * NS_PER_SECOND}").drop()
    fill(world, 1, T)
    world.tick(6)
    world.connect().publish(T, "later")
    assert again(world, ALL) == ["later"]


@pytest.mark.parametrize("config", CONFIGS[:2])
@pytest.mark.parametrize("seed", sampled(range(30), 5))
def test_whatever_happens_a_name_gets_everything_that_was_sent_after_it(seed: int, config: str) -> None:
    random = Random(seed)
    world = World(config)
    topics = [f"/topic/{number}" for number in range(6)]
    sent: list[str] = []
    got: list[str] = []
    known = False
    for _ in range(60):
        what = random.choice(["send", "send", "listen", "leave", "follow", "end"])
        if what == "send":
            body = str(len(sent)) if known else "before"
            world.connect().publish(random.choice(topics), body)
            if known:
                sent.append(body)
            if random.random() < 0.5:
                world.settle()
        elif what == "listen":
            listen(world, *random.sample(topics, 2), *random.sample(["/topic/*", ALL], 1))
        elif what == "leave" and world.clients:
            client = random.choice(world.clients)
            if not client.session.closed:
                client.drop()
        elif what == "follow":
            got += again(world, ALL)
            known = True
        elif what == "end":
            world.settle()
            world.tick(1)
            getattr(world, random.choice(["restart", "kill", "power_cut"]))()
    got += again(world, ALL)
    assert sorted(got, key=int) == sent
    for _, where in cursors(world):
        assert world.store.partitions[where].next_offset > 0
