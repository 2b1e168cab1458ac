"""Request and reply, browsers and mandatory messages over real sockets: what other clients of the trade do as well."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.test_admin import Served
from tests.server.wire import Wire

CONFIG = """
destinations:
  - {match: '/queue/urgent.*', priority: true}
  - {match: '/queue/wide.*', partitions: 3}
  - {match: '/queue/parent', fan_out: [/queue/child]}
"""
CALLS = 100


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    process = Served(tmp_path_factory.mktemp("requests"), CONFIG)
    process.start()
    yield process
    assert process.stop() == 0


@pytest.fixture
def server(broker: Served) -> Iterator[Wire]:
    with Wire(broker).open() as wire:
        yield wire


@pytest.fixture
def client(broker: Served) -> Iterator[Wire]:
    with Wire(broker).open() as wire:
        yield wire


def subscribe(wire: Wire, destination: str, **headers: str) -> None:
    wire.say("SUBSCRIBE", **{"id": "0", "destination": destination, "receipt": "s", **headers})
    wire.hear("RECEIPT", receipt_id="s")


def dropped_replies(broker: Served) -> int:
    counted: int = broker.ask("/stats")[1]["stats"]["dropped_replies"]
    return counted


def test_a_hundred_calls_at_once_are_each_given_their_own_answer(broker: Served, server: Wire) -> None:
    subscribe(server, "/queue/calls", ack="auto")
    clients = [Wire(broker).open() for _ in range(4)]
    for number in range(CALLS):
        clients[number % 4].say(
            "SEND",
            b"%d" % number,
            destination="/queue/calls",
            reply_to="/temp-queue/answers",
            correlation_id=f"c{number}",
        )
    requests = server.hear_many("MESSAGE", CALLS)
    for request in reversed(requests):
        headers = request.headers
        answer = b"%d" % (int(request.body) ** 2)
        server.say("SEND", answer, destination=headers["reply-to"], correlation_id=headers["correlation-id"])
    for place, client in enumerate(clients):
        answers = {each.headers["correlation-id"]: each for each in client.hear_many("MESSAGE", CALLS // 4)}
        assert sorted(answers) == sorted(f"c{number}" for number in range(place, CALLS, 4))
        for name, answer in answers.items():
            assert int(answer.body) == int(name[1:]) ** 2
            assert answer.headers["subscription"] == "/temp-queue/answers"
        client.close()


def test_a_reply_to_a_requester_that_has_left_is_dropped_and_counted(broker: Served, server: Wire) -> None:
    subscribe(server, "/queue/late", ack="auto")
    before = dropped_replies(broker)
    with Wire(broker).open() as gone:
        gone.say("SEND", destination="/queue/late", reply_to="/temp-queue/answers")
        address = server.hear("MESSAGE").headers["reply-to"]
        gone.say("DISCONNECT", receipt="bye")
        gone.hear("RECEIPT", receipt_id="bye")
        gone.rest()
    with Wire(broker).open() as other:
        subscribe(other, "/temp-queue/answers")
        server.say("SEND", b"late", destination=address, receipt="r")
        assert server.hear("RECEIPT", receipt_id="r").headers["dropped"] == "true"
        other.barrier()
        assert not [frame for frame in other.inbox if frame.command == "MESSAGE"]
    assert dropped_replies(broker) == before + 1
    server.say("SEND", b"late", destination=address, mandatory="true")
    assert server.hear("ERROR").headers["error-code"] == "no-route"


def test_the_address_cannot_be_guessed_and_is_in_no_log(broker: Served, server: Wire) -> None:
    subscribe(server, "/queue/secret", ack="auto")
    with Wire(broker) as asker:
        asker.say("CONNECT", accept_version="1.2", host="test")
        session = asker.hear("CONNECTED").headers["session"]
        asker.say("SEND", destination="/queue/secret", reply_to="/temp-queue/answers")
        name, _, secret = server.hear("MESSAGE").headers["reply-to"].partition("~")
        assert name == f"/temp-queue/answers@{session}" and len(bytes.fromhex(secret)) == 16
        asker.say("SUBSCRIBE", id="1", destination=f"{name}~{secret}", ack="no such mode")
        asker.hear("ERROR")
        asker.rest()
    for again in ("SUBSCRIBE", "UNSUBSCRIBE"):
        with Wire(broker).open() as stranger:
            stranger.say(again, id=f"{name}~{secret}", destination=f"{name}~{secret}")
            stranger.hear("ERROR")
            stranger.rest()
    assert broker.logs(session) and secret not in broker.text()


def test_others_may_only_send_to_a_temporary_queue(broker: Served, server: Wire, client: Wire) -> None:
    subscribe(server, "/queue/private", ack="auto")
    subscribe(server, "/temp-queue/>", id="pattern")
    subscribe(server, "/>", id="everything", ack="auto")
    client.say("SEND", destination="/queue/private", reply_to="/temp-queue/mine")
    address = server.hear("MESSAGE").headers["reply-to"]
    client.say("SEND", b"to myself", destination="/temp-queue/mine")
    server.say("SEND", b"from another", destination=address)
    assert sorted(frame.body for frame in client.hear_many("MESSAGE", 2)) == [b"from another", b"to myself"]
    server.barrier()
    assert not [frame for frame in server.inbox if frame.body in (b"to myself", b"from another")]
    for headers in ({}, {"browser": "true"}):
        with Wire(broker).open() as thief:
            thief.say("SUBSCRIBE", id="1", destination=address, **headers)
            assert thief.hear("ERROR").headers["error-code"] == "denied"


@pytest.mark.parametrize("kind", ["temp-queue", "temp-topic"])
@pytest.mark.parametrize("before", [True, False])
def test_a_requester_that_subscribes_to_its_temporary_queue_gets_answers_there(
    server: Wire, client: Wire, kind: str, before: bool
) -> None:
    """As ActiveMQ's clients do; RabbitMQ's never subscribe."""
    name = f"/{kind}/answers"
    subscribe(server, f"/queue/habits.{kind}.{before}", ack="auto")
    if before:
        subscribe(client, name, id="mine", ack="client")
    client.say("SEND", destination=f"/queue/habits.{kind}.{before}", reply_to=name)
    server.say("SEND", b"answer", destination=server.hear("MESSAGE").headers["reply-to"])
    answer = client.hear("MESSAGE")
    assert (answer.body, answer.headers["subscription"]) == (b"answer", "mine" if before else name)
    if before:
        client.say("ACK", id=answer.headers["ack"], receipt="a")
        client.hear("RECEIPT", receipt_id="a")
    else:
        client.say("UNSUBSCRIBE", id=name, receipt="u")
        client.hear("RECEIPT", receipt_id="u")


@pytest.mark.parametrize("queue", ["/queue/plain.a", "/queue/urgent.a", "/queue/wide.a"])
def test_a_browser_sees_what_waits_and_what_is_in_flight_and_takes_nothing(
    broker: Served, client: Wire, queue: str
) -> None:
    for number in range(12):
        client.say("SEND", b"%d" % number, destination=queue, priority=number % 3, colour=["even", "odd"][number % 2])
    client.barrier()
    with Wire(broker).open() as consumer:
        subscribe(consumer, queue, ack="client-individual", prefetch_count="2")
        held = consumer.hear_many("MESSAGE", 2)
        consumer.say("ACK", id=held[0].headers["ack"], receipt="a")
        consumer.hear("RECEIPT", receipt_id="a")
        left = {b"%d" % number for number in range(12)} - {held[0].body}
        for selector, wanted in (("", left), ("colour = 'odd'", {each for each in left if int(each) % 2})):
            client.say("SUBSCRIBE", id="b", destination=queue, browser="true", ack="auto", selector=selector)
            client.hear("MESSAGE", replay_end="true", subscription="b")
            seen = [frame.body for frame in client.inbox if frame.command == "MESSAGE"]
            client.inbox.clear()
            assert len(seen) == len(wanted)
            assert set(seen) == wanted
    subscribe(client, queue, id="c", ack="auto")
    assert {frame.body for frame in client.hear_many("MESSAGE", len(left))} == left


def test_a_mandatory_message_needs_a_subscription_by_name_by_pattern_or_a_durable_one(
    broker: Served, server: Wire, client: Wire
) -> None:
    def routed(destination: str) -> bool:
        with Wire(broker).open() as wire:
            wire.say("SEND", destination=destination, mandatory="true", receipt="m")
            while not wire.inbox:
                wire.more()
            (frame,) = wire.inbox
            assert frame.command == "RECEIPT" or frame.headers["error-code"] == "no-route"
            return frame.command == "RECEIPT"

    assert not routed("/topic/must.a")
    subscribe(server, "/topic/must.*", id="pattern", ack="auto", selector="colour = 'none'")
    assert routed("/topic/must.a")
    assert routed("/topic/must.born")
    server.say("UNSUBSCRIBE", id="pattern", receipt="u")
    server.hear("RECEIPT", receipt_id="u")
    assert not routed("/topic/must.a")
    assert not routed("/queue/parent")
    subscribe(server, "/queue/child", id="child")
    assert routed("/queue/parent")
    for name, headers in (("durable", {"subscription_name": "d"}), ("group", {"group": "g"})):
        with Wire(broker).open() as wire:
            subscribe(wire, f"/topic/{name}", ack="client", **headers)
            assert routed(f"/topic/{name}")
        client.barrier()
        assert routed(f"/topic/{name}"), "a name that is away keeps its place"


def test_delivered_to_counts_the_live_subscriptions_that_match_by_name(server: Wire, client: Wire) -> None:
    subscribe(server, "/topic/counted", id="1", ack="auto")
    subscribe(server, "/topic/count*,/topic/>", id="2", ack="auto")
    subscribe(server, "/topic/counted", id="3", ack="auto", selector="colour = 'red'")
    client.say("SEND", destination="/topic/counted", receipt="r")
    assert client.hear("RECEIPT", receipt_id="r").headers["delivered-to"] == "3"
