"""Many sockets at once: those who dribble, those who are idle, those who come all together. One harms only itself.

No time is asserted here; ``python -m bench.sockets`` measures.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.sockets import HALVES, Broker, Dribblers
from bench.sockets import broker as started
from tests.running import BrokerProcess
from tests.server.wire import WAIT_SECONDS, Wire, rss_kib

StartBroker = Callable[..., BrokerProcess]
SCHEMES = ["stomp", "stomp+tls", "ws", "wss"]


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", SCHEMES)
def test_dribbling_sockets_hold_up_no_legitimate_client(scheme: str) -> None:
    with started("limits: {connect_timeout: 3s}\n") as broker:
        dribblers = Dribblers(broker.ports[scheme], 400, HALVES[scheme], 20_000)
        try:
            while dribblers.closed < 400 or dribblers.sent < 5_000:  # all of them have been sent away at least once
                for way in SCHEMES:
                    broker.connect(way).close()
        finally:
            dribblers.stop()
        broker.connect("stomp").close()


def test_what_a_dribbler_can_make_the_broker_hold_is_bounded(start_broker: StartBroker) -> None:
    broker = start_broker()
    before = rss_kib(broker)
    peers = [socket.create_connection(("127.0.0.1", broker.port), WAIT_SECONDS) for _ in range(100)]
    for peer in peers:
        try:
            peer.sendall(b"CONNECT\n" + b"x:" + b"y" * 10_000_000)
        except OSError:
            pass  # it is told before it has said all
    with Wire(broker).open() as wire:
        wire.barrier()
    assert rss_kib(broker) - before < 40 * 1_024
    for peer in peers:
        peer.close()


def test_line_feeds_before_connect_have_an_end(start_broker: StartBroker) -> None:
    broker = start_broker("limits: {connect_timeout: 1h}\n")
    with Wire(broker) as wire:
        try:
            for _ in range(100):
                wire.send(b"\n" * 65_536)
        except OSError:
            pass  # the broker has given up listening
        assert wire.rest()[-1].headers["error-code"] == "too-large"
    with Wire(broker).open() as wire:
        wire.barrier()


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["stomp", "stomp+tls"])
def test_a_storm_of_connections_is_served_to_the_last(scheme: str) -> None:
    with started() as broker:
        socks = [socket.socket() for _ in range(500)]
        for sock in socks:
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", broker.ports[scheme]))
        assert b"" not in [answer_of(broker, scheme, sock) for sock in socks]


def answer_of(broker: Broker, scheme: str, sock: socket.socket) -> bytes:
    sock.settimeout(WAIT_SECONDS)
    if scheme == "stomp+tls":
        sock = broker.context.wrap_socket(sock, server_hostname="127.0.0.1")
    sock.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
    with sock:
        return sock.recv(4_096)


def idle(scheme: str, count: int) -> float:
    """So many at once; returns KiB for each."""
    with started("limits: {connections: 20000}\n") as broker:
        broker.connect(scheme).close()
        before = broker.rss_bytes()
        socks = [broker.connect(scheme, b"0,10000") for _ in range(count)]
        each = (broker.rss_bytes() - before) / count / 1024
        broker.connect("stomp").close()
        for sock in socks:
            sock.close()
    return each


@pytest.mark.thorough
@pytest.mark.parametrize(("scheme", "kib_max"), [("stomp", 20), ("ws", 30), ("stomp+tls", 80)])
def test_an_idle_connection_costs_little_memory(scheme: str, kib_max: int) -> None:
    assert idle(scheme, 400) < kib_max


@pytest.mark.thorough
def test_ten_thousand_idle_connections_are_held_by_one_process() -> None:
    hard = int(Path("/proc/self/limits").read_text().split("Max open files")[1].split()[1])
    if hard < 11_000:
        pytest.skip(f"only {hard} files may be open here")
    assert idle("stomp", 10_000) < 20
