"""An exclusive consumer begins when the others hold nothing of the queue, in whichever of its logs that lies."""

from __future__ import annotations

import pytest

from radiator import limits
from tests.broker.harness import World

PARTS = "destinations: [{match: /queue/a, partitions: 2, prefetch: 10}]"
PRIORITIES = "destinations: [{match: /queue/a, priority: true, prefetch: 10}]"
FED = "destinations: [{match: /queue/p, fan_out: [/queue/a]}, {match: /queue/a, prefetch: 10}]"


def send(world: World, config: str) -> None:
    """One message into each of two logs of the queue."""
    client = world.connect()
    for number in range(2):
        headers = {"priority": str(9 * number)} if config is PRIORITIES else {}
        destination = "/queue/p" if config is FED and number else "/queue/a"
        client.say("SEND", b"m%d" % number, destination=destination, **headers)
    world.settle()


@pytest.mark.parametrize("config", [PARTS, PRIORITIES, FED])
@pytest.mark.parametrize("ack", ["client", "client-individual", "auto"])
def test_it_does_not_begin_with_one_log_while_others_hold_something_of_another(config: str, ack: str) -> None:
    world = World(config)
    first, alone = world.connect(), world.connect()
    first.subscribe("/queue/a")
    send(world, config)
    held, other = first.messages()
    alone.subscribe("/queue/a", ack=ack, exclusive="true")
    first.ack(held)
    send(world, config)
    assert alone.messages() == []
    first.ack(other)
    world.settle()
    assert len(alone.messages()) == 2


@pytest.mark.parametrize("config", [PARTS, PRIORITIES, FED])
def test_the_next_one_waits_for_what_the_last_one_has_not_been_sent_yet(config: str) -> None:
    world = World(config)
    first, other = world.connect(), world.connect()
    for client in (first, other):
        client.subscribe("/queue/a", ack="auto", exclusive="true")
    client = world.connect()
    client.publish("/queue/a", "1", priority="9")
    world.commit()
    world.pump()
    first.say("UNSUBSCRIBE", id="0")
    client.say("SEND", b"2", destination="/queue/p" if config is FED else "/queue/a", priority="0")
    world.commit()
    world.pump()
    other.flush()
    assert other.bodies() == []  # "1" is still on its way to the first
    world.settle()
    assert (first.bodies(), other.bodies()) == (["1"], ["2"])


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_it_begins_once_a_client_has_acknowledged_that_fills_its_window_from_another_queue(ack: str) -> None:
    world = World()
    first, alone, sender = world.connect(), world.connect(), world.connect()
    first.subscribe("/queue/b", id="b", ack=ack)
    first.subscribe("/queue/a", id="a", ack=ack)
    sender.publish("/queue/a", "a1", "a2")
    world.settle()
    (message,) = first.messages()
    sender.publish("/queue/b", "b1")
    alone.subscribe("/queue/a", exclusive="true")
    world.settle()
    assert alone.messages() == []
    first.ack(message)
    world.settle()
    assert (first.bodies(), alone.bodies()) == (["b1"], ["a2"])


@pytest.mark.parametrize("on_unacked", ["requeue", "delete", "dead_letter, dead_letter: /queue/dead"])
def test_it_begins_once_all_is_given_back_by_a_consumer_that_leaves_over_several_turns(
    monkeypatch: pytest.MonkeyPatch, on_unacked: str
) -> None:
    monkeypatch.setattr(limits, "TURN_WORK", 1)
    world = World(f"destinations: [{{match: /queue/a, prefetch: 10, on_unacked: {on_unacked}}}]")
    first, alone, sender = world.connect(), world.connect(), world.connect()
    first.subscribe("/queue/a")
    sender.publish("/queue/a", "1")
    world.settle()
    alone.subscribe("/queue/a", exclusive="true")
    sender.publish("/queue/a", "2")
    world.settle()
    assert alone.messages() == []
    first.drop()
    world.settle()
    assert alone.bodies() == (["1", "2"] if on_unacked == "requeue" else ["2"])
