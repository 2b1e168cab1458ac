"""The client against a fake broker: sends, receipts, errors, versions, loss."""

from __future__ import annotations

import errno
import socket
import ssl
import threading
from typing import Any

import pytest

from radiator.client import ClientError, ConnectFailed, Disconnected, Outgoing, Receipt, ServerError, TimedOut, connect
from radiator.client.errors import reason
from radiator.stomp.frames import Frame
from radiator.stomp.spec import VERSIONS
from tests.client.fake import FakeBroker, Peer


def test_a_send_returns_what_the_receipt_says(fake: FakeBroker) -> None:
    with connect(fake.address) as connection:
        assert connection.send("/queue/a", b"one") == Receipt(0, "/queue/a", 0)
        assert connection.send("/queue/a", "zwei", {"tag-x": 1}) == Receipt(1, "/queue/a", 0)
        assert connection.send("/queue/a", b"three", receipt=False) is None
    frames = fake.wait_for("SEND", 3)
    assert [frame.body for frame in frames] == [b"one", b"zwei", b"three"]
    assert frames[1].headers["tag-x"] == "1"
    assert frames[2].receipt is None
    assert [frame.command for frame in fake.frames][-1] == "DISCONNECT"


def test_every_send_has_the_time_of_sending_unless_the_option_is_off(fake: FakeBroker) -> None:
    with connect(fake.address) as connection:
        connection.send("/a")
        connection.send("/a", headers={"transmit-time": "7"})
    with connect(fake.address, transmit_time=False) as connection:
        connection.send("/a")
    first, second, third = fake.wait_for("SEND", 3)
    assert int(first.headers["transmit-time"]) > 1_600_000_000_000_000_000
    assert second.headers["transmit-time"] == "7"
    assert "transmit-time" not in third.headers


@pytest.mark.parametrize("version", VERSIONS)
def test_headers_survive_in_every_version(fake: FakeBroker, version: str) -> None:
    value = "plain" if version == "1.0" else "a:b\nc\\d"
    with connect(fake.address, version=version) as connection:
        assert connection.version == version
        connection.send("/queue/a", b"\0binary\0", {"x": value})
        with connection.subscribe("/topic/b", ack="client-individual") as subscription:
            connection.send("/topic/b", b"\0\xff", {"x": value})
            with subscription.receive(10) as message:
                assert message is not None
                assert message.body == b"\0\xff"
                assert message.headers["x"] == value
        ack = fake.wait_for("ACK")[0]
    assert fake.wait_for("SEND")[0].headers["x"] == value
    assert fake.wait_for("SEND")[0].body == b"\0binary\0"
    assert ("id" in ack.headers) == (version == "1.2")
    assert ("message-id" in ack.headers) == (version != "1.2")


def test_send_many_pipelines_and_returns_all_receipts_in_order(fake: FakeBroker) -> None:
    """The fake answers nothing before the last message is in: a client that waited per message would hang."""
    held: list[tuple[Peer, Frame]] = []
    count = 1_500

    def on_send(peer: Peer, frame: Frame) -> None:
        held.append((peer, frame))
        if len(held) == count:
            for holder, one in reversed(held):  # even in the wrong order
                holder.receipt(one, offset=int(one.body), partition="p")

    fake.on["SEND"] = on_send
    messages = [Outgoing("/queue/a", str(number), {"tag-n": number % 3}) for number in range(count)]
    with connect(fake.address) as connection:
        receipts = connection.send_many(iter(messages))
    assert receipts == [Receipt(number, "p", None) for number in range(count)]
    assert [frame.headers["tag-n"] for _, frame in held[:4]] == ["0", "1", "2", "0"]


def test_send_many_of_nothing_is_nothing(fake: FakeBroker) -> None:
    with connect(fake.address) as connection:
        assert connection.send_many([]) == []
        with pytest.raises(ValueError, match="at least one"):
            connection.send_nowait([])


def test_a_dictionary_changed_between_messages_counts_as_it_was(fake: FakeBroker) -> None:
    headers: dict[str, Any] = {}

    def messages() -> Any:
        for number in range(3):
            headers["n"] = number
            yield ("/a", b"", dict(headers))

    with connect(fake.address) as connection:
        connection.send_many(messages())
    assert [frame.headers["n"] for frame in fake.wait_for("SEND", 3)] == ["0", "1", "2"]


