"""The modes of the load generator, one function each; ``python -m radiator.bench.modes`` runs one.

``radiator.bench.load`` lists them.

The unit of counting is the NUL byte that ends each frame. Every mode ends by itself: by time or count, and by the
loop's stall limit when the broker stops answering.
"""

from __future__ import annotations

import json
import re
import resource
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, replace

from radiator.bench import frames, process
from radiator.bench.latency import Latencies
from radiator.bench.load import Clock, EventLoop, LoadFailed, Peer, Result, Spec

ACK_ID = re.compile(rb"\nack:([^\n]+)")
STAMP = re.compile(rb"T(\d{20})x*\0")
STAMP_BYTES = 21
BURST = 1_000  # frames per write without a window


class _Producer:
    """One connection of ``produce``: a window of frames in flight, which receipts refill."""

    def __init__(self, peer: Peer, ring: frames.Ring, quota: int, latencies: Latencies) -> None:
        self.peer = peer
        self.ring = ring
        self.quota = quota  # frames that may still be sent; negative: no limit
        self.sent = 0
        self.received = 0
        self._latencies = latencies
        self._times: deque[list[int]] = deque()  # [time, number without receipt]
        peer.on_data(self.data)

    def send(self, count: int) -> None:
        if self.quota >= 0:
            count = min(count, self.quota)
            self.quota -= count
        if count:
            self.peer.write(self.ring.slice(self.sent, count))
            self._times.append([time.monotonic_ns(), count])
            self.sent += count

    def data(self, buffer: bytearray, size: int) -> None:
        fresh = buffer.count(0, 0, size)
        if not fresh:
            return
        self.received += fresh
        if self.received > self.sent:
            raise LoadFailed(f"more answers than sends: {bytes(buffer[:300])!r}")
        now = time.monotonic_ns()
        left = fresh
        while left:
            entry = self._times[0]
            taken = min(left, entry[1])
            self._latencies.add(now - entry[0], taken)
            entry[1] -= taken
            left -= taken
            if not entry[1]:
                self._times.popleft()
        self.send(fresh)


