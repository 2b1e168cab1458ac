"""The client against a fake broker: receiving, settling, ending."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

from radiator.client import ClientError, Connection, Disconnected, Message, connect
from radiator.client import link as link_module
from radiator.stomp.frames import Frame
from tests.client.fake import FakeBroker, Peer


def settled(fake: FakeBroker) -> list[tuple[str, str]]:
    return [(f.command, f.headers["id"]) for f in fake.frames if f.command in ("ACK", "NACK")]


def test_receive_acknowledges_when_the_block_ends_well(fake: FakeBroker) -> None:
    with connect(fake.address) as connection, connection.subscribe("/queue/a") as subscription:
        connection.send("/queue/a", b"1")
        with subscription.receive(10) as message:
            assert message is not None
            assert message.body == b"1"
            assert settled(fake) == []
        fake.wait_for("ACK")
        assert settled(fake) == [("ACK", message.id)]


def test_receive_gives_back_when_the_block_raises(fake: FakeBroker) -> None:
    with connect(fake.address) as connection, connection.subscribe("/queue/a") as subscription:
        connection.send("/queue/a", b"1")
        with pytest.raises(ZeroDivisionError), subscription.receive(10) as message:
            raise ZeroDivisionError
        fake.wait_for("NACK")
        assert message is not None
        assert settled(fake) == [("NACK", message.id)]


def test_what_the_block_settled_itself_is_left_alone(fake: FakeBroker) -> None:
    with connect(fake.address) as connection, connection.subscribe("/queue/a") as subscription:
        connection.send_many([("/queue/a", b"1"), ("/queue/a", b"2")])
        with subscription.receive(10) as message:
            assert message is not None
            message.nack()
            message.nack()
            message.ack()
        message = subscription.fetch(10)
        assert message is not None
        message.ack(receipt=True)
    assert settled(fake) == [("NACK", "m1"), ("ACK", "m2")]


def test_a_delivery_without_with_says_how_to_take_a_message(fake: FakeBroker) -> None:
    with connect(fake.address) as connection, connection.subscribe("/queue/a") as subscription:
        delivery: Any = subscription.receive(0)
        with pytest.raises(AttributeError, match="'body': write `with subscription.receive\\(\\) as message:`"):
            delivery.body  # noqa: B018
        assert not hasattr(delivery, "ack")


def test_nothing_in_time_is_none(fake: FakeBroker) -> None:
    with connect(fake.address) as connection, connection.subscribe("/queue/a") as subscription:
        with subscription.receive(timeout=0.02) as message:
            assert message is None
        assert subscription.fetch(0.02) is None
        assert subscription.fetch(0) is None
        assert subscription.listen(print, timeout=0.02) == 0


def test_ack_modes_follow_the_name_unless_given(fake: FakeBroker) -> None:
    with connect(fake.address) as connection:
        for arguments in (
            {"destination": "/queue/a"},
            {"destination": "/topic/a"},
            {"destination": ["/queue/a", "/queue/b.>"]},
            {"destination": ["/queue/a", "/topic/b"]},
            {"destination": "/queue/a", "browser": True},
            {"destination": "/queue/a", "start_position": "first"},
            {"destination": "/topic/a", "ack": "client"},
        ):
            connection.subscribe(**arguments)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="expected one of auto, client, client-individual"):
            connection.subscribe("/a", ack="manual")
    modes = [(frame.headers["destination"], frame.headers["ack"]) for frame in fake.wait_for("SUBSCRIBE", 7)]
    assert modes == [
        ("/queue/a", "client-individual"),
        ("/topic/a", "auto"),
        ("/queue/a,/queue/b.>", "client-individual"),
        ("/queue/a,/topic/b", "auto"),
        ("/queue/a", "auto"),
        ("/queue/a", "auto"),
        ("/topic/a", "client"),
    ]


def test_options_become_headers(fake: FakeBroker) -> None:
    with connect(fake.address) as connection:
        connection.subscribe(
            "/topic/a", start_position="last:5", stop_position="end", prefetch=7, headers={"selector": "a = 'b'"}
        )
    headers = fake.wait_for("SUBSCRIBE")[0].headers
    wanted = {"start-position": "last:5", "stop-position": "end", "prefetch-count": "7", "selector": "a = 'b'"}
    assert wanted.items() <= headers.items()


def test_auto_sends_no_ack(fake: FakeBroker) -> None:
    with connect(fake.address) as connection, connection.subscribe("/topic/a") as subscription:
        connection.send("/topic/a", b"1")
        with subscription.receive(10) as message:
            assert message is not None
            message.ack()
    assert settled(fake) == []


def test_a_message_without_an_id_cannot_be_acknowledged(fake: FakeBroker) -> None:
    """In STOMP 1.0 it may come without ``subscription`` too, so it belongs to the only one."""
    with connect(fake.address) as connection, connection.subscribe("/queue/a") as subscription:
        fake.peers[0].send("MESSAGE", {"destination": "/queue/a"}, b"1")
        message = subscription.fetch(10)
        assert message is not None
        with pytest.raises(ClientError, match="without a message-id"):
            message.ack()
        with pytest.raises(ClientError, match="without a message-id"):
            message.nack(receipt=True)


def test_a_message_shows_its_headers(fake: FakeBroker) -> None:
    with connect(fake.address) as connection, connection.subscribe("/topic/>") as subscription:
        fake.peers[0].message(
            subscription.id, b'{"a": 1}', destination="/topic/x", offset=7, partition="p", receive_time=11,
            event_time=12, transmit_time=13, redelivered="true", delivery_count=3, tag_carrier="UA", tag_dest="IAH",
            reply_to="/temp-queue/r", correlation_id="c", replayed="true", gap=5,
        )  # fmt: skip
        message = subscription.fetch(10)
    assert message is not None
    assert (message.destination, message.partition, message.offset) == ("/topic/x", "p", 7)
    assert (message.receive_time, message.event_time, message.transmit_time) == (11, 12, 13)
    assert (message.redelivered, message.delivery_count, message.replayed) == (True, 3, True)
    assert (message.reply_to, message.correlation_id) == ("/temp-queue/r", "c")
    assert message.gap == 5
    assert message.tags == {"carrier": "UA", "dest": "IAH"}
    assert message.json() == {"a": 1}
    assert message.text == '{"a": 1}'
    assert "/topic/x" in repr(message)


def test_a_message_without_headers_has_none(fake: FakeBroker) -> None:
    with connect(fake.address) as connection, connection.subscribe("/topic/a") as subscription:
        fake.peers[0].send("MESSAGE", {"subscription": subscription.id, "event-time": "2013-01-01T05:00:00Z"})
        message = subscription.fetch(10)
    assert message is not None
    assert (message.id, message.offset, message.event_time, message.delivery_count) == ("", None, None, 1)
    with pytest.raises(ValueError, match="expected a message with a reply-to header"):
        message.reply(b"")


def test_iteration_ends_with_replay_end(fake: FakeBroker) -> None:
    with connect(fake.address) as connection:
        subscription = connection.subscribe("/topic/a", start_position="first", stop_position="end")
        for number in range(3):
            fake.peers[0].message(subscription.id, str(number).encode())
        fake.peers[0].message(subscription.id, b"", replay_end="true")
        assert [message.body for message in subscription] == [b"0", b"1", b"2"]
        assert subscription.ended
        assert subscription.fetch() is None
        subscription.close()
    assert not [frame for frame in fake.frames if frame.command == "UNSUBSCRIBE"]


def test_closing_a_subscription_ends_the_iteration_of_another_thread(fake: FakeBroker) -> None:
    seen: list[bytes] = []
    with connect(fake.address) as connection:
        subscription = connection.subscribe("/topic/a")
        thread = threading.Thread(target=lambda: seen.extend(message.body for message in subscription))
        thread.start()
        connection.send("/topic/a", b"1")
        subscription.close()
        thread.join(20)
        assert not thread.is_alive()
        fake.wait_for("UNSUBSCRIBE")
        connection.send("/topic/a", b"2")  # whatever still comes for it is dropped
    assert seen in ([b"1"], [])


def test_a_waiting_fetch_wakes_when_a_message_comes(fake: FakeBroker) -> None:
    found: list[Message | None] = []
    with connect(fake.address) as connection, connection.subscribe("/topic/a") as subscription:
        thread = threading.Thread(target=lambda: found.append(subscription.fetch()))
        thread.start()
        connection.send("/topic/a", b"1")
        thread.join(20)
    assert found[0] is not None
    assert found[0].body == b"1"


def test_after_a_loss_auto_hands_out_what_came_and_then_raises(fake: FakeBroker) -> None:
    with connect(fake.address) as connection:
        subscription = connection.subscribe("/topic/a")
        connection.send_many([("/topic/a", b"1"), ("/topic/a", b"2")])
        fake.peers[0].close()
        got: list[bytes] = []
        with pytest.raises(Disconnected):
            got.extend(message.body for message in [next(subscription), next(subscription)])
            next(subscription)
        assert got == [b"1", b"2"]


def test_after_a_loss_unacknowledged_messages_are_not_handed_out(fake: FakeBroker) -> None:
    with connect(fake.address) as connection:
        subscription = connection.subscribe("/queue/a")
        connection.send("/queue/a", b"1")
        fake.peers[0].close()
        connection.link._ended.wait(20)
        with pytest.raises(Disconnected):
            subscription.fetch(10)


def test_listen_counts_and_ends(fake: FakeBroker) -> None:
    bodies: list[bytes] = []
    with connect(fake.address) as connection, connection.subscribe("/queue/a") as subscription:
        connection.send_many([("/queue/a", str(number)) for number in range(4)])
        assert subscription.listen(lambda message: bodies.append(message.body), count=3) == 3
        assert subscription.listen(lambda message: bodies.append(message.body), timeout=0.05) == 1
    assert bodies == [b"0", b"1", b"2", b"3"]
    assert settled(fake) == [("ACK", f"m{number}") for number in range(1, 5)]


def test_an_error_in_a_callback_gives_the_message_back(fake: FakeBroker) -> None:
    def fail(message: Message) -> None:
        raise ZeroDivisionError

    with connect(fake.address) as connection, connection.subscribe("/queue/a") as subscription:
        connection.send("/queue/a", b"1")
        with pytest.raises(ZeroDivisionError):
            subscription.listen(fail)
        fake.wait_for("NACK")
    assert settled(fake) == [("NACK", "m1")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_listen_finishes_the_message_in_hand_on_a_signal(fake: FakeBroker, number: signal.Signals) -> None:
    before = signal.getsignal(number)

    def work(message: Message) -> None:
        os.kill(os.getpid(), number)

    with connect(fake.address) as connection, connection.subscribe("/queue/a") as subscription:
        connection.send_many([("/queue/a", b"1"), ("/queue/a", b"2")])
        assert subscription.listen(work) == 1
        fake.wait_for("ACK")
    assert settled(fake) == [("ACK", "m1")]
    assert signal.getsignal(number) is before


def test_listen_wakes_on_a_signal_while_it_waits(fake: FakeBroker) -> None:
    with connect(fake.address) as connection, connection.subscribe("/queue/a") as subscription:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM))
        timer.start()
        try:
            assert subscription.listen(print) == 0
        finally:
            timer.join()


def test_listen_works_in_a_thread(fake: FakeBroker) -> None:
    counts: list[int] = []
    with connect(fake.address) as connection, connection.subscribe("/queue/a") as subscription:
        thread = threading.Thread(target=lambda: counts.append(subscription.listen(lambda message: None, count=2)))
        thread.start()
        connection.send_many([("/queue/a", b"1"), ("/queue/a", b"2")])
        thread.join(20)
    assert counts == [2]


def test_acknowledgements_can_be_part_of_a_transaction(fake: FakeBroker) -> None:
    with connect(fake.address) as connection, connection.subscribe("/queue/a") as subscription:
        connection.send_many([("/queue/a", b"1"), ("/queue/a", b"2")])
        first, second = subscription.fetch(10), subscription.fetch(10)
        assert first is not None
        assert second is not None
        with connection.transaction() as transaction:
            transaction.ack(first)
            transaction.nack(second)
        with pytest.raises(ZeroDivisionError), connection.transaction() as transaction:
            raise ZeroDivisionError
    acks = [f.headers.get("transaction") for f in fake.frames if f.command in ("ACK", "NACK")]
    assert acks == ["t2", "t2"]


def test_an_aborted_acknowledgement_leaves_the_message_open(fake: FakeBroker) -> None:
    with connect(fake.address) as connection, connection.subscribe("/queue/a") as subscription:
        connection.send("/queue/a", b"1")
        message = subscription.fetch(10)
        assert message is not None
        with connection.transaction() as transaction:
            transaction.ack(message)
            transaction.abort()
        assert not message.settled


def test_a_reader_that_is_too_slow_makes_the_broker_wait_not_the_memory_grow(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "INBOX_BYTES_MAX", 64 * 1024)
    body = b"x" * 10_000
    total = 3_000  # far more than the socket buffers hold

    def flood(peer: Peer, frame: Frame) -> None:
        fake.default(peer, frame)
        threading.Thread(target=pour, args=(peer, frame.headers["id"]), daemon=True).start()

    def pour(peer: Peer, name: str) -> None:
        for _ in range(total):
            peer.message(name, body)

    fake.on["SUBSCRIBE"] = flood
    with connect(fake.address) as connection, connection.subscribe("/topic/a") as subscription:
        peaks = []
        for _ in range(total):
            message = subscription.fetch(20)
            assert message is not None
            peaks.append(subscription.pending)
        assert max(peaks) < 200
        assert fake.serial == total


def test_a_send_is_receipted_while_unread_messages_pile_up(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The receipt comes behind messages that nobody takes: waiting for it must not be a deadlock."""
    monkeypatch.setattr(link_module, "INBOX_BYTES_MAX", 10_000)
    with connect(fake.address) as connection, connection.subscribe("/topic/a") as subscription:
        for number in range(50):
            receipt = connection.send("/topic/a", b"x" * 1_000, timeout=20)
            assert receipt is not None
            assert receipt.offset == number
        assert subscription.pending == 50