def test_headers_of_the_frame_are_refused(fake: FakeBroker) -> None:
    with connect(fake.address) as connection:
        for name in ("receipt", "destination", "content-length", "transaction"):
            with pytest.raises(ValueError, match=name):
                connection.send("/a", b"", {name: "x"})
        assert connection.send("/a") == Receipt(0, "/a", 0)


@pytest.mark.parametrize("body", [5, True, None, 1.5, {"a": 1}, ["a"], [1, 2]])
def test_a_body_that_is_neither_bytes_nor_text_is_refused_with_the_reason(fake: FakeBroker, body: Any) -> None:
    with connect(fake.address) as client:
        with pytest.raises(TypeError, match="body: expected bytes or text, got " + type(body).__name__):
            client.send("/topic/a", body)
        with pytest.raises(TypeError, match="body: expected bytes or text"), client.transaction() as transaction:
            transaction.send("/topic/a", body)
        assert not client.closed
        for taken in (b"x", "x", bytearray(b"x"), memoryview(b"x")):
            client.send("/topic/a", taken, receipt=False)
        client.send("/topic/b", "y", receipt=False)
        assert [each.body for each in fake.wait_for("SEND", 5)] == [b"x"] * 4 + [b"y"]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda client: client.send("/topic/a", "x", {"colour": "r\0d"}), "colour"),
        (lambda client: client.send("/topic/a", "x", {"col\0ur": "red"}), "col"),
        (lambda client: client.send("/topic/\0", "x"), "destination"),
        (lambda client: client.send("/topic/a", "x", dedup_id="1\0"), "dedup-id"),
        (lambda client: client.send_many([("/topic/a", "x", {"colour": "\0"})], transaction=True), "colour"),
        (lambda client: client.subscribe("/topic/\0"), "destination"),
        (lambda client: client.subscribe("/topic/a", headers={"selector": "a = '\0'"}), "selector"),
        (lambda client: connect(str(client.address), login="al\0ice"), "login"),
        (lambda client: connect(str(client.address), passcode="pa\0ss"), "passcode"),
        (lambda client: connect(str(client.address), headers={"client-id": "\0"}), "client-id"),
    ],
)
def test_a_nul_in_a_header_is_refused_by_the_header_s_name_and_costs_nothing(
    fake: FakeBroker, call: Any, name: str
) -> None:
    with connect(fake.address) as client:
        with pytest.raises(ValueError, match=f"header '{name}.*NUL") as refused:
            call(client)
        assert "pa" not in str(refused.value).replace("passcode", "")
        assert not client.closed
        client.send("/topic/a", "still here")
        assert [each.body for each in fake.wait_for("SEND", 1)] == [b"still here"]


def test_a_transaction_commits_or_aborts(fake: FakeBroker) -> None:
    with connect(fake.address) as connection:
        with connection.transaction() as transaction:
            transaction.send("/a", b"1")
            transaction.send_many([("/a", b"2"), ("/a", b"3")])
        with pytest.raises(ZeroDivisionError), connection.transaction() as transaction:
            transaction.send("/a", b"4")
            raise ZeroDivisionError
        with pytest.raises(ClientError, match="not open"):
            transaction.send("/a", b"5")
        connection.send_many([("/a", b"6")], transaction=True)
    steps = [(f.command, f.headers.get("transaction")) for f in fake.frames[1:-1]]
    assert steps == [
        ("BEGIN", "t1"), ("SEND", "t1"), ("SEND", "t1"), ("SEND", "t1"), ("COMMIT", "t1"),
        ("BEGIN", "t2"), ("SEND", "t2"), ("ABORT", "t2"),
        ("BEGIN", "t3"), ("SEND", "t3"), ("COMMIT", "t3"),
    ]  # fmt: skip


