"""Measure many sockets: ``python -m bench.sockets [idle|dribble|handshakes] [--scheme ...] [--count N]``.

    idle         N clients that connect and send only heart-beats: the broker's memory for each, and its CPU for all
    dribble      N sockets that send incomplete frames, a byte now and then: the time from socket to CONNECTED of a
                 normal client meanwhile
    handshakes   TLS connections a second, and the time that a plain client takes to connect meanwhile

The measurement starts its own broker, with its data in a temporary directory, and removes both.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import selectors
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:%b\n\n\0"
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
TICKS = os.sysconf("SC_CLK_TCK")
WAIT_SECONDS = 60.0


def masked(data: bytes) -> bytes:
    """Return one text message of a client, with a mask of zeros."""
    assert len(data) < 126
    return bytes((0x81, 0x80 | len(data), 0, 0, 0, 0)) + data


class Broker:
    """A broker in a child process that listens with every scheme."""

    def __init__(self, directory: str, more: str = "") -> None:
        cert, key = f"{directory}/cert.pem", f"{directory}/key.pem"
        subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
        command = ["openssl", "req", "-x509", *curve, *subject, "-keyout", key, "-out", cert]
        subprocess.run(command, check=True, capture_output=True)
        urls = ", ".join(f"'{scheme}://127.0.0.1:0'" for scheme in ("stomp", "stomp+tls", "ws", "wss"))
        config = Path(directory, "broker.yaml")
        config.write_text(f"data_dir: {directory}/data\ntls: {{cert: {cert}, key: {key}}}\nlisten: [{urls}]\n{more}")
        self.context = ssl.create_default_context(cafile=cert)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "radiator", "serve", "--config", str(config), "--log-level", "error"],
            stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent,
        )  # fmt: skip
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        self.ports = {scheme: int(port) for scheme, port in re.findall(r"([a-z+]+)://127\.0\.0\.1:(\d+)", ready)}

    def rss_bytes(self) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS")) * 1024

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def open(self, scheme: str) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.ports[scheme]), WAIT_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.context.wrap_socket(sock, server_hostname="127.0.0.1") if scheme in ("stomp+tls", "wss") else sock

    def connect(self, scheme: str, heart_beat: bytes = b"0,0") -> socket.socket:
        """Return a client that has received CONNECTED."""
        sock = self.open(scheme)
        if scheme in ("ws", "wss"):
            sock.sendall(UPGRADE)
            assert sock.recv(4_096).startswith(b"HTTP/1.1 101")
            sock.sendall(masked(CONNECT % heart_beat))
        else:
            sock.sendall(CONNECT % heart_beat)
        assert b"CONNECTED" in sock.recv(4_096)
        return sock

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


@contextmanager
def broker(more: str = "") -> Iterator[Broker]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as directory:
        process = Broker(directory, more)
        try:
            yield process
        finally:
            process.stop()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# --- idle -------------------------------------------------------------------------------------------------------------


def idle(scheme: str, count: int, seconds: float) -> None:
    with broker("limits: {connections: 100000}\n") as process:
        process.connect(scheme).close()
        before = process.rss_bytes()
        began = time.monotonic()
        socks = []
        for _ in range(count):
            socks.append(process.connect(scheme, b"0,10000"))
        took = time.monotonic() - began
        each = (process.rss_bytes() - before) / count
        beats = Beats(socks)
        cpu = process.cpu_seconds()
        time.sleep(seconds)
        share = (process.cpu_seconds() - cpu) / seconds
        beats.stop()
        print(
            f"idle {scheme}: {count} clients in {took:.1f} s, {each / 1024:.1f} KiB each, "
            f"{share:.1%} of a core with heart-beats of 10 s; {beats.heard} bytes heard in {seconds:g} s"
        )
        for sock in socks:
            sock.close()


class Beats:
    """A thread that reads what the broker sends to idle clients."""

    def __init__(self, socks: list[socket.socket]) -> None:
        self.heard = 0
        self._selector = selectors.DefaultSelector()
        for sock in socks:
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ)
        self._stopping = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping:
            for key, _ in self._selector.select(0.2):
                try:
                    self.heard += len(key.fileobj.recv(4_096))  # type: ignore[union-attr]
                except (BlockingIOError, ssl.SSLError):
                    pass

    def stop(self) -> None:
        self._stopping = True
        self._thread.join()


# --- dribble ----------------------------------------------------------------------------------------------------------

HALVES = {
    "stomp": b"CONNECT\naccept-version:1.2\nhost:" + b"x" * 60_000,
    "stomp+tls": b"\x16\x03\x01\x3f\xff\x01\x00\x3f\xfb\x03\x03" + b"x" * 16_000,
    "ws": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nx: " + b"y" * 15_000,
}
HALVES["wss"] = HALVES["stomp+tls"]


class Dribblers:
    """Sockets that send a byte each, in turn, and are opened again when the broker closes them."""

    def __init__(self, port: int, count: int, half: bytes, bytes_per_second: float) -> None:
        self.sent = 0
        self.closed = 0
        self._port, self._half, self._pause = port, half, 1 / bytes_per_second
        self._socks = [self._open() for _ in range(count)]
        self._at = [0] * count
        self._stopping = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _open(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), WAIT_SECONDS)

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stopping:
            for index, sock in enumerate(self._socks):
                try:
                    at = self._at[index]
                    sock.send(self._half[at : at + 1])
                    self._at[index] = at + 1
                    self.sent += 1
                except OSError:
                    self.closed += 1
                    sock.close()
                    self._socks[index], self._at[index] = self._open(), 0
                ahead = self.sent * self._pause - (time.monotonic() - began)
                if ahead > 0.01:
                    time.sleep(ahead)
                if self._stopping:
                    return

    def stop(self) -> None:
        self._stopping = True
        self._thread.join()
        for sock in self._socks:
            sock.close()


def connect_times_ms(process: Broker, scheme: str, count: int, seconds: float) -> list[float]:
    found = []
    for _ in range(count):
        began = time.perf_counter()
        process.connect(scheme).close()
        found.append((time.perf_counter() - began) * 1_000)
        time.sleep(max(0.0, seconds / count - found[-1] / 1_000))
    return sorted(found)


def told(times: list[float]) -> str:
    p99 = times[int(len(times) * 0.99) - 1]
    return f"p50 {statistics.median(times):.1f} ms, p99 {p99:.1f} ms, most {times[-1]:.1f} ms"


def dribble(scheme: str, count: int, seconds: float) -> None:
    with broker() as process:
        alone = connect_times_ms(process, "stomp", 200, 2)
        dribblers = Dribblers(process.ports[scheme], count, HALVES[scheme], 10_000)
        cpu = process.cpu_seconds()
        began = time.monotonic()
        times = connect_times_ms(process, "stomp", 500, seconds)
        share = (process.cpu_seconds() - cpu) / (time.monotonic() - began)
        dribblers.stop()
        print(
            f"dribble {scheme}: {count} sockets, {dribblers.sent} bytes one by one, {dribblers.closed} closed by the "
            f"broker, {share:.0%} of a core\n  connect: {told(times)} (alone: {told(alone)})"
        )


def handshakes(scheme: str, count: int, seconds: float) -> None:
    with broker() as process:
        alone = connect_times_ms(process, "stomp", 200, 2)
        done = [0, 0, 0, 0]
        stopping = threading.Event()

        def run(index: int) -> None:
            while not stopping.is_set():
                process.open("stomp+tls").close()
                done[index] += 1

        threads = [threading.Thread(target=run, args=(index,)) for index in range(len(done))]
        for thread in threads:
            thread.start()
        times = connect_times_ms(process, "stomp", 200, seconds)
        stopping.set()
        for thread in threads:
            thread.join()
        print(f"handshakes: {sum(done) / seconds:.0f} a second\n  connect: {told(times)} (alone: {told(alone)})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("idle", "dribble", "handshakes"))
    parser.add_argument("--scheme", choices=("stomp", "stomp+tls", "ws", "wss"), default="stomp")
    parser.add_argument("--count", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=20.0)
    chosen = parser.parse_args()
    run = {"idle": idle, "dribble": dribble, "handshakes": handshakes}[chosen.what]
    run(chosen.scheme, chosen.count or {"idle": 10_000}.get(chosen.what, 2_000), chosen.seconds)


if __name__ == "__main__":
    main()