def produce(loop: EventLoop, spec: Spec) -> Result:
    """Send with receipts, in a closed loop of ``window`` per connection."""
    ring = frames.Ring(spec.destination, spec.size, spec.window, spec.send_headers)
    latencies = Latencies()
    share = -(-spec.count // spec.connections)
    producers = []
    for number in range(spec.connections):
        quota = min(share, spec.count - number * share) if spec.count else -1
        producers.append(_Producer(loop.open(), ring, quota, latencies))
    clock = Clock(spec.pids)
    end = clock.start() + int(spec.seconds * 1e9)
    for producer in producers:
        producer.send(ring.window)
    while any(producer.received < producer.sent for producer in producers):
        if not spec.count and time.monotonic_ns() >= end:
            for producer in producers:
                producer.quota = 0
        loop.poll()
    clock.stop()
    return Result.of(clock, sum(producer.received for producer in producers), latencies)


def fanout(loop: EventLoop, spec: Spec) -> Result:
    """Send without receipts to many subscribers, and count deliveries.

    Raises:
        LoadFailed: The number of deliveries is wrong, or the broker failed.
    """
    setup = frames.subscribe(spec.destination, "auto", spec.subscribe_headers, receipt="s")
    subscribers = [loop.open(setup) for _ in range(spec.connections)]
    publisher = loop.open()
    ring = frames.Ring(spec.destination, spec.size, min(spec.window, BURST), spec.send_headers, receipts=False)
    delivered = 0

    def data(buffer: bytearray, size: int) -> None:
        nonlocal delivered
        delivered += buffer.count(0, 0, size)

    for subscriber in subscribers:
        subscriber.on_data(data)
    fan = len(subscribers)
    sent = 0
    clock = Clock(spec.pids)
    end = clock.start() + int(spec.seconds * 1e9)
    while True:
        if time.monotonic_ns() < end:
            room = min(spec.window - (sent * fan - delivered) // fan, ring.window)
            if room > 0 and publisher.pending is None:
                publisher.write(ring.slice(sent, room))
                sent += room
        elif delivered >= sent * fan:
            break
        loop.poll()
    clock.stop()
    if delivered != sent * fan:
        raise LoadFailed(f"{sent * fan} deliveries expected, {delivered} came")
    return Result.of(clock, delivered)


def drain(loop: EventLoop, spec: Spec) -> Result:
    """Consume a shared queue, and acknowledge every message individually."""
    consumers = [_Consumer(loop.open()) for _ in range(spec.connections)]
    clock = Clock(spec.pids)
    clock.start()
    for consumer in consumers:
        consumer.peer.write(frames.subscribe(spec.destination, "client-individual", spec.subscribe_headers))
    while sum(consumer.received for consumer in consumers) < spec.count:
        loop.poll()
    _disconnect(loop, [consumer.peer for consumer in consumers])
    clock.stop()
    return Result.of(clock, sum(consumer.received for consumer in consumers))


class _Consumer:
    """One connection of ``drain``, which acknowledges every MESSAGE."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.received = 0
        self._rest = b""
        peer.on_data(self.data)

    def data(self, buffer: bytearray, size: int) -> None:
        data = self._rest + bytes(memoryview(buffer)[:size])
        end = data.rfind(b"\0") + 1
        self._rest = data[end:]
        ids = ACK_ID.findall(data, 0, end)
        if ids:
            self.received += len(ids)
            self.peer.write(frames.acks(ids))


def _disconnect(loop: EventLoop, peers: list[Peer]) -> None:
    """Send DISCONNECT and wait for the receipts, which follow the processing of all acknowledgements."""
    waiting = len(peers)

    def on_receipt(peer: Peer) -> Callable[[bytearray, int], None]:
        def data(buffer: bytearray, size: int) -> None:
            nonlocal waiting
            if buffer.find(b"bye", 0, size) >= 0:
                waiting -= 1
                loop.forget(peer)

        return data

    for peer in peers:
        peer.on_data(on_receipt(peer))
        peer.write(frames.disconnect())
    while waiting:
        loop.poll()


def replay(loop: EventLoop, spec: Spec) -> Result:
    """Read everything from the start of the log, once per connection.

    Raises:
        LoadFailed: The number of messages is wrong, or the broker failed.
    """
    peers = [loop.open() for _ in range(spec.connections)]
    received = [0] * len(peers)

    def counter(index: int) -> Callable[[bytearray, int], None]:
        def data(buffer: bytearray, size: int) -> None:
            received[index] += buffer.count(0, 0, size)

        return data

    clock = Clock(spec.pids)
    clock.start()
    for index, peer in enumerate(peers):
        peer.on_data(counter(index))
        peer.write(frames.subscribe(spec.destination, "auto", spec.subscribe_headers))
    while min(received) < spec.count:
        loop.poll()
    clock.stop()
    if max(received) > spec.count:
        raise LoadFailed(f"{spec.count} messages expected, {max(received)} came")
    return Result.of(clock, sum(received))


def latency(loop: EventLoop, spec: Spec) -> Result:
    """Send at fixed times in an open loop, whether or not the broker keeps up."""
    subscribed = frames.subscribe(spec.destination, "auto", spec.subscribe_headers, receipt="s")
    consumer, producer = loop.open(subscribed), loop.open()
    total = int(spec.rate * spec.seconds)
    period_ns = 1e9 / spec.rate
    pad = b"x" * max(0, spec.size - STAMP_BYTES)
    head = [("destination", spec.destination), ("content-length", str(STAMP_BYTES + len(pad))), *spec.send_headers]
    shell = frames.frame("SEND", [*head, ("receipt", "r")])[:-2]
    ends, receipts = Latencies(), Latencies()
    due: deque[int] = deque()
    rest = b""

    def receipt(buffer: bytearray, size: int) -> None:
        now = time.monotonic_ns()
        for _ in range(buffer.count(0, 0, size)):
            receipts.add(now - due.popleft())

    def message(buffer: bytearray, size: int) -> None:
        nonlocal rest
        now = time.monotonic_ns()
        data = rest + bytes(memoryview(buffer)[:size])
        end = data.rfind(b"\0") + 1
        rest = data[end:]
        for stamp in STAMP.findall(data, 0, end):
            ends.add(now - int(stamp))

    producer.on_data(receipt)
    consumer.on_data(message)
    clock = Clock(spec.pids)
    start = clock.start()
    number = 0
    while ends.count < total or receipts.count < total:
        now = time.monotonic_ns()
        burst = []
        while number < total and (at := start + int(number * period_ns)) <= now:
            burst.append(b"%b\nT%020d%b\0" % (shell, at, pad))
            due.append(at)
            number += 1
        if burst:
            producer.write(b"".join(burst))
        wait = None if number >= total else max(0.0, (start + int(number * period_ns) - time.monotonic_ns()) / 1e9)
        loop.poll(wait)
    clock.stop()
    return Result.of(clock, total, ends, receipts)


def idle(loop: EventLoop, spec: Spec) -> Result:
    """Measure the broker's memory before and after many idle subscribers connect."""
    setup = frames.subscribe(spec.destination, "auto", spec.subscribe_headers, receipt="s")
    loop.open(setup)  # the first client makes the broker load modules
    before = process.resident_bytes(spec.pids)
    clock = Clock(spec.pids)
    clock.start()
    for _ in range(spec.connections):
        loop.open(setup)
    clock.stop()
    after = process.resident_bytes(spec.pids)
    grown = None if before is None or after is None else (after - before) / spec.connections
    return replace(Result.of(clock, spec.connections), bytes_per_connection=grown)


MODES: dict[str, Callable[[EventLoop, Spec], Result]] = {
    "produce": produce,
    "fanout": fanout,
    "drain": drain,
    "replay": replay,
    "latency": latency,
    "idle": idle,
}


def main() -> None:
    """Read a Spec from stdin, run it, write the result or ``{"error": ...}`` to stdout."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    spec = Spec(**json.load(sys.stdin))
    loop = EventLoop(spec)
    try:
        answer = asdict(MODES[spec.mode](loop, spec))
    except (LoadFailed, OSError) as error:
        answer = {"error": str(error)}
    finally:
        loop.close()
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