def test_an_error_frame_is_raised_with_its_parts(fake: FakeBroker) -> None:
    def refuse(peer: Peer, frame: Frame) -> None:
        headers = {"message": "no such place", "error-code": "not-found", "receipt-id": frame.receipt.decode()}  # type: ignore[union-attr]
        peer.send("ERROR", headers, b"the rule says create: deny")
        peer.close()

    fake.on["SEND"] = refuse
    with connect(fake.address) as connection:
        for _ in range(2):  # the second time from the link that has ended
            with pytest.raises(ServerError) as caught:
                connection.send("/a", b"x")
            assert caught.value.code == "not-found"
            assert caught.value.message == "no such place"
            assert caught.value.detail == "the rule says create: deny"
            assert str(caught.value) == "no such place (not-found): the rule says create: deny"
        assert connection.closed


def test_an_error_frame_wakes_every_thread(fake: FakeBroker) -> None:
    caught: list[BaseException] = []

    def wait(action: Any) -> None:
        try:
            action()
        except ClientError as error:
            caught.append(error)

    fake.on["SEND"] = lambda peer, frame: None
    with connect(fake.address) as connection:
        subscription = connection.subscribe("/topic/a")
        actions = [subscription.fetch, lambda: next(subscription), lambda: connection.send("/a"),
                   lambda: connection.request("/b")]  # fmt: skip
        threads = [threading.Thread(target=wait, args=(action,)) for action in actions]
        for thread in threads:
            thread.start()
        fake.wait_for("SEND", 2)
        fake.peers[0].send("ERROR", {"message": "over", "error-code": "shutting-down"})
        for thread in threads:
            thread.join(20)
    assert [str(error) for error in caught] == ["over (shutting-down)"] * 4
    assert len({id(error) for error in caught}) == 4


def test_a_refused_login_is_the_brokers_error(fake: FakeBroker) -> None:
    fake.on["CONNECT"] = lambda peer, frame: peer.send("ERROR", {"message": "wrong passcode", "error-code": "denied"})
    with pytest.raises(ServerError, match=r"wrong passcode \(denied\)"):
        connect(f"stomp://me:wrong@{fake.address}")
    headers = fake.wait_for("CONNECT")[0].headers
    assert (headers["login"], headers["passcode"], headers["host"]) == ("me", "wrong", "127.0.0.1")


def test_an_absent_broker_is_connect_failed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(ConnectFailed, match=f"{address}: Connection refused; is a broker running"):
        connect(address)


def test_a_host_that_no_name_server_knows_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*given: object, **more: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ConnectFailed, match="no address is found for the host name 'nowhere'.*is it spelt right"):
        connect("stomp://nowhere:61613")


def test_a_listener_that_says_nothing_is_connect_failed_in_time() -> None:
    said = pytest.raises(ConnectFailed, match=r"did not answer CONNECT within 0\.2 s")
    with socket.create_server(("127.0.0.1", 0)) as listener, said:
        connect(f"127.0.0.1:{listener.getsockname()[1]}", connect_timeout=0.2)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"RECEIPT\nreceipt-id:1\n\n\0", b""])
def test_a_peer_that_does_not_speak_stomp_is_connect_failed(fake: FakeBroker, answer: bytes) -> None:
    def reply(peer: Peer, frame: Frame) -> None:
        peer.sock.sendall(answer)
        peer.close()

    fake.on["CONNECT"] = reply
    with pytest.raises(ConnectFailed):
        connect(fake.address)


def test_an_unknown_version_is_refused_before_connecting() -> None:
    with pytest.raises(ValueError, match=r"expected one of 1\.0, 1\.1, 1\.2"):
        connect("127.0.0.1:1", version="2.0")


def test_a_receipt_that_does_not_come_times_out_and_the_connection_lives(fake: FakeBroker) -> None:
    fake.on["SEND"] = lambda peer, frame: None if frame.body == b"lost" else fake.default(peer, frame)
    with connect(fake.address) as connection:
        with pytest.raises(TimedOut, match=r"1 of 1 receipts did not come within 0\.05 s"):
            connection.send("/a", b"lost", timeout=0.05)
        assert connection.send("/a", b"found") == Receipt(0, "/a", 0)


