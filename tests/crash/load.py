"""Clients that remember what they were told, for a broker that is going to be killed under them.

Each runs in a thread until its connection ends. What is in ``Records`` was confirmed by the broker: it must be true
after the crash. Destinations: ``/topic/log`` and ``/queue/work``.
"""

from __future__ import annotations

import threading
from collections import deque

from tests.running import BrokerProcess
from tests.server.wire import Wire

TOPIC, QUEUE = "/topic/log", "/queue/work"
WINDOW = 64  # sends without a receipt


class Records:
    """What all clients of a test were told, over any number of crashes."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.stored: dict[str, dict[int, bytes]] = {TOPIC: {}, QUEUE: {}}  # by offset
        self.heard: set[bytes] = set()  # queue messages that a consumer has had in hand
        self.acked: set[bytes] = set()  # and whose ack was receipted
        self.ack_sent: set[bytes] = set()

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
                records.heard.add(frame.body)
                assert frame.body not in records.acked, "settled, and it came back"
                if number % 7 == 3:
                    self.wire.say("NACK", id=frame.headers["ack"])
                elif number % 31 != 5:
                    waiting[str(number)] = frame.body
                    records.ack_sent.add(frame.body)
                    self.wire.say("ACK", id=frame.headers["ack"], receipt=str(number))
            records.note()


def replay(broker: BrokerProcess, destination: str) -> dict[int, bytes]:
    """Everything that the log has, by offset."""
    found: dict[int, bytes] = {}
    with Wire(broker) as wire:
        wire.open().say("SUBSCRIBE", destination=destination, id="0", start_position="first", stop_position="end")
        while "replay-end" not in (message := wire.hear("MESSAGE")).headers:
            found[int(message.headers["offset"])] = message.body
    return found


def drain(broker: BrokerProcess, destination: str = QUEUE) -> list[tuple[bytes, bool]]:
    """Everything that waits in the queue, acknowledged: (body, redelivered)."""
    found: list[tuple[bytes, bool]] = []
    with Wire(broker) as wire:
        wire.open()
        wire.say("SEND", b"the end", destination=destination, receipt="r")
        wire.hear("RECEIPT")
        wire.say("SUBSCRIBE", destination=destination, id="0", ack="client-individual", prefetch_count="500")
        while (message := wire.hear("MESSAGE")).body != b"the end":
            found.append((message.body, "redelivered" in message.headers))
            wire.say("ACK", id=message.headers["ack"])
        wire.say("ACK", id=message.headers["ack"], receipt="last")
        wire.hear("RECEIPT", receipt_id="last")
    return found
