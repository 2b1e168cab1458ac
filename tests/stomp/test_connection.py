"""Both ends of a connection, joined in memory."""

from __future__ import annotations

import pytest

from radiator.errors import ProtocolError
from radiator.stomp.connection import (
    HEART_BEAT_MS_MAX,
    ClientConnection,
    ServerConnection,
    choose_version,
    parse_heart_beat,
)
from radiator.stomp.parser import ParserLimits
from radiator.stomp.spec import CLIENT_COMMANDS, VERSIONS

pytestmark = pytest.mark.usefixtures("both_speeds")


def opened(version: str = "1.2") -> tuple[ServerConnection, ClientConnection]:
    server, client = ServerConnection(), ClientConnection(versions=(version,))
    server.receive(client.connect_frame("localhost"))
    client.receive(server.connected_frame())
    assert server.version == client.version == version
    return server, client


def refused(data: bytes) -> ProtocolError:
    """The problem with an opening; the same for the whole and for every byte by itself."""
    whole, bytewise = ServerConnection(), ServerConnection()
    assert whole.receive(data) == []
    for byte in data:
        assert bytewise.receive(bytes([byte])) == []
    assert whole.failed is not None
    assert bytewise.failed is not None
    assert bytewise.failed.code == whole.failed.code
    assert bytewise.failed.message == whole.failed.message
    assert whole.refusal() and bytewise.refusal()
    assert not whole.connected
    assert whole.receive(b"CONNECT\n\n\0") == []
    return whole.failed


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        (None, "1.0"),
        ("1.0", "1.0"),
        ("1.1", "1.1"),
        ("1.2", "1.2"),
        ("1.0,1.1,1.2", "1.2"),
        ("1.2,1.1", "1.2"),
        (" 1.0 , 1.1 ", "1.1"),
        ("1.1,2.0", "1.1"),
        ("2.0", None),
        ("", None),
    ],
)
def test_the_highest_common_version_is_chosen(accept: str | None, version: str | None) -> None:
    assert choose_version(accept) == version


@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_either_command_opens_a_connection(command: str) -> None:
    server = ServerConnection()
    (frame,) = server.receive(f"{command}\naccept-version:1.1\nlogin:me\n\n\0".encode())
    assert frame.headers["login"] == "me"
    assert (server.version, server.connected, server.failed) == ("1.1", True, None)


def test_a_client_that_only_says_connect_speaks_1_0() -> None:
    server = ServerConnection(heart_beat=(10, 10))
    assert len(server.receive(b"CONNECT\n\n\0")) == 1
    assert server.version == "1.0"
    assert server.connected_frame([("session", "1")]) == b"CONNECTED\nsession:1\n\n\0\n"


def test_the_version_holds_for_the_very_next_frame_of_the_same_chunk() -> None:
    for version, value in (("1.0", "x\\cy"), ("1.1", "x:y"), ("1.2", "x:y")):
        server = ServerConnection()
        data = f"CONNECT\naccept-version:{version}\n\n\0\nSEND\na:x\\cy\n\n\0SEND\na:x\\cy\n\n\0".encode()
        assert [frame.headers.get("a") for frame in server.receive(data)] == [None, value, value]


@pytest.mark.parametrize("step", [1, 2, 7, 16])
def test_the_opening_may_come_in_pieces(step: int) -> None:
    server = ServerConnection()
    data = b"\r\n\nCONNECT\r\naccept-version:1.2\r\n\r\n\0\nSEND\na:b\n\n\0"
    frames = [frame for at in range(0, len(data), step) for frame in server.receive(data[at : at + step])]
    assert [frame.command for frame in frames] == ["CONNECT", "SEND"]
    assert server.idle
    assert server.pending_bytes == 0


def test_no_common_version_is_answered_with_ours() -> None:
    problem = refused(b"CONNECT\naccept-version:2.0,3.1\n\n\0")
    assert problem.code == "bad-version"
    assert "2.0,3.1" in problem.detail


def test_an_error_before_the_version_is_agreed_reaches_every_client() -> None:
    server = ServerConnection()
    server.receive(b"CONNECT\naccept-version:2.0\n\n\0")
    (frame,) = ClientConnection().receive(server.refusal())
    assert frame.command == "ERROR"
    assert frame.headers["error-code"] == "bad-version"
    assert frame.headers["version"] == ",".join(VERSIONS)


@pytest.mark.parametrize("command", sorted({*CLIENT_COMMANDS, "FOO", "CONNECTED"} - {"CONNECT", "STOMP"}))
def test_any_other_first_frame_is_a_bad_command(command: str) -> None:
    problem = refused(f"{command}\ndestination:/a\n\n\0CONNECT\n\n\0".encode())
    assert problem.code == "bad-command"
    assert command in problem.message


