"""The members of a consumer group. They share the messages of topics; each partition of a topic with several is
assigned to one member at a time. Members join, leave and come back in any order. Their ledger checks the promises.
"""

from __future__ import annotations

from random import Random

from radiator.stomp.frames import Frame
from tests.broker.harness import World
from tests.simulation.actors import Holder
from tests.simulation.checkers import Checkers, Violation
from tests.simulation.followers import stored_for
from tests.simulation.ledgers import Ledger, Place, place_of

PARTS = "/topic/parts"  # it has several partitions


class Group:
    """A consumer group: its topics, and its ledger."""

    def __init__(self, name: str, topics: str, checkers: Checkers) -> None:
        self.topics = topics
        self.ledger = Ledger(name, checkers, owned=lambda partition: partition.startswith(f"{PARTS}-"))

    def at_the_end(self, world: World) -> None:
        """Three members join at once and get all that is left; each partition goes to one of them, in order."""
        clients = [world.connect() for _ in range(3)]
        for client in clients:
            client.subscribe(self.topics, "m", group=self.ledger.name, start_position="first", prefetch_count=2)
        drained: list[Frame] = []
        owner: dict[str, int] = {}
        worked = True
        while worked:
            world.settle()
            worked = False
            for number, client in enumerate(clients):
                for message in client.messages():
                    worked = True
                    self._in_the_end(message, number, owner, drained)
                    client.ack(message)
        for client in clients:
            client.drop()
        self.ledger.at_the_end(drained, set(stored_for(world, f"group:{self.ledger.name}")))

    def _in_the_end(self, message: Frame, number: int, owner: dict[str, int], drained: list[Frame]) -> None:
        partition, offset = place_of(message)
        if self.ledger.owned(partition):
            if owner.setdefault(partition, number) != number:
                raise Violation(f"{partition} came to two members, though nobody went in between")
            if any(place_of(each) > (partition, offset) for each in drained if place_of(each)[0] == partition):
                raise Violation(f"{partition}@{offset} came late in the end")
        drained.append(message)


class Member(Holder):
    """Answers sooner or later, leaves and joins again."""

    def __init__(self, name: str, world: World, random: Random, checkers: Checkers, group: Group) -> None:
        super().__init__(name, world, random, checkers)
        self.group = group
        self.ledger = group.ledger
        self.window = 1
        self.subscription = 0

    def opened(self) -> None:
        self.acking: dict[str, set[Place]] = {}
        self.subscription = 0
        self._subscribe()

    def _subscribe(self) -> None:
        self.subscription += 1
        self.held: list[Frame] = []
        self.window = self.random.choice([1, 1, 2, 5])
        self.mode = self.random.choice(["client", "client-individual"])
        self.asking = self.new_receipt()
        self.say(
            "SUBSCRIBE",
            id=self.subscription,
            destination=self.group.topics,
            ack=self.mode,
            group=self.ledger.name,
            start_position="first",
            prefetch_count=None if self.window == 1 else self.window,
            receipt=self.asking,
        )

    def heard(self, frame: Frame) -> None:
        if frame.command == "RECEIPT" and frame.headers["receipt-id"] == self.asking:
            self.ledger.joined()
        elif frame.command == "RECEIPT":
            self.ledger.receipted(self.acking.pop(frame.headers["receipt-id"], set()))
        elif frame.command == "MESSAGE" and frame.headers["subscription"] == str(self.subscription):
            self.checkers.observed(*place_of(frame), frame.body)
            if self.present:
                self.ledger.taken(self, frame)
            self.hold(frame)

    def act(self) -> None:
        chance = self.random.random()
        if self.held and chance < 0.85:
            self._answer(self.random.randrange(len(self.held)))
        elif chance > 0.97:
            self.lose()
        elif chance > 0.9:
            self.say("UNSUBSCRIBE", id=self.subscription)
            self.ledger.left(self)
            self._subscribe()

    def _answer(self, place: int) -> None:
        message, answered = self.let_go(place)
        command = "NACK" if self.random.random() < 0.15 else "ACK"
        receipt = self.new_receipt() if self.random.random() < 0.7 else None
        places = set(map(place_of, answered))
        self.ledger.answered(self, places, settles=command == "ACK")
        if command == "ACK" and receipt is not None:
            self.acking[receipt] = places
        self.say_answer(command, message, receipt=receipt)

    def lose(self) -> None:
        super().lose()
        self.ledger.left(self)

    def broker_died(self) -> None:
        super().broker_died()
        self.ledger.died()

    def at_the_end(self) -> None:
        self.group.at_the_end(self.world)
