"""Clients that remember what they were told, in threads of the test, while the store is copied beside them.

Each runs until its connection ends. What is in ``Records`` was confirmed by the broker, so it must be true in every
copy. Destinations: ``/topic/log`` and ``/queue/work``, and ``/topic/brief``, of which little should be kept.
"""

from __future__ import annotations

import threading
from collections import deque

from tests.running import BrokerProcess
from tests.server.wire import Wire

TOPIC, QUEUE = "/topic/log", "/queue/work"
WINDOW = 64  # sends without a receipt


class Records:
    """What all clients of a test were told."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.stored: dict[str, dict[int, bytes]] = {TOPIC: {}, QUEUE: {}}  # by offset
        self.acked: set[bytes] = set()  # and whose ack was receipted

    def note(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def wait_for(self, stored: int, acked: int) -> None:
        """Until so many more than now are stored and acked."""
        with self.changed:
            stored += self.count
            acked += len(self.acked)
            assert self.changed.wait_for(lambda: self.count >= stored and len(self.acked) >= acked, 60)

    @property
    def count(self) -> int:
        return sum(map(len, self.stored.values()))


class Client(threading.Thread):
    def __init__(self, broker: BrokerProcess, records: Records, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.wire = Wire(broker).open()
        self.records = records
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.work()
        except OSError:
            pass  # the broker is gone
        except BaseException as failure:
            self.failure = failure
        finally:
            self.wire.close()

    def work(self) -> None:
        raise NotImplementedError

    def result(self) -> None:
        """Its thread has ended, as it should."""
        self.join(30)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure


class Producer(Client):
    """Sends to the topic and the queue in turn, with receipts, a window at a time."""

    def work(self) -> None:
        waiting: deque[bytes] = deque()
        number = 0
        while True:
            while len(waiting) < WINDOW:
                body = b"%b:%d:" % (self.name.encode(), number) + b"x" * (number % 300)
                self.wire.say("SEND", body, destination=(TOPIC, QUEUE)[number % 2], receipt=str(number))
                waiting.append(body)
                number += 1
            if not self.wire.more():
                return
            frames, self.wire.inbox = self.wire.inbox, []
            for frame in frames:
                assert frame.command == "RECEIPT", frame
                body = waiting.popleft()
                assert frame.headers["receipt-id"] == body.split(b":")[1].decode()
                self.records.stored[frame.headers["partition"]][int(frame.headers["offset"])] = body
            self.records.note()


class Consumer(Client):
    """Takes from the queue; acks half of what comes with a receipt, and keeps or refuses the rest for a while."""

    def work(self) -> None:
        records = self.records
        self.wire.say("SUBSCRIBE", destination=QUEUE, id="0", ack="client-individual", prefetch_count="50")
        waiting: dict[str, bytes] = {}
        number = 0
        while self.wire.more():
            frames, self.wire.inbox = self.wire.inbox, []
            for frame in frames:
                if frame.command == "RECEIPT":
                    records.acked.add(waiting.pop(frame.headers["receipt-id"]))
                    continue
                assert frame.command == "MESSAGE", frame
                number += 1
                assert frame.body not in records.acked, "settled, and it came back"
                if number % 7 == 3:
                    self.wire.say("NACK", id=frame.headers["ack"])
                elif number % 31 != 5:
                    waiting[str(number)] = frame.body
                    self.wire.say("ACK", id=frame.headers["ack"], receipt=str(number))
            records.note()


class Brief(Producer):
    """To a topic of which little is kept: retention is at work while copies are made."""

    def work(self) -> None:
        number = 0
        while True:
            self.wire.inbox.clear()
            self.wire.say("SEND", b"%d" % number * 500, destination="/topic/brief", receipt="r")
            if not self.wire.more():
                return
            number += 1
