"""What a subscriber that has stalled costs the others: latency from SEND to MESSAGE at 99 of 100, with and without it.

    python -m tests.bench.stalled [MEMORY_OR_FILE] [ROUNDS]

One broker, a topic, 100 subscribers. A message of 10 KiB goes out every 10 ms; in every other round one of the hundred
does not read, so that its outbox is full from the first second on. Prints milliseconds of both, side by side.
"""

from __future__ import annotations

import selectors
import sys
import tempfile
import time
from pathlib import Path

from tests.running import BrokerProcess
from tests.server.wire import Wire

SUBSCRIBERS = 100
MESSAGES = 300
EVERY_SECONDS = 0.01
BODY = b"x" * 10_240


def one_round(broker: BrokerProcess, topic: str, stalled: bool) -> list[float]:
    sender = Wire(broker).open()
    wires = [Wire(broker, receive_bytes=4_096 if stalled and not number else None) for number in range(SUBSCRIBERS)]
    for wire in wires:
        wire.open()
        wire.say("SUBSCRIBE", destination=topic, id="0", receipt="s")
        wire.hear("RECEIPT")
    reading = wires[1:]
    selector = selectors.DefaultSelector()
    for wire in reading:
        wire.socket.setblocking(False)
        selector.register(wire.socket, selectors.EVENT_READ)
    found: list[float] = []
    for number in range(MESSAGES + 150):  # the first fill what stands between
        started = time.perf_counter()
        sender.say("SEND", BODY, destination=topic)
        left = {wire.socket.fileno(): len(BODY) for wire in reading}
        while left:
            for key, _ in selector.select(10):
                left[key.fd] -= len(key.fileobj.recv(65_536))  # type: ignore[union-attr]
                if left[key.fd] < 0:  # the frame's own headers come on top: it is whole now, or in a moment
                    del left[key.fd]
                    if number >= 150:
                        found.append((time.perf_counter() - started) * 1_000)
        time.sleep(max(0.0, EVERY_SECONDS - (time.perf_counter() - started)))
        for wire in reading:  # what was not read of the last frame
            try:
                wire.socket.recv(65_536)
            except BlockingIOError:
                pass
    for wire in [sender, *wires]:
        wire.close()
    return found


def main(store: str = "memory", rounds: int = 3) -> None:
    with tempfile.TemporaryDirectory() as directory:
        broker = BrokerProcess(Path(directory), f"destinations: [{{match: '/topic/*', store: {store}, fsync: 1s}}]")
        if store == "memory":
            broker = BrokerProcess(Path(directory), "destinations: [{match: '/topic/*', store: memory}]")
        broker.start()
        figures: dict[bool, list[float]] = {False: [], True: []}
        for number in range(rounds):
            for stalled in (False, True):
                figures[stalled] += one_round(broker, f"/topic/t{number}{stalled}", stalled)
        broker.stop()
    for stalled, found in figures.items():
        found.sort()
        p50, p99 = found[len(found) // 2], found[len(found) * 99 // 100]
        print(f"{'one of 100 stalled' if stalled else 'all of 100 read':20} p50 {p50:.2f} ms  p99 {p99:.2f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
