"""``limits.memory`` over all clients, with real sockets: what floods hold is bounded and ends, and others go on."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from radiator.limits import KIB, MIB
from tests.certificates import Authority
from tests.running import BrokerProcess, free_port
from tests.server.test_tunnel_ends import CONNECT, frame, hear, upgrade
from tests.server.wire import WAIT_SECONDS, Wire

StartBroker = Callable[..., BrokerProcess]
Q = "/queue/a"
HALF = b"SEND\ndestination:/queue/a\ncontent-length:1000000\n\n" + b"x" * 600_000


class Watched:
    """A broker with little memory, and the figures that it shows of that."""

    def __init__(self, start_broker: StartBroker, limits: str, more: str = "", *options: str) -> None:
        port = free_port()
        self.broker = start_broker(f"admin: http://127.0.0.1:{port}\nlimits: {{{limits}}}\n{more}", list(options))
        self.url = f"http://127.0.0.1:{port}/stats"

    def figures(self) -> dict[str, Any]:
        with urllib.request.urlopen(self.url, timeout=30) as answer:
            told = json.load(answer)
        return {**told["now"]["memory"], **told["stats"]}

    def until(self, what: str, done: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """All figures that are shown until they are as expected."""
        seen = [self.figures()]
        deadline = time.monotonic() + WAIT_SECONDS
        while not done(seen[-1]):
            assert time.monotonic() < deadline, f"not in time: {what}; last seen {seen[-1]}"
            time.sleep(0.002)
            seen.append(self.figures())
        return seen


def say(wire: Wire, data: bytes) -> None:
    """Send as much of that as the broker reads and the system keeps for it: until nothing was taken for 0.1 s."""
    wire.socket.settimeout(0.1)
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[wire.socket.send(rest) :]
    except (TimeoutError, ConnectionResetError, BrokenPipeError):
        pass
    wire.socket.settimeout(30)


def codes(wires: list[Wire]) -> list[str]:
    """What each of them was answered in the end: an error code, or nothing, and then it was reset."""
    return [frame.headers.get("error-code", frame.command) for wire in wires for frame in wire.rest()[-1:]]


@pytest.mark.thorough
def test_a_flood_of_partial_frames_is_bounded_and_affects_no_other_client(start_broker: StartBroker) -> None:
    watched = Watched(start_broker, "memory: 4MiB, message: 1MiB")
    quiet = Wire(watched.broker).open()
    flood = [Wire(watched.broker).open() for _ in range(20)]
    for wire in flood:
        say(wire, HALF)
    seen = watched.until("it is full", lambda now: now["total"] > 4 * MIB)
    for number in range(50):
        quiet.say("SEND", b"%d" % number, destination=Q, receipt=str(number))
        assert quiet.hear("RECEIPT").headers["receipt-id"] == str(number)
    seen += watched.until("the flood is over", lambda now: now["memory_refusals"] > 0 and now["total"] <= 4 * MIB)
    assert max(each["total"] for each in seen) <= 4 * MIB + 1 * MIB + 2 * 64 * KIB + 256 * KIB + 64 * KIB
    with Wire(watched.broker) as another:
        another.open()
        another.say("SEND", b"x" * 900_000, destination=Q, receipt="large")
        another.hear("RECEIPT", receipt_id="large")
    for wire in flood:
        wire.close()
    watched.until("all is given back", lambda now: now["total"] == 0)


def test_frames_that_go_on_come_whole_one_after_the_other(start_broker: StartBroker) -> None:
    """More than fits is under way at once, and all of it arrives: who is not read waits, and is not sent away."""
    watched = Watched(start_broker, "memory: 2MiB, message: 1MiB")
    senders = [Wire(watched.broker).open() for _ in range(6)]
    whole = b"SEND\ndestination:/queue/a\nreceipt:r\ncontent-length:900000\n\n" + b"x" * 900_000 + b"\0"
    rest = [whole] * len(senders)
    for wire in senders:
        wire.socket.setblocking(False)
    while any(rest):
        for index, wire in enumerate(senders):
            try:
                rest[index] = rest[index][wire.socket.send(rest[index][:50_000]) :] if rest[index] else b""
            except BlockingIOError:
                continue
    for wire in senders:
        wire.socket.settimeout(30)
        wire.hear("RECEIPT", receipt_id="r")
        wire.close()
    watched.until("all is given back", lambda now: now["total"] == 0)
    assert watched.figures()["memory_refusals"] == 0


@pytest.mark.thorough
def test_frames_that_grow_and_never_end_cannot_keep_all_memory(start_broker: StartBroker) -> None:
    """Every connection that holds a part of a frame goes on sending, a byte at a time: none of them would ever end."""
    watched = Watched(start_broker, "memory: 2MiB, message: 1MiB")
    flood = [Wire(watched.broker).open() for _ in range(5)]
    for wire in flood:
        say(wire, HALF)
    watched.until("it is full", lambda now: now["total"] > 2 * MIB)

    def room(now: dict[str, Any]) -> bool:
        for wire in flood:
            say(wire, b"x")
        return bool(now["memory_refusals"] and now["total"] <= 2 * MIB * 7 // 8)

    watched.until("some of them are refused", room)
    with Wire(watched.broker) as another:
        another.open()
        another.say("SEND", b"x" * 900_000, destination=Q, receipt="large")
        while not another.inbox:
            for wire in flood:
                say(wire, b"x")
            another.socket.settimeout(0.05)
            try:
                assert another.more(), another.inbox
            except TimeoutError:
                pass
        assert another.inbox[0].command == "RECEIPT"
    for wire in flood:
        wire.close()
    watched.until("all is given back", lambda now: now["total"] == 0)


def test_connections_before_login_have_a_small_part_of_the_memory_and_logins_go_on(start_broker: StartBroker) -> None:
    watched = Watched(start_broker, "memory: 1MiB")
    strangers = [Wire(watched.broker) for _ in range(40)]
    for wire in strangers:
        say(wire, b"CONNECT\naccept-version:1.2\nh:" + b"x" * 20_000)
    seen = watched.until("some are refused", lambda now: now["memory_refusals"] > 0)
    for _ in range(5):
        with Wire(watched.broker) as user:
            user.open()
            user.barrier()
            seen.append(watched.figures())
    assert max(each["logins"] for each in seen) <= 64 * KIB + 20_100
    for wire in strangers:
        wire.socket.shutdown(socket.SHUT_WR)
    assert "full" in codes(strangers)
    watched.until("all is given back", lambda now: now["total"] == 0)


def test_a_login_that_comes_in_pieces_goes_through_while_strangers_use_their_share_up(
    start_broker: StartBroker,
) -> None:
    watched = Watched(start_broker, "memory: 1MiB")
    strangers = [Wire(watched.broker) for _ in range(10)]
    for wire in strangers:
        say(wire, b"CONNECT\naccept-version:1.2\nh:" + b"x" * 20_000)
    watched.until("some are refused", lambda now: now["memory_refusals"] > 0)
    with Wire(watched.broker) as user:
        user.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (b"CONNECT\naccept-ver", b"sion:1.2\nhost:x\nlogin:", b"u" * 100 + b"\n\n\0"):
            user.send(piece)
            watched.figures()
        assert user.hear("CONNECTED")


@pytest.mark.thorough
def test_a_frame_that_does_not_go_on_is_given_up_after_its_time(start_broker: StartBroker) -> None:
    watched = Watched(start_broker, "frame_timeout: 1s")
    with Wire(watched.broker) as stalled, Wire(watched.broker) as slow, Wire(watched.broker) as idle:
        for wire in (stalled, slow, idle):
            wire.open()
        stalled.send(HALF)
        slow.send(HALF)
        while not stalled.inbox:
            slow.send(b"x")
            stalled.socket.settimeout(0.05)
            try:
                stalled.more()
            except TimeoutError:
                pass
        (error,) = stalled.inbox
        assert error.headers["error-code"] == "timeout" and b"limits.frame_timeout" in error.body
        for wire in (slow, idle):
            assert not wire.inbox
        idle.barrier()
        assert watched.figures()["total"] < 2 * 600_000


def test_frames_that_wait_for_their_turn_count_until_they_have_had_it(start_broker: StartBroker) -> None:
    rule = f"destinations: [{{match: {Q}, max_messages: 1, on_full: block}}]"
    watched = Watched(start_broker, "memory: 8MiB", rule)
    with Wire(watched.broker) as producer, Wire(watched.broker) as consumer:
        producer.open()
        consumer.open()
        producer.send(b"".join(b"SEND\ndestination:/queue/a\n\n%d" % number + b"\0" for number in range(100)))
        seen = watched.until("they wait", lambda now: now["frames"] > 0)
        assert seen[-1]["frames"] < 100 * 300
        consumer.say("SUBSCRIBE", destination=Q, id="0", ack="auto")
        assert [each.body for each in consumer.hear_many("MESSAGE", 100)] == [b"%d" % each for each in range(100)]
        watched.until("they have had their turn", lambda now: now["frames"] == 0)


def test_parts_of_a_request_of_a_websocket_are_counted_as_logins(start_broker: StartBroker) -> None:
    watched = Watched(start_broker, "memory: 1MiB", "", "--listen", "ws://127.0.0.1:0/stomp")
    address = ("127.0.0.1", watched.broker.port_of("ws"))
    pages = [Wire(socket.create_connection(address, 30)) for _ in range(10)]
    for page in pages:
        say(page, b"GET /stomp HTTP/1.1\r\nHost: x\r\nCookie: " + b"x" * 15_000)
    seen = watched.until("some are refused", lambda now: now["memory_refusals"] > 0)
    assert max(each["logins"] for each in seen) <= 64 * KIB + 15_100
    answers = b""
    for page in pages:
        page.socket.shutdown(socket.SHUT_WR)
        while data := page.socket.recv(65_536):
            answers += data
    assert b"HTTP/1.1 503" in answers and b"limits.memory" in answers
    watched.until("all is given back", lambda now: now["total"] == 0)


def test_frames_in_tunnels_are_counted_until_their_connection_ends(start_broker: StartBroker, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    cert, key = authority.issue("127.0.0.1")
    schemes = ("ws", "stomp+tls", "wss")
    listeners = [option for scheme in schemes for option in ("--listen", f"{scheme}://127.0.0.1:0")]
    watched = Watched(start_broker, "message: 1MiB", f"tls: {{cert: {cert}, key: {key}}}", *listeners)
    for scheme in schemes:
        peers: list[socket.socket] = []
        for cut in (len(HALF), 400_000):  # a whole message of the WebSocket that is a part of a frame; a part of both
            peer = socket.create_connection(("127.0.0.1", watched.broker.port_of(scheme)), 30)
            if scheme != "ws":
                peer = authority.trusting().wrap_socket(peer, server_hostname="127.0.0.1")
            wrap = bytes if scheme == "stomp+tls" else frame
            if wrap is frame:
                upgrade(peer)
            peer.sendall(wrap(CONNECT))
            hear(peer, b"CONNECTED")
            head = b"" if wrap is bytes else b"\x82\xff" + len(HALF).to_bytes(8) + bytes(4)  # a mask of zeros
            peer.sendall((head + HALF)[:cut])
            peers.append(peer)
        watched.until(f"{scheme}: both are counted", lambda now: now["frames"] >= 990_000)
        for peer in peers:
            peer.close()
        watched.until(f"{scheme}: all is given back", lambda now: now["total"] == 0)
    assert watched.broker.stop() == 0
    assert "Traceback" not in watched.broker.text()
