"""A real disk that fills up under load, on a tmpfs of 10 MiB: sends are refused with words, reading and ACKs go on, no
half record is left, and messages are taken again when there is room.

How long a refusal and the recovery took is printed (``pytest -s``); ``docs/reliability.md`` has figures.
"""

from __future__ import annotations

import threading
import time

import pytest

from tests.crash.asking import replay
from tests.crash.small_disk import Small
from tests.crash.small_disk import small_disk as small_disk
from tests.running import BrokerProcess
from tests.server.wire import Wire

TOPICS = ("/topic/a", "/topic/b")
QUEUE = "/queue/work"


class Producer(threading.Thread):
    """Sends with receipts until it is refused: ``stored`` by offset, and the ``error``."""

    def __init__(self, broker: BrokerProcess, destination: str, size: int, window: int) -> None:
        super().__init__(daemon=True)
        self.destination, self.size, self.window = destination, size, window
        self.wire = Wire(broker).open()
        self.stored: dict[int, bytes] = {}
        self.error = b""
        self.start()

    def run(self) -> None:
        waiting: list[bytes] = []
        number = 0
        while not self.error:
            while len(waiting) < self.window:
                body = b"%d.%d:" % (id(self), number) + b"x" * (self.size + number % 100)
                self.wire.say("SEND", body, destination=self.destination, receipt=str(number))
                waiting.append(body)
                number += 1
            self.wire.more()
            for frame in self.wire.inbox:
                if frame.command == "ERROR":
                    assert frame.headers["error-code"] == "storage"
                    self.error = frame.body
                else:
                    self.stored[int(frame.headers["offset"])] = waiting.pop(0)
            self.wire.inbox.clear()


class Consumer(threading.Thread):
    """Acknowledges with receipts whatever comes, to the end."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(daemon=True)
        self.acked: list[bytes] = []
        self.failure = ""
        self.wire = Wire(broker).open()
        self.wire.say("SUBSCRIBE", destination=QUEUE, id="0", ack="client-individual", prefetch_count="10")
        self.start()

    def run(self) -> None:
        waiting: dict[str, bytes] = {}
        while self.wire.more():
            for frame in self.wire.inbox:
                if frame.command == "MESSAGE":
                    waiting[frame.headers["ack"]] = frame.body
                    self.wire.say("ACK", id=frame.headers["ack"], receipt=frame.headers["ack"])
                elif frame.command == "RECEIPT":
                    self.acked.append(waiting.pop(frame.headers["receipt-id"]))
                else:
                    self.failure = f"{frame.headers} {frame.body!r}"
            self.wire.inbox.clear()


def refused(broker: BrokerProcess, destination: str, body: bytes) -> tuple[bool, float]:
    """One message: was there an ERROR, and after how many seconds."""
    with Wire(broker) as wire:
        wire.open()
        begun = time.monotonic()
        wire.say("SEND", body, destination=destination, receipt="r")
        while not wire.inbox:
            assert wire.more()
        return wire.inbox[0].command == "ERROR", time.monotonic() - begun


def until_accepted(broker: BrokerProcess) -> float:
    """Seconds until all destinations take messages."""
    begun = time.monotonic()
    for destination in (*TOPICS, QUEUE):
        while refused(broker, destination, b"again")[0]:
            assert broker.running
            time.sleep(0.02)
    return time.monotonic() - begun


@pytest.mark.thorough
@pytest.mark.parametrize(("reserve", "size", "window"), [("none", 700, 20), ("2MiB", 300, 1)])
def test_a_disk_fills_up_under_load_and_is_freed(small_disk: Small, reserve: str, size: int, window: int) -> None:
    """The reserve is looked at four times a second, so the load that meets it must not use it up in between."""
    broker, disk = small_disk(f"disk: {{min_free: {reserve}}}")
    filler = disk / "filler"
    filler.write_bytes(b"x" * 3_000_000)
    consumer = Consumer(broker)
    producers = [Producer(broker, destination, size, window) for destination in (*TOPICS, QUEUE, QUEUE)]
    for producer in producers:
        producer.join(60)
        assert not producer.is_alive()
        assert (b"free space" if reserve == "none" else b"disk.min_free") in producer.error
    stored: dict[str, dict[int, bytes]] = {destination: {} for destination in (*TOPICS, QUEUE)}
    for producer in producers:
        stored[producer.destination].update(producer.stored)
    answers = [refused(broker, destination, b"x" * 4_000) for destination in (*TOPICS, QUEUE) for _ in range(5)]
    assert all(error for error, _ in answers)
    print(f"refused within {1_000 * max(seconds for _, seconds in answers):.1f} ms")
    for destination in TOPICS:  # reading goes on
        found = replay(broker, destination)
        assert found == {**found, **stored[destination]}
        assert list(found) == list(range(len(found)))
    deadline = time.monotonic() + 60
    while not set(stored[QUEUE].values()) <= set(consumer.acked):  # and so do ACKs with receipts
        assert not consumer.failure and time.monotonic() < deadline, consumer.failure
        time.sleep(0.01)
    filler.unlink()
    print(f"accepted again after {until_accepted(broker):.2f} s")
    check(broker, stored, consumer)
    broker.kill()
    broker.start()
    check(broker, stored, consumer)
    assert "torn tail" not in broker.text(), "half a record was left"


def check(broker: BrokerProcess, stored: dict[str, dict[int, bytes]], consumer: Consumer) -> None:
    for destination in (*TOPICS, QUEUE):
        found = replay(broker, destination)
        assert found == {**found, **stored[destination]}
        assert list(found) == list(range(len(found)))
        assert len(set(found.values()) - {b"again"}) == len([body for body in found.values() if body != b"again"])