def test_requests_find_their_own_replies(fake: FakeBroker) -> None:
    held: list[tuple[Peer, Frame]] = []
    lock = threading.Lock()

    def on_send(peer: Peer, frame: Frame) -> None:
        with lock:
            held.append((peer, frame))
            if len(held) < 10:
                return
            for holder, one in reversed(held):
                reply_to = one.headers["reply-to"]
                holder.message(reply_to, b"re:" + one.body, correlation_id=one.headers["correlation-id"])

    fake.on["SEND"] = on_send
    replies: dict[int, bytes] = {}
    with connect(fake.address) as connection:
        ask: Any = lambda n: replies.__setitem__(n, connection.request("/queue/rpc", str(n), timeout=20).body)  # noqa: E731
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert replies == {number: b"re:%d" % number for number in range(10)}
    names = {frame.headers["destination"] for frame in fake.wait_for("SUBSCRIBE")}
    assert len(names) == 1
    assert names.pop().startswith("/temp-queue/")


def test_a_late_reply_is_dropped(fake: FakeBroker) -> None:
    def on_send(peer: Peer, frame: Frame) -> None:
        if frame.body == b"slow":
            return
        for earlier in fake.frames:
            if earlier.command == "SEND":
                peer.message(
                    earlier.headers["reply-to"], earlier.body, correlation_id=earlier.headers["correlation-id"]
                )

    fake.on["SEND"] = on_send
    with connect(fake.address) as connection:
        with pytest.raises(TimeoutError, match=r"no reply to the request to /queue/rpc within 0\.05 s"):
            connection.request("/queue/rpc", b"slow", timeout=0.05)
        assert connection.request("/queue/rpc", b"fast", timeout=20).body == b"fast"
        assert connection._requests is not None and connection._requests.dropped == 1


def test_heart_beats_are_sent_and_a_silent_broker_is_noticed() -> None:
    fake = FakeBroker(heart_beat=(100, 40))
    try:
        connection: Connection = connect(fake.address, heart_beat=(40, 100))
        subscription = connection.subscribe("/topic/a")
        with pytest.raises(Disconnected, match="silent"):  # the fake promised beats and sends none
            subscription.fetch(20)
        assert fake.peers[0].beats >= 1
        connection.close()
    finally:
        fake.close()
