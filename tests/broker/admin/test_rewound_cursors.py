"""A cursor that is set back under its consumers: what they had comes again marked, what they acknowledged does not."""

from __future__ import annotations

import pytest

from tests.broker.admin.test_cursor_verbs import ask
from tests.broker.durable.test_subscriptions import SHARED, T, U, durable
from tests.broker.harness import NOW, Client, World
from tests.broker.queues.test_queue import fill

Q = "/queue/a"
NOW_MS = NOW // 1_000_000
KEEP = "defaults: {retention: {acked: keep}}"


def counts(client: Client) -> list[tuple[str, str]]:
    """What it has heard: body and delivery-count, which is above 1 with redelivered:true only."""
    client.world.settle()
    found = client.messages()
    for frame in found:
        assert (frame.headers.get("redelivered") == "true") == (frame.headers["delivery-count"] != "1")
    return [(frame.body.decode(), frame.headers["delivery-count"]) for frame in found]


@pytest.mark.parametrize("selector", [{}, {"selector": "true"}])
def test_what_was_in_hand_is_marked_and_what_was_acknowledged_begins_again(selector: dict[str, str]) -> None:
    world = World(KEEP)
    fill(world, 6, Q)
    client = world.connect()
    client.subscribe(Q, prefetch_count=4, **selector)
    world.settle()
    held = client.messages()
    client.ack(held[0])
    client.ack(held[2])
    world.settle()
    client.messages()
    client.drop()
    other = world.connect()
    other.subscribe(Q, prefetch_count=3, **selector)
    world.settle()
    assert counts(other) == [("m1", "2"), ("m3", "2"), ("m4", "2")]
    ask(world, "cursors.set", name=Q, position="first")
    world.connect().subscribe(Q, prefetch_count=9, **selector)
    other.drop()
    world.settle()
    expected = [("m0", "1"), ("m1", "3"), ("m2", "1"), ("m3", "3"), ("m4", "3"), ("m5", "2")]
    assert counts(world.clients[-1]) == expected


def test_a_position_in_the_middle_marks_the_messages_above_it(world: World) -> None:
    fill(world, 4, Q)
    client = world.connect()
    client.subscribe(Q, prefetch_count=3)
    world.settle()
    client.messages()
    ask(world, "cursors.set", name=Q, position="offset:1")
    client.drop()
    client = world.connect()
    client.subscribe(Q, prefetch_count=9)
    assert counts(client) == [("m1", "2"), ("m2", "2"), ("m3", "1")]


def test_counts_are_stored_once_it_was_delivered_again(world: World) -> None:
    fill(world, 2, Q)
    client = world.connect()
    client.subscribe(Q, prefetch_count=9)
    world.settle()
    ask(world, "cursors.set", name=Q, position="first")
    world.settle()
    world.kill()
    client = world.connect()
    client.subscribe(Q, prefetch_count=9)
    assert counts(client) == [("m0", "3"), ("m1", "3")]


@pytest.mark.parametrize("config", ["", SHARED])
def test_so_it_is_for_a_name_that_is_set_or_reset(config: str) -> None:
    world = World(config)
    client = durable(world, prefetch_count=3)
    fill(world, 2, U)
    fill(world, 4, T)
    world.settle()
    held = client.messages()
    client.ack(held[1])
    world.settle()
    client.messages()
    ask(world, "cursors.set", name="me", position="first", destination=T)
    client.drop()
    client = durable(world, prefetch_count=3)
    assert counts(client) == [("m0", "2"), ("m1", "1"), ("m2", "2")]
    client = durable(world, prefetch_count=9, start_position="first", reset="true")
    assert counts(client) == [("m0", "3"), ("m1", "2"), ("m2", "3"), ("m3", "2")]


def test_what_is_looked_up_first_is_marked_too(world: World) -> None:
    client = durable(world, prefetch_count=3)
    fill(world, 4, T)
    world.settle()
    client.messages()
    ask(world, "cursors.set", name="me", position="last:2")
    client.drop()
    client = durable(world, prefetch_count=9)
    assert counts(client) == [("m2", "2"), ("m3", "1")]


def test_what_expires_or_is_unwanted_by_then_is_not_delivered_for_having_been_in_hand(world: World) -> None:
    world.connect().publish(Q, "short", expires=NOW_MS + 5_000)
    fill(world, 1, Q)
    client = world.connect()
    client.subscribe(Q, prefetch_count=9)
    world.settle()
    client.messages()
    ask(world, "cursors.set", name=Q, position="first")
    client.drop()
    world.tick(6)
    client = world.connect()
    client.subscribe(Q, prefetch_count=9)
    assert [body for body, _ in counts(client)] == ["m0"]
