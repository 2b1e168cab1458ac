"""ACK and NACK that come late: whatever the version, and however the subscription ended, they are no fault."""

from __future__ import annotations

import pytest

from radiator.stomp.frames import Frame
from tests.broker.harness import Client, World

T, Q = "/topic/a", "/queue/a"
VERSIONS = ["1.0", "1.1", "1.2"]
COMMANDS = ["ACK", "NACK"]


def subscribed(world: World, version: str, name: str = Q, **headers: object) -> tuple[Client, list[Frame]]:
    """A client and what it was sent."""
    sender = world.connect()
    sender.publish(name, "0", "1")
    world.settle()
    client = world.connect(version)
    client.subscribe(name, **headers)  # type: ignore[arg-type]
    world.settle()
    messages = client.messages()
    assert messages
    return client, messages


def assert_late(client: Client, *receipts: str) -> None:
    client.world.settle()
    assert client.take("ERROR") == []
    assert client.receipts() == list(receipts)
    assert client.world.broker.stats.late_acks == len(receipts)
    assert not client.session.closing


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("ack", ["client", "client-individual"])
@pytest.mark.parametrize("version", VERSIONS)
def test_an_ack_after_unsubscribe_is_ignored(world: World, version: str, ack: str, command: str) -> None:
    client, (message,) = subscribed(world, version, ack=ack)
    client.say("UNSUBSCRIBE", id="0")
    client.ack(message, command, receipt="late")
    assert_late(client, "late")
    other = world.connect()
    other.subscribe(Q, prefetch_count=5)
    world.settle()
    assert other.bodies() == ["0", "1"]  # it went back to the queue, and stays there


@pytest.mark.parametrize("version", VERSIONS)
def test_an_ack_after_the_end_of_a_replay_is_ignored(world: World, version: str) -> None:
    client, messages = subscribed(world, version, T, start_position="first", stop_position="end")
    assert [message.body for message in messages] == [b"0", b"1", b""]
    for message in messages[:2]:
        client.ack(message, receipt="late")
    assert_late(client, "late", "late")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_ack_after_another_subscription_took_the_id_is_ignored(world: World, version: str) -> None:
    client, (message,) = subscribed(world, version)
    client.say("UNSUBSCRIBE", id="0")
    client.subscribe("/queue/b")
    client.ack(message, receipt="late")
    assert_late(client, "late")


@pytest.mark.parametrize("version", VERSIONS)
def test_acks_of_many_ended_subscriptions_are_ignored(world: World, version: str) -> None:
    sender, client = world.connect(), world.connect(version)
    late = []
    for number in range(20):
        name = f"/queue/{number}"
        sender.publish(name, "m")
        client.subscribe(name, id=str(number))
        world.settle()
        late += client.messages()
        client.say("UNSUBSCRIBE", id=str(number))
    assert len(late) == 20
    for message in late:
        client.ack(message, receipt="r")
    assert_late(client, *["r"] * 20)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("offset", ["1", "7", "x", "00"])
def test_an_ack_of_what_was_never_delivered_stays_an_error(
    world: World, version: str, command: str, offset: str
) -> None:
    client, (message,) = subscribed(world, version)
    assert message.headers["message-id"] == "%2Fqueue%2Fa@0"
    client.say("UNSUBSCRIBE", id="0")
    client.say(command, message_id=f"%2Fqueue%2Fa@{offset}", subscription="0")
    world.settle()
    assert client.error() == "bad-ack"


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_an_ack_of_a_message_in_a_log_never_read_from_stays_an_error(world: World, version: str) -> None:
    client, _ = subscribed(world, version)
    client.say("UNSUBSCRIBE", id="0")
    client.say("ACK", message_id="%2Fqueue%2Fb@0", subscription="0")
    world.settle()
    assert client.error() == "bad-ack"


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_what_another_connection_was_sent_is_not_late_but_an_error(world: World, version: str) -> None:
    first, (message,) = subscribed(world, version)
    first.say("UNSUBSCRIBE", id="0")
    thief = world.connect(version)
    thief.ack(message)
    world.settle()
    assert thief.error() == "bad-ack"
