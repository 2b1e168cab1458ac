"""Durable subscriptions in the simulation: each follower has a name, loses connections and brokers, and comes back.

What a name promises, whatever happens to processes, disks and machines: every message of its topics comes until it is
acknowledged with a receipt, and none comes after that; within a log what is not marked ``redelivered`` comes in order.
A follower asks for ``start-position:first`` each time: so a name that a crash has taken before its receipt begins
where the lost one did.
"""

from __future__ import annotations

from random import Random
from typing import Any

from radiator.stomp.frames import Frame
from tests.broker.harness import World
from tests.simulation.actors import Actor
from tests.simulation.checkers import Checkers, Violation
from tests.storage.driving import read_all

TOPICS = ("/topic/strong", "/topic/shared.*", "/topic/shared.a", "/topic/keyed")
Place = tuple[str, int]


class Follower(Actor):
    """A durable subscriber of topics under ``fsync: always``."""

    def __init__(self, name: str, world: World, random: Random, checkers: Checkers) -> None:
        super().__init__(name, world, random, checkers)
        self.topic = random.choice(TOPICS)
        self.settled: set[Place] = set()
        self.maybe_settled: set[Place] = set()

    def opened(self) -> None:
        self.window = self.random.choice([1, 2, 5])
        self.held: list[Frame] = []
        self.last: dict[str, int] = {}
        self.acking: dict[str, set[Place]] = {}
        self.mode = self.random.choice(["client", "client-individual"])
        self.subscribe()

    def subscribe(self) -> None:
        self.say(
            "SUBSCRIBE",
            id="f",
            destination=self.topic,
            ack=self.mode,
            subscription_name=self.name,
            start_position="first",
            prefetch_count=self.window,
            receipt=self.new_receipt(),
        )

    def heard(self, frame: Frame) -> None:
        if frame.command == "RECEIPT":
            self.settled |= self.acking.pop(frame.headers["receipt-id"], set())
        elif frame.command == "MESSAGE":
            self._took(frame)

    def _took(self, frame: Frame) -> None:
        place = place_of(frame)
        self.checkers.observed(*place, frame.body)
        if place in self.settled:
            raise Violation(f"{place} was settled, and came back to {self}")
        if "gap" in frame.headers:
            raise Violation(f"{self} was told of a gap at {place}")
        if "redelivered" not in frame.headers:
            if self.last.get(place[0], -1) >= place[1]:
                raise Violation(f"{place} came to {self} behind {self.last[place[0]]}")
            self.last[place[0]] = place[1]
        self.held.append(frame)
        if len(self.held) > self.window:
            raise Violation(f"{self} holds {len(self.held)}, its window is {self.window}")

    def act(self) -> None:
        chance = self.random.random()
        if self.held and chance < 0.93:
            self._answer(self.random.randrange(len(self.held)))
        elif chance > 0.97:
            self.lose()

    def _answer(self, place: int) -> None:
        message = self.held[place]
        if self.mode == "client":
            answered, self.held = self.held[: place + 1], self.held[place + 1 :]
        else:
            answered = [self.held.pop(place)]
        command = "NACK" if self.random.random() < 0.1 else "ACK"
        receipt = self.new_receipt() if self.random.random() < 0.7 else None
        if command == "ACK":
            places = set(map(place_of, answered))
            self.maybe_settled |= places
            if receipt is not None:
                self.acking[receipt] = places
        assert self.client is not None
        headers: dict[str, Any] = {"id": message.headers["ack"]} if self.client.version == "1.2" else {}
        if not headers:
            headers = {key.replace("-", "_"): message.headers[key] for key in ("message-id", "subscription")}
        self.say(command, **headers, receipt=receipt)

    def at_the_end(self) -> None:
        """It comes once more, and gets all that is left."""
        world = self.world
        client = world.connect()
        client.subscribe(self.topic, "f", subscription_name=self.name, start_position="first")
        drained: set[Place] = set()
        while True:
            world.settle()
            messages = client.messages()
            if not messages:
                break
            for message in messages:
                if place_of(message) in self.settled | drained:
                    raise Violation(f"{place_of(message)} was settled, and came to {self} in the end")
                drained.add(place_of(message))
                client.ack(message)
        client.drop()
        missing = self._stored() - drained - self.settled - self.maybe_settled
        if missing:
            raise Violation(f"never settled, and did not come to {self} in the end: {sorted(missing)[:3]}")

    def _stored(self) -> set[Place]:
        wanted = self.world.broker.names.by_key[f"sub:{self.name}"]
        return {
            (feed.partition.name, offset)
            for destination in wanted.destinations
            for feed in destination.feeds
            for offset in read_all(feed.partition)
            if destination.name == named_at(feed.partition, offset)
        }


def place_of(frame: Frame) -> Place:
    return frame.headers["partition"], int(frame.headers["offset"])


def named_at(partition: Any, offset: int) -> str:
    """The destination of a stored message."""
    batch = partition.read(offset)
    if batch is None:
        job = partition.fetch(offset)
        job.run()
        job.done()
        batch = job.result
    name: str = batch.names[batch.destination_ids[batch.index_at(offset)]]
    return name