def test_a_first_frame_that_is_not_connect_is_refused_before_its_body_comes() -> None:
    server = ServerConnection()
    server.receive(b"SEND\ncontent-length:4000000\n\n")
    assert server.failed is not None
    assert server.failed.code == "bad-command"


def test_a_second_connect_is_refused_and_the_frames_before_it_count() -> None:
    server = ServerConnection()
    frames = server.receive(b"CONNECT\n\n\0SEND\na:b\n\n\0CONNECT\n\n\0SEND\n\n\0")
    assert [frame.command for frame in frames] == ["CONNECT", "SEND"]
    assert server.failed is not None
    assert server.failed.code == "bad-command"
    server = ServerConnection()
    server.receive(b"CONNECT\n\n\0")
    assert server.receive(b"SEND\na:b\n\n\0STOMP\n\n\0") != []
    assert server.failed is not None


def test_a_later_fault_is_found_after_the_frames_before_it() -> None:
    server, _ = opened()
    assert len(server.receive(b"SEND\na:b\n\n\0SEND\nno colon\n\n\0")) == 1
    assert server.failed is not None
    assert server.failed.code == "bad-header"
    assert server.refusal().startswith(b"ERROR\n")


@pytest.mark.parametrize(
    "frame",
    [
        b"SEND\ndestination:/queue/a\nreceipt:7\ncontent-length:999999999\n\n",
        b"SEND\nreceipt:7\ndestination:/queue/a\ncontent-length:1\n\nab\0",
        b"SEND\nreceipt:7\ndestination:/queue/a\ncontent-length:x\n\nab\0",
        b"SEND\nreceipt:7\nwithout a colon\n\n\0",
        b"SEND\nreceipt:7\nescape:\\t\n\n\0",
        b"CONNECT\naccept-version:1.2\nreceipt:7\n\n\0",
    ],
)
def test_the_receipt_of_a_frame_that_cannot_be_read_is_in_the_error(frame: bytes) -> None:
    for step in (1, len(frame)):
        server, _ = opened()
        server.receive(b"SEND\nreceipt:6\ndestination:/queue/a\n\n\0")
        for at in range(0, len(frame), step):
            server.receive(frame[at : at + step])
        assert server.failed is not None
        assert b"\nreceipt-id:7\n" in server.refusal()


def test_an_error_about_another_frame_has_no_receipt_of_an_earlier_one() -> None:
    server, _ = opened()
    server.receive(b"SEND\nreceipt:6\ndestination:/queue/a\n\n\0SEND\nwithout a colon\n\n\0")
    assert server.failed is not None
    assert b"receipt-id" not in server.refusal()


@pytest.mark.parametrize(
    "request_bytes",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"POST /a HTTP/1.0\r\n\r\n", b"CONNECT x:1 HTTP/1.1\r\n\r\n"],
)
def test_a_browser_gets_an_answer_that_it_can_show(request_bytes: bytes) -> None:
    assert refused(request_bytes).code == "not-stomp"
    server = ServerConnection()
    server.receive(request_bytes)
    head, _, body = server.refusal().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert f"Content-Length: {len(body)}".encode() in head
    assert b"STOMP" in body


def test_a_tls_client_gets_an_alert_that_it_can_read() -> None:
    hello = bytes.fromhex("160301020001000001fc0303")
    assert refused(hello).code == "not-stomp"
    server = ServerConnection()
    server.receive(hello)
    assert server.refusal() == bytes.fromhex("15030100020228")


@pytest.mark.parametrize("junk", [b"\xff" * 20, b"{}\n", b"HELO example.org\r\n", b"\0" * 8])
def test_junk_is_a_bad_frame(junk: bytes) -> None:
    assert refused(junk).code == "bad-frame"


@pytest.mark.parametrize("value", ["", "1", "1,2,3", "a,b", "-1,5", "1.5,2", "٣,٣", "1,", "1" * 13 + "x,1"])
def test_a_malformed_heart_beat_is_a_bad_header(value: str) -> None:
    problem = refused(f"CONNECT\naccept-version:1.2\nheart-beat:{value}\n\n\0".encode())
    assert problem.code == "bad-header"
    assert "heart-beat" in problem.message


def test_a_heart_beat_may_have_blanks_or_be_absent() -> None:
    assert parse_heart_beat(" 10 , 20") == (10, 20)
    assert parse_heart_beat(None) == (0, 0)


def test_a_heart_beat_beyond_all_bounds_is_a_very_slow_one() -> None:
    assert parse_heart_beat("9223372036854775807,0") == (HEART_BEAT_MS_MAX, 0)
    assert parse_heart_beat("5," + "9" * 6_000) == (5, HEART_BEAT_MS_MAX)


