"""Who is turned away hears why, whatever it says meanwhile."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import gevent
import pytest

from radiator.server import rejections
from radiator.server.handshakes import Handshakes
from radiator.server.rejections import Rejections
from radiator.tunnels.certificates import server_context
from radiator.tunnels.tls import Tls
from tests.certificates import Authority


def pair() -> tuple[socket.socket, socket.socket]:
    """Ours and the client's end of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    ours.setblocking(False)
    client.settimeout(10.0)
    return ours, client


def test_what_the_client_says_before_and_after_takes_nothing_back() -> None:
    ours, client = pair()
    client.sendall(b"CONNECT\n")
    Rejections(Handshakes(gevent.get_hub().loop)).send(ours, b"no room")
    for _ in range(3):
        client.sendall(b"host:x\n\n\0")
        gevent.sleep(0)
    assert client.recv(100) == b"no room"
    assert client.recv(100) == b""
    client.close()
    while ours.fileno() >= 0:
        gevent.sleep(0)


def test_there_is_an_end_to_how_many_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejections, "AT_ONCE_MAX", 2)
    monkeypatch.setattr(rejections, "SECONDS", 0.0)
    under_way = Rejections(Handshakes(gevent.get_hub().loop))
    pairs = [pair() for _ in range(3)]
    for ours, _ in pairs:
        under_way.send(ours, b"no room")
    assert [ours.fileno() >= 0 for ours, _ in pairs] == [True, True, False]
    while any(ours.fileno() >= 0 for ours, _ in pairs):
        gevent.sleep(0)
    for _, client in pairs:
        assert client.recv(100) == b"no room"
        client.close()


def served(step: Callable[[], bytes]) -> bytes:
    """What a client's TLS brings in the end, while the loop goes on."""
    while True:
        try:
            return step()
        except ssl.SSLWantReadError:
            gevent.sleep(0.001)


def test_in_tls_a_rejection_follows_the_handshake_and_silent_connections_give_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rejections, "AT_ONCE_MAX", 2)
    authority = Authority(tmp_path)
    context = server_context(*authority.issue("broker"), None)
    handshakes = Handshakes(gevent.get_hub().loop)
    under_way = Rejections(handshakes)
    silent = [pair() for _ in range(3)]
    for ours, _ in silent:
        under_way.send(ours, b"no room", Tls(context))
    assert [ours.fileno() >= 0 for ours, _ in silent] == [False, True, True]
    ours, client = pair()
    client.setblocking(False)
    under_way.send(ours, b"no room", Tls(context))
    secure = authority.trusting().wrap_socket(client, server_hostname="broker", do_handshake_on_connect=False)
    served(lambda: secure.do_handshake() or b"")
    assert served(lambda: secure.recv(100)) == b"no room"
    assert served(lambda: secure.recv(100)) == b""
    secure.close()
    while ours.fileno() >= 0:
        gevent.sleep(0.001)
    under_way.stop()
    assert not under_way.under_way
    for ours, other in silent:
        assert ours.fileno() < 0
        other.close()
    handshakes.stop()
