"""``message-ttl``: the time to live of one message, as a duration."""

from __future__ import annotations

import pytest

from radiator.clock import NS_PER_MS
from radiator.stomp.frames import Frame
from tests.broker.harness import World

Q, T = "/queue/a", "/topic/a"


@pytest.fixture
def world() -> World:
    return World("destinations: [{match: /queue/short, message_ttl: 5s}]")


def browsed(world: World, name: str = Q) -> list[Frame]:
    client = world.connect()
    client.subscribe(name, ack="auto", browser="true", start_position="first")
    world.settle()
    return [each for each in client.messages() if "replay-end" not in each.headers]


@pytest.mark.parametrize(("value", "ms"), [("10s", 10_000), ("1500", 1_500), ("1h30m", 5_400_000)])
def test_it_is_stored_and_delivered_as_the_time_of_expiry(world: World, value: str, ms: int) -> None:
    client = world.connect()
    client.publish(T, "x", message_ttl=value, tag_a="b")
    client.subscribe(T, start_position="first")
    world.settle()
    (message,) = client.messages()
    assert int(message.headers["expires"]) == world.now // NS_PER_MS + ms
    assert "message-ttl" not in message.headers and message.headers["tag-a"] == "b"


def test_a_message_is_not_delivered_after_it_and_equal_frames_count_each_from_its_own_time(world: World) -> None:
    client = world.connect()
    client.publish(Q, "1", message_ttl="10s")
    world.tick(8)
    client.publish(Q, "2", message_ttl="10s")
    world.tick(4)
    client.subscribe(Q)
    world.settle()
    assert client.bodies() == ["2"]
    assert world.broker.stats.expired == 1


def test_the_earlier_of_header_and_rule_counts(world: World) -> None:
    client = world.connect()
    client.publish("/queue/short", "1", message_ttl="1h")
    client.publish("/queue/short", "2", message_ttl="2s")
    world.tick(3)
    client.subscribe("/queue/short", ack="auto")
    world.settle()
    assert client.bodies() == ["1"]
    client.publish("/queue/short", "3", message_ttl="1h")
    client.say("UNSUBSCRIBE", id="0")
    world.tick(6)
    client.subscribe("/queue/short", id="1")
    world.settle()
    assert client.bodies() == []


def test_in_a_transaction_it_counts_from_commit(world: World) -> None:
    client = world.connect()
    client.say("BEGIN", transaction="t")
    client.publish(Q, "x", message_ttl="10s", transaction="t")
    world.tick(60)
    client.say("COMMIT", transaction="t", receipt="c")
    world.settle()
    assert client.receipts() == ["c"]
    (message,) = browsed(world)
    assert int(message.headers["expires"]) == world.now // NS_PER_MS + 10_000


def test_it_survives_a_kill_with_a_delay_beside_it(world: World) -> None:
    client = world.connect()
    client.publish(Q, "x", message_ttl="10s", delay="1s")
    world.settle()
    world.kill()
    client = world.connect()
    client.subscribe(Q)
    world.tick(11)
    assert client.bodies() == []


@pytest.mark.parametrize("headers", [{"message_ttl": "0"}, {"message_ttl": "soon"}, {"message_ttl": "-1"}])
def test_a_value_that_is_no_duration_is_refused(world: World, headers: dict[str, str]) -> None:
    client = world.connect()
    client.publish(Q, "x", **headers)
    world.settle()
    assert client.error() == "bad-header"


def test_a_message_has_one_time_of_expiry(world: World) -> None:
    client = world.connect()
    client.publish(Q, "x", message_ttl="1s", expires="99999999999999")
    world.settle()
    assert client.error() == "bad-header"
