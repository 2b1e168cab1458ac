"""Health, readiness and figures over HTTP, of a real broker."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from radiator.limits import MIB
from radiator.server.admin import CONNECTIONS_MAX
from tests.running import BrokerProcess, free_port
from tests.server.wire import Wire


class Served(BrokerProcess):
    """A broker with an admin listener."""

    def __init__(self, directory: Path, more: str = "") -> None:
        self.admin_port = free_port()
        admin = f"admin: http://127.0.0.1:{self.admin_port}\nadmin_hosts: [Broker.example]\n"
        super().__init__(directory, admin + more)

    def ask(self, path: str, method: str = "GET") -> tuple[int, Any]:
        connection = HTTPConnection("127.0.0.1", self.admin_port, timeout=10)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            body = answer.read()
            return answer.status, json.loads(body) if body else None
        finally:
            connection.close()

    def say(self, data: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.admin_port), timeout=10) as sock:
            sock.sendall(data)
            heard = b""
            while more := sock.recv(65_536):
                heard += more
            return heard


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    broker = Served(tmp_path_factory.mktemp("admin"))
    broker.start()
    yield broker
    if broker.running:
        assert broker.stop() == 0, broker.text()


def test_a_broker_that_works_is_healthy_and_ready(served: Served) -> None:
    assert served.ask("/health") == (200, {"healthy": True})
    assert served.ask("/ready") == (200, {"ready": True})
    assert served.ask("/ready?verbose=1") == (200, {"ready": True})


def test_figures_grow_with_what_happens(served: Served) -> None:
    _, before = served.ask("/stats")
    with Wire(served) as wire:
        wire.open().say("SEND", b"one", destination="/queue/a", receipt="r")
        wire.hear("RECEIPT", receipt_id="r")
        _, after = served.ask("/stats")
    assert after["stats"]["messages_in"] == before["stats"]["messages_in"] + 1
    assert after["store"]["syncs"] > before["store"]["syncs"]
    assert after["now"]["sessions"] == 1
    assert after["store"]["partitions_failed"] == 0
    assert after["now"]["longest_turn_ms"] > 0
    assert after["now"]["turn_work_peak"] > 0


def test_what_is_not_there_is_refused_with_the_reason(served: Served) -> None:
    status, said = served.ask("/metric")
    assert status == 404
    assert said == {
        "error": "unknown path /metric, expected one of /health, /ready, /stats, /metrics, /metrics/detailed, /console/"
    }
    assert served.ask("/ready", "POST")[0] == 405
    assert served.ask("/ready", "HEAD") == (200, None)
    assert served.say(b"CONNECT\n\n\0\r\n\r\n").startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("", 200),
        ("Host: 127.0.0.1:8161", 200),
        ("Host: LOCALHOST:1", 200),
        ("Host: [::1]", 200),
        ("Host: 10.0.0.5:8161", 200),  # behind a forwarded port; no name, so nobody has it point here
        ("Host: broker.example", 200),  # admin_hosts
        ("Host: stranger.example:8161", 403),
        ("Host: 127.0.0.1.stranger.example", 403),
        ("Host: evil@127.0.0.1", 403),
        ("Host: ", 403),
        ("Host: 127.0.0.1:1\r\nOrigin: http://127.0.0.1:1", 200),
        ("Host: 127.0.0.1:1\r\nOrigin: http://127.0.0.1:2", 403),
        ("Host: 127.0.0.1:1\r\nOrigin: http://stranger.example", 403),
        ("Host: 127.0.0.1:1\r\nOrigin: http://evil@127.0.0.1:1", 403),
        ("Host: stranger.example\r\nOrigin: http://stranger.example", 403),
        ("Host: 127.0.0.1:1\r\nOrigin: null", 403),
        ("Origin: http://127.0.0.1", 403),
        ("Host: 127.0.0.1\r\nHost: stranger.example", 400),
    ],
)
@pytest.mark.parametrize("path", ["/health", "/ready", "/stats"])
def test_pages_of_strangers_get_no_answer(served: Served, headers: str, status: int, path: str) -> None:
    lines = "".join(f"{line}\r\n" for line in headers.split("\r\n") if line)
    answer = served.say(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
    assert status == 200 or b'"error"' in answer


def test_a_request_has_a_bound(served: Served) -> None:
    assert served.say(b"GET /ready HTTP/1.1\r\nX: " + b"x" * 10_000).startswith(b"HTTP/1.1 431 ")
    assert served.ask("/ready")[0] == 200


def test_silent_connections_do_not_keep_others_out(served: Served) -> None:
    """Not even for the time that a request may take: the oldest of them gives way."""
    silent = [socket.create_connection(("127.0.0.1", served.admin_port), timeout=10) for _ in range(100)]
    try:
        assert served.ask("/health")[0] == 200
        for sock in silent[: 100 - CONNECTIONS_MAX]:
            assert sock.recv(1) == b""
        still_open = select.select(silent[100 - CONNECTIONS_MAX + 1 :], [], [], 0)[0]
        assert still_open == [], "one that asks at once costs one place, and not all of them"
    finally:
        for sock in silent:
            sock.close()


def test_an_answer_that_is_not_taken_gives_way_too(served: Served) -> None:
    lazy = []
    try:
        for _ in range(3 * CONNECTIONS_MAX):
            lazy.append(socket.create_connection(("127.0.0.1", served.admin_port), timeout=10))
            lazy[-1].sendall(b"GET /stats HTTP/1.1\r\n\r\n")
        assert served.ask("/health")[0] == 200
        assert all(sock.recv(12) == b"HTTP/1.1 200" for sock in lazy)
    finally:
        for sock in lazy:
            sock.close()


def test_it_does_not_keep_the_broker_from_ending(tmp_path: Path) -> None:
    broker = Served(tmp_path)
    broker.start()
    with socket.create_connection(("127.0.0.1", broker.admin_port)) as silent:
        silent.sendall(b"GET /rea")
        assert broker.ask("/health")[0] == 200
        assert broker.stop() == 0, broker.text()


def test_a_port_that_is_taken_is_reported_with_its_key(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        broker = BrokerProcess(tmp_path, f"admin: http://127.0.0.1:{taken.getsockname()[1]}\n")
        broker.spawn()
        assert broker.process is not None and broker.process.wait(30) == 2
    assert broker.logs("admin: http://127.0.0.1:", "the port is in use")


def test_producers_that_limits_memory_holds_back_are_reported_and_do_not_make_it_unready(tmp_path: Path) -> None:
    broker = Served(tmp_path, "limits: {memory: 1MiB}\ndestinations: [{match: /queue/a, store: memory}]\n")
    broker.start()
    with Wire(broker) as wire, Wire(broker) as operator:
        wire.open()
        wire.say("SEND", b"x" * MIB, destination="/queue/a", receipt="r")
        wire.hear("RECEIPT", receipt_id="r")
        status, said = broker.ask("/ready")
        assert status == 200 and said["ready"] is True
        assert "limits.memory (1048576 bytes)" in said["held_back"][0]
        operator.open()
        operator.say("SEND", b'{"do": "stats"}', destination="/radiator/admin", reply_to="/temp-queue/a")
        assert b'"memory_full": true' in operator.hear("MESSAGE").body
    assert broker.stop() == 0, broker.text()
