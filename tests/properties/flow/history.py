"""One seed, one history: clients do whatever they may in any order, while the broker's turn is cut into its steps.

Everything is drawn from ``Random(seed)``, so a seed that fails fails again, and the text of the violation says what
happened before. One operation is one thing that a client does, a lost connection included.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from random import Random
from typing import Any

from radiator.stomp.frames import Frame
from tests.broker.harness import Client as Connection
from tests.broker.harness import World
from tests.properties.flow.model import Client, Model, Subscription, Violation

OPERATIONS = 250
CONFIG = """
defaults: {redeliver: {delay: 0ms}}
destinations:
  - {match: /queue/wide, prefetch: 5}
  - {match: '/queue/parts,/topic/parts', partitions: 2}
  - {match: /queue/lanes, priority: true}
  - {match: '/queue/shared.*,/topic/shared', partition: shared}
  - {match: '/queue/memory,/topic/memory', store: memory}
"""
QUEUES = ["a", "b", "wide", "parts", "lanes", "memory", "shared.x", "shared.y", "late.1", "late.2"]
TOPICS = ["a", "parts", "memory", "shared", "late.1"]
NAMES = [*(f"/queue/{each}" for each in QUEUES), *(f"/topic/{each}" for each in TOPICS)]
BUSY = ["/queue/a", "/queue/b", "/queue/shared.x", "/queue/lanes"]
PRIORITIES = [0, 4, 4, 9]
PATTERNS = [
    *NAMES,
    *BUSY,
    *BUSY,
    "/queue/*",
    "/queue/shared.*",
    "/queue/late.*",
    "/topic/*",
    "/queue/a,/queue/b",
    "/queue/wide,/topic/a",
    "/queue/shared.*,/topic/*",
]
FORGOTTEN = {"/queue/memory", "/topic/memory"}
CLIENTS = 5
SUBSCRIPTIONS_MAX = 4
MODES = ["client-individual", "client-individual", "client", "auto"]
WEIGHTS = {
    "send": 34,
    "ack": 26,
    "nack": 8,
    "ack twice": 1,
    "subscribe": 7,
    "unsubscribe": 4,
    "begin": 4,
    "commit": 3,
    "abort": 1,
    "drop": 3,
    "disconnect": 1,
    "wrong ack": 0.3,
    "restart": 0.2,
}


@dataclass(eq=False)
class Person:
    """A client: its connection, what the model knows of it, and what it has not committed yet."""

    connection: Connection
    known: Client
    messages: dict[tuple[str, int], Frame] = field(default_factory=dict)  # by subscription and number
    answered: list[Frame] = field(default_factory=list)
    transactions: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    serial: int = 0

    def next(self) -> str:
        self.serial += 1
        return str(self.serial)


class History:
    """``run`` raises Violation."""

    def __init__(self, seed: int, operations: int = OPERATIONS) -> None:
        self.random = Random(seed)
        self.operations = operations
        self.trace: deque[str] = deque(maxlen=80)
        self.counts: Counter[str] = Counter()
        self.world = World(CONFIG, tail_bytes_max=self.random.choice([1, 64 << 20]))
        self.model = Model({"/queue/wide": 5})
        self.people: list[Person] = []
        self.names = 0
        self.bodies = 0
        self.number_of: dict[bytes, int] = {}
        self.crowded = self.random.random() < 0.5  # few destinations: everybody meets everybody
        for _ in range(CLIENTS):
            self._join()
        for name in NAMES:  # else what rules say of a pattern depends on who was there first
            if "late" not in name:
                self._publish(self.people[0], name, None)

    def run(self) -> None:
        try:
            for what in self.random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=self.operations):
                self.counts[what] += 1
                self._operation(what)
                self._turns()
            self._end()
        except AssertionError as violation:  # of the harness: it does not come to rest
            raise Violation(f"{violation}\nbefore that:\n  " + "\n  ".join(self.trace)) from None
        self.counts += self.model.counts

    def _operation(self, what: str) -> None:
        if what == "restart":
            self._restart()
            return
        person = self.random.choice(self.people)
        if what == "drop":
            self._drop(person)
            return
        self._hear(person)
        getattr(self, "_" + what.replace(" ", "_"))(person)

    # --- what clients do ----------------------------------------------------------------------------------------------

    def _join(self) -> None:
        cap = self.random.choice([None, None, None, 1, 2, 4])
        version = self.random.choice(["1.0", "1.1", "1.2", "1.2", "1.2"])
        headers = {} if cap is None else {"max_in_flight": str(cap)}
        self.names += 1
        known = Client(f"c{self.names}", cap)
        self.trace.append(f"{known.name} connects, {version}, cap {cap}")
        self.model.clients[known.name] = known
        person = Person(self.world.connect(version, **headers), known)
        self.people.append(person)
        for _ in range(self.random.randrange(3)):
            self._subscribe(person)

    def _say(self, person: Person, command: str, body: bytes = b"", **headers: Any) -> None:
        receipt = None
        if self.random.random() < 0.3:
            receipt = f"r{person.next()}"
            person.known.receipts.append(receipt)
        self.trace.append(f"{person.known.name} {command} {body.decode()} {headers}")
        person.connection.say(command, body, receipt, **headers)

    def _destination(self) -> str:
        return self.random.choice(BUSY if self.crowded and self.random.random() < 0.8 else NAMES)

    def _send(self, person: Person) -> None:
        destination = self._destination()
        for _ in range(self.random.choice([1, 1, 1, 2, 5])):
            self._publish(person, destination, self._transaction(person))

    def _publish(self, person: Person, destination: str, transaction: str | None) -> None:
        self.bodies += 1
        body = b"m%d" % self.bodies
        priority = self.random.choice(PRIORITIES) if destination == "/queue/lanes" else None
        more: dict[str, Any] = {} if priority is None else {"priority": priority}
        if transaction is None:
            self.number_of[body] = self.model.sent(destination, priority).number
            self._say(person, "SEND", body, destination=destination, **more)
        else:
            person.transactions[transaction].append(("SEND", (destination, priority), body))
            self._say(person, "SEND", body, destination=destination, transaction=transaction, **more)

    def _transaction(self, person: Person) -> str | None:
        open_ones = list(person.transactions)
        return self.random.choice(open_ones) if open_ones and self.random.random() < 0.6 else None

    def _held(self, person: Person) -> tuple[Subscription, int] | None:
        held = [(subscription, message.number) for subscription, message in person.known.holds()]
        return self.random.choice(held) if held else None

    def _ack(self, person: Person, command: str = "ACK") -> None:
        choice = self._held(person)
        if choice is None:
            return
        subscription, number = choice
        frame = person.messages[subscription.name, number]
        transaction = self._transaction(person)
        if transaction is None:
            self.model.answered(subscription, number, command == "ACK")
            person.answered.append(frame)
        else:
            person.transactions[transaction].append((command, subscription, number))
        self._answer(person, frame, command, transaction)

    def _nack(self, person: Person) -> None:
        self._ack(person, "NACK")

    def _ack_twice(self, person: Person) -> None:
        """Late, which changes nothing: unless the same message is held again."""
        if person.answered:
            frame = self.random.choice(person.answered[-20:])
            name, number = frame.headers["subscription"], self.number_of[frame.body]
            if not any(message.number == number for _, message in person.known.holds()):
                self.trace.append(f"late: {name} {number}")
                self._answer(person, frame, "ACK", None)

    def _answer(self, person: Person, frame: Frame, command: str, transaction: str | None) -> None:
        more = {} if transaction is None else {"transaction": transaction}
        if person.connection.version == "1.2":
            self._say(person, command, id=frame.headers["ack"], **more)
        else:
            named = {name.replace("-", "_"): frame.headers[name] for name in ("message-id", "subscription")}
            self._say(person, command, **named, **more)

    def _subscribe(self, person: Person) -> None:
        if len(person.known.subscriptions) >= SUBSCRIPTIONS_MAX:
            return
        text = self.random.choice(BUSY if self.crowded and self.random.random() < 0.7 else PATTERNS)
        mode = self.random.choice(MODES)
        asked = self.random.choice([None, None, None, 1, 2, 3, 10])
        name = f"s{person.next()}"
        self.model.subscribed(person.known, name, text, mode, asked)
        more = {} if asked is None else {"prefetch_count": asked}
        self._say(person, "SUBSCRIBE", destination=text, id=name, ack=mode, **more)

    def _unsubscribe(self, person: Person) -> None:
        if person.known.subscriptions:
            subscription = self.random.choice(list(person.known.subscriptions.values()))
            self.model.unsubscribed(subscription)
            self._say(person, "UNSUBSCRIBE", id=subscription.name)

    def _begin(self, person: Person) -> None:
        name = f"t{person.next()}"
        person.transactions[name] = []
        self._say(person, "BEGIN", transaction=name)

    def _commit(self, person: Person) -> None:
        if not person.transactions:
            return
        name = self.random.choice(list(person.transactions))
        self._say(person, "COMMIT", transaction=name)
        for what, where, which in person.transactions.pop(name):
            if what == "SEND":
                self.number_of[which] = self.model.sent(*where).number
            else:
                self.model.answered(where, which, what == "ACK")

    def _abort(self, person: Person) -> None:
        if person.transactions:
            name = self.random.choice(list(person.transactions))
            del person.transactions[name]
            self._say(person, "ABORT", transaction=name)

    # --- who goes, and who comes --------------------------------------------------------------------------------------

    def _leave(self, person: Person) -> None:
        self.model.left(person.known)
        person.connection.drop()
        self.world.clients.remove(person.connection)
        self.people.remove(person)

    def _drop(self, person: Person, stays_away: bool = False) -> None:
        """What the socket took has been heard; what waits in the broker is lost on the way."""
        connection = person.connection
        self.trace.append(f"{person.known.name} is lost")
        inbox, connection.inbox = connection.inbox, []
        self._heard(person, inbox)
        for frame in connection.end.receive(b"".join(connection.session.take_outbox())):
            if frame.command == "MESSAGE":
                self.model.lost_on_the_way(self.number_of[frame.body], *_count(frame), frame.headers["partition"])
        self._leave(person)
        if not stays_away:
            self._join()

    def _disconnect(self, person: Person) -> None:
        self._say(person, "DISCONNECT")
        self._finish_turn()
        self.world.settle()
        self._hear(person)
        self._leave(person)
        self._join()

    def _wrong_ack(self, person: Person) -> None:
        self.trace.append(f"{person.known.name} acknowledges what it was never sent")
        person.connection.say("ACK", id="nonsense", message_id="nonsense")
        self._finish_turn()
        self.world.settle()
        heard = person.connection.take()
        if [frame.headers["error-code"] for frame in heard if frame.command == "ERROR"] != ["bad-ack"]:
            raise Violation(f"{person.known.name}: a wrong ack was not answered ERROR bad-ack")
        self._heard(person, [frame for frame in heard if frame.command != "ERROR"])
        self._leave(person)
        self._join()

    def _restart(self) -> None:
        self.trace.append("restart")
        self._finish_turn()
        for person in list(self.people):
            self._drop(person, stays_away=True)
        self.world.restart()
        self.model.restarted(FORGOTTEN)
        for _ in range(CLIENTS):
            self._join()

    # --- what clients hear --------------------------------------------------------------------------------------------

    def _hear(self, person: Person) -> None:
        self._heard(person, person.connection.take())

    def _heard(self, person: Person, frames: list[Frame]) -> None:
        for frame in frames:
            if frame.command == "RECEIPT":
                self.model.receipt(person.known, frame.headers["receipt-id"])
            elif frame.command == "MESSAGE":
                if frame.body not in self.number_of:
                    raise Violation(f"{frame.body!r} came, and was never sent, or not committed")
                name, number = frame.headers["subscription"], self.number_of[frame.body]
                self.trace.append(f"{person.known.name}/{name} hears {frame.body.decode()}, number {number}")
                where = frame.headers["destination"], frame.headers["partition"]
                self.model.delivered(person.known, name, number, *where, *_count(frame))
                person.messages[name, number] = frame
            else:
                raise Violation(f"{person.known.name} hears {frame.command} {dict(frame.headers)}")

    # --- the broker ---------------------------------------------------------------------------------------------------

    def _turns(self) -> None:
        world = self.world
        for _ in range(self.random.randrange(3)):
            step = self.random.choice(["take", "finish", "finish", "pump", "pump", "reads", "flush", "memory"])
            if step == "take":
                if not world.jobs:
                    world.take()
            elif step == "finish":
                self._finish_turn()
            elif step == "flush":
                self.random.choice(self.people).connection.flush()
            elif step == "memory":
                if world.jobs:
                    world.broker.take_finished(world.now)
            else:
                getattr(world, step)()
        if self.random.random() < 0.2:
            self._rest()

    def _finish_turn(self) -> None:
        self.world.write()
        self.world.sync()
        self.world.completed()

    def _rest(self) -> None:
        self.trace.append("rest")
        self._finish_turn()
        self.world.settle()
        for person in self.people:
            self._hear(person)
        self.model.rests()

    def _end(self) -> None:
        """Everybody leaves, and one client takes what is left: nothing is missing."""
        self._rest()
        for person in list(self.people):
            self._drop(person, stays_away=True)
        self._join()
        (last,) = self.people
        for subscription in list(last.known.subscriptions.values()):
            self.model.unsubscribed(subscription)
            self._say(last, "UNSUBSCRIBE", id=subscription.name)
        self.model.subscribed(last.known, "last", "/queue/*,/queue/*.*", "auto", None)
        self._say(last, "SUBSCRIBE", destination="/queue/*,/queue/*.*", id="last", ack="auto")
        self._rest()
        left = [str(each) for waiting in self.model.waiting.values() for each in waiting.values()]
        if left:
            raise Violation(f"never came: {left[:10]}")
        self._drop(last, stays_away=True)
        self.world.settle()
        self.world.holds_nothing()


def _count(frame: Frame) -> tuple[int, bool]:
    return int(frame.headers.get("delivery-count", 1)), frame.headers.get("redelivered") == "true"
