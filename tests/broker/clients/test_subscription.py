"""A subscription: its window, the three ack modes, what an ack names, and that it leaves nothing behind."""

from __future__ import annotations

import pytest

from tests.broker.harness import Client, World

T = "/topic/a"
Q = "/queue/a"


def deliver(world: World, destination: str = T, count: int = 5, **headers: str) -> Client:
    """A client that was sent ``count`` messages of a destination."""
    client = world.connect()
    client.subscribe(destination, **headers)
    client.publish(destination, *[f"m{number}" for number in range(count)])
    world.settle()
    return client


# --- windows on topics ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_a_topic_flows_without_a_window_by_default(world: World, ack: str) -> None:
    assert len(deliver(world, ack=ack, count=50).messages()) == 50


@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_a_prefetch_count_bounds_a_topic_too(world: World, ack: str, window: int) -> None:
    client = deliver(world, ack=ack, prefetch_count=str(window), count=12)
    found = []
    while messages := client.messages():
        assert len(messages) <= window
        found += [message.body.decode() for message in messages]
        client.ack(messages[-1]) if ack == "client" else [client.ack(message) for message in messages]
        world.settle()
    assert found == [f"m{number}" for number in range(12)]


def test_the_prefetch_count_means_nothing_where_nothing_is_acknowledged(world: World) -> None:
    assert len(deliver(world, ack="auto", prefetch_count="2").messages()) == 5


def test_max_in_flight_binds_topics_as_well(world: World) -> None:
    client = world.connect(max_in_flight="3")
    client.subscribe(T, id="t")
    client.subscribe(Q, id="q", prefetch_count=10)
    client.publish(T, *"abcdef")
    client.publish(Q, *"123456")
    world.settle()
    messages = client.messages()
    assert len(messages) == 3
    found = []
    while messages:
        message = messages.pop(0)
        found.append(message.body.decode())
        client.ack(message)
        world.settle()
        messages += client.messages()
        assert len(messages) <= 3
    assert sorted(found) == list("123456abcdef")


def test_a_window_that_a_closed_subscription_held_is_free_again(world: World) -> None:
    client = world.connect(max_in_flight="2")
    client.publish(Q, *"1234")
    client.publish("/queue/b", *"5678")
    client.subscribe(Q, id="a")
    world.settle()
    assert client.bodies() == ["1", "2"]
    client.subscribe("/queue/b", id="b")
    world.settle()
    assert client.bodies() == []
    client.say("UNSUBSCRIBE", id="a")
    world.settle()
    assert client.bodies() == ["5", "6"]


# --- what an ack settles ----------------------------------------------------------------------------------------------


def test_client_mode_settles_everything_delivered_before(world: World) -> None:
    client = deliver(world, Q, ack="client", prefetch_count="5")
    messages = client.messages()
    client.ack(messages[3])
    client.drop()
    world.settle()
    other = world.connect()
    other.subscribe(Q, prefetch_count=9)
    world.settle()
    assert other.bodies() == ["m4"]


def test_client_mode_is_cumulative_within_the_subscription_only(world: World) -> None:
    client = world.connect()
    client.subscribe(Q, id="x", ack="client", prefetch_count=5)
    client.subscribe("/queue/b", id="y", ack="client", prefetch_count=5)
    client.publish(Q, "1")
    client.publish("/queue/b", "2")
    world.settle()
    messages = {message.body: message for message in client.messages()}
    client.ack(messages[b"2"])
    client.drop()
    other = world.connect()
    other.subscribe("/queue/*", prefetch_count=9)
    world.settle()
    assert other.bodies() == ["1"]


def test_a_cumulative_nack_returns_everything_delivered_before(world: World) -> None:
    client = deliver(world, Q, ack="client", prefetch_count="3")
    client.nack(client.messages()[1])
    world.settle()
    marks = [(each.body.decode(), each.headers.get("delivery-count")) for each in client.messages()]
    assert marks == [("m0", "2"), ("m1", "2")]


