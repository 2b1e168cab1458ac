"""Peers in a tunnel that flood it, or leave it while frames of theirs wait, with a real broker and raw bytes."""

from __future__ import annotations

import base64
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.running import BrokerProcess
from tests.server.wire import WAIT_SECONDS, Wire

StartBroker = Callable[..., BrokerProcess]
CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
CLOSE, PING, BYTES = 8, 9, 2


def frame(payload: bytes, opcode: int = BYTES) -> bytes:
    """As a client sends it, with a mask of zeros."""
    assert len(payload) < 126
    return bytes([0x80 | opcode, 0x80 | len(payload)]) + bytes(4) + payload


def hear(sock: socket.socket, what: bytes) -> bytes:
    heard = b""
    while what not in heard:
        more = sock.recv(65_536)
        assert more, f"ended before {what!r}: {heard!r}"
        heard += more
    return heard


def upgrade(sock: socket.socket) -> None:
    key = base64.b64encode(os.urandom(16)).decode()
    sock.sendall(
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    hear(sock, b"\r\n\r\n")


def web_socket(broker: BrokerProcess) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", broker.port_of("ws")), WAIT_SECONDS)
    upgrade(sock)
    return sock


LISTEN = ["--listen", "stomp://127.0.0.1:0", "--listen", "ws://127.0.0.1:0"]


@pytest.mark.thorough
def test_a_close_behind_waiting_frames_affects_no_other_connection(start_broker: StartBroker) -> None:
    broker = start_broker("destinations: [{match: /queue/slow, rate_limit: {messages: 1}}]", LISTEN)
    with web_socket(broker) as leaver, Wire(broker).open() as other, Wire(broker).open() as sender:
        leaver.sendall(frame(CONNECT) + frame(b"SUBSCRIBE\nid:1\ndestination:/topic/t\nreceipt:s\n\n\0"))
        hear(leaver, b"RECEIPT")
        other.say("SUBSCRIBE", id="1", destination="/topic/t", receipt="s")
        other.hear("RECEIPT")
        slow = frame(b"SEND\ndestination:/queue/slow\n\n\0")
        leaver.sendall(slow * 4 + frame(b"\x03\xe8", CLOSE))
        for number in range(20):
            sender.say("SEND", b"%d" % number, destination="/topic/t", receipt="r")
            sender.hear("RECEIPT")
            assert other.hear("MESSAGE").body == b"%d" % number
        hear(leaver, bytes([0x80 | CLOSE]))
    assert broker.stop() == 0
    assert "Traceback" not in broker.text()


def test_all_that_came_before_a_close_is_answered_before_ours(start_broker: StartBroker, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    cert, key = authority.issue("127.0.0.1")
    broker = start_broker(f"tls: {{cert: {cert}, key: {key}}}", [*LISTEN, "--listen", "wss://127.0.0.1:0"])
    context = ssl.create_default_context(cafile=authority.ca)
    sends = b"".join(frame(b"SEND\ndestination:/topic/t\nreceipt:%d\n\n\0" % number) for number in range(100))
    for scheme in ("ws", "wss"):
        for bye in (b"", frame(b"DISCONNECT\nreceipt:bye\n\n\0")):
            plain = socket.create_connection(("127.0.0.1", broker.port_of(scheme)), WAIT_SECONDS)
            with plain if scheme == "ws" else context.wrap_socket(plain, server_hostname="127.0.0.1") as peer:
                upgrade(peer)
                peer.sendall(frame(CONNECT) + sends + bye + frame(b"\x03\xe8", CLOSE))
                heard = b"".join(iter(lambda: peer.recv(65_536), b""))
            assert heard.count(b"RECEIPT") == 100 + bool(bye)
            assert (b"receipt-id:bye" in heard) == bool(bye)
            assert heard.endswith(b"\x88\x02\x03\xe8")
    assert broker.stop() == 0
    assert "Traceback" not in broker.text()


def test_a_close_behind_frames_that_wait_for_another_visit_is_answered(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, "", LISTEN)
    broker.program = ["tests.server.brief_broker"]
    broker.start()
    sends = b"".join(frame(b"SEND\ndestination:/topic/t\nreceipt:%d\n\n\0" % number) for number in range(100))
    try:
        for _ in range(5):
            with web_socket(broker) as peer:
                peer.sendall(frame(CONNECT) + sends + frame(b"\x03\xe8", CLOSE))
                heard = b"".join(iter(lambda sock=peer: sock.recv(65_536), b""))
            assert heard.count(b"RECEIPT") == 100 and heard.endswith(b"\x88\x02\x03\xe8")
    finally:
        broker.kill()


def test_the_answer_to_the_request_comes_before_any_word_about_what_follows(start_broker: StartBroker) -> None:
    broker = start_broker("", LISTEN)
    for more, status in ((b"", b"101"), (b"Content-Length: 5\r\n", b"400")):
        with socket.create_connection(("127.0.0.1", broker.port_of("ws")), WAIT_SECONDS) as sock:
            sock.sendall(
                b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                + more
                + b"Sec-WebSocket-Key: MDAwMDAwMDAwMDAwMDAwMA==\r\nSec-WebSocket-Version: 13\r\n\r\nhello"
            )
            heard = b"".join(iter(lambda: sock.recv(65_536), b""))
        assert heard.startswith(b"HTTP/1.1 " + status)
        assert (b"\r\n\r\n\x88" in heard) == (status == b"101")


@pytest.mark.parametrize("flood", [frame(b"", PING), frame(b"\n")], ids=["pings", "heart-beats"])
def test_a_frame_behind_a_flood_of_tiny_frames_is_answered(start_broker: StartBroker, flood: bytes) -> None:
    broker = start_broker("", LISTEN)
    with web_socket(broker) as peer, Wire(broker).open() as other:
        send = frame(b"SEND\ndestination:/queue/q\nreceipt:end\n\nbody\0")
        peer.sendall(frame(CONNECT) + flood * 5_000 + send)
        other.say("SUBSCRIBE", id="1", destination="/queue/q")
        assert other.hear("MESSAGE").body == b"body"
        hear(peer, b"receipt-id:end")
        peer.sendall(flood * 1_000 + frame(b"\x03\xe8", CLOSE))
        hear(peer, bytes([0x80 | CLOSE]))
    assert broker.stop() == 0
    assert "Traceback" not in broker.text()


def test_a_flood_of_tiny_frames_in_tls_is_done_in_order(start_broker: StartBroker, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    cert, key = authority.issue("127.0.0.1")
    options = ["--listen", "wss://127.0.0.1:0", "--listen", "stomp+tls://127.0.0.1:0"]
    broker = start_broker(f"tls: {{cert: {cert}, key: {key}}}", options)
    context = ssl.create_default_context(cafile=authority.ca)
    for scheme in ("wss", "stomp+tls"):
        plain = socket.create_connection(("127.0.0.1", broker.port_of(scheme)), WAIT_SECONDS)
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as peer:
            if scheme == "wss":
                upgrade(peer)
            wrap = frame if scheme == "wss" else bytes
            peer.sendall(wrap(CONNECT))
            text = b"".join(b"SEND\ndestination:/topic/t\nreceipt:%d\n\n\0" % number for number in range(50))
            peer.sendall(b"".join(wrap(bytes([each])) for each in text))
            for each in b"\n" * 1_000:  # a record each
                peer.sendall(wrap(bytes([each])))
            peer.sendall(wrap(b"SEND\ndestination:/topic/t\nreceipt:end\n\n\0"))
            heard = hear(peer, b"receipt-id:end")
            places = [heard.index(b"receipt-id:%d\n" % number) for number in range(50)]
            assert places == sorted(places)
    assert broker.stop() == 0
    assert "Traceback" not in broker.text()


def test_what_a_stranger_says_of_itself_brings_no_escapes_into_the_log(start_broker: StartBroker) -> None:
    broker = start_broker("", LISTEN)
    with socket.create_connection(("127.0.0.1", broker.port_of("ws")), WAIT_SECONDS) as sock:
        sock.sendall(
            b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: MDAwMDAwMDAwMDAwMDAwMA==\r\nSec-WebSocket-Version: 13\r\n"
            b"Origin: http://a\x1b[2J\x1b[31mowned\r\n\r\n"
        )
        hear(sock, b"403")
    with socket.create_connection(("127.0.0.1", broker.port_of("stomp")), WAIT_SECONDS) as sock:
        sock.sendall(CONNECT + b"SEND\ndestination:/queue/\x1b[31mred\nmandatory:true\n\n\0")
        hear(sock, b"no-route")
    assert broker.stop() == 0
    assert broker.logs("owned", "[31mred")
    assert "\x1b" not in broker.text()
