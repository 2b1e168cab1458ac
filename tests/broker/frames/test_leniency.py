"""What clients do that no specification asks for, and that the broker bears with; and where it does not."""

from __future__ import annotations

import pytest

from tests.broker.harness import World


@pytest.mark.parametrize("noise", [b"\0", b"\0\0\n\0", b"\r\n\0\r\n", b"\n\n\n"])
def test_nuls_and_line_ends_between_frames_are_skipped(world: World, noise: bytes) -> None:
    client = world.connect()
    client.say_bytes(
        noise + b"BEGIN\ntransaction:t\nreceipt:1\n\n\0" + noise + b"ABORT\ntransaction:t\nreceipt:2\n\n\0"
    )
    assert client.receipts() == ["1", "2"]


def test_an_ack_of_what_an_ended_subscription_never_delivered_is_an_error(world: World) -> None:
    client = world.connect()
    client.subscribe("/queue/a")
    client.publish("/queue/a", "x")
    world.settle()
    (message,) = client.messages()
    client.say("UNSUBSCRIBE", id="0")
    client.ack(message, receipt="late")
    world.settle()
    assert client.receipts() == ["late"]
    assert world.broker.stats.late_acks == 1
    client.say("ACK", id="0-never@7", receipt="wrong")
    assert client.error() == "bad-ack"


@pytest.mark.parametrize("header", ["id", "message-id"])
@pytest.mark.parametrize("value", ["ack", "message-id"])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_a_delivery_is_named_by_either_id_in_either_header(
    world: World, header: str, value: str, version: str, command: str
) -> None:
    client = world.connect(version)
    client.subscribe("/queue/a", id="s")
    client.publish("/queue/a", "x")
    world.settle()
    (message,) = client.messages()
    client.say(command, **{header: message.headers[value]}, receipt="r")
    world.settle()
    assert client.receipts() == ["r"]
    assert (world.broker.stats.acks, world.broker.stats.nacks) == ((1, 0) if command == "ACK" else (0, 1))


def test_a_repeated_ack_is_counted(world: World) -> None:
    client = world.connect()
    client.subscribe("/queue/a")
    client.publish("/queue/a", "x")
    world.settle()
    (message,) = client.messages()
    for receipt in ("1", "2", "3"):
        client.ack(message, receipt=receipt)
    world.settle()
    assert client.receipts() == ["1", "2", "3"]
    assert (world.broker.stats.acks, world.broker.stats.late_acks) == (1, 2)


def test_a_1_0_client_is_sent_no_header_without_a_value(world: World) -> None:
    old, new = world.connect("1.0"), world.connect("1.2")
    for client in (old, new):
        client.subscribe("/topic/a", ack="auto")
    new.say_bytes(b"SEND\ndestination:/topic/a\nnone:\nsome:1\n\n\0SEND\ndestination:/topic/a\nsome:2\nnone:\n\n\0")
    world.settle()
    assert [(frame.headers.get("none"), frame.headers["some"]) for frame in old.messages()] == [
        (None, "1"),
        (None, "2"),
    ]
    assert [(frame.headers.get("none"), frame.headers["some"]) for frame in new.messages()] == [("", "1"), ("", "2")]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("name", [" /queue/a", "/queue/a ", " "])
@pytest.mark.parametrize("transaction", [False, True])
def test_a_blank_before_a_destination_is_an_error_and_no_other_destination(
    world: World, version: str, name: str, transaction: bool
) -> None:
    """It was typed for the eye; SUBSCRIBE, whose lists may have blanks, would read another name than SEND writes."""
    client = world.connect(version)
    client.subscribe("/queue/a")
    if transaction:
        client.say("BEGIN", transaction="t")
    client.publish("/queue/a", "fine")
    world.settle()
    assert client.bodies() == ["fine"]
    client.publish(name, "x", **({"transaction": "t"} if transaction else {}))
    assert client.error() == "bad-destination"
    assert set(world.broker.destinations) <= {"/queue/a"}


@pytest.mark.parametrize("name", [" /queue/a", "/queue/a ", " /queue/a , /queue/b "])
def test_blanks_around_what_is_subscribed_to_are_taken_off(world: World, name: str) -> None:
    client = world.connect()
    client.subscribe(name, ack="auto")
    client.publish("/queue/a", "x")
    world.settle()
    assert client.bodies() == ["x"]


def test_a_1_0_client_may_unsubscribe_by_destination_though_it_gave_an_id(world: World) -> None:
    client = world.connect("1.0")
    client.subscribe("/topic/a", id="one", ack="auto")
    client.subscribe("/topic/b", id="two", ack="auto")
    client.say("UNSUBSCRIBE", destination="/topic/b", receipt="u")
    client.publish("/topic/b", "b")
    client.publish("/topic/a", "a")
    world.settle()
    assert client.receipts() == ["u"]
    assert client.bodies() == ["a"]


def test_blanks_around_a_1_0_destination_are_padding(world: World) -> None:
    client = world.connect("1.0")
    client.subscribe("/queue/a", ack="auto")
    client.say_bytes(b"SEND\ndestination: /queue/a \n\nx\0")
    world.settle()
    assert client.bodies() == ["x"]


def test_ids_have_no_colon_whatever_the_destination_is_called(world: World) -> None:
    for version in ("1.0", "1.1", "1.2"):
        client = world.connect(version)
        name = f"/queue/a:b\\c d%{version}"
        client.subscribe(name)
        client.publish(name, "x")
        world.settle()
        (message,) = client.messages()
        for header in ("message-id", "ack"):
            assert not set(message.headers[header]) & set(":\\ \r\n")
        client.ack(message, receipt="r")
        world.settle()
        assert client.receipts() == ["r"]
    assert not set(client.session.id) & set(":\\ ")
