"""Many messages over as many connections as it takes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from radiator.client import ConnectFailed, Connection, Outgoing, Reconnect, ServerError, TimedOut, connect
from radiator.client.reliable import ReliableSender
from tests.client.fake import FakeBroker
from tests.running import BrokerProcess


def numbered(count: int, destination: str = "/topic/a", size: int = 1) -> list[Outgoing]:
    return [Outgoing(destination, b"%d" % i * size, {"dedup-id": f"n{i}"}) for i in range(count)]


def held(address: str, destination: str) -> list[bytes]:
    """All that the broker holds there."""
    with connect(address) as connection:
        return [each.body for each in connection.subscribe(destination, start_position="first", stop_position="end")]


def test_one_receipt_speaks_for_a_run_and_the_last_message_always_has_one(fake: FakeBroker) -> None:
    sender = ReliableSender(lambda policy: connect(fake.address, reconnect=policy), messages_per_receipt=10)
    for message in numbered(25):
        sender.send(message)
    sender.flush()
    assert sender.stored == 25
    sends = [frame for frame in fake.frames if frame.command == "SEND"]
    assert [i for i, frame in enumerate(sends) if frame.receipt is not None] == [9, 19, 24]
    sender.close()


def test_nothing_is_connected_before_the_first_message() -> None:
    def connecting(policy: Reconnect) -> Connection:
        raise AssertionError

    sender = ReliableSender(connecting)
    sender.flush()
    sender.close()


def test_large_bodies_have_their_receipts_sooner(fake: FakeBroker) -> None:
    sender = ReliableSender(lambda policy: connect(fake.address, reconnect=policy), messages_per_receipt=1_000)
    for message in numbered(4, size=600_000):
        sender.send(message)
    sender.flush()
    assert len([frame for frame in fake.frames if frame.receipt is not None]) == 2
    sender.close()


def test_headers_count_among_the_bytes_that_are_kept(fake: FakeBroker) -> None:
    sender = ReliableSender(lambda policy: connect(fake.address, reconnect=policy), messages_per_receipt=1_000)
    for _ in range(300):
        sender.send(Outgoing("/topic/a", b"", {"x": "y" * 8_000}))
    sender.flush()
    assert len([frame for frame in fake.frames if frame.receipt is not None]) == 3
    sender.close()


def test_a_file_of_tls_that_is_not_there_is_reported_at_once() -> None:
    sender = ReliableSender(
        lambda policy: connect("stomp+tls://127.0.0.1:1", ca="/not/there", reconnect=policy), patience_seconds=1_000
    )
    with pytest.raises(ConnectFailed, match="/not/there"):
        sender.open()


def test_what_has_no_receipt_is_sent_again_in_order_on_the_next_connection(fake: FakeBroker) -> None:
    """The connection breaks with the third receipt, whose messages and all behind them come once more."""
    receipts = 0

    def on_send(peer: Any, frame: Any) -> None:
        nonlocal receipts
        if frame.receipt is not None:
            receipts += 1
            if receipts == 3:
                peer.close()
                return
        peer.receipt(frame)

    fake.on["SEND"] = on_send
    sender = ReliableSender(lambda policy: connect(fake.address, reconnect=policy), messages_per_receipt=10)
    for message in numbered(50):
        sender.send(message)
    sender.flush()
    assert sender.stored == 50
    assert sender.sent_again >= 10
    bodies = [int(frame.body) for frame in fake.frames if frame.command == "SEND"]
    again = bodies.index(20, bodies.index(20) + 1)
    assert bodies[again:] == list(range(20, 50))
    sender.close()


def test_it_gives_up_when_the_broker_stays_away_longer_than_its_patience() -> None:
    policies: list[Reconnect] = []

    def connecting(policy: Reconnect) -> Connection:
        policies.append(policy)
        return connect("127.0.0.1:1", reconnect=policy)

    sender = ReliableSender(connecting, patience_seconds=0.2)
    with pytest.raises(ConnectFailed):
        sender.open()
    assert [(each.delay, each.delay_max, each.timeout) for each in policies] == [(0.05, 1.0, 0.2)]


def test_an_error_of_the_broker_is_raised_and_not_tried_again(broker: BrokerProcess) -> None:
    connections = []

    def connecting(policy: Reconnect) -> Connection:
        connections.append(connect(broker.address, reconnect=policy))
        return connections[-1]

    sender = ReliableSender(connecting)
    sender.send(Outgoing("/topic/*", b"to a pattern"))
    with pytest.raises(ServerError) as caught:
        sender.flush()
    assert caught.value.code == "bad-destination"
    assert len(connections) == 1
    sender.abandon()


def test_a_receipt_that_does_not_come_is_reported(fake: FakeBroker) -> None:
    fake.on["SEND"] = lambda peer, frame: None
    sender = ReliableSender(lambda policy: connect(fake.address, reconnect=policy), patience_seconds=0.05)
    sender.send(Outgoing("/topic/a", b"1"))
    with pytest.raises(TimedOut):
        sender.flush()
    sender.abandon()


@pytest.mark.thorough
@pytest.mark.parametrize("end", [BrokerProcess.kill, BrokerProcess.stop])
def test_a_broker_that_restarts_in_the_middle_holds_each_message_once(
    start_broker: Callable[..., BrokerProcess], end: Callable[[BrokerProcess], object]
) -> None:
    broker = start_broker()
    sender = ReliableSender(lambda policy: connect(broker.address, reconnect=policy), messages_per_receipt=50)
    restarted = threading.Event()

    def restart() -> None:
        end(broker)
        broker.start()
        restarted.set()

    messages = numbered(4_000)
    for message in messages[:2_000]:
        sender.send(message)
    thread = threading.Thread(target=restart)
    thread.start()
    for message in messages[2_000:3_000]:
        sender.send(message)
    sender.push()
    assert restarted.wait(60)
    thread.join()
    for message in messages[3_000:]:
        sender.send(message)
    sender.flush()
    sender.close()
    assert sender.stored == 4_000
    assert sorted(held(broker.address, "/topic/a"), key=int) == [b"%d" % i for i in range(4_000)]
