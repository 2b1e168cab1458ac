"""SUBSCRIBE to many destinations: it joins them in portions, and promises the same as if it had joined them at once."""

from __future__ import annotations

import pytest

from radiator import limits
from tests.broker.harness import Client, World, bodies

RULES = """
destinations:
  - {match: '/topic/>', store: memory}
  - {match: '/queue/>', store: memory}
"""
COUNT = 12


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TURN_WORK", 15)


@pytest.fixture
def world() -> World:
    world = World(RULES)
    client = world.connect()
    for number in range(COUNT):
        client.publish(f"/topic/{number}", f"old {number}")
    world.settle()
    client.drop()
    return world


def begun(world: World, destination: str, **headers: str) -> Client:
    """A client whose SUBSCRIBE has joined some, and not all."""
    client = world.connect()
    client.subscribe(destination, ack="auto", receipt="r", **headers)
    assert client.rest and client.session.command.steps is not None
    assert client.session.subscriptions.by_id["0"].destinations
    return client


@pytest.mark.usefixtures("small")
def test_a_subscription_reads_from_one_time_on_and_delivers_nothing_before_all_have_joined(world: World) -> None:
    client, sender = begun(world, "/topic/#"), world.connect()
    for number in range(COUNT):
        sender.publish(f"/topic/{number}", f"new {number}")
    sender.publish("/topic/born", "born")
    world.broker.take(world.time)
    world.broker.ready.pump()
    client.flush()
    assert not client.inbox
    world.settle()
    assert [frame.command for frame in client.inbox] == ["RECEIPT"] + ["MESSAGE"] * (COUNT + 1)
    assert sorted(bodies(client.messages())) == sorted(["born", *(f"new {number}" for number in range(COUNT))])
    sender.publish("/topic/3", "last")
    world.settle()
    assert bodies(client.messages()) == ["last"]


@pytest.mark.usefixtures("small")
def test_a_bounded_replay_ends_where_the_logs_ended_when_it_was_asked_for(world: World) -> None:
    client, sender = begun(world, "/topic/#", start_position="first", stop_position="end"), world.connect()
    for number in range(COUNT):
        sender.publish(f"/topic/{number}", f"new {number}")
    world.settle()
    *messages, end = client.messages()
    assert sorted(bodies(messages)) == sorted(f"old {number}" for number in range(COUNT))
    assert end.headers["replay-end"] == "true"


@pytest.mark.usefixtures("small")
def test_the_last_of_each_are_found_once_all_have_joined(world: World) -> None:
    client = begun(world, "/topic/#", start_position="last:1", stop_position="end")
    world.settle()
    *messages, end = client.messages()
    assert sorted(bodies(messages)) == sorted(f"old {number}" for number in range(COUNT))
    assert end.headers["replay-end"] == "true"


@pytest.mark.usefixtures("small")
def test_queues_are_consumed_once_all_have_joined(world: World) -> None:
    sender = world.connect()
    for number in range(COUNT):
        sender.publish(f"/queue/{number}", str(number))
    world.settle()
    client = begun(world, "/queue/#")
    sender.publish("/queue/born", "born")
    world.broker.ready.pump()
    client.flush()
    assert not client.inbox
    world.settle()
    assert sorted(bodies(client.messages())) == sorted(["born", *map(str, range(COUNT))])


@pytest.mark.usefixtures("small")
def test_a_client_that_leaves_while_it_joins_leaves_nothing_behind(world: World) -> None:
    client, sender = begun(world, "/topic/#"), world.connect()
    client.drop()
    world.settle()
    assert all(not each.subscribers for each in world.broker.destinations.values())
    assert all(not feed.readers for each in world.broker.destinations.values() for feed in each.feeds)
    sender.publish("/topic/born", "nobody's")
    world.settle()


@pytest.mark.usefixtures("small")
def test_frames_behind_it_wait_for_it(world: World) -> None:
    client = begun(world, "/topic/#")
    client.publish("/topic/3", "own", receipt="s")
    client.say("UNSUBSCRIBE", id="0", receipt="u")
    world.settle()
    assert [frame.headers["receipt-id"] for frame in client.take("RECEIPT")] == ["r", "s", "u"]


def test_few_destinations_are_joined_in_one_visit(world: World) -> None:
    client = world.connect()
    client.subscribe("/topic/#", ack="auto", receipt="r")
    assert not client.rest and client.session.command.steps is None
