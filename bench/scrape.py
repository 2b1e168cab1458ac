"""Measure scrapes of a large broker: ``python -m bench.scrape [--destinations N] [--connections N] [--rounds N]``.

A broker with many queues in memory, each with a message, and many connections, each of which consumes one queue.
Meanwhile a client sends RATE messages a second to one queue and another receives them. The time from SEND to MESSAGE is
measured in rounds of 6 s, in turn without scrapes and with scrapes of ``/metrics`` by another process, one after
the other with a pause of as long as the scrape took. The output is the medians over the rounds.

The measurement starts its own broker, with its data in a temporary directory, and removes both.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
RATE = 500
WAIT_SECONDS = 120.0
TOGETHER = 500
CONFIG = """
data_dir: {directory}/data
listen: ["stomp://127.0.0.1:0"]
admin: http://127.0.0.1:0
limits: {{connections: {connections}, memory: 2 GiB}}
destinations:
  - {{match: "/queue/many.>", store: memory}}
  - {{match: "/queue/probe", store: memory}}
"""


class Broker:
    """A broker in a child process."""

    def __init__(self, directory: str, connections: int) -> None:
        config = Path(directory, "broker.yaml")
        config.write_text(CONFIG.format(directory=directory, connections=connections))
        self.log = Path(directory, "broker.log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "radiator", "serve", "--config", str(config)],
                stdout=log, stderr=subprocess.STDOUT, cwd=Path(__file__).parent.parent,
            )  # fmt: skip
        self.port, self.admin = self._wait(r"stomp://127\.0\.0\.1:(\d+)"), self._wait(r"admin: (http://\S+)")

    def _wait(self, pattern: str) -> str:
        deadline = time.monotonic() + WAIT_SECONDS
        while not (found := re.search(pattern, self.log.read_text())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(self.log.read_text())
            time.sleep(0.05)
        return found[1]

    def open(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", int(self.port)), WAIT_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(CONNECT)
        read_until(sock, b"CONNECTED", b"\0")
        return sock

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def read_until(sock: socket.socket, *needed: bytes) -> bytes:
    """Read until all of these have come."""
    data = b""
    while not all(each in data for each in needed):
        more = sock.recv(1 << 16)
        if not more:
            raise SystemExit(f"the broker closed a connection: {data[-500:]!r}")
        data += more
    return data


def fill(broker: Broker, destinations: int) -> None:
    """Send a message to each destination."""
    with broker.open() as sock:
        for first in range(0, destinations, TOGETHER):
            last = min(first + TOGETHER, destinations) - 1
            frames = [b"SEND\ndestination:/queue/many.%d\n\nx\0" % number for number in range(first, last)]
            frames.append(b"SEND\ndestination:/queue/many.%d\nreceipt:last\n\nx\0" % last)
            sock.sendall(b"".join(frames))
            read_until(sock, b"receipt-id:last")


def consume(broker: Broker, connections: int) -> list[socket.socket]:
    """Open connections that each consume one queue, under ``ack:client-individual``, and acknowledge nothing."""
    found = []
    for number in range(connections):
        sock = broker.open()
        subscribe = b"SUBSCRIBE\nid:a\ndestination:/queue/many.%d\nack:client-individual\n\n\0" % number
        sock.sendall(subscribe)
        read_until(sock, b"MESSAGE", b"\0")
        found.append(sock)
    return found


class Probe:
    """Measure the time from SEND to MESSAGE, in seconds, with one producer and one consumer."""

    def __init__(self, broker: Broker) -> None:
        self.times: list[float] = []
        self._producer, self._consumer = broker.open(), broker.open()
        subscribe = b"SUBSCRIBE\nid:p\ndestination:/queue/probe\nack:auto\nreceipt:r\n\n\0"
        self._consumer.sendall(subscribe)
        read_until(self._consumer, b"receipt-id:r")
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def _receive(self) -> None:
        data = b""
        while more := self._consumer.recv(1 << 16):
            now_ns = time.perf_counter_ns()
            *frames, data = (data + more).split(b"\0")
            for frame in filter(_is_message, frames):
                sent_ns = int(frame.rpartition(b"\n\n")[2])
                self.times.append((now_ns - sent_ns) / 1e9)

    def run(self, seconds: float) -> list[float]:
        """Send messages for ``seconds`` and return their times."""
        self.times.clear()
        start = time.perf_counter()
        for number in range(int(seconds * RATE)):
            pause = start + number / RATE - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
            self._producer.sendall(b"SEND\ndestination:/queue/probe\n\n%d\0" % time.perf_counter_ns())
        deadline = time.monotonic() + WAIT_SECONDS
        while len(self.times) < int(seconds * RATE) and time.monotonic() < deadline:
            time.sleep(0.01)
        return list(self.times)


def _is_message(frame: bytes) -> bool:
    return frame.lstrip(b"\n").startswith(b"MESSAGE")


def scrape(url: str, go: Event, times: Any) -> None:
    """Scrape one time after the other while ``go`` is set. Runs in a process of its own."""
    while True:
        go.wait()
        start = time.perf_counter()
        with urllib.request.urlopen(url, timeout=WAIT_SECONDS) as answer:
            size = len(answer.read())
        took = time.perf_counter() - start
        times.put((took, size))
        time.sleep(took)


def p99(times: list[float]) -> float:
    """Return the 99th percentile in milliseconds."""
    return statistics.quantiles(times, n=100)[98] * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--destinations", type=int, default=50_000)
    parser.add_argument("--connections", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0, help="of a round without and of one with scrapes")
    parser.add_argument("--path", default="/metrics")
    arguments = parser.parse_args()
    needed = 2 * arguments.connections + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, needed), hard), hard))
    go, times = multiprocessing.Event(), multiprocessing.SimpleQueue()
    with tempfile.TemporaryDirectory() as directory:
        broker = Broker(directory, arguments.connections + 100)
        scraper = multiprocessing.Process(target=scrape, args=(broker.admin + arguments.path, go, times), daemon=True)
        scraper.start()
        try:
            fill(broker, arguments.destinations)
            sockets = consume(broker, arguments.connections)
            probe = Probe(broker)
            probe.run(arguments.seconds / 2)
            without, beside, scrapes, sizes = [], [], [], []
            for _ in range(arguments.rounds):
                without.append(p99(probe.run(arguments.seconds)))
                go.set()
                beside.append(p99(probe.run(arguments.seconds)))
                go.clear()
                time.sleep(1)
                while not times.empty():
                    took, size = times.get()
                    scrapes.append(took)
                    sizes.append(size)
            del sockets
        finally:
            scraper.kill()
            broker.stop()
    figures = {
        "destinations": arguments.destinations,
        "connections": arguments.connections,
        "scrapes": len(scrapes),
        "scrape_seconds": round(statistics.median(scrapes), 3),
        "scrape_seconds_max": round(max(scrapes), 3),
        "scrape_kib": round(max(sizes) / 1024, 1),
        "p99_ms_without_scrapes": round(statistics.median(without), 2),
        "p99_ms_beside_scrapes": round(statistics.median(beside), 2),
        "rounds_without": [round(each, 1) for each in without],
        "rounds_beside": [round(each, 1) for each in beside],
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
