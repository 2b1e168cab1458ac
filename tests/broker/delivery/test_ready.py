"""Whoever may get a message is not passed over, and a message that one refuses goes to others first."""

from __future__ import annotations

from typing import Any

import pytest

from radiator.config import LimitsConfig
from tests.broker.harness import Client, World

Q, T = "/queue/a", "/topic/a"


def turns(world: World, *readers: Client) -> None:
    """Some turns in which only ``readers`` read what they are sent."""
    for _ in range(20):
        world.commit()
        world.reads()
        world.pump()
        for client in readers:
            client.flush()


# --- a full outbox ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opening", "window"),
    [({}, {}), ({}, {"prefetch_count": 2}), ({"max_in_flight": "1"}, {}), ({"max_in_flight": "2"}, {"credit": 2})],
    ids=["one", "own window", "capped", "capped, own window"],
)
@pytest.mark.parametrize("acks", ["before", "while"])
def test_a_client_that_acks_with_a_full_outbox_gets_its_next_message_once_it_reads(
    opening: dict[str, str], window: dict[str, Any], acks: str
) -> None:
    world = World(limits=LimitsConfig(outbox=4_096))
    sender, client = world.connect(), world.connect(**opening)
    client.subscribe(Q, id="q", **window)
    client.subscribe(T, id="t", ack="auto")
    sender.publish(Q, *"012345")
    turns(world, client, sender)
    held = client.messages()
    assert held
    if acks == "before":
        client.ack(held.pop(0))
    sender.publish(T, *["x" * 1_000] * 20)
    turns(world, sender)  # the topic fills the outbox, and the client does not read
    assert client.session.outbox.room() <= 0
    for message in held:
        client.ack(message)
    turns(world, sender)
    found = ["0", "1"][: len(held) + (acks == "before")]
    world.settle()
    while messages := [message for message in client.messages() if message.headers["subscription"] == "q"]:
        for message in messages:
            found.append(message.body.decode())
            client.ack(message)
        world.settle()
    assert found == list("012345")


def test_two_queues_of_one_client_go_on_after_its_outbox_was_full() -> None:
    world = World(limits=LimitsConfig(outbox=4_096))
    sender, client = world.connect(), world.connect()
    client.subscribe(Q, id="a")
    client.subscribe("/queue/b", id="b")
    client.subscribe(T, id="t", ack="auto")
    sender.publish(Q, "a0", "a1")
    turns(world, client, sender)
    (held,) = client.messages()
    sender.publish("/queue/b", "b0", "b1")
    sender.publish(T, *["x" * 1_000] * 20)
    turns(world, sender)
    client.ack(held)
    turns(world, sender)
    assert client.session.outbox.room() <= 0 and client.session.window.held == 0
    found = []
    world.settle()
    while messages := [message for message in client.messages() if message.headers["subscription"] != "t"]:
        (message,) = messages
        found.append(message.body.decode())
        client.ack(message)
        world.settle()
    assert found == ["b0", "a1", "b1"]


def test_a_full_outbox_of_one_consumer_does_not_hold_its_message_back_from_another() -> None:
    world = World(limits=LimitsConfig(outbox=4_096))
    sender, stuck, other = world.connect(), world.connect(), world.connect()
    stuck.subscribe(Q, id="q", prefetch_count=2)
    stuck.subscribe(T, id="t", ack="auto")
    sender.publish(T, *["x" * 1_000] * 20)
    turns(world, sender)
    other.subscribe(Q)
    sender.publish(Q, "m")
    turns(world, sender, other)
    assert other.bodies() == ["m"]


# --- NACK -------------------------------------------------------------------------------------------------------------


def test_a_refused_message_goes_to_another_consumer_even_if_the_first_has_credit_again(world: World) -> None:
    sender, refuser, other = world.connect(), world.connect(), world.connect()
    refuser.subscribe(Q, id="a")
    refuser.subscribe("/queue/b", id="b")
    sender.publish(Q, "a")
    world.settle()
    (message,) = refuser.messages()
    sender.publish("/queue/b", "b")
    world.settle()
    assert refuser.messages() == []  # its window of one is full
    other.subscribe(Q)
    world.settle()
    refuser.nack(message)
    world.settle()
    assert (other.bodies(), refuser.bodies()) == (["a"], ["b"])


@pytest.mark.parametrize("window", [1, 3])
def test_a_refused_message_goes_to_another_consumer_whatever_the_windows(world: World, window: int) -> None:
    refuser, other = world.connect(), world.connect()
    refuser.publish(Q, "m")
    refuser.subscribe(Q, prefetch_count=window)
    world.settle()
    (message,) = refuser.messages()
    other.subscribe(Q, prefetch_count=3)
    for one, two in ((refuser, other), (other, refuser), (refuser, other)):
        one.nack(message)
        world.settle()
        assert one.messages() == []
        (message,) = two.messages()


def test_a_refused_message_comes_back_to_its_consumer_if_no_other_has_credit(world: World) -> None:
    refuser, busy = world.connect(), world.connect()
    refuser.publish(Q, "m0", "m1")
    refuser.subscribe(Q)
    world.settle()
    busy.subscribe(Q)
    world.settle()
    assert busy.bodies() == ["m1"]
    refuser.nack(refuser.messages()[0])
    world.settle()
    assert (refuser.bodies(), busy.bodies()) == (["m0"], [])


@pytest.mark.parametrize(
    ("opening", "window"), [({}, {}), ({"max_in_flight": "1"}, {}), ({"max_in_flight": "1"}, {"prefetch_count": 2})]
)
def test_a_message_that_is_refused_again_and_again_does_not_starve_the_other_queues(
    world: World, opening: dict[str, str], window: dict[str, Any]
) -> None:
    sender, client = world.connect(), world.connect(**opening)
    for name in "abc":
        client.subscribe(f"/queue/{name}", id=name, **window)
        sender.publish(f"/queue/{name}", name)
    seen = []
    for _ in range(9):
        world.settle()
        (message,) = client.messages()
        seen.append(message.body.decode())
        client.nack(message)
    assert {seen.count(name) for name in "abc"} == {3}, seen


@pytest.mark.parametrize("window", [1, 3])
def test_topics_have_their_turn_beside_a_queue_that_is_always_full(window: int) -> None:
    """They share one window under max-in-flight."""
    world = World()
    sender, client = world.connect(), world.connect(max_in_flight=str(window))
    client.subscribe("/queue/busy", id="q")
    client.subscribe("/topic/a", id="a")
    client.subscribe("/topic/b", id="b")
    for number in range(60):
        for destination in ("/queue/busy", "/topic/a", "/topic/b"):
            sender.publish(destination, str(number))
    heard: dict[str, list[str]] = {"q": [], "a": [], "b": []}
    for _ in range(60):
        world.settle()
        messages = client.messages()
        assert len(messages) <= window
        for message in messages:
            heard[message.headers["subscription"]].append(message.body.decode())
            client.ack(message)
    for bodies in heard.values():
        assert len(bodies) >= 10
        assert bodies == [str(number) for number in range(len(bodies))]
