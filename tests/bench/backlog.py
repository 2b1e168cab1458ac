"""What a backlog costs: a restart, a SEND, memory; with ten million messages and with a thousand.

    python -m tests.bench.backlog DIRECTORY [MESSAGES] [ROUNDS]

DIRECTORY needs 13 GB for the ten million: a queue of which nothing is acknowledged (bodies of 1000 bytes, 10 GB), and a
topic (100 bytes). The backlog is written through ``radiator.storage``; everything else is a real broker and the load
generator of ``radiator bench``. The large and the small store take turns, so that whatever else the machine does falls
on both alike. Prints medians and their ratios, then the memory while all of it is served at once. Removes what it made.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from radiator.bench.run import generate
from radiator.clock import now_ns
from radiator.config import Settings, SyncPolicy
from radiator.storage.files import FileSystem
from radiator.storage.store import Store
from tests.clocks import both
from tests.running import BrokerProcess
from tests.server.wire import rss_kib

QUEUE, TOPIC = "/queue/backlog", "/topic/backlog"
BODIES = {QUEUE: 1_000, TOPIC: 100}
SMALL_MESSAGES = 1_000
BATCH_MESSAGES = 5_000
SEND = {"mode": "produce", "connections": 8, "window": 64, "count": 200_000, "seconds": 60.0}
SERVED_MESSAGES = 300_000


def build(data: Path, messages: int) -> None:
    """A store with that many messages in each log."""
    store = Store(str(data), FileSystem())
    store.open(both(now_ns()))
    for name, size in BODIES.items():
        partition = store.partition(name, Settings(sync=SyncPolicy(None)))
        body = b"x" * size
        for start in range(0, messages, BATCH_MESSAGES):
            at = now_ns()
            for _ in range(min(BATCH_MESSAGES, messages - start)):
                partition.append(name, b"content-type:text/plain", body, at)
            for job in store.take(both(at)):
                job.write()
                job.done(both(at))
                assert job.error is None, job.error
    store.close()


@contextmanager
def serving(directory: Path, fsync: str) -> Iterator[tuple[BrokerProcess, float]]:
    """A broker over the store in ``directory``, and how long it took to start."""
    broker = BrokerProcess(directory, f"defaults: {{fsync: {fsync}, prefetch: 1000}}")
    begun = time.monotonic()
    broker.start()
    try:
        yield broker, time.monotonic() - begun
    finally:
        if broker.running:
            broker.stop()


def load(broker: BrokerProcess, destination: str, **spec: Any) -> dict[str, Any]:
    answer = generate({"port": broker.port, "pids": [broker.pid], "destination": destination, **spec})
    assert not answer.get("error"), answer
    return answer


def restart(directory: Path, kill: bool) -> float:
    with serving(directory, "always") as (broker, _):
        load(broker, TOPIC, mode="produce", count=1_000)
        if kill:
            broker.kill()
    with serving(directory, "always") as (_, seconds):
        return seconds


def send(directory: Path, fsync: str, destination: str, figure: str) -> float:
    with serving(directory, fsync) as (broker, _):
        return float(load(broker, destination, size=BODIES[destination], **SEND)[figure])


CELLS = {
    "start after a stop, s": lambda at: restart(at, kill=False),
    "start after a kill, s": lambda at: restart(at, kill=True),
    "SEND to the queue, always, messages/s": lambda at: send(at, "always", QUEUE, "per_second"),
    "SEND to the queue, always, broker CPU us": lambda at: send(at, "always", QUEUE, "broker_cpu_us"),
    "SEND to the queue, never, messages/s": lambda at: send(at, "never", QUEUE, "per_second"),
    "SEND to the queue, never, broker CPU us": lambda at: send(at, "never", QUEUE, "broker_cpu_us"),
    "SEND to the topic, never, broker CPU us": lambda at: send(at, "never", TOPIC, "broker_cpu_us"),
}


def memory(directory: Path) -> None:
    """The broker's memory while it drains, replays and takes messages, all at once."""
    with serving(directory, "always") as (broker, _):
        before, most, done = rss_kib(broker), 0, threading.Event()

        def sample() -> None:
            nonlocal most
            while not done.wait(0.02):
                most = max(most, rss_kib(broker))

        sampler = threading.Thread(target=sample)
        prefetch, history = ("prefetch-count", "1000"), ("start-position", f"last:{SERVED_MESSAGES}")
        work = [
            threading.Thread(target=load, args=(broker, destination), kwargs=spec)
            for destination, spec in (
                (QUEUE, {"mode": "drain", "connections": 4, "count": SERVED_MESSAGES, "subscribe_headers": [prefetch]}),
                (TOPIC, {"mode": "replay", "connections": 4, "count": SERVED_MESSAGES, "subscribe_headers": [history]}),
                ("/queue/other", {**SEND, "size": 1_000}),
            )
        ]
        for thread in (sampler, *work):
            thread.start()
        for thread in work:
            thread.join()
        done.set()
        sampler.join()
        print(f"resident: {before // 1024} MiB after the start, at most {most // 1024} MiB under load", flush=True)


def main(parent: Path, messages: int, rounds: int) -> None:
    large, small = parent / "large", parent / "small"
    try:
        for directory in (large, small):
            directory.mkdir(parents=True)
        begun = time.monotonic()
        build(large / "data", messages)
        size = sum(path.stat().st_size for path in large.rglob("*.rlog"))
        print(
            f"{messages} messages in each log, {size / 1e9:.1f} GB, built in {time.monotonic() - begun:.0f} s",
            flush=True,
        )
        for cell, measure in CELLS.items():
            found: dict[Path, list[float]] = {large: [], small: []}
            for number in range(rounds):
                for directory in (large, small) if number % 2 else (small, large):
                    if directory is small:
                        shutil.rmtree(small / "data", ignore_errors=True)
                        build(small / "data", SMALL_MESSAGES)
                    found[directory].append(measure(directory))
            high, low = (statistics.median(found[each]) for each in (large, small))
            print(f"{cell:42} {low:12.3f} {high:12.3f}   ratio {high / low:.2f}", flush=True)
        memory(large)
    finally:
        for directory in (large, small):
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, (sys.argv[2:] + ["10000000", "5"][len(sys.argv) - 2 :])))
