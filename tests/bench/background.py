"""What background work costs those who wait for messages: latency from SEND to MESSAGE with and without it.

    python -m tests.bench.background [MIB]

A broker is filled with MIB of one-kilobyte messages, some in small batches and some in large ones, and is started again
twice over the same files: as it is, and with rules that have all of it compacted and compressed. Meanwhile one client
sends a message every 2 ms and waits for it to come back, once through a topic in memory (the loop alone) and once
through one on disk. Prints milliseconds. The figures in docs/performance.md are from here.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from radiator.storage.layout import partition_path
from tests.running import BrokerProcess
from tests.server.wire import Wire

FILL = "/topic/fill"
PLAIN = "defaults: {segment: {size: 16MiB}, fsync: 1s}\ndestinations:\n  - {match: /topic/memory, store: memory}\n"
DISK = "  - {match: /topic/disk, fsync: always}\n"
MAINTENANCE = f"  - {{match: {FILL}, compress: zstd, compact_by: 'header:key'}}\n"
BODY = b"all work and no play makes jack a dull boy %d; " * 20
EVERY_SECONDS = 0.002


def fill(broker: BrokerProcess, mib: int) -> None:
    with Wire(broker) as wire:
        wire.open()
        sent = number = 0
        while sent < mib << 20:
            burst = 500 if number % 3 else 5
            frames = []
            for _ in range(burst):
                number += 1
                body = BODY % ((number,) * 20)
                frames.append(b"SEND\ndestination:%b\nkey:k%d\n\n%b\0" % (FILL.encode(), number % 20_000, body))
                sent += len(body)
            wire.send(b"".join(frames))
            wire.say("SEND", b"x", destination=FILL, receipt=str(number))
            wire.hear("RECEIPT")
    assert broker.stop() == 0


def latencies(broker: BrokerProcess, destination: str, seconds: float) -> list[float]:
    found: list[float] = []
    with Wire(broker) as wire:
        wire.open()
        wire.say("SUBSCRIBE", destination=destination, id="0", receipt="s")
        wire.hear("RECEIPT")
        frame = b"SEND\ndestination:%b\n\n%b\0" % (destination.encode(), b"x" * 100)
        end = time.perf_counter() + seconds
        while (started := time.perf_counter()) < end:
            wire.socket.sendall(frame)
            data = wire.socket.recv(65_536)
            while not data.endswith((b"\0", b"\0\n")):
                data += wire.socket.recv(65_536)
            taken = time.perf_counter() - started
            found.append(taken * 1000)
            time.sleep(max(0.0, EVERY_SECONDS - taken))
    return found


def report(what: str, taken: list[float]) -> None:
    """The median over stretches of 500 messages of their p99 as well: that of the machine's quiet moments."""
    stretches = sorted(sorted(taken[at : at + 500])[495] for at in range(0, len(taken) - 499, 500))
    found = sorted(taken)
    p50, p99, p999 = (found[int(len(found) * part)] for part in (0.5, 0.99, 0.999))
    print(f"{what:<34} usual p99 {stretches[len(stretches) // 2]:.2f}", end="  ")
    print(f"{len(found):>6} messages  p50 {p50:.2f}  p99 {p99:.2f}  p99.9 {p999:.2f}  max {found[-1]:.2f} ms")


def size_mib(broker: BrokerProcess) -> float:
    return sum(path.stat().st_size for path in Path(partition_path(str(broker.data), FILL)).iterdir()) / (1 << 20)


def main(mib: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        broker = BrokerProcess(Path(name), PLAIN + DISK)
        config = Path(name) / "radiator.yaml"
        broker.start()
        fill(broker, mib)
        print(f"{size_mib(broker):.0f} MiB on disk")
        for what, text in (("without background work", PLAIN + DISK), ("with it", PLAIN + DISK + MAINTENANCE)):
            config.write_text(text)
            broker.start()
            if text.endswith(MAINTENANCE):
                time.sleep(1)  # it begins with the first tick
            for destination in ("/topic/memory", "/topic/disk"):
                before = size_mib(broker)
                report(f"{what}, {destination}", latencies(broker, destination, 20))
                print(f"    {before:.0f} MiB before, {size_mib(broker):.0f} MiB after")
            assert broker.stop() == 0, broker.text()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 256)
