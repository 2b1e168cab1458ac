"""The acts of clients, one frame each. An act goes to the broker and to the model, and does not depend on the
broker's state.

``Acts`` is the half of a history that draws the acts. ``history`` draws when the broker works, and which clients
connect and disconnect.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Any

from radiator.stomp.frames import Frame
from tests.broker.harness import Client as Connection
from tests.broker.harness import World
from tests.properties.flow import rules
from tests.properties.flow.model import Model
from tests.properties.flow.parts import Client, Key, Subscription

SUBSCRIPTIONS_MAX = 4
MODES = ["client-individual", "client-individual", "client", "auto"]


@dataclass(eq=False)
class Person:
    """A client: its connection, its state in the model, and its open transactions."""

    connection: Connection
    known: Client
    messages: dict[tuple[str, Key], Frame] = field(default_factory=dict)  # by subscription
    answered: list[tuple[Key, Frame]] = field(default_factory=list)
    transactions: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    acknowledged: list[tuple[str, Subscription, int, bool]] = field(default_factory=list)  # in these, by delivery
    serial: int = 0

    def next(self) -> str:
        self.serial += 1
        return str(self.serial)


class Acts:
    random: Random
    trace: deque[str]
    world: World
    model: Model
    people: list[Person]
    names: list[str]  # destinations of SENDs
    patterns: list[str]
    naming: list[rules.Naming]
    features: set[str]
    bodies = 0

    def hear(self, person: Person) -> None:
        raise NotImplementedError

    def _wait(self) -> None:
        raise NotImplementedError

    def _goes(self, person: Person) -> None:
        raise NotImplementedError

    def _has_gone(self, person: Person) -> None:
        raise NotImplementedError

    def _is_refused(self, person: Person, code: str) -> None:
        raise NotImplementedError

    def _finish_turn(self) -> None:
        raise NotImplementedError

    def say(self, person: Person, command: str, body: bytes = b"", /, **headers: Any) -> None:
        receipt = None
        if self.random.random() < 0.3:
            receipt = f"r{person.next()}"
            person.known.receipts.append(receipt)
        self.trace.append(f"{person.known.name} {command} {body.decode()} {headers}")
        person.connection.say(command, body, receipt, **headers)

    # --- sending ------------------------------------------------------------------------------------------------------

    def _send(self, person: Person) -> None:
        destination = self.random.choice(self.names)
        for _ in range(self.random.choice([1, 1, 1, 2, 5])):
            self.publish(person, destination, self._transaction(person))

    def publish(self, person: Person, destination: str, transaction: str | None) -> None:
        self.bodies += 1
        body = b"m%d" % self.bodies
        known, headers = self._about(destination)
        if transaction is None:
            self.model.sent(destination, body, **known)
            self.say(person, "SEND", body, destination=destination, **headers)
        else:
            person.transactions[transaction].append(("SEND", destination, body, known))
            self.say(person, "SEND", body, destination=destination, transaction=transaction, **headers)

    def _about(self, destination: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the facts of a message for the model, and its headers."""
        known: dict[str, Any] = {}
        headers: dict[str, Any] = {}
        if destination == "/queue/lanes":
            known["priority"] = headers["priority"] = self.random.choice(rules.PRIORITIES)
        if "selectors" in self.features and (colour := self.random.choice(rules.COLOURS)) is not None:
            known["colour"] = headers["colour"] = colour
        if "time" in self.features:
            if (
                destination.startswith("/queue/")
                and not rules.rule_of(destination).children
                and self.random.random() < 0.2
            ):
                known["delay"] = self.random.choice(list(rules.DELAYS))
                headers["delay"] = rules.DELAYS[known["delay"]]
            if self.random.random() < 0.2:
                known["lapses"] = self.model.now + rules.EXPIRES
                headers["expires"] = (self.world.now + rules.EXPIRES_NS) // 10**6
        return known, headers

    # --- answering ----------------------------------------------------------------------------------------------------

    def _transaction(self, person: Person) -> str | None:
        open_ones = list(person.transactions)
        return self.random.choice(open_ones) if open_ones and self.random.random() < 0.6 else None

    def _held(self, person: Person) -> tuple[Subscription, Key] | None:
        held = [(subscription, entry.key) for subscription, entry in person.known.holds()]
        return self.random.choice(held) if held else None

    def _ack(self, person: Person) -> None:
        self._answers(person, "ACK", {}, {})

    def _nack(self, person: Person) -> None:
        self._answers(person, "NACK", {}, {})

    def _reject(self, person: Person) -> None:
        self._answers(person, "NACK", {"requeue": "false"}, {"requeue": False})

    def _nack_for_later(self, person: Person) -> None:
        if "time" in self.features:
            pause = self.random.choice(list(rules.DELAYS))
            self._answers(person, "NACK", {"delay": rules.DELAYS[pause]}, {"pause": pause})

    def _answers(self, person: Person, command: str, more: dict[str, Any], known: dict[str, Any]) -> None:
        choice = self._held(person)
        if choice is None:
            return
        subscription, key = choice
        frame, delivery = person.messages[subscription.name, key], subscription.held[key].delivery
        transaction = self._transaction(person)
        if transaction is None:
            self.model.answered(subscription, key, command == "ACK", **known)
        else:
            late = self.model.transactional(subscription, key, transaction)
            if command == "ACK" or not known.get("requeue", True):
                person.acknowledged.append((transaction, subscription, delivery, late))
            person.transactions[transaction].append((command, subscription, (key, delivery), known))
            more = {**more, "transaction": transaction}
        person.answered.append((key, frame))
        self._answer(person, frame, command, more)

    def _touch(self, person: Person) -> None:
        choice = self._held(person)
        if choice is not None:
            self._touches(person, *choice)

    def _long_work(self, person: Person) -> None:
        """Work for longer than ``ack_timeout``, with ACKs with ``touch`` in between."""
        self._wait()
        timed = [(where, entry.key) for where, entry in person.known.holds() if entry.is_timed]
        if timed:
            self._touches(person, *self.random.choice(timed))
            self._wait()

    def _touches(self, person: Person, subscription: Subscription, key: Key) -> None:
        self.model.touched(subscription, key)
        self._answer(person, person.messages[subscription.name, key], "ACK", {"touch": "true"})

    def _ack_twice(self, person: Person) -> None:
        """Send an ACK twice. The late one changes nothing, unless it names a message-id that is in flight again."""
        if person.answered:
            key, frame = self.random.choice(person.answered[-20:])
            held = [entry for _, entry in person.known.holds() if entry.message.number == key[0]]
            number = int(frame.headers["ack"].rpartition("-")[2])
            if not held or (person.connection.version == "1.2" and all(each.delivery != number for each in held)):
                self.trace.append(f"late: {key}")
                self._answer(person, frame, "ACK", {})

    def _answer(self, person: Person, frame: Frame, command: str, more: dict[str, Any]) -> None:
        if person.connection.version == "1.2":
            self.say(person, command, id=frame.headers["ack"], **more)
        else:
            named = {name.replace("-", "_"): frame.headers[name] for name in ("message-id", "subscription")}
            self.say(person, command, **named, **more)

    # --- subscribing --------------------------------------------------------------------------------------------------

    def _subscribe(self, person: Person) -> None:
        if len(person.known.subscriptions) >= SUBSCRIPTIONS_MAX:
            return
        if self.naming and self.random.random() < 0.3:
            self._subscribe_by_name(person)
            return
        text = self.random.choice(self.patterns)
        if (
            text == rules.TWINS and person.connection.version != "1.2"
        ):  # of two deliveries, only an ack id says which one is meant
            return
        mode, asked, more = self._how()
        known: dict[str, Any] = {}
        if "selectors" in self.features and self.random.random() < 0.4:
            known["selector"] = more["selector"] = self.random.choice(list(rules.SELECTORS))
        alone = "exclusive" in self.features and self.random.random() < 0.3
        if alone and text != rules.TWINS:  # it is not known which client has these in flight
            known["exclusive"], more["exclusive"] = True, "true"
        name = f"s{person.next()}"
        self.model.subscribed(person.known, name, text, mode, asked, **known)
        self.say(person, "SUBSCRIBE", destination=text, id=name, ack=mode, **more)

    def _how(self) -> tuple[str, int | None, dict[str, Any]]:
        mode = self.random.choice(MODES)
        asked = self.random.choice([None, None, None, 1, 2, 3, 10])
        return mode, asked, {} if asked is None else {"prefetch_count": asked}

    def _subscribe_by_name(self, person: Person) -> None:
        naming = self.random.choice(self.naming)
        if any(each.named is not None and each.named.naming is naming for each in person.known.subscriptions.values()):
            return  # twice on one connection is an ERROR
        other = None if naming.is_group else self._user_of(naming)
        if other is not None:
            self._goes(other)
        mode, asked, more = self._how()
        if naming.selector is not None:
            more["selector"] = naming.selector
        name = f"s{person.next()}"
        self.model.subscribed(person.known, name, naming.destinations, mode, asked, naming.selector, naming=naming)
        self.say(person, "SUBSCRIBE", destination=naming.destinations, id=name, ack=mode, **naming.headers, **more)
        if other is not None:
            self._has_gone(other)

    def _user_of(self, naming: rules.Naming) -> Person | None:
        for person in self.people:
            for each in person.known.subscriptions.values():
                if each.named is not None and each.named.naming is naming:
                    return person
        return None

    def _unsubscribe(self, person: Person) -> None:
        if not person.known.subscriptions:
            return
        subscription = self.random.choice(list(person.known.subscriptions.values()))
        named, headers = subscription.named, {}
        self.model.unsubscribed(subscription)
        naming = named.naming if named is not None else None
        if naming is not None and self._user_of(naming) is None and self.random.random() < 0.3:
            headers = naming.headers
            self.model.deleted(naming)
        self.say(person, "UNSUBSCRIBE", id=subscription.name, **headers)

    # --- transactions -------------------------------------------------------------------------------------------------

    def _begin(self, person: Person) -> None:
        name = f"t{person.next()}"
        person.transactions[name] = []
        self.say(person, "BEGIN", transaction=name)

    def _commit(self, person: Person) -> None:
        if not person.transactions:
            return
        name = self.random.choice(list(person.transactions))
        self.say(person, "COMMIT", transaction=name)
        acknowledged = [each for each in person.acknowledged if each[0] == name]
        repeated = any(not self._is_held(each[1], each[2]) for each in acknowledged)
        if any(late or number in subscription.lost for _, subscription, number, late in acknowledged):
            self._is_refused(person, "bad-ack")
            return
        if repeated and person.known.may_have_lost and self._hears_an_error(person):  # it may count as a lost one
            self._is_refused(person, "bad-ack")
            return
        self.model.unpledged(person.known, name)
        for what, where, which, known in person.transactions.pop(name):
            if what == "SEND":
                self.model.sent(where, which, **known)
            elif self._is_held(where, which[1]):
                self.model.answered(where, which[0], what == "ACK", **known)
            else:
                self.model.counts["late"] += 1

    def _is_held(self, subscription: Subscription, number: int) -> bool:
        return any(entry.delivery == number for entry in subscription.held.values())

    def _hears_an_error(self, person: Person) -> bool:
        self._finish_turn()
        self.world.settle()
        return any(frame.command == "ERROR" for frame in person.connection.inbox)

    def _abort(self, person: Person) -> None:
        if person.transactions:
            name = self.random.choice(list(person.transactions))
            del person.transactions[name]
            self.model.unpledged(person.known, name)
            self.say(person, "ABORT", transaction=name)
