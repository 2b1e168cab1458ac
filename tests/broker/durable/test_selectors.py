"""Named subscriptions with a selector: what it does not take is done with, and the name remembers it."""

from __future__ import annotations

import pytest

from tests.broker.harness import Client, World

RED = "colour = 'red'"


def send(world: World, *bodies: str) -> None:
    client = world.connect()
    for body in bodies:
        client.publish("/topic/a", body, colour=body.rstrip("0123456789"))
    world.settle()
    client.drop()


def durable(world: World, selector: str = RED, **headers: str) -> Client:
    client = world.connect()
    client.subscribe("/topic/a", subscription_name="d", selector=selector, **headers)
    world.settle()
    return client


def floor(world: World) -> int:
    (named,) = world.broker.durable.by_key.values()
    (source,) = named.queue.sources
    world.settle()
    return int(source.cursor.floor)


def taken(world: World, client: Client) -> list[str]:
    frames = client.messages()
    for frame in frames:
        client.ack(frame)
    world.settle()
    return [frame.body.decode() for frame in frames]


def test_a_durable_name_is_given_what_its_selector_takes_and_settles_the_rest(world: World) -> None:
    client = durable(world)
    send(world, "red1", "blue1", "red2", "blue2", "blue3")
    assert taken(world, client) == ["red1", "red2"]
    assert floor(world) == 5


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_the_selector_is_kept_with_the_name_over_a_restart(world: World, end: str) -> None:
    durable(world, "colour='red'").drop()
    world.settle()
    send(world, "blue1", "red1", "blue2")
    getattr(world, end)()
    (named,) = world.broker.durable.by_key.values()
    assert named.queue.selection is not None
    client = durable(world)
    assert taken(world, client) == ["red1"]
    assert floor(world) == 3


def test_while_it_is_away_nothing_is_lost(world: World) -> None:
    durable(world).drop()
    send(world, "blue1", "red1")
    world.tick(60)
    assert taken(world, durable(world)) == ["red1"]


def test_with_another_selector_the_name_goes_on_where_it_is(world: World) -> None:
    client = durable(world)
    send(world, "red1", "blue1")
    assert taken(world, client) == ["red1"]
    client.drop()
    send(world, "red2", "blue2")
    other = durable(world, "colour = 'blue'")
    assert taken(world, other) == ["blue2"]
    other.drop()
    send(world, "red3", "blue3")
    assert taken(world, durable(world, "")) == ["red3", "blue3"]


def test_what_was_delivered_and_is_wanted_no_more_is_settled(world: World) -> None:
    client = durable(world)
    send(world, "red1", "blue1")
    assert [frame.body for frame in client.messages()] == [b"red1"]
    client.drop()
    other = durable(world, "colour = 'blue'")
    send(world, "blue2")
    assert taken(world, other) == ["blue2"]
    assert floor(world) == 3


def test_members_of_a_group_share_one_selector(world: World) -> None:
    one, two, three = world.connect(), world.connect(), world.connect()
    one.subscribe("/topic/a", group="g", selector=RED)
    two.subscribe("/topic/a", group="g", selector="(colour = 'red')")
    send(world, "red1", "blue1", "red2")
    assert sorted(one.bodies() + two.bodies()) == ["red1", "red2"]
    three.subscribe("/topic/a", group="g")
    world.settle()
    assert three.error() == "bad-subscription"


def test_a_long_selector_survives_though_its_written_form_is_longer(world: World) -> None:
    selector = " OR ".join([f"a={number}" for number in range(90)] + ["x" * 3_300 + "=1"])
    durable(world, selector).drop()
    world.settle()
    world.restart()
    (named,) = world.broker.durable.by_key.values()
    assert named.queue.selection is not None


def test_a_name_with_a_selector_reads_on_where_messages_expire() -> None:
    world = World("destinations: [{match: /topic/a, message_ttl: 1h}]")
    client = durable(world)
    for sent in ("blue1", "red1", "blue2"):
        send(world, sent)
    send(world, "red2", "blue3")
    assert taken(world, client) == ["red1", "red2"]
    assert floor(world) == 5
