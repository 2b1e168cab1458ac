"""The WebSocket tunnel over bytes: who is let in, what is carried, and what a hostile peer can make of it."""

from __future__ import annotations

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Close, Frame, Opcode
from websockets.protocol import CLIENT, Protocol

from radiator.limits import WEBSOCKET_FRAME_STEPS, WEBSOCKET_STEPS
from radiator.tunnels.messages import split_frames
from radiator.tunnels.origins import Origins
from radiator.tunnels.tunnel import TLS_ALERT
from radiator.tunnels.websocket import ClientSocket, MessageEncoder, ServerSocket

KEY = base64.b64encode(b"0123456789abcdef").decode()
BASE = {
    "Host": "127.0.0.1:15674",
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
}


def request(target: str = "/stomp", method: str = "GET", /, **changed: str | None) -> bytes:
    headers = dict(BASE)
    for name, value in changed.items():
        header = name.replace("_", "-")
        headers.pop(header, None)
        if value is not None:
            headers[header] = value
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def server(path: str = "", origins: Origins = "own", secure: bool = False) -> ServerSocket:
    return ServerSocket(path, origins, MessageEncoder(), secure=secure)


class Peer:
    """A client that writes and reads frames with the library."""

    def __init__(self) -> None:
        self.protocol = Protocol(CLIENT, max_size=None)

    def send(self, opcode: Opcode, data: bytes = b"", *, fin: bool = True) -> bytes:
        return Frame(opcode, data, fin).serialize(mask=True)

    def binary(self, data: bytes) -> bytes:
        return self.send(Opcode.BINARY, data)

    def received(self, data: bytes) -> list[tuple[Opcode, bytes]]:
        self.protocol.receive_data(data)
        frames = self.protocol.events_received()
        return [(frame.opcode, bytes(frame.data)) for frame in frames if isinstance(frame, Frame)]


CLOSE = Close(1000, "").serialize()


def opened(origins: Origins = "own") -> tuple[ServerSocket, Peer]:
    end = server(origins=origins)
    assert end.receive(request()) == b""
    assert end.ready and end.control().startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    return end, Peer()


def refused(data: bytes, **how: object) -> str:
    end = server(**how)  # type: ignore[arg-type]
    assert end.receive(data) == b"" and not end.ready
    assert end.refusal is not None
    return end.refusal.reply.decode("latin-1")


# --- the opening ------------------------------------------------------------------------------------------------------


def test_the_opening_is_proved_as_the_standard_says() -> None:
    end = server()
    end.receive(request(Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQ=="))
    assert b"\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in end.control()


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (None, None),
        ("v12.stomp", "v12.stomp"),
        ("v10.stomp, v11.stomp", "v11.stomp"),
        ("v10.stomp,v11.stomp,v12.stomp", "v12.stomp"),
        ("mqtt, stomp", "stomp"),
    ],
)
def test_the_highest_version_that_both_speak_is_the_subprotocol(offered: str | None, chosen: str | None) -> None:
    end = server()
    end.receive(request(Sec_WebSocket_Protocol=offered))
    answer = end.control().decode()
    found = [line.split(": ")[1] for line in answer.split("\r\n") if line.startswith("Sec-WebSocket-Protocol")]
    assert found == ([chosen] if chosen else [])


def test_the_opening_may_come_byte_by_byte_and_messages_right_behind_it() -> None:
    end, client = server(), Peer()
    data = request() + client.send(Opcode.TEXT, b"CONNECT")
    got = b"".join(end.receive(data[at : at + 1]) for at in range(len(data)))
    assert got == b"CONNECT"
    end = server()
    assert end.receive(data) == b"CONNECT"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (request(Upgrade=None, Connection=None), "HTTP/1.1 426 Upgrade Required"),
        (request(Upgrade=None, Connection=None), "brokerURL: \"ws://127.0.0.1:15674/stomp\""),
        (request(Sec_WebSocket_Version="8"), "Sec-WebSocket-Version: 13"),
        (request(Sec_WebSocket_Key="short"), "expected Sec-WebSocket-Key".replace("e", "E", 1)),
        (request(Sec_WebSocket_Key=None), "HTTP/1.1 400"),
        (request(Connection="close"), "does a proxy remove it?"),
        (request("/stomp", "POST"), "HTTP/1.1 405"),
        (request(Content_Length="5") + b"hello", "Expected a request without a body"),
        (request(Transfer_Encoding="chunked"), "Expected a request without a body"),
        (request("http://x/stomp"), "HTTP/1.1 400"),
        (request(Sec_WebSocket_Protocol="mqtt"), "expected one of v12.stomp, v11.stomp, v10.stomp, stomp"),
        (request(Sec_WebSocket_Key=KEY + "\r\nSec-WebSocket-Key: " + KEY), "expected Sec-WebSocket-Key once"),
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", "expected header lines of the form"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", "expected header lines of the form"),
        (b"GET /\r\n\r\n", "HTTP/1.1 400"),
        (b"GET / HTTP/1.0\r\nHost: x\r\n\r\n", "Expected a request of HTTP/1.1"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 20_000, "HTTP/1.1 431"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "got something else"),
    ],
)  # fmt: skip
def test_a_wrong_upgrade_gets_the_reason_in_http(data: bytes, told: str) -> None:
    assert told in refused(data)


