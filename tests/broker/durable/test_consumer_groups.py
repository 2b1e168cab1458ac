"""Groups: several subscribers of topics that share one place."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.harness import Client, World
from tests.broker.queues.test_queue import drain, fill

T = "/topic/a"


def member(world: World, topic: str = T, **headers: Any) -> Client:
    client = world.connect()
    client.subscribe(topic, **{"group": "g", **headers})
    world.settle()
    return client


def test_each_message_goes_to_one_member_and_they_are_served_in_turn(world: World) -> None:
    members = [member(world, ack="auto") for _ in range(3)]
    sent = fill(world, 30, T)
    shares = [client.bodies() for client in members]
    assert [len(share) for share in shares] == [10, 10, 10]
    assert sorted(body for share in shares for body in share) == sorted(sent)


def test_what_a_member_held_goes_to_the_others_in_its_place(world: World) -> None:
    one, two = member(world), member(world)
    fill(world, 3, T)
    (held,) = one.messages()
    one.drop()
    world.settle()
    (message,) = two.messages()
    two.ack(message)
    world.settle()
    (again,) = two.messages()
    assert (again.body, again.headers["redelivered"]) == (held.body, "true")


def test_a_member_has_the_window_of_a_queue(world: World) -> None:
    client, wide = member(world), member(world, prefetch_count=3)
    fill(world, 10, T)
    assert len(client.messages()) == 1
    assert len(wide.messages()) == 3


@pytest.mark.parametrize("end", ["restart", "kill", "power_cut"])
def test_a_group_stays_without_members(world: World, end: str) -> None:
    client = member(world)
    client.say("UNSUBSCRIBE", id="0", receipt="1")
    world.settle()
    client.drop()
    sent = fill(world, 3, T)
    getattr(world, end)()
    assert drain(member(world)) == sent


def test_two_groups_and_a_durable_name_get_everything_each(world: World) -> None:
    one, two, three = member(world, ack="auto"), member(world, group="h", ack="auto"), world.connect()
    three.subscribe(T, subscription_name="g", ack="auto")
    sent = fill(world, 3, T)
    assert one.bodies() == two.bodies() == three.bodies() == sent


def test_members_say_the_same_destination(world: World) -> None:
    client = member(world)
    assert member(world, "/topic/b").error() == "bad-subscription"
    assert member(world, reset="true").error() == "bad-subscription"
    client.drop()
    assert not member(world, "/topic/b").session.closing


def test_the_name_deletes_it_once_the_last_member_says_so(world: World) -> None:
    one, two = member(world), member(world)
    one.say("UNSUBSCRIBE", group="g", receipt="1")
    world.settle()
    assert one.receipts() == ["1"]
    assert list(world.broker.durable.by_key) == ["group:g"]
    two.say("UNSUBSCRIBE", id="0", group="g", receipt="1")
    world.settle()
    assert two.receipts() == ["1"]
    assert not world.broker.durable.by_key
