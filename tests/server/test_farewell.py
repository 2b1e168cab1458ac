"""Who is turned away hears why, whatever it says meanwhile."""

from __future__ import annotations

import socket

import gevent
import pytest

from radiator.server import farewell
from radiator.server.farewell import Farewells


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
    Farewells().say(ours, b"no room")
    for _ in range(3):
        client.sendall(b"host:x\n\n\0")
        gevent.sleep(0)
    assert client.recv(100) == b"no room"
    assert client.recv(100) == b""
    client.close()
    while ours.fileno() >= 0:
        gevent.sleep(0)


def test_there_is_an_end_to_how_many_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farewell, "AT_ONCE_MAX", 2)
    monkeypatch.setattr(farewell, "SECONDS", 0.0)
    farewells = Farewells()
    pairs = [pair() for _ in range(3)]
    for ours, _ in pairs:
        farewells.say(ours, b"no room")
    assert [ours.fileno() >= 0 for ours, _ in pairs] == [True, True, False]
    while any(ours.fileno() >= 0 for ours, _ in pairs):
        gevent.sleep(0)
    for _, client in pairs:
        assert client.recv(100) == b"no room"
        client.close()
