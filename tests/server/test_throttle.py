"""Producers that are made to wait, over real sockets: they are not read, not taken for dead, and go on."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable

import pytest

from radiator.server.driver import Driver
from radiator.server.embedded import Broker
from tests.running import BrokerProcess
from tests.server.wire import Wire, rss_kib

StartBroker = Callable[..., BrokerProcess]
Q = "/queue/a"


@pytest.mark.thorough
def test_a_producer_that_waits_is_not_taken_for_dead(start_broker: StartBroker) -> None:
    """It says nothing for ten times what was agreed, and hears in the end that the queue is full."""
    broker = start_broker(
        "heart_beat: {send: none, expect: 100ms, grace: 1.0}\n"
        f"destinations: [{{match: {Q}, max_messages: 1, on_full: block, block_timeout: 1s}}]"
    )
    with Wire(broker) as producer:
        producer.open(heart_beat="100,0")
        producer.say("SEND", b"1", destination=Q)
        producer.say("SEND", b"2", destination=Q, receipt="r")
        error = producer.hear("ERROR")
        assert error.headers["error-code"] == "full"
        assert error.headers["receipt-id"] == "r"


def test_a_waiting_producer_goes_on_in_order_when_consumers_make_room(start_broker: StartBroker) -> None:
    broker = start_broker(f"destinations: [{{match: {Q}, max_messages: 10, on_full: block, prefetch: 5}}]")
    with Wire(broker) as producer, Wire(broker) as consumer:
        producer.open()
        consumer.open()
        for number in range(500):
            producer.say("SEND", b"%d" % number, destination=Q, receipt=str(number))
        assert [frame.headers["receipt-id"] for frame in producer.hear_many("RECEIPT", 10)] == list(map(str, range(10)))
        consumer.say("SUBSCRIBE", destination=Q, id="0", ack="client-individual")
        for number in range(500):
            message = consumer.hear("MESSAGE")
            assert message.body == b"%d" % number
            consumer.say("ACK", id=message.headers["ack"])
        assert len(producer.hear_many("RECEIPT", 490)) == 490


def test_two_waiting_producers_take_turns(start_broker: StartBroker) -> None:
    broker = start_broker(f"destinations: [{{match: {Q}, max_messages: 1, on_full: block}}]")
    with Wire(broker) as one, Wire(broker) as other, Wire(broker) as consumer:
        for wire in (one, other, consumer):
            wire.open()
        for wire, name in ((one, b"one"), (other, b"other")):
            for _ in range(50):
                wire.say("SEND", name, destination=Q)
            wire.say("SUBSCRIBE", destination="/topic/x", id="0")
        consumer.say("SUBSCRIBE", destination=Q, id="0", ack="client-individual")
        heard = []
        for _ in range(100):
            message = consumer.hear("MESSAGE")
            heard.append(message.body)
            consumer.say("ACK", id=message.headers["ack"])
        first_half = heard[:60]
        assert 20 <= first_half.count(b"one") <= 40
        assert heard.count(b"one") == heard.count(b"other") == 50


def test_a_producer_that_is_too_fast_sends_all_its_messages(start_broker: StartBroker) -> None:
    broker = start_broker(f"destinations: [{{match: {Q}, rate_limit: {{messages: 2000/s, burst: 10}}}}]")
    with Wire(broker) as producer, Wire(broker) as other:
        producer.open()
        other.open()
        for number in range(1_000):
            producer.say("SEND", b"x", destination=Q, receipt=str(number))
        other.say("SEND", b"x", destination="/queue/b", receipt="free")
        assert other.hear("RECEIPT").headers["receipt-id"] == "free"
        assert [each.headers["receipt-id"] for each in producer.hear_many("RECEIPT", 1_000)] == list(
            map(str, range(1_000))
        )


@pytest.mark.thorough
def test_messages_in_memory_do_not_grow_without_bound_and_none_is_lost(start_broker: StartBroker) -> None:
    broker = start_broker(f"limits: {{memory: 16MiB}}\ndestinations: [{{match: {Q}, store: memory}}]")
    with Wire(broker) as producer, Wire(broker) as consumer:
        producer.open()
        consumer.open()
        before = rss_kib(broker)
        producer.say("SEND", b"first", destination=Q, receipt="r")
        producer.hear("RECEIPT")
        frame = b"SEND\ndestination:/queue/a\ncontent-length:100\n\n" + b"x" * 100 + b"\0"
        sent = 0
        producer.socket.setblocking(False)
        data = b""
        while sent < 1_000_000:
            data = data or frame * 100
            if not select.select([], [producer.socket], [], 1.0)[1]:
                break
            data = data[producer.socket.send(data) :]
            sent += 0 if data else 100
        assert sent < 1_000_000, "the broker read on, although memory was full"
        assert rss_kib(broker) - before < 80 * 1024
        producer.socket.setblocking(True)
        consumer.say("SUBSCRIBE", destination=Q, id="0", ack="auto")
        expected = 1 + sent + (100 if data else 0)
        consumer.hear("MESSAGE")
        if data:
            producer.send(data)
        producer.say("SEND", b"last", destination=Q)
        got = 1 + len(consumer.hear_many("MESSAGE", expected - 1))
        assert got == expected
        assert consumer.hear("MESSAGE").body == b"last"


FULL = {"match": "/queue/*", "store": "memory", "max_messages": 1, "on_full": "block"}
SLOW = {"match": "/queue/*", "store": "memory", "rate_limit": {"messages": "1/s", "burst": 1}}
SEND = b"SEND\ndestination:/queue/a\n\nx\0"


COMMIT = b"BEGIN\ntransaction:t\n\n\0SEND\ndestination:/queue/a\ntransaction:t\n\nx\0COMMIT\ntransaction:t\n\n\0"


@pytest.mark.thorough
@pytest.mark.parametrize(("rule", "says"), [(FULL, 9 * SEND), (FULL, SEND + COMMIT), (SLOW, 9 * SEND)])
def test_clients_that_wait_cost_no_turns(monkeypatch: pytest.MonkeyPatch, rule: dict[str, object], says: bytes) -> None:
    turns: list[Driver] = []
    turn = Driver._turn

    def counted(self: Driver) -> None:
        turns.append(self)
        turn(self)

    monkeypatch.setattr(Driver, "_turn", counted)
    with Broker({"destinations": [rule]}, listen=["stomp://127.0.0.1:0"]) as broker:
        port = int(broker.url.rpartition(":")[2])
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        for client in clients:
            client.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0" + says)
        while not turns or len(turns[-1].broker.throttle.held) < len(clients):
            time.sleep(0.01)
        turns.clear()
        time.sleep(1)
        assert len(turns) < 50  # some ticks, and thousands where each turn asks for another one
        for client in clients:
            client.close()