def test_heart_beats_are_agreed_by_both_ends() -> None:
    server = ServerConnection(heart_beat=(10_000, 20_000))
    client = ClientConnection(heart_beat=(5_000, 60_000))
    server.receive(client.connect_frame("h"))
    client.receive(server.connected_frame())
    assert server.heart_beat == (60_000, 20_000)
    assert client.heart_beat == (20_000, 60_000)
    assert server.heart_beat_clock(2.0, 0).silence_ns == 40_000_000_000
    assert client.heart_beat_clock(2.0, 0).send_ns == 10_000_000_000


def test_1_0_has_no_heart_beats() -> None:
    server = ServerConnection(heart_beat=(10, 10))
    server.receive(b"CONNECT\nheart-beat:nonsense\n\n\0")
    assert server.failed is None
    assert server.heart_beat == (0, 0)


def test_limits_are_those_of_the_parser() -> None:
    server = ServerConnection(ParserLimits(body_bytes_max=10))
    server.receive(b"CONNECT\n\n\0SEND\ncontent-length:11\n\n")
    assert server.failed is not None
    assert server.failed.code == "too-large"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_frame_of_the_client_has_the_headers_that_its_version_requires(version: str) -> None:
    server, client = opened(version)
    message = {"message-id": "a@1", "subscription": "s", "ack": "s1-0-1"}
    data = b"".join(
        [
            client.send("/queue/a:b", b"body", {"k": "v"}, receipt="r-1", transaction="t"),
            client.subscribe("/queue/a", "s", "client", [("prefetch-count", "5")], receipt="r-2"),
            client.unsubscribe("s", receipt="r-3"),
            client.ack(message, receipt="r-4", transaction="t"),
            client.nack(message, receipt="r-5", transaction="t"),
            client.begin("t", receipt="r-6"),
            client.commit("t", receipt="r-7"),
            client.abort("t", receipt="r-8"),
            client.disconnect(receipt="r-9"),
        ]
    )
    frames = server.receive(data)
    assert server.failed is None
    assert [frame.receipt for frame in frames] == [b"r-%d" % number for number in range(1, 10)]
    for frame in frames:
        assert set(CLIENT_COMMANDS[frame.command][version]) <= set(frame.headers), frame
    assert {frame.command for frame in frames} == set(CLIENT_COMMANDS) - {"CONNECT", "STOMP"}
    assert frames[0].headers["destination"] == "/queue/a:b"
    assert frames[0].headers["transaction"] == "t"
    assert frames[0].body == b"body"


def test_an_ack_names_the_message_as_the_version_does() -> None:
    message = {"message-id": "a@1", "subscription": "s", "ack": "s1-0-1"}
    assert b"\nid:s1-0-1\n" in opened("1.2")[1].ack(message)
    assert b"\nmessage-id:a@1\nsubscription:s\n" in opened("1.1")[1].ack(message)
    assert opened("1.0")[1].ack({"message-id": "a@1"}) == b"ACK\nmessage-id:a@1\n\n\0"
    assert opened("1.2")[1].nack({"message-id": "a@1"}, {"requeue": "true"}).startswith(b"NACK\nid:a@1\nrequeue:true\n")


def test_the_connect_frame_has_login_and_host() -> None:
    client = ClientConnection(heart_beat=(1, 2), versions=("1.1", "1.2"))
    server = ServerConnection()
    (frame,) = server.receive(client.connect_frame("h", login="me", passcode="a:b\\c", headers={"max-in-flight": "5"}))
    assert frame.headers == {
        "accept-version": "1.1,1.2",
        "host": "h",
        "login": "me",
        "passcode": "a:b\\c",
        "heart-beat": "1,2",
        "max-in-flight": "5",
    }


def test_the_client_reads_frames_that_come_with_connected() -> None:
    client = ClientConnection()
    frames = client.receive(b"\nCONNECTED\nversion:1.2\n\n\0\nMESSAGE\na:x\\cy\n\nbody\0")
    assert [frame.command for frame in frames] == ["CONNECTED", "MESSAGE"]
    assert frames[1].headers == {"a": "x:y"}
    assert client.connected
    assert client.idle


def test_a_server_that_names_no_version_speaks_1_0() -> None:
    client = ClientConnection()
    client.receive(b"CONNECTED\nsession:1\n\n\0\n")
    assert client.version == "1.0"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"CONNECTED\nversion:1.3\n\n\0", "bad-version"),
        (b"CONNECTED\nversion:1.2\nheart-beat:x\n\n\0", "bad-header"),
        (b"CONNECT\n\n\0", "bad-command"),
        (b"CONNECTED\nversion:1.2\n\n\0CONNECTED\nversion:1.2\n\n\0", "bad-command"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "bad-frame"),
    ],
)
def test_a_server_that_misbehaves_is_found_out(data: bytes, code: str) -> None:
    client = ClientConnection()
    client.receive(data)
    assert client.failed is not None
    assert client.failed.code == code
    assert client.receive(b"MESSAGE\na:b\n\n\0") == []
