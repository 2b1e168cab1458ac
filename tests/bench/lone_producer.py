"""What a producer waits that sends one message and waits for its receipt: alone, and with somebody else connected.

    python -m tests.bench.lone_producer DIRECTORY [BLOCKS]

Alone, the loop writes and syncs by itself; with a second connection, which says nothing, the disk thread does. Blocks
of messages of both kinds take turns at one broker, so that whatever else the machine does falls on both alike. Prints
microseconds, and the broker's CPU time per message.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from tests.running import BrokerProcess
from tests.server.wire import Wire

MESSAGES = 250  # of a block
SIZES_BYTES = (100, 1024, 8192)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def block(wire: Wire, size_bytes: int) -> list[int]:
    """Latencies in nanoseconds."""
    taken, sock = [], wire.socket
    frame = b"SEND\ndestination:/queue/a\nreceipt:r\ncontent-length:%d\n\n%b\0\n" % (size_bytes, b"x" * size_bytes)
    for _ in range(MESSAGES):
        started_ns = time.perf_counter_ns()
        sock.sendall(frame)
        answer = sock.recv(4096)
        while not answer.endswith(b"\0\n"):
            answer += sock.recv(4096)
        taken.append(time.perf_counter_ns() - started_ns)
    return taken


def measure(broker: BrokerProcess, size_bytes: int, blocks: int) -> None:
    found: dict[str, list[int]] = {"alone": [], "not alone": []}
    spent = dict.fromkeys(found, 0.0)
    with Wire(broker) as wire:
        wire.open()
        block(wire, size_bytes)
        for number in range(blocks):
            for kind in sorted(found, reverse=bool(number % 2)):
                bystander = Wire(broker).open() if kind == "not alone" else None
                before = cpu_seconds(broker.pid)
                found[kind] += block(wire, size_bytes)
                spent[kind] += cpu_seconds(broker.pid) - before
                if bystander is not None:
                    bystander.close()
                    time.sleep(0.01)  # until the broker has seen it go
    for kind, taken in found.items():
        taken.sort()
        p50, p90, p99 = (taken[int(len(taken) * part)] / 1000 for part in (0.5, 0.9, 0.99))
        mean, cpu = sum(taken) / len(taken) / 1000, spent[kind] / len(taken) * 1e6
        latencies = f"p50 {p50:6.0f}  p90 {p90:6.0f}  p99 {p99:6.0f}  mean {mean:6.0f}"
        print(f"{size_bytes:>6} B  {kind:<10} {latencies}  cpu {cpu:5.0f}")


def main(directory: str, blocks: int = 20) -> None:
    with tempfile.TemporaryDirectory(dir=directory) as data:
        broker = BrokerProcess(Path(data))
        broker.start()
        try:
            for size_bytes in SIZES_BYTES:
                measure(broker, size_bytes, blocks)
        finally:
            broker.stop()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:3]))
