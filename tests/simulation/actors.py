"""The clients of the simulation: producers, consumers and readers on a network that delays, cuts and loses.

Each has a connection with two pipes. Its bytes wait in ``out`` until the simulation carries some of them to the
broker, and the broker's bytes wait in the session's outbox. A connection that breaks loses both.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

from radiator.clock import NS_PER_MS
from radiator.stomp.encoder import encode
from radiator.stomp.frames import Frame
from tests.broker.harness import Client, World
from tests.simulation.checkers import CAPPED, DEAD, Checkers, Violation

PRIORITY_QUEUE, PRIORITIES = "/queue/lanes", (0, 4, 9)
QUEUES = ["/queue/strong", "/queue/weak", "/queue/memory", PRIORITY_QUEUE, *CAPPED]
TOPICS = ["/topic/strong", "/topic/weak", "/topic/memory"]
ONE_LOG = [*QUEUES, *TOPICS, "/topic/shared.a", "/topic/shared.b", "/topic/packed"]
PASSED_ON_TO = ["/topic/strong", "/topic/weak", "/queue/done"]
DESTINATIONS = [*ONE_LOG, "/topic/keyed", "/topic/state"]


class Actor:
    """A client that reconnects for ever."""

    def __init__(self, name: str, world: World, random: Random, checkers: Checkers) -> None:
        self.name = name
        self.world = world
        self.random = random
        self.checkers = checkers
        self.client: Client | None = None
        self.out = b""
        self.serial = 0
        self.connected = False

    def __repr__(self) -> str:
        return self.name

    def connect(self) -> None:
        version = self.random.choice(["1.1", "1.2", "1.2"])
        self.client = Client(self.world, version)
        self.connected = False
        self.out = encode("CONNECT", [("accept-version", version), ("host", "x")])
        self.opened()

    def opened(self) -> None:
        """Send the first frames."""

    def say(self, command: str, body: bytes = b"", **headers: Any) -> None:
        assert self.client is not None
        pairs = [(key.replace("_", "-"), str(value)) for key, value in headers.items() if value is not None]
        self.out += encode(command, pairs, body, self.client.version)

    def new_receipt(self) -> str:
        self.serial += 1
        return f"{self.name}-{self.serial}"

    # --- the network --------------------------------------------------------------------------------------------------

    def carry_out(self, size: int) -> None:
        """Carry bytes to the broker."""
        data, self.out = self.out[:size], self.out[size:]
        if data and self.client is not None:
            self.client.say_bytes(data)

    @property
    def present(self) -> bool:
        """True while it has a connection that the broker has not closed."""
        return self.client is not None and not self.client.session.closing

    @property
    def expects(self) -> bool:
        """True if the broker has bytes for it, or has closed."""
        client = self.client
        return client is not None and bool(client.wire or client.session.outbox.pieces or client.session.closing)

    def carry_in(self, size: int) -> None:
        """Carry bytes to the client."""
        client = self.client
        if client is None:
            return
        client.flush(size)
        frames, client.inbox = client.inbox, []
        for frame in frames:
            if self.client is not client:
                return
            if frame.command == "ERROR":
                self.lose()
                return
            self.heard(frame)
        session = client.session
        if session.closing and not session.outbox.pieces and not client.wire and session.receipts.empty:
            self.lose()

    def heard(self, frame: Frame) -> None:
        """Handle a received frame."""

    def act(self) -> None:
        """Do one random act."""

    def lose(self) -> None:
        """Lose the connection, on both sides."""
        client, self.client, self.out = self.client, None, b""
        if client is not None:
            client.drop()
            if client in self.world.clients:
                self.world.clients.remove(client)
        self.checkers.lost(self)

    def broker_died(self) -> None:
        self.client, self.out = None, b""

    def at_the_end(self) -> None:
        """After all faults: owners of durable subscriptions take the remaining messages."""


class Producer(Actor):
    """Sends, waits for receipts now and then, and records them. Some messages have an id;
    the producer repeats these when the connection is lost before their receipt has come."""

    number = 0

    def __init__(self, name: str, world: World, random: Random, checkers: Checkers) -> None:
        super().__init__(name, world, random, checkers)
        self.destinations, self.one_log = DESTINATIONS, ONE_LOG
        self.unsure: dict[bytes, dict[str, str]] = {}  # body -> headers, in order: maybe stored, maybe not

    def opened(self) -> None:
        self.waiting: dict[str, bytes] = {}
        self.committing: dict[str, str] = {}
        for body, headers in self.unsure.items():
            self.checkers.sent_again.add(body)
            self._send(body, headers)

    def act(self) -> None:
        if len(self.waiting) > 20:
            return
        if self.random.random() < 0.15:
            self._transaction()
            return
        for _ in range(self.random.choice([1, 1, 2, 6])):
            destination = self.random.choice(self.destinations)
            body = self._body(destination)
            headers = {"destination": destination} | self._headers(destination, body)
            self.checkers.moments.said(body, self.world.now, headers)
            self._send(body, headers)
            if body in self.unsure and self.random.random() < 0.1:
                self.checkers.sent_again.add(body)
                self._send(body, headers)

    def _headers(self, destination: str, body: bytes) -> dict[str, str]:
        """Of the message that was made last."""
        headers = self._priority(destination)
        if destination in QUEUES and self.random.random() < 0.08:
            headers["delay"] = str(self.random.choice([0, 1, 700, 5_000]))
        if destination in QUEUES and self.random.random() < 0.05:
            headers["expires"] = str(
                self.world.now // NS_PER_MS + self.random.choice([0, 900, 40_000_000, 10_000_000_000])
            )
        if destination in ("/topic/keyed", "/topic/state") and self.random.random() < 0.7:
            headers["key"] = f"k{self.random.randrange(3)}"
            self.checkers.key_of[body] = headers["key"]
        if "memory" not in destination and self.random.random() < 0.4:
            headers |= self._identity(body)
            self.unsure[body] = {"destination": destination} | headers
        return headers

    def _identity(self, body: bytes) -> dict[str, str]:
        if self.random.random() < 0.5:
            return {"dedup-id": body[:20].decode()}
        return {"producer-id": self.name, "sequence": str(self.number)}

    def _send(self, body: bytes, headers: dict[str, str]) -> None:
        receipt = self.new_receipt() if body in self.unsure or self.random.random() < 0.9 else None
        if receipt is not None:
            self.waiting[receipt] = body
        self.say("SEND", body, **headers, receipt=receipt)

    def _body(self, destination: str, transaction: str = "") -> bytes:
        self.number += 1
        size = 15_000 if self.random.random() < 0.06 else self.random.randrange(60)
        body = f"{self.name}:{self.number}:{transaction}:".encode() + b"x" * size
        if destination in self.one_log:
            self.checkers.partition_of[body] = "shared" if "shared" in destination else destination
        if destination == PRIORITY_QUEUE:
            self.checkers.partition_of[body] = f"{PRIORITY_QUEUE}-p{self._priority(destination)['priority']}"
        return body

    def _priority(self, destination: str) -> dict[str, str]:
        """Of the message that was made last."""
        return {"priority": str(PRIORITIES[self.number % 3])} if destination == PRIORITY_QUEUE else {}

    def _transaction(self) -> None:
        """Send a transaction to one destination, or to several, each in its own partition."""
        name = self.new_receipt()
        destinations = self.random.sample(self.one_log, self.random.choice([1, 1, 2, 3]))
        sends = [self.random.choice(destinations) for _ in range(self.random.randrange(1, 5))]
        bodies = []
        self.say("BEGIN", transaction=name)
        for destination in sends:
            bodies.append(self._body(destination, name))
            self.say("SEND", bodies[-1], destination=destination, transaction=name, **self._priority(destination))
        if self.random.random() < 0.2:
            self.say("ABORT", transaction=name)
            return
        receipt = self.new_receipt()
        self.say("COMMIT", transaction=name, receipt=receipt)
        self.checkers.begun(name, bodies)
        self.committing[receipt] = name

    def heard(self, frame: Frame) -> None:
        if frame.command != "RECEIPT":
            return
        receipt = frame.headers["receipt-id"]
        if receipt in self.committing:
            self.checkers.committed(self.committing.pop(receipt))
        else:
            body = self.waiting.pop(receipt)
            self.unsure.pop(body, None)
            self.checkers.receipted(frame.headers["partition"], int(frame.headers["offset"]), body)


class Holder(Actor):
    """Has messages in flight, no more than its window."""

    mode = ""
    window = 1
    held: list[Frame]

    def hold(self, frame: Frame) -> None:
        self.held.append(frame)
        if len(self.held) > self.window:
            raise Violation(f"{self} holds {len(self.held)}, its window is {self.window}")

    def let_go(self, place: int) -> tuple[Frame, list[Frame]]:
        """Return the message to answer, and all that its answer covers in this mode. They leave the window."""
        message = self.held[place]
        if self.mode == "client":
            answered, self.held = self.held[: place + 1], self.held[place + 1 :]
        else:
            answered = [self.held.pop(place)]
        return message, answered

    def say_answer(self, command: str, message: Frame, **headers: Any) -> None:
        assert self.client is not None
        if self.client.version == "1.2":
            self.say(command, id=message.headers["ack"], **headers)
        else:
            named = {key.replace("-", "_"): message.headers[key] for key in ("message-id", "subscription")}
            self.say(command, **named, **headers)


class Consumer(Holder):
    """Takes from queues, answers sooner or later, and counts its messages in flight. Some answers are transactions with
    the ACK and a message that passes it on."""

    number = 0

    def opened(self) -> None:
        self.subscription = 0
        self.committing: dict[str, str] = {}
        self.held: list[Frame] = []
        self.acking: dict[str, list[bytes]] = {}
        self.leaving = False
        self._subscribe()

    def _subscribe(self) -> None:
        self.subscription += 1
        self.mode = self.random.choice(["client", "client-individual"])
        self.window = self.random.choice([1, 1, 2, 4])
        what = self.random.choice([*QUEUES, DEAD, "/queue/*", "/queue/*", "/queue/*"])
        prefetch = None if self.window == 1 else self.window
        self.say("SUBSCRIBE", id=self.subscription, destination=what, ack=self.mode, prefetch_count=prefetch)

    def heard(self, frame: Frame) -> None:
        if frame.command == "RECEIPT" and frame.headers["receipt-id"] in self.committing:
            self.checkers.committed(self.committing.pop(frame.headers["receipt-id"]))
        elif frame.command == "RECEIPT":
            bodies = self.acking.pop(frame.headers["receipt-id"], [])
            self.checkers.settled.update(bodies)
        elif frame.command == "MESSAGE" and frame.headers["subscription"] == str(self.subscription):
            self._took(frame)

    def _took(self, frame: Frame) -> None:
        self.checkers.observed(frame.headers["partition"], int(frame.headers["offset"]), frame.body)
        fault = self.checkers.moments.fault(frame, self.world.now)
        if fault:
            raise Violation(f"{frame.body[:30]!r} {fault}")
        if self.present:
            self.checkers.taken(self, self.checkers.of(frame))
        self.hold(frame)

    def act(self) -> None:
        chance = self.random.random()
        if self.held and chance < 0.9:
            self._answer(self.random.randrange(len(self.held)))
        elif chance > 0.94 and not self.leaving:
            self.checkers.lost(self)
            self.held.clear()
            if chance > 0.98:
                self.leaving = True
                self.subscription = -1
                self.say("DISCONNECT", receipt=self.new_receipt())
            else:
                self.say("UNSUBSCRIBE", id=self.subscription)
                self._subscribe()

    def _answer(self, place: int) -> None:
        message, answered = self.let_go(place)
        if self.random.random() < 0.25:
            self._pass_on(message, answered)
            return
        command = "NACK" if self.random.random() < 0.15 else "ACK"
        receipt = self.new_receipt() if self.random.random() < 0.7 else None
        requeue = "false" if command == "NACK" and self.random.random() < 0.3 else None
        ended = []  # for good, once there is a receipt
        for each in answered:
            dropped = requeue is not None and each.headers["destination"] not in CAPPED
            known = self.checkers.of(each)
            self.checkers.answered(self, known, settles=command == "ACK" or dropped)
            if command == "ACK" or dropped:
                ended.append(known)
        if receipt is not None:
            self.acking[receipt] = ended
        self.say_answer(command, message, receipt=receipt, requeue=requeue)

    def _pass_on(self, message: Frame, answered: list[Frame]) -> None:
        name = self.new_receipt()
        self.say("BEGIN", transaction=name)
        bodies = []
        for destination in self.random.choices(PASSED_ON_TO, k=self.random.randrange(1, 4)):
            self.number += 1
            body = f"{self.name}:{self.number}:{name}:".encode()
            self.checkers.partition_of[body] = destination
            bodies.append(body)
            self.say("SEND", body, destination=destination, transaction=name)
        self.say_answer("ACK", message, transaction=name)
        receipt = self.new_receipt()
        self.say("COMMIT", transaction=name, receipt=receipt)
        acked = [self.checkers.of(each) for each in answered]
        for known in acked:
            self.checkers.answered(self, known, settles=False)
        self.checkers.begun(name, bodies, acked)
        self.committing[receipt] = name


class Reader(Actor):
    """Follows topics, continues where it stopped, and misses no message under ``fsync: always``."""

    def __init__(self, name: str, world: World, random: Random, checkers: Checkers) -> None:
        super().__init__(name, world, random, checkers)
        self.topic = random.choice([*TOPICS, "/topic/shared.*", "/topic/keyed", "/topic/packed", "/topic/state"])
        self.next: dict[str, int] = defaultdict(int)

    def opened(self) -> None:
        self.window = self.random.choice([None, 1, 5])
        self.unanswered: list[Frame] = []
        single = self.topic in TOPICS
        position = f"offset:{self.next[self.topic]}" if single and self.random.random() < 0.7 else "first"
        if position == "first":
            self.next.clear()
        mode = "auto" if self.window is None else "client-individual"
        self.say(
            "SUBSCRIBE", id="r", destination=self.topic, ack=mode, start_position=position, prefetch_count=self.window
        )

    def heard(self, frame: Frame) -> None:
        if frame.command != "MESSAGE":
            return
        partition, offset = frame.headers["partition"], int(frame.headers["offset"])
        self.checkers.observed(partition, offset, frame.body)
        expected = self.next[partition] + int(frame.headers.get("gap", 0))
        passes_over = self.topic == "/topic/state" and offset > expected  # what a later message of its key replaced
        if offset != expected and not passes_over and not (self.checkers.crashed and "weak" in partition):
            raise Violation(f"{self} expected {partition}@{expected}, got {offset}")
        if "gap" in frame.headers and self.checkers.strong(partition):
            raise Violation(f"{self} was told of a gap in {partition}")
        self.next[partition] = offset + 1
        if self.window is not None:
            self.unanswered.append(frame)
            if len(self.unanswered) > self.window:
                raise Violation(f"{self} holds {len(self.unanswered)}, its window is {self.window}")

    def broker_died(self) -> None:
        super().broker_died()
        self.next.pop("/topic/memory", None)

    def act(self) -> None:
        if self.window is not None and self.unanswered:
            message = self.unanswered.pop(self.random.randrange(len(self.unanswered)))
            assert self.client is not None
            named = {key.replace("-", "_"): message.headers[key] for key in ("message-id", "subscription")}
            self.say("ACK", **({"id": message.headers["ack"]} if self.client.version == "1.2" else named))