def test_individual_mode_settles_one(world: World) -> None:
    client = deliver(world, Q, prefetch_count="5")
    client.ack(client.messages()[3])
    client.drop()
    other = world.connect()
    other.subscribe(Q, prefetch_count=9)
    world.settle()
    assert other.bodies() == ["m0", "m1", "m2", "m4"]


# --- what an ack names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("how", ["ack", "message-id", "message-id as id", "ack as message-id"])
def test_the_ack_id_and_the_message_id_are_accepted_in_every_version(world: World, version: str, how: str) -> None:
    client = world.connect(version)
    client.subscribe(Q, id="s")
    client.publish(Q, "1", "2")
    world.settle()
    (message,) = client.messages()
    key = "id" if how in ("ack", "message-id as id") else "message-id"
    value = message.headers["ack" if how in ("ack", "ack as message-id") else "message-id"]
    client.say("ACK", **{key.replace("-", "_"): value})
    world.settle()
    assert client.bodies() == ["2"]


def test_an_ack_by_message_id_settles_in_the_subscription_it_names(world: World) -> None:
    client = world.connect("1.1")
    client.subscribe(T, id="x", prefetch_count=1)
    client.subscribe(T, id="y", prefetch_count=1)
    client.publish(T, "1", "2")
    world.settle()
    first = client.messages()
    assert [message.headers["subscription"] for message in first] == ["x", "y"]
    client.say("ACK", message_id=first[1].headers["message-id"], subscription="y")
    world.settle()
    assert [message.headers["subscription"] for message in client.messages()] == ["y"]


def test_a_message_id_is_not_mistaken_for_the_ack_id_of_another_message() -> None:
    """``0-x@0`` looks like an ack id, and is the message id of the first message of ``0-x``."""
    world = World("destinations: [{match: '/queue/p.*', partition: '{1}'}]")
    client = world.connect("1.1")
    client.subscribe("/queue/p.x", id="a", prefetch_count=2)
    client.subscribe("/queue/p.0-x", id="b", prefetch_count=2)
    client.publish("/queue/p.x", "wrong")
    client.publish("/queue/p.0-x", "right")
    world.settle()
    (message,) = [message for message in client.messages() if message.body == b"right"]
    assert message.headers["message-id"] == "0-x@0"
    client.ack(message)
    client.drop()
    other = world.connect()
    other.subscribe("/queue/p.*", prefetch_count=5)
    world.settle()
    assert other.bodies() == ["wrong"]