def test_a_lost_connection_is_raised_by_what_waits_and_by_what_follows(fake: FakeBroker) -> None:
    fake.on["SEND"] = lambda peer, frame: peer.close()
    with connect(fake.address) as connection:
        with pytest.raises(Disconnected, match="closed the connection"):
            connection.send("/a")
        with pytest.raises(Disconnected):
            connection.subscribe("/b")
        assert connection.closed


def test_after_close_everything_says_so(fake: FakeBroker) -> None:
    connection = connect(fake.address)
    subscription = connection.subscribe("/topic/a")
    connection.close()
    connection.close()
    for action in (lambda: connection.send("/a"), subscription.fetch, lambda: connection.subscribe("/b")):
        with pytest.raises(Disconnected, match="this connection was closed"):
            action()


def test_closing_is_bounded_when_the_broker_does_not_answer(fake: FakeBroker) -> None:
    fake.on["DISCONNECT"] = lambda peer, frame: None
    connection = connect(fake.address)
    connection.close(timeout=0.05)
    assert connection.closed


def test_closing_is_bounded_while_another_thread_is_stuck_in_a_send(fake: FakeBroker) -> None:
    """The broker has stopped reading: the thread is freed by the close, and told so."""
    released = threading.Event()
    caught: list[BaseException] = []

    def flood() -> None:
        try:
            connection.send_many((("/a", b"x" * 100_000) for _ in range(1_000)), receipt=False)
        except ClientError as error:
            caught.append(error)

    fake.on["SEND"] = lambda peer, frame: released.wait(20) and None
    connection = connect(fake.address)
    thread = threading.Thread(target=flood)
    thread.start()
    while not fake.peers[0].protocol.pending_bytes:  # it is in the middle of the flood, and nobody reads on
        thread.join(0.01)
    connection.close(timeout=0.1)
    thread.join(20)
    released.set()
    assert not thread.is_alive()
    assert "this connection was closed" in str(caught[0])


def test_garbage_from_the_broker_ends_the_connection(fake: FakeBroker) -> None:
    fake.on["SEND"] = lambda peer, frame: peer.sock.sendall(b"RECEIPT\nnonsense\n\n\0")
    with connect(fake.address) as connection, pytest.raises(Disconnected, match="does not speak STOMP"):
        connection.send("/a")


def test_many_threads_share_a_connection(fake: FakeBroker) -> None:
    offsets: list[int | None] = []

    def publish() -> None:
        for _ in range(50):
            receipt = connection.send("/a", b"x" * 100)
            assert receipt is not None
            offsets.append(receipt.offset)

    with connect(fake.address) as connection:
        threads = [threading.Thread(target=publish) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sorted(offsets, key=lambda offset: offset or 0) == list(range(400))


def test_a_large_body_passes_both_ways(fake: FakeBroker) -> None:
    body = bytes(range(256)) * 12_000
    with connect(fake.address) as connection, connection.subscribe("/topic/a") as subscription:
        connection.send("/topic/a", body)
        message = subscription.fetch(20)
        assert message is not None
        assert message.body == body


def test_a_send_that_is_interrupted_in_the_middle_of_a_frame_ends_the_connection(fake: FakeBroker) -> None:
    """Whatever followed would become part of the frame: also the farewell."""
    connection = connect(fake.address)
    sock = connection.link._sock

    class Interrupted:
        def send(self, data: memoryview) -> int:
            sock.send(data[: len(data) // 2])
            raise KeyboardInterrupt

        def __getattr__(self, name: str) -> Any:
            return getattr(sock, name)

    connection.link._sock = Interrupted()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        connection.send("/topic/a", b"x" * 1_000)
    assert connection.closed
    with pytest.raises(Disconnected, match="interrupted"):
        connection.send("/topic/a", b"y")
    connection.close()
    assert [frame.command for frame in fake.frames] == ["CONNECT"]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "Connection refused"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "No route to host"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (ssl.SSLError(1, "[SSL] wrong version number"), "[SSL] wrong version number"),
        (TimeoutError("timed out"), "timed out"),
    ],
)
def test_the_reason_of_an_error_is_its_text_without_a_number(error: OSError, text: str) -> None:
    assert reason(error) == text
