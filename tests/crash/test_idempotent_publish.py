"""A producer that sends each message again until it has a receipt, and a broker that is killed under it.

Each message must be stored exactly once, at the offset that the first receipt said.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from radiator.client import ClientError, Receipt, connect
from tests.running import BrokerProcess

QUEUE = "/queue/once"
MESSAGES = 400
KILLS = 5
PRODUCERS = 3


class Producer:
    """Sends runs of messages, each with a sequence; a run without its receipts is sent again on a new connection."""

    def __init__(self, address: str, name: str, seed: int) -> None:
        self.address = address
        self.name = name
        self.receipts: dict[int, Receipt] = {}
        self.conflicts: list[object] = []
        self.repeats = 0
        self.sent = threading.Semaphore(0)  # one more run is through
        self.give_up = threading.Event()
        self._random = random.Random(seed)
        self.thread = threading.Thread(target=self._run, name=name)

    def _run(self) -> None:
        number = 0
        while number < MESSAGES and not self.give_up.is_set():
            try:
                with connect(self.address, timeout=20) as connection:
                    while number < MESSAGES:
                        run = range(number, min(number + self._random.randrange(1, 12), MESSAGES))
                        receipts = connection.send_many([self._message(each) for each in run])
                        for each, receipt in zip(run, receipts, strict=True):
                            self._reported(each, receipt)
                        if self._random.random() < 0.3:  # as if the receipts had been lost
                            again = connection.send_many([self._message(each) for each in run])
                            for each, receipt in zip(run, again, strict=True):
                                self._reported(each, receipt)
                                if not receipt.duplicate:
                                    self.conflicts.append((each, receipt))
                        number = run.stop
                        self.sent.release()
            except ClientError:
                self.give_up.wait(0.02)  # the broker is away; there is no other sign of its return

    def _message(self, number: int) -> tuple[str, bytes, dict[str, str | int]]:
        return QUEUE, f"{self.name} {number}".encode(), {"producer-id": self.name, "sequence": number}

    def _reported(self, number: int, receipt: Receipt) -> None:
        self.repeats += receipt.duplicate
        first = self.receipts.setdefault(number, receipt)
        if (first.offset, first.partition) != (receipt.offset, receipt.partition):
            self.conflicts.append((number, first, receipt))


@pytest.mark.thorough
@pytest.mark.parametrize("policy", ["always", "50ms"])
def test_each_message_is_stored_once_though_the_broker_is_killed(tmp_path: Path, policy: str) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    config = (
        f"defaults: {{fsync: {policy}, segment: {{size: 64KiB}}}}\ndestinations: [{{match: {QUEUE}, partitions: 2}}]\n"
    )
    broker = BrokerProcess(tmp_path, config)
    broker.start()
    producers = [Producer(broker.address, f"producer-{number}", seed + number) for number in range(PRODUCERS)]
    try:
        for producer in producers:
            producer.thread.start()
        for _ in range(KILLS):
            for producer in producers:
                for _ in range(6):
                    producer.sent.acquire(timeout=30)
            broker.kill()
            broker.start()
        for producer in producers:
            producer.thread.join(60)
            assert not producer.thread.is_alive(), f"seed {seed}"
        with connect(broker.address) as connection:
            looking = connection.subscribe(QUEUE, start_position="first", stop_position="end")
            stored = [(message.text, message.partition, message.offset) for message in looking]
    finally:
        for producer in producers:
            producer.give_up.set()
        for producer in producers:
            producer.thread.join(30)
        broker.kill()
    bodies = sorted(body for body, _, _ in stored)
    wanted = sorted(f"{producer.name} {number}" for producer in producers for number in range(MESSAGES))
    assert bodies == wanted, f"seed {seed}: {set(wanted) ^ set(bodies)}"
    places = {body: (partition, offset) for body, partition, offset in stored}
    for producer in producers:
        assert not producer.conflicts, f"seed {seed}"
        for number, receipt in producer.receipts.items():
            assert places[f"{producer.name} {number}"] == (receipt.partition, receipt.offset), f"seed {seed}"
    assert sum(producer.repeats for producer in producers) > 0
