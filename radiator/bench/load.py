"""Generate load: one process, one thread, non-blocking sockets. Run by ``python -m radiator.bench.modes``.

It reads one JSON object (the fields of ``Spec``) from stdin and writes one JSON object to stdout. Everything is
prepared before the measurement, which is between ``Clock.start`` and ``Clock.stop``, for the CPU time of the broker
too. Each mode checks the number of receipts and deliveries. An ERROR of the broker fails the run, which shows the last
received bytes.

The modes, one function each in ``radiator.bench.modes``:

    produce   closed loop, ``window`` frames without receipt per connection, for ``seconds`` or ``count`` frames
    fanout    one publisher, ``connections`` subscribers of one topic, at most ``window`` messages undelivered
    drain     ``connections`` consumers of one queue, ``ack: client-individual``, until ``count`` are acknowledged
    replay    ``connections`` subscribers, each from the start of the log, until each has ``count``
    latency   open loop at ``rate``: latency counts from the moment a message *should* have been sent
    idle      opens ``connections`` subscribers and reads the broker's memory before and after
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from radiator.bench import frames, process
from radiator.bench.latency import Latencies

RECV_BYTES = 256 * 1024
REMEMBERED_BYTES = 4096  # shorter reads are searched for ERROR, which comes last
SHOWN_BYTES = 300
SETUP_TIMEOUT_SECONDS = 30.0


class LoadFailed(Exception):
    """The broker closed the connection, answered ERROR, or sent nothing for too long."""


@dataclass
class Spec:
    """The parameters of one run. ``stall_seconds`` bounds the time without any received bytes."""

    mode: str
    host: str = "127.0.0.1"
    port: int = 61613
    vhost: str = "/"
    login: str = ""
    passcode: str = ""
    destination: str = "/queue/bench"
    size: int = 100
    connections: int = 1
    window: int = 1
    count: int = 0
    seconds: float = 1.0
    rate: float = 1000.0
    send_headers: list[tuple[str, str]] = field(default_factory=list)
    subscribe_headers: list[tuple[str, str]] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)
    stall_seconds: float = 20.0


class Clock:
    """The wall time of a measurement, and the CPU time of the broker and of this process."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self.wall_seconds = 0.0
        self.broker_cpu_seconds: float | None = None
        self.own_cpu_seconds = 0.0

    def start(self) -> int:
        """Begin, and return the monotonic time in nanoseconds."""
        self._broker = process.cpu_seconds(self._pids)
        self._own = time.process_time()
        self._wall = time.monotonic_ns()
        return self._wall

    def stop(self) -> None:
        """End."""
        self.wall_seconds = (time.monotonic_ns() - self._wall) / 1e9
        self.own_cpu_seconds = time.process_time() - self._own
        broker = process.cpu_seconds(self._pids)
        if broker is not None and self._broker is not None:
            self.broker_cpu_seconds = broker - self._broker


@dataclass
class Result:
    """The results of one run."""

    messages: int = 0
    seconds: float = 0.0
    per_second: float = 0.0
    broker_cpu_us: float | None = None
    own_cpu_us: float = 0.0
    p50_ms: float | None = None
    p99_ms: float | None = None
    receipt_p50_ms: float | None = None
    receipt_p99_ms: float | None = None
    bytes_per_connection: float | None = None

    @classmethod
    def of(
        cls, clock: Clock, messages: int, latencies: Latencies | None = None, receipts: Latencies | None = None
    ) -> Result:
        """Return a result from the clock, the number of messages, and the latencies of messages and of receipts."""
        result = cls(messages=messages, seconds=clock.wall_seconds)
        result.per_second = messages / clock.wall_seconds if clock.wall_seconds else 0.0
        if messages:
            result.own_cpu_us = clock.own_cpu_seconds / messages * 1e6
            if clock.broker_cpu_seconds is not None:
                result.broker_cpu_us = clock.broker_cpu_seconds / messages * 1e6
        if latencies is not None:
            result.p50_ms, result.p99_ms = latencies.quantiles_ms(0.5, 0.99)
        if receipts is not None:
            result.receipt_p50_ms, result.receipt_p99_ms = receipts.quantiles_ms(0.5, 0.99)
        return result


