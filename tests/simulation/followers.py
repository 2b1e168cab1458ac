"""Durable subscriptions in the simulation: each follower has one, loses connections and brokers, and comes back.

The promise, whatever happens to processes, disks and machines: every message of its topics is delivered until it is
acknowledged with a receipt, and not after that. Within a log, messages without ``redelivered`` come in order. A
follower subscribes with ``start-position:first`` each time, so a subscription that a crash has taken before its
receipt begins at the same place again. *Rivals* use the same durable subscription, take it over from each other, and
have a selector.
"""

from __future__ import annotations

from random import Random
from typing import Any

from radiator.stomp.frames import Frame
from tests.broker.harness import World
from tests.simulation.actors import Holder
from tests.simulation.checkers import Checkers, Violation
from tests.simulation.ledgers import Ledger, Place, place_of
from tests.simulation.pickers import SELECTORS
from tests.storage.driving import read_all

TOPICS = ("/topic/strong", "/topic/shared.*", "/topic/shared.a", "/topic/keyed")


class Follower(Holder):
    """A durable subscriber of topics under ``fsync: always``."""

    selector = ""

    def __init__(self, name: str, world: World, random: Random, checkers: Checkers) -> None:
        super().__init__(name, world, random, checkers)
        self.topic = self.choose_topic()
        self.ledger = Ledger(name, checkers)
        self.window = 1

    def choose_topic(self) -> str:
        return self.random.choice(TOPICS)

    def opened(self) -> None:
        self.window = self.random.choice([1, 2, 5])
        self.held: list[Frame] = []
        self.last: dict[str, int] = {}
        self.acking: dict[str, tuple[set[Place], int]] = {}
        self.mode = self.random.choice(["client", "client-individual"])
        self.subscribe()

    def subscribe(self) -> None:
        self.asking = self.new_receipt()
        self.say(
            "SUBSCRIBE",
            id="f",
            destination=self.topic,
            ack=self.mode,
            subscription_name=self.ledger.name,
            start_position="first",
            prefetch_count=self.window,
            selector=self.selector or None,
            receipt=self.asking,
        )

    def heard(self, frame: Frame) -> None:
        if frame.command == "RECEIPT":
            self.ledger.receipted(*self.acking.pop(frame.headers["receipt-id"], (set(), 0)))
        elif frame.command == "MESSAGE":
            self._took(frame)

    def _took(self, frame: Frame) -> None:
        place = place_of(frame)
        self.checkers.observed(*place, frame.body)
        if not self._wants(frame.body):
            raise Violation(f"{place} came to {self}, who wants {self.selector}")
        if self.present:
            self.ledger.taken(self, frame)
        if "redelivered" not in frame.headers:
            if self.last.get(place[0], -1) >= place[1]:
                raise Violation(f"{place} came to {self} behind {self.last[place[0]]}")
            self.last[place[0]] = place[1]
        self.hold(frame)

    def act(self) -> None:
        chance = self.random.random()
        if self.held and chance < 0.93:
            self._answer(self.random.randrange(len(self.held)))
        elif chance > 0.97:
            self.lose()

    def _answer(self, place: int) -> None:
        message, answered = self.let_go(place)
        command = "NACK" if self.random.random() < 0.1 else "ACK"
        receipt = self.new_receipt() if self.random.random() < 0.7 else None
        places = set(map(place_of, answered))
        self.ledger.answered(self, places, settles=command == "ACK")
        if command == "ACK" and receipt is not None:
            self.acking[receipt] = places, self.ledger.lives
        self.say_answer(command, message, receipt=receipt)

    def _wants(self, body: bytes) -> bool:
        return SELECTORS[self.selector](self.checkers.headers_of.get(body, {}))

    def lose(self) -> None:
        super().lose()
        self.ledger.left(self)

    def broker_died(self) -> None:
        super().broker_died()
        self.ledger.died()

    def at_the_end(self) -> None:
        """Connect once more and get all that is left."""
        world = self.world
        client = world.connect()
        more = {"selector": self.selector} if self.selector else {}
        client.subscribe(self.topic, "f", subscription_name=self.ledger.name, start_position="first", **more)
        drained: list[Frame] = []
        while True:
            world.settle()
            messages = client.messages()
            if not messages:
                break
            for message in messages:
                drained.append(message)
                client.ack(message)
        client.drop()
        if not all(self._wants(message.body) for message in drained):
            raise Violation(f"{self} was sent what it does not want in the end")
        self.ledger.at_the_end(drained, self._stored())

    def _stored(self) -> set[Place]:
        stored = stored_for(self.world, f"sub:{self.ledger.name}")
        return {place for place, body in stored.items() if self._wants(body)}


class Rival(Follower):
    """One of several clients of one durable subscription, which deletes it now and then."""

    def __init__(self, name: str, world: World, random: Random, checkers: Checkers, ledger: Ledger, topic: str) -> None:
        self._topic = topic
        super().__init__(name, world, random, checkers)
        self.ledger = ledger
        self.selector = ledger.selector
        self.asked = self.confirmed = 0
        ledger.users.append(self)

    def subscribe(self) -> None:
        super().subscribe()
        self.held = []
        self.last.clear()
        self.deleting, self.life = "", 0
        self.asked, self.confirmed = self.ledger.tick(), 0

    def heard(self, frame: Frame) -> None:
        if frame.command != "RECEIPT":
            if not self.deleting:
                super().heard(frame)
        elif frame.headers["receipt-id"] == self.asking:
            self.confirmed = self.ledger.tick()
            self.checkers.counts["named"] += 1
        elif frame.headers["receipt-id"] == self.deleting:
            self.ledger.deleted(self.life)
            self.subscribe()
        else:
            super().heard(frame)

    def act(self) -> None:
        if self.deleting:
            return
        if self.confirmed and self.random.random() < 0.1:
            self.deleting, self.life = self.new_receipt(), self.ledger.deleting()
            self.ledger.left(self)
            self.say("UNSUBSCRIBE", id="f", subscription_name=self.ledger.name, receipt=self.deleting)
        else:
            super().act()

    def _took(self, frame: Frame) -> None:
        for other in self.ledger.users:
            if self.present and 0 < self.confirmed < other.asked and other.confirmed:
                raise Violation(f"{self} was sent something after {other} had taken {self.ledger.name} over")
        super()._took(frame)

    def choose_topic(self) -> str:
        return self._topic


def stored_for(world: World, key: str) -> dict[Place, bytes]:
    """Return the messages in the logs of a durable subscription's topics."""
    return {
        (feed.partition.name, offset): body
        for destination in world.broker.durable.by_key[key].destinations
        for feed in destination.feeds
        for offset, body in read_all(feed.partition).items()
        if destination.name == named_at(feed.partition, offset)
    }


def named_at(partition: Any, offset: int) -> str:
    """Return the destination of a stored message."""
    batch = partition.read(offset)
    if batch is None:
        job = partition.fetch(offset)
        job.run()
        job.done()
        batch = job.result
    name: str = batch.names[batch.destination_ids[batch.index_at(offset)]]
    return name