def test_a_wrong_path_gets_the_right_one_in_http() -> None:
    assert "HTTP/1.1 404" in refused(request("/other"), path="/stomp")
    assert "is at /stomp" in refused(request("/other"), path="/stomp")
    end = server("/stomp")
    end.receive(request("/stomp/?token=1"))
    assert end.ready


def test_a_head_request_gets_no_body() -> None:
    assert refused(request("/x", "HEAD"), path="/stomp").endswith("\r\n\r\n")


def test_stomp_and_tls_on_its_port_are_known_for_what_they_are() -> None:
    end = server()
    end.receive(b"CONN")
    end.receive(b"ECT\naccept-version:1.2\n\n\0")
    assert end.refusal is not None and end.refusal.protocol == "stomp"
    end = server()
    end.receive(b"\x16\x03\x01\x02\x00")
    assert end.refusal is not None and end.refusal.reply == TLS_ALERT


# --- origins ----------------------------------------------------------------------------------------------------------

NO_ORIGINS = (
    *("evil@127.0.0.1", "evil:x@127.0.0.1", "127.0.0.1/", "127.0.0.1/a", "127.0.0.1?a", "127.0.0.1#a", "127.0.0.1:"),
    *(
        "127.0.0.1:x",
        "127.0.0.1:99999",
        "127.0.0.1 x",
        "127.0.0.1, http://127.0.0.1",
        "127.0.0.1\\a",
        "::1",
        "[127.0.0.1",
    ),
)
ORIGINS: list[tuple[str | None, str, Origins, bool, bool]] = [
    # origin, host, origins, secure: let in
    (None, "127.0.0.1:1", "own", False, True),
    ("http://localhost:3000", "127.0.0.1:1", "own", False, True),
    ("http://127.0.0.1", "127.0.0.1:1", "own", False, True),
    ("http://[::1]:9", "[::1]:1", "own", False, True),
    ("http://app.localhost", "127.0.0.1:1", "own", False, True),
    ("https://stranger.example", "127.0.0.1:15674", "own", False, False),
    ("http://127.0.0.1.stranger.example", "127.0.0.1:1", "own", False, False),
    ("http://10.0.0.5:8080", "10.0.0.5:15674", "own", False, True),
    ("http://10.0.0.6", "10.0.0.5:15674", "own", False, False),
    ("http://rebound.example", "rebound.example:15674", "own", False, False),  # a name that its owner points at us
    ("https://broker.example", "broker.example:15673", "own", True, True),
    ("https://app.example", "broker.example", "own", True, False),
    # scheme://host[:port], and nothing else
    *((f"http://{odd}", "127.0.0.1:1", "own", False, False) for odd in NO_ORIGINS),
    *((f"http://{odd}", "127.0.0.1:1", ("http://127.0.0.1",), False, False) for odd in NO_ORIGINS),
    ("127.0.0.1", "127.0.0.1:1", "own", False, False),
    ("ftp://127.0.0.1", "127.0.0.1:1", "own", False, False),
    ("", "127.0.0.1:1", "own", False, False),
    ("https://10.0.0.5", "evil@10.0.0.5", "own", True, False),
    # a list of the configuration is the whole list
    ("http://localhost:3000", "127.0.0.1:1", ("https://app.example",), False, False),
    ("http://127.0.0.1", "127.0.0.1:1", ("https://app.example",), False, False),
    ("https://broker.example", "broker.example", ("https://app.example",), True, False),
    ("http://localhost:3000", "127.0.0.1:1", ("http://localhost:3000",), False, True),
    ("http://localhost:3001", "127.0.0.1:1", ("http://localhost:3000",), False, False),
    ("http://localhost:3000", "127.0.0.1:1", (), False, False),
    (None, "127.0.0.1:1", (), False, True),
    ("https://app.example", "broker.example", ("https://app.example",), True, True),
    ("https://App.Example:443", "broker.example", ("https://app.example",), True, True),
    ("http://app.example", "broker.example", ("https://app.example",), True, False),
    ("https://stranger.example", "127.0.0.1", "any", False, True),
    ("null", "127.0.0.1", "own", False, False),
    ("null", "127.0.0.1", ("null",), False, True),
    ("http://[broken", "127.0.0.1", "own", False, False),
]


