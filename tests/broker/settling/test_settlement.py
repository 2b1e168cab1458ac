"""ACK and NACK that come late: whatever the version, and however the subscription ended, they are no fault."""

from __future__ import annotations

import pytest

from radiator import limits
from radiator.broker.clients import delivery_numbers
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


def redelivered(world: World, version: str, ack: str) -> tuple[Client, Frame, Frame]:
    """A client that was sent a message twice, and what it was sent each time; it holds the second delivery."""
    client, (first,) = subscribed(world, version, ack=ack)
    client.nack(first)
    world.settle()
    (second,) = client.messages()
    assert second.headers["delivery-count"] == "2"
    assert second.headers["message-id"] == first.headers["message-id"]
    assert second.headers["ack"] != first.headers["ack"]
    return client, first, second


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_an_ack_of_the_first_delivery_does_nothing_to_the_second(world: World, ack: str, command: str) -> None:
    client, first, second = redelivered(world, "1.2", ack)
    client.ack(first, command, receipt="late")
    assert_late(client, "late")
    client.ack(second, receipt="r")
    world.settle()
    assert client.receipts() == ["r"] and client.bodies() == ["1"]


@pytest.mark.parametrize("ack", ["client", "client-individual"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_message_id_means_the_delivery_that_is_held(world: World, version: str, ack: str) -> None:
    client, first, _ = redelivered(world, version, ack)
    client.ack(first, receipt="r")
    world.settle()
    assert client.receipts() == ["r"] and client.bodies() == ["1"]
    client.ack(first, receipt="late")
    assert_late(client, "late")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cumulative_ack_covers_what_was_delivered_before_the_second_delivery(world: World, version: str) -> None:
    client, messages = subscribed(world, version, ack="client", prefetch_count=3)
    assert [each.body for each in messages] == [b"0", b"1"]
    client.nack(messages[0])
    world.settle()
    (again,) = client.messages()
    client.ack(messages[0] if version != "1.2" else again, receipt="r")
    world.settle()
    assert client.receipts() == ["r"] and world.broker.stats.acks == 2
    client.drop()
    other = world.connect()
    other.subscribe(Q, prefetch_count=5)
    world.settle()
    assert other.bodies() == []


def test_a_late_cumulative_ack_covers_nothing(world: World) -> None:
    client, messages = subscribed(world, "1.2", ack="client", prefetch_count=3)
    client.nack(messages[0])
    world.settle()
    assert len(client.messages()) == 1
    client.ack(messages[0], receipt="late")
    assert_late(client, "late")
    client.drop()
    other = world.connect()
    other.subscribe(Q, prefetch_count=5)
    world.settle()
    assert other.bodies() == ["0", "1"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_an_ack_of_a_delivery_that_timed_out_is_late_though_others_have_the_message(version: str, command: str) -> None:
    world = World(f"destinations: [{{match: {Q}, ack_timeout: 10s}}]")
    client, (message,) = subscribed(world, version)
    client.subscribe(Q, id="1")
    client.say("UNSUBSCRIBE", id="1")
    other = world.connect()
    other.subscribe(Q, prefetch_count=5)
    world.settle()
    assert other.bodies() == ["1"]
    client.session.window.size = 0  # what goes back goes to the other one
    world.tick(11)
    (taken,) = [each for each in other.messages() if each.body == b"0"]
    client.ack(message, command, receipt="late")
    assert_late(client, "late")
    other.ack(taken, receipt="r")
    world.settle()
    assert other.receipts() == ["r"]


@pytest.mark.parametrize("name", ["ack", "message-id"])
def test_an_ack_id_of_an_earlier_connection_is_an_error_and_settles_nothing(world: World, name: str) -> None:
    """A client that has lost its connection acknowledges on the next one what it was sent on the first."""
    client, (message,) = subscribed(world, "1.2")
    client.drop()
    again = world.connect()
    again.subscribe("/queue/b")
    again.publish("/queue/b", "other")
    world.settle()
    assert again.bodies() == ["other"]
    again.say("ACK", id=message.headers[name])
    world.settle()
    assert again.error() == "bad-ack"
    third = world.connect()
    third.subscribe("/queue/*", prefetch_count=5)
    world.settle()
    assert sorted(third.bodies()) == ["0", "1", "other"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "name",
    [
        "s2-0-1",
        "s2-0-00",
        "s2-0-+0",
        "s2-0-",
        "s2-0",
        "s2--0",
        "s2-00-0",
        "s2-1-0",
        "s2-0-\u0660",
        "s1-0-0",
        "0-0",
        "0",
    ],
)
def test_an_ack_id_that_was_never_given_out_is_an_error(world: World, version: str, command: str, name: str) -> None:
    client, (message,) = subscribed(world, version)
    assert message.headers["ack"] == "s2-0-0"
    client.say(command, **{"id" if version == "1.2" else "message_id": name}, receipt="r")
    world.settle()
    (error,) = client.take("ERROR")
    assert (error.headers["error-code"], error.headers["receipt-id"]) == ("bad-ack", "r")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_another_consumer_of_the_queue_holds_is_an_error_and_stays_with_it(
    world: World, version: str, command: str
) -> None:
    first, (held,) = subscribed(world, version)
    other = world.connect(version)
    other.subscribe(Q)
    world.settle()
    (own,) = other.messages()
    assert (held.body, own.body) == (b"0", b"1")
    other.ack(held, command)
    world.settle()
    assert other.error() == "bad-ack"
    first.ack(held, receipt="r")
    world.settle()
    assert first.receipts() == ["r"] and world.broker.stats.acks == 1


@pytest.mark.parametrize("searched", [0, 1, 2])
def test_the_search_for_a_message_that_another_consumer_holds_is_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch, searched: int
) -> None:
    monkeypatch.setattr(limits, "ACK_SEARCH_MAX", searched)
    world.connect().publish(Q, "0", "1", "2")
    first, other = world.connect("1.1"), world.connect("1.1")
    first.subscribe(Q, prefetch_count=2)
    world.settle()
    other.subscribe(Q)
    world.settle()
    _, second = first.messages()
    assert other.bodies() == ["2"]
    other.ack(second, receipt="late")
    world.settle()
    if searched == 2:
        assert other.error() == "bad-ack"
    else:
        assert_late(other, "late")


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_repeated_ack_for_a_topic_is_late_though_another_consumer_of_a_bound_queue_has_the_message(
    version: str,
) -> None:
    """Both have the same message id, as they read one log."""
    world = World("destinations: [{match: /topic/a, fan_out: [/queue/bound]}]")
    other = world.connect()
    other.subscribe("/queue/bound", prefetch_count=1)
    client = world.connect(version)
    client.subscribe(T, id="topic", ack="client-individual")
    client.subscribe("/queue/bound", id="queue", ack="client-individual")
    world.connect().publish(T, "0")
    world.settle()
    (message,) = client.messages()
    assert other.bodies() == ["0"]
    client.ack(message)
    client.ack(message, receipt="late")
    assert_late(client, "late")


@pytest.mark.parametrize("version", VERSIONS)
def test_what_went_back_and_is_with_another_consumer_is_late(world: World, version: str) -> None:
    client, (message,) = subscribed(world, version)
    other = world.connect(version)
    other.subscribe(Q, prefetch_count=5)
    world.settle()
    client.say("UNSUBSCRIBE", id="0")
    client.subscribe("/queue/b", id="b")
    world.settle()
    assert sorted(other.bodies()) == ["0", "1"]
    client.ack(message, receipt="late")
    assert_late(client, "late")


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_message_id_below_the_last_one_of_its_log_counts_as_delivered(world: World, version: str) -> None:
    """Only how far each log was delivered is remembered: what another consumer has settled is late."""
    first, (held,) = subscribed(world, version)
    other = world.connect(version)
    other.subscribe(Q)
    world.settle()
    assert other.bodies() == ["1"]
    first.ack(held)
    world.settle()
    other.ack(held, receipt="late")
    assert_late(other, "late")


def test_a_session_that_was_sent_messages_of_too_many_logs_takes_every_message_id_for_late(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_numbers, "REACHED_MAX", 3)
    client = world.connect("1.1")
    for number in range(5):
        client.subscribe(f"/queue/{number}", id=str(number))
        client.publish(f"/queue/{number}", "m")
        world.settle()
        (message,) = client.messages()
        client.ack(message)
        reached = client.session.numbers._reached
        assert reached is None or len(reached) <= 3
    client.say("ACK", message_id="%2Fqueue%2F0@7", subscription="0", receipt="late")
    assert_late(client, "late")


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
