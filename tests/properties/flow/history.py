"""One history from one seed: clients act in any order, while the broker's turn is cut into its steps.

Everything is drawn from ``Random(seed)``, so a failing seed fails again. The text of the violation lists the steps
before it. One operation is one act of a client, a lost connection or the passing of time. A history first draws its
destinations and features: few of each, so that they interact.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from unittest.mock import patch

from radiator import limits
from radiator.broker.delivery import selective
from radiator.stomp.frames import Frame
from tests.broker.harness import World
from tests.broker.reloading import reload
from tests.properties.flow import rules
from tests.properties.flow.acts import Acts, Person
from tests.properties.flow.model import Model
from tests.properties.flow.parts import Client, Message, Violation

OPERATIONS = 250
CLIENTS = 5
FEATURES = ["selectors", "time", "exclusive", "names"]
WEIGHTS = {
    "send": 34,
    "ack": 26,
    "nack": 8,
    "reject": 1,
    "nack for later": 1,
    "touch": 1,
    "long work": 1,
    "ack twice": 1,
    "subscribe": 7,
    "unsubscribe": 4,
    "begin": 4,
    "commit": 3,
    "abort": 1,
    "drop": 3,
    "disconnect": 1,
    "wait": 1,
    "wrong ack": 0.3,
    "restart": 0.2,
}


RELOADS = 0.01  # after an operation


class History(Acts):
    """A history. ``run`` raises Violation."""

    def __init__(self, seed: int, operations: int = OPERATIONS) -> None:
        self.random = Random(seed)
        self.reloads = Random(-1 - seed)  # of its own, so that the other draws are those of histories without reloads
        self.operations = operations
        self.found_max, self.again_max = (2, 1) if seed % 2 else (limits.SKIPPED_FOUND_MAX, selective.AGAIN_MAX)
        self.trace = deque(maxlen=80)
        self.counts: Counter[str] = Counter()
        self.world = World(rules.CONFIG, tail_bytes_max=self.random.choice([1, 64 << 20]))
        self.model = Model()
        self.people = []
        self.joined = 0
        self._choose()
        for _ in range(CLIENTS):
            self._join()
        for name in rules.NAMES:  # else the window of a pattern depends on which destination was created first
            if "late" not in name:
                self.publish(self.people[0], name, None)

    def _choose(self) -> None:
        """Draw the destinations and the features."""
        self.features = {each for each in FEATURES if self.random.random() < 0.35}
        self.names, self.patterns, self.naming = rules.NAMES, rules.PATTERNS, []
        if self.random.random() < 0.75:  # few destinations, so that clients interact
            few = self.random.sample(rules.NAMES, 5)
            for name in list(few):
                few += [child for child in rules.rule_of(name).children if not rules.rule_of(child).is_twin]
            twins = [rules.TWINS] if "/queue/pair" in few else []
            graves = [grave for name in few if (grave := rules.rule_of(name).dead_letter) is not None]
            wanted = [*(name for name in few if name not in ("/queue/parent", "/queue/pair")), *twins]
            self.names = [*few, *few, *few, *self.random.sample(rules.NAMES, 2)]
            self.patterns = [*wanted, *wanted, *graves, *self.random.sample(rules.PATTERNS, 4)]
        often = {"wait", "long work", "nack for later"} if "time" in self.features else set()
        self.weights = [3 * weight if what in often else weight for what, weight in WEIGHTS.items()]
        if "names" in self.features:
            self.naming = self.random.sample(rules.NAMED, 3)
            self.names = [*self.names, *(each for naming in self.naming for each in naming.topics)]

    def run(self) -> None:
        """Run the history. With every other seed, one call of a queue with selectors is bound to a few messages."""
        with patch.object(limits, "SKIPPED_FOUND_MAX", self.found_max):
            with patch.object(selective, "AGAIN_MAX", self.again_max):
                self._run()

    def _run(self) -> None:
        try:
            for what in self.random.choices(list(WEIGHTS), self.weights, k=self.operations):
                self.counts[what] += 1
                self._operation(what)
                if self.reloads.random() < RELOADS:
                    self._reload()
                self._turns()
            self._end()
        except AssertionError as violation:  # of the harness: the broker does not come to rest
            raise Violation(f"{violation}\nbefore that:\n  " + "\n  ".join(self.trace)) from None
        self.counts += self.model.counts

    def _operation(self, what: str) -> None:
        if what == "restart":
            self._restart()
            return
        if what == "wait":
            self._wait()
            return
        person = self.random.choice(self.people)
        if what == "drop":
            self._drop(person)
            return
        self.hear(person)
        getattr(self, "_" + what.replace(" ", "_"))(person)

    # --- who goes, and who comes --------------------------------------------------------------------------------------

    def _join(self) -> None:
        cap = self.random.choice([None, None, None, 1, 2, 4])
        version = self.random.choice(["1.0", "1.1", "1.2", "1.2", "1.2"])
        headers = {} if cap is None else {"max_in_flight": str(cap)}
        self.joined += 1
        known = Client(f"c{self.joined}", cap)
        self.trace.append(f"{known.name} connects, {version}, cap {cap}")
        self.model.clients[known.name] = known
        person = Person(self.world.connect(version, **headers), known)
        self.people.append(person)
        for _ in range(self.random.randrange(3)):
            if person in self.people:  # or a later one has taken over its durable subscription already
                self._subscribe(person)

    def _leave(self, person: Person) -> None:
        self.model.left(person.known)
        person.connection.drop()
        self.world.clients.remove(person.connection)
        self.people.remove(person)

    def _drop(self, person: Person, stays_away: bool = False) -> None:
        """Lose a connection. Bytes that the socket took were received; bytes that wait in the broker are lost."""
        connection = person.connection
        self.trace.append(f"{person.known.name} is lost")
        inbox, connection.inbox = connection.inbox, []
        self._heard(person, inbox)
        for frame in connection.end.receive(b"".join(connection.session.outbox.take())):
            if frame.command == "MESSAGE":
                message, where = self._message(frame), frame.headers["partition"]
                self.model.lost_on_the_way(person.known, frame.headers["subscription"], message, where, *_count(frame))
        self._leave(person)
        if not stays_away:
            self._join()

    def _disconnect(self, person: Person) -> None:
        self.say(person, "DISCONNECT")
        self._finish_turn()
        self.world.settle()
        self.hear(person)
        self._leave(person)
        self._join()

    def _goes(self, person: Person) -> None:
        """Let a client go whose durable subscription is about to be taken over."""
        self.hear(person)
        self.model.left(person.known)
        self.people.remove(person)

    def _has_gone(self, person: Person) -> None:
        self._finish_turn()
        self.world.settle()
        heard = person.connection.take()
        if [frame.headers.get("error-code") for frame in heard if frame.command != "RECEIPT"] != ["taken-over"]:
            raise Violation(f"{person.known.name}: its name was taken over, and it hears {heard}")
        person.connection.drop()
        self.world.clients.remove(person.connection)
        self.counts["taken over"] += 1
        self._join()

    def _wrong_ack(self, person: Person) -> None:
        self.trace.append(f"{person.known.name} acknowledges what it was never sent")
        person.connection.say("ACK", id="nonsense", message_id="nonsense")
        self._is_refused(person, "bad-ack")

    def _is_refused(self, person: Person, code: str) -> None:
        self._finish_turn()
        self.world.settle()
        self._ends_with(person, code)
        self.counts[code] += 1
        self._leave(person)
        self._join()

    def _ends_with(self, person: Person, code: str) -> None:
        heard = person.connection.take()
        if [frame.headers["error-code"] for frame in heard if frame.command == "ERROR"] != [code]:
            raise Violation(f"{person.known.name}: was not answered ERROR {code}")
        self._heard(person, [frame for frame in heard if frame.command != "ERROR"])

    def _restart(self) -> None:
        self.trace.append("restart")
        self._finish_turn()
        for person in list(self.people):
            self._drop(person, stays_away=True)
        self.world.restart()
        self.model.restarted(rules.FORGOTTEN)
        for _ in range(CLIENTS):
            self._join()

    def _reload(self) -> None:
        """The other configuration, which means the same for all clients: other places of rules, other settings."""
        self.trace.append("reload")
        text = rules.CONFIG if self.world.config.rules[0].match == rules.NEVER else rules.OTHER_CONFIG
        changes = reload(self.world, text)
        if not changes or any(change.refused for change in changes):
            raise Violation(f"a reload was refused: {changes}")

    # --- what clients hear --------------------------------------------------------------------------------------------

    def hear(self, person: Person) -> None:
        self._heard(person, person.connection.take())
        for each in person.known.subscriptions.values():
            each.grace = False

    def _heard(self, person: Person, frames: list[Frame]) -> None:
        for frame in frames:
            if frame.command == "RECEIPT":
                self.model.receipt(person.known, frame.headers["receipt-id"])
            elif frame.command == "MESSAGE":
                message, name = self._message(frame), frame.headers["subscription"]
                self.trace.append(f"{person.known.name}/{name} hears {frame.body.decode()}, {message}")
                where = frame.headers["destination"], frame.headers["partition"]
                number = int(frame.headers.get("ack", "-1").rpartition("-")[2])
                entry = self.model.delivered(person.known, name, message, *where, number, *_count(frame))
                person.messages[name, entry.key] = frame
            else:
                raise Violation(f"{person.known.name} hears {frame.command} {dict(frame.headers)}")

    def _message(self, frame: Frame) -> Message:
        destination = frame.headers["destination"]
        if "dlq-reason" in frame.headers:
            return self.model.heard_dead(frame.body, destination, frame.headers)
        message = self.model.of_body.get((frame.body, destination))
        if message is None:
            raise Violation(f"{frame.body!r} came from {destination}, and was never sent, or not committed")
        return message

    # --- the broker ---------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Let a step of time pass. Earlier deliveries are received before, so that their step is certain."""
        for person in self.people:
            self.hear(person)
        self.trace.append("a while passes")
        self.world.now += rules.WHILE_NS
        self.world.broker.tick(self.world.time)
        self.model.time_passed()

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
                    world.broker.take_finished(world.time)
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
            self.hear(person)
        self.model.rests()

    def _end(self) -> None:
        """Disconnect all clients, and check that one client gets all that is left."""
        self._rest()
        for person in list(self.people):
            self._drop(person, stays_away=True)
        self._join()
        (last,) = self.people
        for subscription in list(last.known.subscriptions.values()):
            self.model.unsubscribed(subscription)
            self.say(last, "UNSUBSCRIBE", id=subscription.name)
        for number, text in enumerate(rules.EVERYTHING):
            self._takes_all(last, f"last{number}", text, None)
        for naming in [each.naming for each in self.model.backlogs.values() if each.naming is not None]:
            self._takes_all(last, naming.name, naming.destinations, naming)
        self._rest()
        for _ in range(max(rules.DELAYS)):  # the message with the longest delay
            self._wait()
            self._rest()
        left = [str(each) for backlog in self.model.backlogs.values() for each in self.model.owed(backlog)]
        if left:
            raise Violation(f"never came: {left[:10]}")
        self._drop(last, stays_away=True)
        self.world.settle()
        self.world.holds_nothing()

    def _takes_all(self, person: Person, name: str, text: str, naming: rules.Naming | None) -> None:
        selector = None if naming is None else naming.selector
        self.model.subscribed(person.known, name, text, "auto", None, selector, naming=naming)
        more = {} if naming is None else dict(naming.headers)
        if selector is not None:
            more["selector"] = selector
        self.say(person, "SUBSCRIBE", destination=text, id=name, ack="auto", **more)


def _count(frame: Frame) -> tuple[int, bool]:
    return int(frame.headers.get("delivery-count", 1)), frame.headers.get("redelivered") == "true"
