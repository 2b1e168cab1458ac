"""Subscriptions times destinations are bounded, for each connection and for all, and counted exactly."""

from __future__ import annotations

import pytest

from tests.broker.harness import Client, World

RULES = """
limits: {{joined: {joined}, joined_total: {total}, subscriptions: 10}}
destinations: [{{match: '/topic/>', store: memory}}, {{match: '/queue/>', store: memory}}]
"""


def world_of(kind: str, count: int, joined: int = 100, total: int = 1_000) -> World:
    world = World(RULES.format(joined=joined, total=total))
    client = world.connect()
    for number in range(count):
        client.publish(f"/{kind}/{number}", "x")
    world.settle()
    client.drop()
    return world


def refused(client: Client) -> str:
    client.world.settle()
    (error,) = client.take("ERROR")
    assert error.headers["error-code"] == "too-many"
    return error.body.decode()


@pytest.mark.parametrize("kind", ["topic", "queue"])
def test_a_connection_takes_part_in_so_many_destinations_and_no_more(kind: str) -> None:
    world = world_of(kind, 30)
    client = world.connect()
    for number in range(3):
        client.subscribe(f"/{kind}/>", id=str(number))
    world.settle()
    assert client.session.joined.count == world.broker.joined.count == 90
    client.subscribe(f"/{kind}/>", id="3")
    assert "limits.joined in the YAML file is 100" in refused(client)
    client.drop()
    world.settle()
    assert world.broker.joined.count == 0
    world.holds_nothing()


def test_unsubscribing_makes_room() -> None:
    world = world_of("topic", 60)
    client = world.connect()
    for number in range(5):
        client.subscribe("/topic/>", id=str(number), receipt=str(number))
        client.say("UNSUBSCRIBE", id=str(number))
        world.settle()
    assert client.receipts() == ["0", "1", "2", "3", "4"]
    assert client.session.joined.count == 0


def test_what_all_take_leaves_each_connection_its_own_part() -> None:
    world = world_of("topic", 30, total=60)
    first, second, third = (world.connect() for _ in range(3))
    first.subscribe("/topic/>", id="0")
    first.subscribe("/topic/>", id="1")
    world.settle()
    for number in range(10):
        second.subscribe(f"/topic/{number}", id=str(number), receipt=str(number))
    world.settle()
    assert len(second.receipts()) == 10
    third.subscribe("/topic/>")
    assert "limits.joined_total in the YAML file is 60" in refused(third)


def test_a_new_destination_that_is_one_too_many_ends_the_subscription_and_is_counted() -> None:
    world = world_of("topic", 30, joined=30)
    client, sender = world.connect(), world.connect()
    client.subscribe("/topic/>")
    world.settle()
    sender.publish("/topic/new", "x", receipt="sent")
    world.settle()
    assert sender.receipts() == ["sent"]
    assert "limits.joined in the YAML file is 30" in refused(client)
    assert world.broker.stats.joins_refused == 1
    assert world.broker.joined.count == 0


def test_a_durable_name_counts_for_itself_and_as_long_as_it_lasts() -> None:
    world = world_of("topic", 30, joined=30)
    client = world.connect()
    client.subscribe("/topic/>", subscription_name="me")
    world.settle()
    client.drop()
    world.settle()
    assert world.broker.joined.count == 30
    world.connect().publish("/topic/new", "x")
    world.settle()
    assert world.broker.stats.cursors_refused == 1
    client = world.connect()
    client.say("UNSUBSCRIBE", subscription_name="me", receipt="gone")
    world.settle()
    assert client.receipts() == ["gone"]
    assert world.broker.joined.count == 0


def test_a_durable_name_that_would_be_too_many_is_not_made() -> None:
    world = world_of("topic", 40, joined=30)
    client = world.connect()
    client.subscribe("/topic/>", subscription_name="me")
    assert "limits.joined" in refused(client)
    world.settle()
    assert not world.broker.durable.by_key
    assert world.broker.joined.count == 0
    assert not world.store.cursors.names()
