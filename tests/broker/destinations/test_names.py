"""Names of destinations: any text whose segments are no wildcards, in SEND and in SUBSCRIBE, and over a restart."""

from __future__ import annotations

import pytest

from tests.broker.harness import World

NAMES = ["/topic/a*b", "/queue/a*b", "/topic/c#", "/topic/**", "pri*", "/queue/x>y.z", "/topic/\u2603*"]


@pytest.mark.parametrize("name", NAMES)
def test_a_wildcard_character_within_a_segment_is_a_character(world: World, name: str) -> None:
    client = world.connect()
    client.subscribe(name, ack="auto")
    client.publish(name, "1", receipt="r")
    client.publish(name.replace("*", "x").replace("#", "x").replace(">", "x"), "2")
    world.settle()
    (message,) = client.messages()
    assert (message.headers["destination"], message.body) == (name, b"1")
    assert client.receipts() == ["r"]


@pytest.mark.parametrize("name", NAMES)
def test_such_a_name_is_there_after_a_restart(world: World, name: str) -> None:
    world.connect().publish(name, "1")
    world.settle()
    world.restart()
    client = world.connect()
    client.subscribe(name, ack="auto", start_position="first")
    world.settle()
    assert client.bodies()[:1] == ["1"]


def test_a_pattern_matches_such_a_name(world: World) -> None:
    client = world.connect()
    client.subscribe("/topic/*", ack="auto")
    client.publish("/topic/a*b", "1")
    client.publish("/topic/a*.b", "2")
    world.settle()
    assert client.bodies() == ["1"]


def test_a_comma_makes_a_list_of_such_names(world: World) -> None:
    client = world.connect()
    client.subscribe("/topic/a*b,/topic/c#", ack="auto")
    client.publish("/topic/a*b", "1")
    client.publish("/topic/c#", "2")
    world.settle()
    assert sorted(client.bodies()) == ["1", "2"]


@pytest.mark.parametrize(
    "name", ["/topic/*", "/topic/a.#", "/topic/>", "/topic/>.a", "#", "/topic/a,/topic/b", "a*b,c"]
)
def test_nothing_is_sent_to_a_pattern_or_a_list(world: World, name: str) -> None:
    client = world.connect()
    client.publish(name, "1")
    world.settle()
    assert client.error() == "bad-destination"
    assert not world.broker.destinations
