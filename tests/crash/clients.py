"""The clients of a broker that is going to be killed: a process of its own, a thread and a connection for each.

    python -m tests.crash.clients DIRECTORY ROLE...

Each line on stdin begins a round: ``{"port", "round", "seed", "ends"}``. All clients connect and work until the
broker is gone; then a line on stdout says ``ended``, or what was wrong. What they were promised is in the records in
DIRECTORY (``tests/crash/record.py``); they remember nothing else from round to round.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import threading
import traceback
import zlib
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

from radiator.stomp.frames import Frame
from tests.crash.record import Event, Record, body_of, id_of
from tests.server.wire import WAIT_SECONDS, Wire

LOG, SHARED, SPREAD, TABLE = "/topic/log", "/topic/shared", "/topic/spread", "/topic/table"
WORK, JOBS, OUT = "/queue/work", "/queue/jobs", "/queue/out"
CONFIG = """
defaults: {{fsync: {policy}, segment: {{size: 128KiB}}}}
destinations:
  - {{match: /topic/shared.*, partition: shared, compress: zstd}}
  - {{match: /topic/spread, partitions: 3}}
  - {{match: /topic/table, compact_by: "header:key"}}
  - {{match: /queue/out, retention: {{acked: keep}}}}
"""
TARGETS = (LOG, JOBS, SHARED + ".a", WORK, TABLE, SPREAD, JOBS, SHARED + ".b", OUT, TABLE)
COMMITS_WAITING_MAX = 4


def key_of(ident: str) -> str:
    """Of a message to the topic that keeps the last of each key."""
    return str(zlib.crc32(ident.encode()) % 9)


class Address(NamedTuple):
    port: int


class Gone(Exception):
    """The broker is."""


class Client(threading.Thread):
    """One connection in one round."""

    def __init__(self, role: str, record: Record, command: dict[str, Any]) -> None:
        super().__init__(name=role, daemon=True)
        self.role = f"{role}.{command['round']}"
        self.record = record
        self.command = command
        self.random = random.Random(f"{command['seed']}{self.role}")
        self.failure = ""

    def connect(self) -> Wire:
        wire = Wire(Address(self.command["port"]))  # type: ignore[arg-type]
        try:
            return wire.open()
        except AssertionError as error:
            raise Gone from error

    def run(self) -> None:
        try:
            self.wire = self.connect()
            self.work()
        except TimeoutError:
            self.failure = f"{self.role}: a broker that lives said nothing for {WAIT_SECONDS:.0f} s\n"
        except (OSError, Gone):
            pass
        except BaseException:
            self.failure = traceback.format_exc()

    def work(self) -> None:
        raise NotImplementedError

    def hear(self) -> list[Frame]:
        """What comes next."""
        if not self.wire.more():
            raise Gone
        frames, self.wire.inbox = self.wire.inbox, []
        for frame in frames:
            if frame.command == "ERROR" and frame.headers["error-code"] == "shutting-down":
                raise Gone
            assert frame.command in ("MESSAGE", "RECEIPT"), frame
        return frames


class Producer(Client):
    """Sends to all destinations in turn, with receipts."""

    def work(self) -> None:
        waiting: deque[str] = deque()
        window = self.random.choice((1, 5, 40, 150))
        number = 0
        while True:
            while len(waiting) < window:
                ident = f"{self.role}:{number}"
                target = TARGETS[number % len(TARGETS)]
                headers = {SPREAD: {"partition_key": str(number % 7)}, TABLE: {"key": key_of(ident)}}.get(target, {})
                self.wire.say("SEND", body_of(ident), destination=target, receipt=ident, **headers)
                waiting.append(ident)
                number += 1
            told: list[Event] = []
            for frame in self.hear():
                ident = waiting.popleft()
                assert frame.headers["receipt-id"] == ident, "receipts come in order"
                told.append(["stored", frame.headers["partition"], int(frame.headers["offset"]), ident])
            self.record.note(told)


class Consumer(Client):
    """Takes from a queue: acks most of it, gives some back, and goes away now and then with what it holds."""

    destination, ack, prefetch = WORK, "client-individual", 40

    def work(self) -> None:
        while True:
            self.subscribe()
            held: dict[str, str] = {}  # id of the message: id for the ACK
            receipts: dict[str, list[str]] = {}
            for number in range(self.random.randrange(20, 400)):
                for frame in self.hear():
                    if frame.command == "RECEIPT":
                        self.record.note([["acked", receipts.pop(frame.headers["receipt-id"])]])
                    else:
                        self.take(frame, held)
                if held:
                    self.settle(number, held, receipts)
            self.record.note([["back", [*held, *itertools.chain(*receipts.values())]]])
            self.wire.close()  # ACKs on their way may be lost by this
            self.wire = self.connect()

    def subscribe(self) -> None:
        window = str(self.prefetch)
        self.wire.say("SUBSCRIBE", destination=self.destination, id="0", ack=self.ack, prefetch_count=window)

    def take(self, frame: Frame, held: dict[str, str]) -> None:
        headers = frame.headers
        ident = id_of(frame.body)
        again = int("redelivered" in headers)
        self.record.note([["got", ident, again, headers["partition"], int(headers["offset"])]])
        held[ident] = headers["ack"]

    def settle(self, number: int, held: dict[str, str], receipts: dict[str, list[str]]) -> None:
        for ident in list(held):
            chance = self.random.random()
            if chance < 0.1:
                self.record.note([["back", [ident]]])
                self.wire.say("NACK", id=held.pop(ident))
            elif chance < 0.9:
                self.record.note([["acking", [ident]]])
                receipts[ident] = [ident]
                self.wire.say("ACK", id=held.pop(ident), receipt=ident)


class Gatherer(Consumer):
    """The same with cumulative ACKs."""

    destination, ack, prefetch = OUT, "client", 100

    def settle(self, number: int, held: dict[str, str], receipts: dict[str, list[str]]) -> None:
        if len(held) > self.random.randrange(50):
            last = self.random.choice(list(held))
            settled = list(held)[: list(held).index(last) + 1]
            self.record.note([["acking", settled]])
            receipts[last] = settled
            self.wire.say("ACK", id=held[last], receipt=last)
            for ident in settled:
                del held[ident]


class Mover(Consumer):
    """Transactions: takes from a queue, sends to one or more other destinations, and settles what it took."""

    destination, prefetch = JOBS, 30

    def work(self) -> None:
        self.subscribe()
        held: dict[str, str] = {}
        waiting: set[str] = set()
        number = 0
        while True:
            for frame in self.hear():
                if frame.command == "RECEIPT":
                    waiting.remove(frame.headers["receipt-id"])
                    self.record.note([["committed", frame.headers["receipt-id"]]])
                else:
                    self.take(frame, held)
            while len(held) > 2 and len(waiting) < COMMITS_WAITING_MAX:
                number += 1
                self.move(f"{self.role}:{number}", held, waiting)

    def move(self, name: str, held: dict[str, str], waiting: set[str]) -> None:
        targets = self.random.sample((LOG, OUT, SHARED + ".b", SPREAD, WORK), self.random.randrange(4))
        acks = self.random.sample(list(held), self.random.randrange(0 if targets else 1, 3))
        sends = [f"{name}{place}" for place in range(len(targets))]  # numbers that rise, and do not repeat
        self.wire.say("BEGIN", transaction=name)
        for ident, target in zip(sends, targets, strict=True):
            self.wire.say("SEND", body_of(ident), destination=target, transaction=name)
        for ident in acks:
            self.wire.say("ACK", id=held[ident], transaction=name)
        if self.random.random() < 0.1:
            self.record.note([["aborting", sends]])
            self.wire.say("ABORT", transaction=name)
            return
        self.record.note([["committing", name, sends, acks]])
        waiting.add(name)
        self.wire.say("COMMIT", transaction=name, receipt=name)
        for ident in acks:
            del held[ident]


class Reader(Client):
    """Replays topics from somewhere in their history, and goes on with what comes."""

    def work(self) -> None:
        destination, partition = self.random.choice(((LOG, LOG), (SHARED + ".*", "shared")))
        start = max(0, self.command["ends"].get(partition, 0) - self.random.randrange(300))
        self.wire.say("SUBSCRIBE", destination=destination, id="0", start_position=f"offset:{start}")
        while True:
            told: list[Event] = []
            for frame in self.hear():
                headers = frame.headers
                assert int(headers["offset"]) == start, f"expected offset {start} of {partition}: {headers}"
                start += 1
                told.append(["seen", headers["partition"], int(headers["offset"]), id_of(frame.body)])
            self.record.note(told)


ROLES: dict[str, type[Client]] = {
    "producer": Producer, "consumer": Consumer, "gatherer": Gatherer, "mover": Mover, "reader": Reader,
}  # fmt: skip


def main(directory: Path, roles: list[str]) -> None:
    records = {role: Record(directory / f"{role}.record") for role in roles}
    for line in sys.stdin:
        command = json.loads(line)
        clients = [ROLES[role.rstrip("0123456789")](role, records[role], command) for role in roles]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        print("".join(client.failure for client in clients).replace("\n", "\r") or "ended", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
