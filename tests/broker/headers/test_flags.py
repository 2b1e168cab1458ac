"""Headers that say yes or no: in capital or small letters, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.harness import Client, World

YES = ("true", "True", "TRUE")
NO = ("false", "False", "FALSE")
NEITHER = ("yes", "1", "on", " true", "", "truely")
ON_SUBSCRIBE = ("browser", "exclusive", "activemq.exclusive", "reset", "durable")


def frames(name: str, value: str) -> list[tuple[str, str, dict[str, str]]]:
    """A frame of each kind that knows this header."""
    if name in ON_SUBSCRIBE:
        return [("SUBSCRIBE", "", {"destination": "/queue/a", "id": "0", name: value})]
    return [("SEND", "x", {"destination": "/queue/a", name: value})]


def with_message(**headers: str) -> tuple[World, Client, Any]:
    """Somebody who holds the one message of a queue."""
    world = World("destinations: [{match: /queue/a, ack_timeout: 10s}]")
    client = world.connect()
    client.publish("/queue/a", "m")
    client.subscribe("/queue/a")
    world.settle()
    (message,) = client.messages()
    return world, client, message


@pytest.mark.parametrize("value", NEITHER)
@pytest.mark.parametrize("name", [*ON_SUBSCRIBE, "mandatory"])
def test_any_other_value_is_refused_with_the_reason(name: str, value: str) -> None:
    world = World()
    client = world.connect()
    for command, body, headers in frames(name, value):
        client.say(command, body, **headers)
    world.settle()
    (error,) = client.take("ERROR")
    assert error.headers["error-code"] == "bad-header"
    assert (
        f"header {name}: expected true or false" in error.headers["message"] and repr(value) in error.headers["message"]
    )


@pytest.mark.parametrize("value", [*YES, *NO])
@pytest.mark.parametrize("name", [*ON_SUBSCRIBE, "mandatory"])
def test_capital_and_small_letters_are_accepted(name: str, value: str) -> None:
    world = World()
    client, reader = world.connect(), world.connect()
    reader.subscribe("/queue/a", ack="auto")
    for command, body, headers in frames(name, value):
        client.say(command, body, receipt="r", **headers)
    world.settle()
    assert client.receipts() == ["r"]


@pytest.mark.parametrize("value", YES)
def test_a_browser_takes_nothing_however_it_is_written(value: str) -> None:
    world = World()
    client, consumer = world.connect(), world.connect()
    client.publish("/queue/a", "m")
    client.subscribe("/queue/a", ack="auto", browser=value)
    world.settle()
    assert client.bodies() == ["m", ""]
    consumer.subscribe("/queue/a")
    world.settle()
    assert consumer.bodies() == ["m"]


@pytest.mark.parametrize("value", YES)
def test_mandatory_is_obeyed_however_it_is_written(value: str) -> None:
    world = World()
    client = world.connect()
    client.publish("/queue/a", "m", mandatory=value)
    assert client.error() == "no-route"


def test_a_wrong_mandatory_header_in_a_transaction_is_an_error_at_once() -> None:
    world = World()
    client = world.connect()
    client.say("BEGIN", transaction="t")
    client.publish("/queue/a", "m", transaction="t", mandatory="yes")
    assert client.error() == "bad-header"


@pytest.mark.parametrize("value", [*YES, *NO, *NEITHER])
def test_a_touch_settles_nothing_unless_it_says_no(value: str) -> None:
    world, client, message = with_message()
    client.ack(message, touch=value)
    world.settle()
    if value in NEITHER:
        assert client.error() == "bad-header"
    assert world.broker.stats.acks == (value in NO)


@pytest.mark.parametrize("value", NO)
def test_a_message_is_refused_for_good_however_that_is_written(value: str) -> None:
    world, client, message = with_message()
    client.nack(message, requeue=value)
    world.settle()
    assert client.bodies() == [] and world.broker.stats.dropped_rejected == 1


@pytest.mark.parametrize("value", YES)
def test_a_name_begins_again_however_that_is_written(value: str) -> None:
    world = World()
    client = world.connect()
    client.subscribe("/topic/a", subscription_name="n")
    client.publish("/topic/a", "1", "2")
    world.settle()
    assert client.bodies() == ["1", "2"]
    client.say("UNSUBSCRIBE", id="0")
    client.subscribe("/topic/a", id="1", subscription_name="n", reset=value)
    world.settle()
    assert client.bodies() == []