@pytest.mark.parametrize(
    "name",
    [
        "x", "0", "-", "0-", "-x", "0-x", "0-%2Fqueue%2Fa@99", "%2Fqueue%2Fa@1", "0-%2Fqueue%2Fa@", "@", "a@b",
        "7-x@1", "\\", "é@1",
        "²-x@1", "0-%2Fqueue%2Fa@²", "٣-x@1", "9" * 5_000 + "-x@1", "0-%2Fqueue%2Fa@" + "9" * 5_000,
        "0-%2Fqueue%2Fa@-1", "0-%2Fqueue%2Fa@00", "00-%2Fqueue%2Fa@0", "1-%2Fqueue%2Fa@0", " 0-%2Fqueue%2Fa@0",
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_an_ack_of_what_was_never_delivered_is_an_error(world: World, command: str, name: str) -> None:
    client = deliver(world, Q)
    assert len(client.messages()) == 1
    client.say(command, id=name, receipt="r")
    world.settle()
    (error,) = client.take("ERROR")
    assert error.headers["error-code"] == "bad-ack"
    assert error.headers["receipt-id"] == "r"
    assert client.session.closing


def test_a_repeated_ack_is_counted_and_ignored(world: World) -> None:
    client = deliver(world, Q)
    (message,) = client.messages()
    client.ack(message, receipt="1")
    client.ack(message, receipt="2")
    world.settle()
    assert client.receipts() == ["1", "2"]
    assert world.broker.stats.late_acks == 1
    assert client.bodies() == ["m1"]


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_an_ack_of_a_message_that_another_consumer_holds_is_an_error(world: World, command: str) -> None:
    first, second, third = (world.connect() for _ in range(3))
    for client in (first, second, third):
        client.subscribe(Q)
    first.publish(Q, "m0", "m1", "m2")
    world.settle()
    (held,) = first.messages()
    (own,) = third.messages()
    assert (held.body, own.body) == (b"m0", b"m2")
    third.say(command, id=held.headers["ack"], receipt="r")
    world.settle()
    (error,) = third.take("ERROR")
    assert (error.headers["error-code"], error.headers["receipt-id"]) == ("bad-ack", "r")
    first.ack(held, receipt="settled")
    world.settle()
    assert first.receipts() == ["settled"]


def test_an_ack_under_auto_is_an_error(world: World) -> None:
    client = deliver(world, Q, ack="auto")
    message = client.messages()[0]
    client.say("ACK", id=message.headers["message-id"])
    assert client.error() == "bad-ack"


def test_an_ack_of_another_clients_delivery_is_an_error_and_changes_nothing(world: World) -> None:
    owner = deliver(world, Q)
    (message,) = owner.messages()
    thief = world.connect()
    thief.subscribe("/queue/other")
    thief.say("ACK", id=message.headers["message-id"])
    assert thief.error() == "bad-ack"
    owner.ack(message, receipt="r")
    world.settle()
    assert owner.receipts() == ["r"]


# --- leaving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["drop", "DISCONNECT", "UNSUBSCRIBE", "error"])
def test_a_subscription_that_ends_leaves_nothing_behind(world: World, ending: str) -> None:
    other = world.connect()
    client = world.connect()
    client.subscribe("/topic/#,/queue/*", id="0", start_position="first", stop_position="offset:1000000")
    client.subscribe("/topic/>", id="1")
    client.subscribe("/queue/*", id="2")
    client.subscribe(T, id="3", prefetch_count=1)
    for name in ("/topic/new.one", T, Q, "/queue/b"):
        other.publish(name, "1", "2", "3", receipt="r")
    world.settle()
    if ending == "drop":
        client.drop()
    elif ending == "DISCONNECT":
        client.say("DISCONNECT", receipt="bye")
    elif ending == "UNSUBSCRIBE":
        for number in range(4):
            client.say("UNSUBSCRIBE", id=str(number))
    else:
        client.say("NONSENSE")
    world.settle()
    assert not client.session.subscriptions.by_id
    assert not client.session.subscriptions.by_tag
    assert not client.session.window.queues
    assert client.session.window.held == 0
    client.drop()
    other.drop()
    world.holds_nothing()
    assert not world.broker.ready.busy


def test_delivered_to_counts_live_subscriptions_while_they_come_and_go(world: World) -> None:
    sender = world.connect()

    def delivered_to(name: str) -> int:
        sender.publish(name, "x", receipt="r")
        world.settle()
        (receipt,) = sender.take("RECEIPT")
        return int(receipt.headers["delivered-to"])

    assert delivered_to("/topic/a.x") == 0
    client = world.connect()
    client.subscribe("/topic/a.*", id="0")
    client.subscribe("/topic/a.x", id="1", stop_position="offset:100")
    client.subscribe("/topic/a.*", id="2", stop_position="offset:100")
    client.subscribe("/topic/a.x,/topic/a.*", id="3")
    assert delivered_to("/topic/a.x") == 4
    assert delivered_to("/topic/a.born-later") == 2
    for number in range(4):
        client.say("UNSUBSCRIBE", id=str(number))
    assert delivered_to("/topic/a.x") == 0
    assert delivered_to("/topic/a.born-later") == 0