class Peer:
    """One connection: a non-blocking socket, and the bytes that it has not accepted yet."""

    def __init__(self, loop: EventLoop, sock: socket.socket) -> None:
        self.loop = loop
        self.sock = sock
        self.pending: bytearray | None = None
        self._on_data: Callable[[bytearray, int], None] = lambda data, size: None

    def on_data(self, callback: Callable[[bytearray, int], None]) -> None:
        """Call ``callback(buffer, size)`` with the bytes that arrive from now on, instead of the callback before."""
        self._on_data = callback

    def received(self, buffer: bytearray, size: int) -> None:
        """Pass the first ``size`` bytes of ``buffer`` to the callback."""
        self._on_data(buffer, size)

    def write(self, data: bytes | memoryview) -> None:
        """Send the bytes that the socket accepts now, and the rest when it is ready."""
        if self.pending is not None:
            self.pending += data
            return
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self.pending = bytearray(data[sent:])
            self.loop.watch(self, writing=True)

    def flush(self) -> None:
        """Send waiting bytes, because the socket is ready."""
        assert self.pending is not None
        try:
            sent = self.sock.send(self.pending)
        except BlockingIOError:
            return
        del self.pending[:sent]
        if not self.pending:
            self.pending = None
            self.loop.watch(self, writing=False)


class EventLoop:
    """All connections of the process, and the selector that reports which of them are ready."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.peers: list[Peer] = []
        self.buffer = bytearray(RECV_BYTES)
        # epoll rounds its time-out up to a millisecond, select does not: the open loop needs the microseconds
        precise = spec.mode == "latency"
        self._selector: selectors.BaseSelector = selectors.SelectSelector() if precise else selectors.DefaultSelector()
        self._last = b""

    def open(self, *setup: bytes) -> Peer:
        """Connect, log in, and send the frames of ``setup``, each of which the broker answers with a receipt.

        Raises:
            LoadFailed: The broker refused the connection or a frame.
        """
        spec = self.spec
        sock = socket.create_connection((spec.host, spec.port), timeout=SETUP_TIMEOUT_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for data in (frames.connect(spec.vhost, spec.login, spec.passcode), *setup):
            sock.sendall(data)
            answer = b""
            while b"\0" not in answer:
                piece = sock.recv(RECV_BYTES)
                answer += piece
                if not piece or answer.lstrip().startswith(b"ERROR"):
                    raise LoadFailed(f"the broker refused the connection: {answer[:300]!r}")
        sock.setblocking(False)
        peer = Peer(self, sock)
        self.peers.append(peer)
        self._selector.register(sock, selectors.EVENT_READ, peer)
        return peer

    def watch(self, peer: Peer, writing: bool) -> None:
        """Watch for the moment when the socket accepts bytes, or stop watching."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0)
        self._selector.modify(peer.sock, events, peer)

    def poll(self, timeout_seconds: float | None = None) -> bool:
        """Wait, and serve every socket that is ready. Return False if none was within the time limit.

        Raises:
            LoadFailed: The broker answered ERROR, closed a connection, or sent nothing for ``stall_seconds``.
        """
        ready = self._selector.select(self.spec.stall_seconds if timeout_seconds is None else timeout_seconds)
        buffer = self.buffer
        for key, events in ready:
            peer: Peer = key.data
            if events & selectors.EVENT_WRITE and peer.pending is not None:
                peer.flush()
            if events & selectors.EVENT_READ:
                try:
                    size = peer.sock.recv_into(buffer)
                except BlockingIOError:
                    continue
                if not size:
                    raise LoadFailed(f"the broker closed the connection; the last bytes were {self._last!r}")
                if size < REMEMBERED_BYTES:
                    data = bytes(memoryview(buffer)[:size])
                    self._last = data[-SHOWN_BYTES:]
                    at = data.find(b"ERROR\n")
                    if at >= 0:
                        raise LoadFailed(f"the broker answered {data[at : at + SHOWN_BYTES]!r}")
                peer.received(buffer, size)
        if not ready and timeout_seconds is None:
            raise LoadFailed(f"nothing came for {self.spec.stall_seconds:g} s; the last bytes were {self._last!r}")
        return bool(ready)

    def forget(self, peer: Peer) -> None:
        """Stop reading from a peer that has disconnected, since the broker will close it."""
        self._selector.unregister(peer.sock)

    def close(self) -> None:
        """Close every socket."""
        for peer in self.peers:
            peer.sock.close()
        self._selector.close()
