"""SUBSCRIBE to patterns where there are many names: in portions, and nothing is missed."""

from __future__ import annotations

import pytest

from radiator import limits
from radiator.routing.index import NameIndex
from radiator.routing.pattern import Pattern
from tests.broker.harness import World, bodies

MANY = "destinations: [{match: '/topic/>', store: memory}]"


def with_names(count: int) -> World:
    world = World(MANY)
    client = world.connect()
    for number in range(count):
        client.publish(f"/topic/many.{number % 10}.{number}", str(number))
    world.settle()
    client.drop()
    return world


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TURN_WORK", 50)


@pytest.mark.usefixtures("small")
def test_many_patterns_over_many_names_are_looked_at_in_portions() -> None:
    world = with_names(300)
    client, other = world.connect(), world.connect()
    client.subscribe(",".join(f"#.{number}.#" for number in range(20, 120)), ack="auto")
    assert client.rest, "all names at once"
    world.settle()
    other.publish("/topic/many.1.21", "new")
    world.settle()
    assert bodies(client.messages()) == ["new"]
    other.publish("/topic/born.77", "later")
    other.publish("/topic/many.1.121", "nobody's")
    world.settle()
    assert bodies(client.messages()) == ["later"]


@pytest.mark.usefixtures("small")
def test_what_matches_nothing_gives_way_as_well_and_each_frame_behind_it() -> None:
    world = with_names(300)
    client = world.connect()
    visits = 0
    for number in range(3):
        client.subscribe(",".join(f"#.none.{each}.#" for each in range(100)), id=str(number), receipt=f"r{number}")
    while client.rest:
        visits += 1
        client.go_on()
    assert visits > 3 * 10
    world.settle()
    assert [each.headers["receipt-id"] for each in client.take("RECEIPT")] == ["r0", "r1", "r2"]


@pytest.mark.usefixtures("small")
def test_names_that_come_or_go_between_two_portions_are_handled() -> None:
    world = with_names(300)
    client, other = world.connect(), world.connect()
    other.subscribe("/topic/many.unused", ack="auto")
    client.subscribe("/topic/many.#,/topic/none", ack="auto")
    assert client.rest
    other.publish("/topic/many.late", "1")
    other.say("UNSUBSCRIBE", id="0")
    world.settle()
    assert "/topic/many.unused" not in world.broker.destinations
    other.publish("/topic/many.late", "2")
    other.publish("/topic/none", "3")
    world.settle()
    assert bodies(client.messages()) == ["1", "2", "3"]


def test_the_index_stops_at_its_limit() -> None:
    index = NameIndex()
    for number in range(1_000):
        index.add(f"/topic/many.{number}.x")
    for text in ("#.7.#", "/topic/>", "/topic/many.*.x", "*.*.*.*.*", "#"):
        found, looked = index.find(Pattern(text), 100)
        assert found is None
        assert looked < 300, text