@pytest.mark.parametrize(("origin", "host", "origins", "secure", "expected"), ORIGINS)
def test_pages_of_strangers_are_kept_out(
    origin: str | None, host: str, origins: Origins, secure: bool, expected: bool
) -> None:
    end = server(origins=origins, secure=secure)
    end.receive(request(Origin=origin, Host=host))
    assert end.ready is expected
    if not expected:
        assert end.refusal is not None
        assert b"HTTP/1.1 403" in end.refusal.reply and b"origins:" in end.refusal.reply


# --- messages ---------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=3_000), st.lists(st.integers(1, 400), min_size=1), st.lists(st.integers(1, 700), min_size=1))
def test_bytes_arrive_whatever_the_cuts_into_messages_and_into_reads(
    data: bytes, message_sizes: list[int], read_sizes: list[int]
) -> None:
    end, client = opened()
    wire, at, turn = b"", 0, 0
    while at < len(data):
        size = message_sizes[turn % len(message_sizes)]
        opcode = Opcode.BINARY if turn % 3 in (0, 1) else Opcode.CONT
        wire += client.send(opcode, data[at : at + size], fin=turn % 3 != 1)
        at, turn = at + size, turn + 1
    got, at, turn = b"", 0, 0
    while at < len(wire):
        size = read_sizes[turn % len(read_sizes)]
        got += end.receive(wire[at : at + size])
        at, turn = at + size, turn + 1
    assert got == data and end.refusal is None


MESSAGE = b"MESSAGE\nsubscription:0\noffset:1\ncontent-length:%d\n\n%b\0\n"
RECEIPT = b"RECEIPT\nreceipt-id:1\n\n\0\n"


def test_each_frame_is_a_message_of_its_own() -> None:
    frames = [
        RECEIPT, b"\n", MESSAGE % (5, b"a\0\n\nb"), MESSAGE % (0, b""), b"\n", MESSAGE % (3, b"\n\n\n"), RECEIPT, b"\n",
    ]  # fmt: skip
    assert list(split_frames(b"".join(frames))) == frames
    end, client = opened()
    assert client.received(end.wrap(b"".join(frames))) == [(Opcode.BINARY, frame) for frame in frames]


@given(
    st.lists(st.one_of(st.just(RECEIPT), st.just(b"\n"), st.binary(max_size=99).map(lambda b: MESSAGE % (len(b), b))))
)
def test_whatever_the_bodies_hold_frames_are_cut_where_they_end(frames: list[bytes]) -> None:
    assert list(split_frames(b"".join(frames))) == frames


@given(st.binary(max_size=200))
def test_bytes_that_are_no_frames_are_carried_all_the_same(data: bytes) -> None:
    assert b"".join(split_frames(data.replace(b"\ncontent-length:", b""))) == data.replace(b"\ncontent-length:", b"")


def test_answers_are_text_for_clients_that_send_text_where_the_bytes_allow_it() -> None:
    end, client = opened()
    end.receive(client.send(Opcode.TEXT, b"CONNECT\n\n\0"))
    text, other = MESSAGE % (2, "é".encode()), MESSAGE % (1, b"\xff")
    assert client.received(end.wrap(text + other)) == [(Opcode.TEXT, text), (Opcode.BINARY, other)]
    end.receive(client.binary(b"\n"))
    assert client.received(end.wrap(RECEIPT)) == [(Opcode.BINARY, RECEIPT)]


def test_only_the_last_of_many_pings_is_answered() -> None:
    end, client = opened()
    for number in range(1_000):
        end.receive(client.send(Opcode.PING, b"%d" % number))
    assert client.received(end.control()) == [(Opcode.PONG, b"999")]
    assert end.control() == b""


def test_a_close_is_answered_and_nothing_is_taken_after_it() -> None:
    end, client = opened()
    wire = client.binary(b"last") + client.send(Opcode.CLOSE, CLOSE)
    assert end.receive(wire) == b"last"
    assert end.ended
    assert client.received(end.close(1000, "")) == [(Opcode.CLOSE, CLOSE)]
    assert end.receive(b"\x81\x80") == b""


