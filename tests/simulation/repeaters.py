"""Producers and workers that repeat messages, under rules that change with each start.

The checks: a message that was receipted under ``always``, or sent with ``durability: fsync``, survives every power
failure, whichever client sent the first copy and under which rule. A COMMIT is stored together with the messages that
it repeats. An input is not settled without the output that was made from it.

The destinations count as weak, so ``checkers`` expect only these messages after a power failure
(``Checkers.durable``).
"""

from __future__ import annotations

from random import Random

from radiator.stomp.frames import Frame
from tests.broker.harness import World
from tests.simulation.actors import Consumer, Producer
from tests.simulation.checkers import Checkers

INPUT = "/queue/in"  # always under ``fsync: always``
OUTPUTS = ["/queue/weak-a", "/topic/weak-b", "/topic/weak-c"]
POLICIES = [
    ("never", "never", "2s"),
    ("always", "never", "never"),
    ("2s", "always", "never"),
    ("never", "2s", "always"),
]
KNOWN_MAX = 30


def config(policies: tuple[str, ...]) -> str:
    """Return the rules of one start: the ``fsync`` of each output."""
    defaults = "{segment: {size: 64KiB}, retention: {acked: keep}, dedup: {window: 36500d}}"
    roll = 'segment: {roll_at: "06:00"}'
    rules = [f"  - {{match: {name}, fsync: {each}, {roll}}}" for name, each in zip(OUTPUTS, policies, strict=True)]
    return "\n".join([f"defaults: {defaults}", "destinations:", *rules])


CONFIGS = [config(each) for each in POLICIES]


def durability(random: Random, again: bool) -> dict[str, str]:
    """Return the header ``durability``, rarely for a first copy, because one sync covers the whole file."""
    return {"durability": "fsync"} if random.random() < (0.4 if again else 0.03) else {}


def is_synced(world: World, frame: Frame, asked: bool) -> bool:
    """Return whether this RECEIPT, of a SEND, promises a sync."""
    return asked or bool(world.store.partitions[frame.headers["partition"]].settings.sync.always)


class Repeater(Producer):
    """Sends messages, most of them with ids, and repeats these: alone, or in a transaction with new ones."""

    def __init__(self, name: str, world: World, random: Random, checkers: Checkers) -> None:
        super().__init__(name, world, random, checkers)
        self.destinations = self.one_log = [INPUT, *OUTPUTS]
        self.known: dict[bytes, dict[str, str]] = {}  # body -> headers, of what was receipted

    def opened(self) -> None:
        self.asked: set[str] = set()  # receipts of SENDs that are to be synced
        super().opened()

    def act(self) -> None:
        if self.known and self.random.random() < 0.15 and len(self.waiting) <= 20:
            body = self.random.choice(list(self.known))
            self.checkers.sent_again.add(body)
            self._send(body, self.known[body])
        else:
            super().act()

    def _headers(self, destination: str, body: bytes) -> dict[str, str]:
        if self.random.random() < 0.2:
            return {}
        headers = self._identity(body)
        self.unsure[body] = {"destination": destination} | headers
        return headers

    def _send(self, body: bytes, headers: dict[str, str]) -> None:
        asked, before = durability(self.random, again=body in self.checkers.sent_again), self.serial
        super()._send(body, headers | asked)
        if asked and self.serial > before:  # else it asked for no receipt
            self.asked.add(f"{self.name}-{self.serial}")

    def _transaction(self) -> None:
        name = self.new_receipt()
        self.say("BEGIN", transaction=name)
        sent, repeated = [], []
        for _ in range(self.random.randrange(3)):
            destination = self.random.choice(self.destinations)
            sent.append(self._body(destination, name))
            self.say("SEND", sent[-1], destination=destination, transaction=name)
        before = list((self.known | self.unsure).items())
        for body, headers in self.random.sample(before, min(len(before), self.random.randrange(1, 3))):
            repeated.append(body)
            self.checkers.sent_again.add(body)
            self.say("SEND", body, **headers, transaction=name)
        receipt = self.new_receipt()
        self.say("COMMIT", transaction=name, receipt=receipt)
        self.checkers.begun(name, sent, repeated=repeated)
        self.committing[receipt] = name

    def heard(self, frame: Frame) -> None:
        body = self.waiting.get(frame.headers.get("receipt-id", ""), b"")
        headers = self.unsure.get(body)
        super().heard(frame)
        if not body:
            return
        if headers is not None:
            self.known[body] = headers
            if len(self.known) > KNOWN_MAX:
                del self.known[next(iter(self.known))]
        if is_synced(self.world, frame, frame.headers["receipt-id"] in self.asked):
            self.checkers.durable(body)


class Worker(Consumer):
    """Makes an output from each input. It usually sends the output, and then repeats it together with the ACK."""

    def opened(self) -> None:
        self.sends: dict[str, tuple[bytes, bool]] = {}  # by receipt: what was sent, and is to be synced
        super().opened()

    def _subscribe(self) -> None:
        self.subscription += 1
        self.mode = "client-individual"
        self.window = self.random.choice([1, 2, 4])
        prefetch = None if self.window == 1 else self.window
        self.say("SUBSCRIBE", id=self.subscription, destination=INPUT, ack=self.mode, prefetch_count=prefetch)

    def heard(self, frame: Frame) -> None:
        sent = self.sends.pop(frame.headers.get("receipt-id", ""), None)
        if sent is None:
            super().heard(frame)
            return
        body, asked = sent
        self.checkers.receipted(frame.headers["partition"], int(frame.headers["offset"]), body)
        if is_synced(self.world, frame, asked):
            self.checkers.durable(body)

    def _answer(self, place: int) -> None:
        message, answered = self.let_go(place)
        producer, number = message.body.decode().split(":")[:2]
        destination = OUTPUTS[int(number) % len(OUTPUTS)]
        output = f"{producer}>:{number}:".encode()
        self.checkers.partition_of[output] = destination
        self.checkers.sent_again.add(output)  # inputs are done in any order, and by several workers
        if self.random.random() < 0.7:
            asked, receipt = durability(self.random, again=False), self.new_receipt()
            self.sends[receipt] = output, bool(asked)
            self.say("SEND", output, destination=destination, dedup_id=number + producer, receipt=receipt, **asked)
        name = self.new_receipt()
        self.say("BEGIN", transaction=name)
        self.say("SEND", output, destination=destination, dedup_id=number + producer, transaction=name)
        self.say_answer("ACK", message, transaction=name)
        receipt = self.new_receipt()
        self.say("COMMIT", transaction=name, receipt=receipt)
        acked = [self.checkers.of(each) for each in answered]
        for known in acked:
            self.checkers.answered(self, known, settles=False)
        self.checkers.begun(name, [], acked, [output])
        self.committing[receipt] = name
