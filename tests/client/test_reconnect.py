"""The client connects again: what comes back, what is sent again, and what raises."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from radiator.client import (
    ConnectFailed,
    Connection,
    Disconnected,
    Reconnect,
    ServerError,
    StaleDelivery,
    TimedOut,
    connect,
)
from radiator.client.address import parse, parse_all
from radiator.client.reconnect import ONCE, Attempts
from radiator.stomp.frames import Frame
from tests.client.fake import FakeBroker, Peer

WAIT_SECONDS = 20.0
FAST = Reconnect(delay=0.01, delay_max=0.05, timeout=20.0)


@pytest.fixture
def second() -> Iterator[FakeBroker]:
    broker = FakeBroker()
    yield broker
    broker.close()


def cut(fake: FakeBroker, connection: Connection) -> None:
    """End the connection on the side of the broker, and wait until the client has a new one."""
    before = connection.link.session.generation
    fake.peers[-1].close()
    with connection.link.lock:
        assert connection.link._ready.wait_for(
            lambda: connection.link.session.generation > before and connection.link._writable, WAIT_SECONDS
        )


# --- the policy, without sockets --------------------------------------------------------------------------------------


def attempts(policy: Reconnect, text: str = "a,b") -> Attempts:
    return Attempts(parse_all(text), policy, lambda: 0.0)


GONE = ConnectFailed("nobody there")


def test_every_address_is_tried_before_the_client_waits_and_the_waits_double() -> None:
    tries = attempts(Reconnect(delay=1.0, delay_max=3.0, timeout=None))
    assert tries.begin(0.0) == 0.0
    seen = [(tries.address.host, tries.failed(0.0, GONE)) for _ in range(8)]
    assert [host for host, _ in seen] == ["a", "b"] * 4
    assert [wait for _, wait in seen] == [0.0, 1.0, 0.0, 2.0, 0.0, 3.0, 0.0, 3.0]


def test_jitter_shortens_a_wait_by_a_random_part() -> None:
    tries = Attempts(parse_all("a"), Reconnect(delay=1.0, jitter=0.5), lambda: 0.5)
    tries.begin(0.0)
    assert tries.failed(0.0, GONE) == 0.75


def test_the_client_gives_up_after_the_time_limit() -> None:
    tries = attempts(Reconnect(delay=1.0, delay_max=1.0, timeout=10.0), "a")
    tries.begin(100.0, Disconnected("cut"))
    assert tries.failed(105.0, GONE) == 1.0
    assert tries.failed(109.5, GONE) is None
    assert "cut" in str(tries.error())
    assert "nobody there" in str(tries.error())


def test_without_a_policy_every_address_is_tried_once() -> None:
    tries = attempts(ONCE, "a,b,c")
    assert tries.begin(0.0) == 0.0
    assert [tries.failed(50.0, GONE), tries.failed(100.0, GONE), tries.failed(150.0, GONE)] == [0.0, 0.0, None]


def test_a_lost_connection_is_first_tried_at_the_same_address_and_a_draining_broker_is_left() -> None:
    tries = attempts(Reconnect())
    tries.begin(0.0)
    tries.succeeded()
    tries.begin(1.0, Disconnected("cut"))
    assert tries.address.host == "a"
    tries.succeeded()
    tries.begin(2.0, ServerError("draining", "going down"))
    assert tries.address.host == "b"


def test_connections_that_bring_nothing_count_against_the_time_limit() -> None:
    tries = attempts(Reconnect(delay=1.0, delay_max=4.0, timeout=10.0), "a")
    tries.begin(0.0)
    waits = []
    now = 0.0
    while (wait := tries.begin(now, Disconnected("cut at once"))) is not None:
        waits.append(wait)
        now += wait
        tries.connected(now)
    assert waits == [1.0, 2.0, 4.0]


def test_a_connection_that_lasted_counts_as_a_success() -> None:
    tries = attempts(Reconnect(delay=1.0, delay_max=4.0, timeout=10.0), "a")
    tries.begin(0.0)
    tries.connected(0.0)
    assert tries.begin(3600.0, Disconnected("cut")) is not None


def test_a_wrong_passcode_is_not_tried_again() -> None:
    tries = attempts(Reconnect())
    tries.begin(0.0)
    assert tries.failed(0.0, ServerError("denied", "wrong passcode")) is None
    assert isinstance(tries.error(), ServerError)


@pytest.mark.parametrize("wrong", [{"delay": 0}, {"delay": 9.0}, {"jitter": 2}, {"timeout": -1}])
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Reconnect(**wrong)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", ["a:61613"]),
        ("stomp://a:1,b:2", ["a:1", "b:2"]),
        ("stomp+tls://a, b", ["stomp+tls://a:61614", "stomp+tls://b:61614"]),
        ("stomp://a,wss://b", ["a:61613", "wss://b:15673"]),
        ("stomp://ann:pa,ss@a,b", ["a:61613", "b:61613"]),
        ("unix:/a,b", ["unix:/a,b"]),
        (["unix:/a", "b"], ["unix:/a", "b:61613"]),
    ],
)
def test_several_addresses(text: Any, hosts: list[str]) -> None:
    assert [str(each) for each in parse_all(text)] == hosts


def test_addresses_without_a_login_have_that_of_the_one_before() -> None:
    found = parse_all("stomp://ann:pa,ss@a,b,stomp://bob:x@c")
    assert [(each.login, each.passcode) for each in found] == [("ann", "pa,ss"), ("ann", "pa,ss"), ("bob", "x")]
    assert parse("stomp://ann:pa,ss@a").passcode == "pa,ss"


# --- connections ------------------------------------------------------------------------------------------------------


def test_the_next_address_is_used_if_the_first_does_not_answer(fake: FakeBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    with connect(f"127.0.0.1:{port},{fake.address}") as connection:
        assert str(connection.address) == fake.address
    with pytest.raises(ConnectFailed, match=f"no broker answers at any of 127.0.0.1:{port}, 127.0.0.1:{port}"):
        connect([f"127.0.0.1:{port}", f"127.0.0.1:{port}"])


def test_a_host_that_does_not_answer_and_a_slow_name_server_take_no_longer_than_the_limit(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = socket.create_server(("127.0.0.1", 0))  # accepts, and never answers CONNECT
    release = threading.Event()
    real = socket.getaddrinfo

    def slow(host: str, *args: Any, **named: Any) -> Any:
        if host == "slow.example":
            release.wait(WAIT_SECONDS)
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return real(host, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    addresses = ["slow.example:1", f"127.0.0.1:{silent.getsockname()[1]}", fake.address]
    began = time.monotonic()
    with connect(addresses, connect_timeout=0.2) as connection:
        assert connection.send("/topic/a", b"x") is not None
    assert time.monotonic() - began < 5
    release.set()
    silent.close()


def test_a_connection_without_reconnects_ends_as_before(fake: FakeBroker) -> None:
    connection = connect(fake.address)
    fake.peers[-1].close()
    with pytest.raises(Disconnected):
        connection.subscribe("/topic/a")
    assert connection.closed


def test_a_lost_connection_is_replaced_and_its_callbacks_are_called(fake: FakeBroker) -> None:
    events: list[str] = []
    done = threading.Event()

    def on_connect(connection: Connection) -> None:
        connection.send("/topic/events", b"here")  # may block: it runs in a thread of its own
        events.append("connected")
        if len(events) == 3:
            done.set()

    with connect(
        fake.address,
        reconnect=FAST,
        on_connect=on_connect,
        on_disconnect=lambda connection, error: events.append(type(error).__name__),
    ) as connection:
        fake.wait_for("SEND", 1)
        cut(fake, connection)
        assert connection.send("/topic/a", b"x") is not None
        assert done.wait(WAIT_SECONDS)
    assert events == ["connected", "Disconnected", "connected"]


def test_a_send_without_an_answer_is_sent_again_with_its_id_and_its_time(fake: FakeBroker) -> None:
    def lose(peer: Peer, frame: Frame) -> None:
        del fake.on["SEND"]
        peer.close()

    fake.on["SEND"] = lose
    with connect(fake.address, reconnect=FAST) as connection:
        assert connection.send("/queue/a", b"one", dedup_id="n1") is not None
    first, second = fake.wait_for("SEND", 2)
    assert (first.headers, first.body) == (second.headers, second.body)


def test_of_many_sends_only_those_without_a_receipt_are_sent_again(fake: FakeBroker) -> None:
    def answer_two(peer: Peer, frame: Frame) -> None:
        if int(frame.body) == 2:
            del fake.on["SEND"]
            peer.close()
        else:
            fake.default(peer, frame)

    fake.on["SEND"] = answer_two
    with connect(fake.address, reconnect=FAST) as connection:
        receipts = connection.send_many([("/queue/a", b"%d" % number) for number in range(5)])
    assert len(receipts) == 5
    bodies = [int(frame.body) for frame in fake.frames if frame.command == "SEND"]
    assert bodies[-3:] == [2, 3, 4]
    assert bodies.count(0) == bodies.count(1) == 1


def test_a_refused_message_raises_for_its_sender_alone(fake: FakeBroker) -> None:
    def refuse(peer: Peer, frame: Frame) -> None:
        if frame.body == b"bad":
            assert frame.receipt is not None
            peer.send("ERROR", {"error-code": "rejected", "message": "no", "receipt-id": frame.receipt.decode()})
            peer.close()
        else:
            fake.default(peer, frame)

    fake.on["SEND"] = refuse
    with connect(fake.address, reconnect=FAST) as connection:
        good = connection.send_nowait([("/queue/a", b"first")])
        bad = connection.send_nowait([("/queue/a", b"bad")])
        behind = connection.send_nowait([("/queue/a", b"behind")])
        assert len(good.wait() + behind.wait()) == 2
        with pytest.raises(ServerError) as caught:
            bad.wait()
        assert caught.value.code == "rejected"
        assert not connection.closed


def test_an_error_that_names_no_frame_ends_the_client(fake: FakeBroker) -> None:
    connection = connect(fake.address, reconnect=FAST)
    fake.peers[-1].send("ERROR", {"error-code": "denied", "message": "no"})
    with pytest.raises(ServerError):
        connection.subscribe("/topic/a").fetch(WAIT_SECONDS)
    assert connection.closed


@pytest.mark.parametrize("code", ["draining", "shutting-down"])
def test_a_broker_that_goes_down_is_left_for_the_next_address(fake: FakeBroker, second: FakeBroker, code: str) -> None:
    with connect(f"{fake.address},{second.address}", reconnect=FAST) as connection:
        connection.send("/topic/a", b"x")
        fake.peers[-1].send("ERROR", {"error-code": code, "message": "going down"})
        fake.peers[-1].close()
        second.wait_for("CONNECT")
        connection.send("/topic/a", b"y")
        assert str(connection.address) == second.address
    assert [frame.body for frame in second.frames if frame.command == "SEND"] == [b"y"]


def test_a_subscription_comes_back_with_its_headers(fake: FakeBroker) -> None:
    with connect(fake.address, reconnect=FAST) as connection:
        options = {"selector": "a = 1", "subscription-name": "billing", "reset": "true"}
        subscription = connection.subscribe("/topic/a", ack="client-individual", prefetch=7, headers=options)
        cut(fake, connection)
        connection.send("/topic/a", b"after")
        message = subscription.fetch(WAIT_SECONDS)
        assert message is not None
        assert message.body == b"after"
        connection.subscribe("/topic/b", headers={"subscription-name": "later", "reset": "true"})
    first, again, later = fake.wait_for("SUBSCRIBE", 3)
    assert later.headers["reset"] == "true"
    assert first.headers["reset"] == "true"
    kept = {name: value for name, value in first.headers.items() if name not in ("receipt", "reset")}
    assert {name: value for name, value in again.headers.items() if name != "receipt"} == kept


def test_a_replay_goes_on_behind_the_last_message_of_each_partition(fake: FakeBroker) -> None:
    with connect(fake.address, reconnect=FAST) as connection:
        subscription = connection.subscribe("/topic/>", start_position="first")
        peer = fake.peers[-1]
        for partition, offset in (("p", 0), ("q", 5), ("p", 1)):
            peer.message(
                subscription.id, b"%d" % offset, partition=partition, offset=offset, message_id=f"{partition}@{offset}"
            )
        assert [subscription.fetch(WAIT_SECONDS).body for _ in range(3)] == [b"0", b"5", b"1"]  # type: ignore[union-attr]
        cut(fake, connection)
        again = fake.wait_for("SUBSCRIBE", 2)[1]
        assert set(again.headers["start-at"].split(",")) == {"p@1", "q@5"}
        for partition, offset in (("p", 1), ("q", 5), ("p", 2)):  # the broker begins with the named messages
            fake.peers[-1].message(
                subscription.id, b"%d" % offset, partition=partition, offset=offset, message_id=f"{partition}@{offset}"
            )
        message = subscription.fetch(WAIT_SECONDS)
        assert message is not None
        assert message.offset == 2


def test_an_acknowledgement_on_a_later_connection_is_refused_and_never_sent(fake: FakeBroker) -> None:
    with connect(fake.address, reconnect=FAST) as connection:
        subscription = connection.subscribe("/queue/a", prefetch=2)
        connection.send("/queue/a", b"one")
        connection.send("/queue/a", b"two")
        message = subscription.fetch(WAIT_SECONDS)
        assert message is not None
        cut(fake, connection)
        assert subscription.pending == 0  # the second message comes again, too
        with pytest.raises(StaleDelivery, match="comes again"):
            message.ack()
        with pytest.raises(StaleDelivery):
            message.nack(receipt=True)
        connection.send("/queue/a", b"one again")
        with subscription.receive(WAIT_SECONDS) as message:
            assert message is not None
            cut(fake, connection)  # the end of the block acknowledges nothing, and raises nothing
        connection.send("/queue/a", b"sync")
    assert not [frame for frame in fake.frames if frame.command in ("ACK", "NACK")]


def test_messages_of_a_topic_that_were_received_before_the_loss_are_read_after_it(fake: FakeBroker) -> None:
    with connect(fake.address, reconnect=FAST) as connection:
        subscription = connection.subscribe("/topic/a", ack="client-individual")
        connection.send("/topic/a", b"one")
        cut(fake, connection)
        message = subscription.fetch(WAIT_SECONDS)
        assert message is not None
        message.ack()  # nothing to acknowledge: the broker has forgotten the delivery
        assert message.settled
        connection.send("/topic/a", b"two")
        message = subscription.fetch(WAIT_SECONDS)
        assert message is not None
        message.ack()
        fake.wait_for("ACK")
    assert len([frame for frame in fake.frames if frame.command == "ACK"]) == 1


def test_a_transaction_does_not_survive_its_connection(fake: FakeBroker) -> None:
    with connect(fake.address, reconnect=FAST) as connection:
        with pytest.raises(Disconnected, match="repeat it"), connection.transaction() as transaction:
            transaction.send("/queue/a", b"one")
            cut(fake, connection)
            transaction.send("/queue/a", b"two")
        fake.on["COMMIT"] = lambda peer, frame: peer.close()
        with pytest.raises(Disconnected, match="before the answer"), connection.transaction() as transaction:
            transaction.send("/queue/a", b"three")
        assert connection.send("/queue/a", b"four") is not None


def test_a_request_that_is_under_way_raises_and_the_next_one_is_answered(fake: FakeBroker) -> None:
    def answer(peer: Peer, frame: Frame) -> None:
        fake.default(peer, frame)
        if frame.headers.get("correlation-id"):
            if frame.body == b"lost":
                peer.close()
                return
            name = next(iter(peer.subscriptions))
            peer.message(name, b"reply", correlation_id=frame.headers["correlation-id"])

    fake.on["SEND"] = answer
    with connect(fake.address, reconnect=FAST) as connection:
        with pytest.raises(Disconnected, match="may be processed"):
            connection.request("/queue/q", b"lost", timeout=WAIT_SECONDS)
        assert connection.request("/queue/q", b"asked", timeout=WAIT_SECONDS).body == b"reply"


def test_a_subscription_that_is_refused_later_ends_alone(fake: FakeBroker) -> None:
    with connect(fake.address, reconnect=FAST) as connection:
        refused = connection.subscribe("/topic/a", start_position="first")
        other = connection.subscribe("/topic/b")

        def refuse(peer: Peer, frame: Frame) -> None:
            if frame.headers["destination"] == "/topic/a":
                assert frame.receipt is not None
                peer.send(
                    "ERROR", {"error-code": "bad-position", "message": "gone", "receipt-id": frame.receipt.decode()}
                )
                peer.close()
            else:
                fake.default(peer, frame)

        fake.on["SUBSCRIBE"] = refuse
        fake.peers[-1].close()
        with pytest.raises(ServerError, match="gone"):
            refused.fetch(WAIT_SECONDS)
        deadline = time.monotonic() + WAIT_SECONDS
        while other.pending == 0 and time.monotonic() < deadline:
            connection.send("/topic/b", b"x")
        assert other.fetch(WAIT_SECONDS) is not None


def test_a_closed_client_does_not_connect_again(fake: FakeBroker) -> None:
    connection = connect(fake.address, reconnect=Reconnect(delay=5.0, delay_max=5.0, jitter=0.0))
    fake.close()
    began = time.monotonic()
    with pytest.raises(TimedOut):
        connection.send("/topic/a", b"x", timeout=0.05)
    connection.close()
    assert time.monotonic() - began < 4
    assert connection.closed


def test_an_interrupted_send_leaves_a_client_that_works_and_is_not_repeated(fake: FakeBroker) -> None:
    connection = connect(fake.address, reconnect=FAST)
    sock = connection.link._sock

    class Interrupted:
        def send(self, data: memoryview) -> int:
            assert sock is not None
            sock.send(data[: len(data) // 2])
            raise KeyboardInterrupt

        def __getattr__(self, name: str) -> Any:
            return getattr(sock, name)

    connection.link._sock = Interrupted()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        connection.send("/topic/a", b"x" * 1_000)
    assert connection.send("/topic/a", b"y") is not None
    connection.close()
    assert [frame.body for frame in fake.frames if frame.command == "SEND"] == [b"y"]
    assert not connection.link.session.expects_receipts


def test_a_forked_child_has_a_connection_of_its_own(fake: FakeBroker) -> None:
    with connect(fake.address) as connection:
        inherited = connection.subscribe("/topic/a")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert connection.link._sock is None
                connection.send("/topic/b", b"child")
                try:
                    inherited.fetch(0)
                except Disconnected:
                    code = 0
                connection.close()
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        connection.send("/topic/a", b"parent")
        message = inherited.fetch(WAIT_SECONDS)
        assert message is not None
        assert message.body == b"parent"
    assert len([frame for frame in fake.frames if frame.command == "CONNECT"]) == 2
    sends = fake.wait_for("SEND", 2)
    assert [frame.body for frame in sends] == [b"child", b"parent"]