def test_what_is_owed_goes_out_between_the_peers_close_and_ours() -> None:
    end, client = opened()
    last = client.binary(b"last")
    assert end.receive(last + client.send(Opcode.CLOSE, CLOSE) + last) == b"last"
    heard = client.received(end.wrap(RECEIPT) + end.close(1000, ""))
    assert heard == [(Opcode.BINARY, RECEIPT), (Opcode.CLOSE, CLOSE)]
    assert end.close(1000, "") == b""


def test_the_request_is_answered_before_what_follows_it_is_found_at_fault() -> None:
    end = server()
    assert end.receive(request() + b"hello") == b""
    assert end.refusal is not None
    opening, _, close = end.refusal.reply.partition(b"\r\n\r\n")
    assert opening.startswith(b"HTTP/1.1 101 ") and close.startswith(b"\x88") and close[2:4] == struct.pack("!H", 1002)
    assert end.control() == b""


def test_our_close_gives_a_reason_that_fits() -> None:
    end, client = opened()
    ((opcode, data),) = client.received(end.close(1002, "ü" * 200))
    assert opcode is Opcode.CLOSE and Close.parse(data) == Close(1002, "ü" * 61)


# --- hostile frames ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (b"\x81\x05hello", 1002),  # not masked
        (b"\xf1\x80\0\0\0\0", 1002),  # bits of an extension that was not agreed
        (b"\x83\x80\0\0\0\0", 1002),  # an opcode that does not exist
        (b"\x09\x80\0\0\0\0", 1002),  # a ping in pieces
        (b"\x89\xfe\x01\x00\0\0\0\0", 1002),  # a ping that is too long
        (b"\x80\x80\0\0\0\0", 1002),  # goes on with nothing
        (b"\x81\x81\0\0\0\0\xff", 1007),  # text that is not UTF-8
        (b"\x82\xff" + struct.pack(">Q", 1 << 63) + b"\0\0\0\0", 1002),  # a length that cannot be
    ],
)
def test_broken_frames_end_the_connection_with_a_reason(wire: bytes, code: int) -> None:
    end, client = opened()
    end.receive(wire)
    assert end.refusal is not None
    ((opcode, data),) = client.received(end.refusal.reply)
    assert opcode is Opcode.CLOSE and Close.parse(data).code == code


def test_a_frame_that_announces_a_terabyte_is_taken_as_it_comes_and_held_nowhere() -> None:
    end, _ = opened()
    assert end.receive(b"\x82\xff" + struct.pack(">Q", 1 << 40) + b"\0\0\0\0") == b""
    for _ in range(100):
        assert end.receive(b"x" * 10_000) == b"x" * 10_000
    assert end.refusal is None


def test_tiny_frames_are_looked_at_a_bounded_number_at_a_time_and_in_order() -> None:
    end, client = opened()
    words = [b"%d," % number for number in range(3_000)]
    heard = [end.receive(b"".join(client.binary(word) for word in words))]
    while end.has_backlog:
        heard.append(end.receive(b""))
    assert b"".join(heard) == b"".join(words)
    assert max(piece.count(b",") for piece in heard) == WEBSOCKET_STEPS
    pings = client.send(Opcode.PING) * (WEBSOCKET_STEPS // WEBSOCKET_FRAME_STEPS)
    assert end.receive(pings + client.binary(b"behind them")) == b"" and end.has_backlog
    assert end.receive(b"") == b"behind them" and not end.has_backlog


@given(st.binary(max_size=500))
def test_no_bytes_raise_anything(data: bytes) -> None:
    end, _ = opened()
    end.receive(data)
    end.control()
    end.close(1000, "")
    server().receive(data)
    server().receive(b"GET " + data + b"\r\n\r\n")
    client = ClientSocket("h", "/")
    client.receive(b"HTTP/1.1 " + data + b"\r\n\r\n")


# --- our own client ---------------------------------------------------------------------------------------------------


def test_both_our_ends_understand_one_another() -> None:
    client, end = ClientSocket("127.0.0.1:1", "/stomp"), server("/stomp")
    end.receive(client.control())
    assert client.receive(end.control() + b"") == b"" and client.ready
    assert end.receive(client.wrap(b"CONNECT\naccept-version:1.2\n\n\0")) == b"CONNECT\naccept-version:1.2\n\n\0"
    assert client.receive(end.wrap(RECEIPT)) == RECEIPT


def test_the_client_hears_why_it_was_refused() -> None:
    client, end = ClientSocket("127.0.0.1:1", "/other"), server("/stomp")
    end.receive(client.control())
    assert end.refusal is not None
    client.receive(end.refusal.reply)
    assert client.refusal is not None and "404" in client.refusal.message and "is at /stomp" in client.refusal.detail
