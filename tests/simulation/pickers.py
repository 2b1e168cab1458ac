"""Queues whose consumers have selectors or are exclusive, and producers for them.

wrong receiver     a consumer with a selector gets only messages that it selects; while there are exclusive consumers,
                   only the first of them gets messages
two at once        while an exclusive consumer has messages of a queue in flight, no other consumer has any
order              each consumer gets its messages of one log in order, except redelivered and delayed ones
lost               a message that was skipped by selector, or waits, is delivered in the end (``endings``)
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from radiator.clock import NS_PER_MS
from radiator.stomp.frames import Frame
from tests.broker.harness import World
from tests.simulation.actors import PRIORITY_QUEUE, Consumer, Producer
from tests.simulation.checkers import CAPPED, DEAD, Checkers, Violation

Headers = dict[str, str]

SOLE, MIXED = "/queue/sole", "/queue/mixed"  # all of its consumers are exclusive; some are
QUEUES = ["/queue/strong", "/queue/weak", *CAPPED, PRIORITY_QUEUE, SOLE, MIXED]
TOPICS = ["/topic/one", "/topic/parts", "/topic/parts", "/topic/shared.a", "/topic/shared.b"]
COLOURS = ["red", "green", "blue", None]
RED, OTHERS = "colour = 'red'", "colour <> 'red' OR colour IS NULL"
SELECTORS: dict[str, Callable[[Headers], bool]] = {
    "": lambda headers: True,
    RED: lambda headers: headers.get("colour") == "red",
    OTHERS: lambda headers: headers.get("colour") != "red",
    "colour IN ('red', 'blue') AND size > 3": lambda headers: (
        headers.get("colour") in ("red", "blue") and int(headers["size"]) > 3
    ),
    "NOT size <= 6": lambda headers: "size" in headers and int(headers["size"]) > 6,
}


class Sender(Producer):
    """Sends messages with a colour and a size, to fewer destinations."""

    def __init__(self, name: str, world: World, random: Random, checkers: Checkers, queues: list[str]) -> None:
        super().__init__(name, world, random, checkers)
        self.destinations = [*queues, *queues, *TOPICS]
        self.one_log = [name for name in [*queues, "/topic/one", "/topic/shared.a", "/topic/shared.b"] if name != SOLE]

    def _headers(self, destination: str, body: bytes) -> Headers:
        headers = self._priority(destination) | {"size": str(self.random.randrange(10))}
        colour = self.random.choice(COLOURS)
        if colour is not None:
            headers["colour"] = colour
        if destination == "/topic/parts":
            headers["key"] = self.checkers.key_of[body] = f"k{self.random.randrange(5)}"
        if destination in QUEUES and self.random.random() < 0.1:
            headers["delay"] = str(self.random.choice([1, 700, 5_000]))
        if destination in QUEUES and self.random.random() < 0.1:
            headers["expires"] = str(
                self.world.now // NS_PER_MS + self.random.choice([0, 900, 40_000_000, 10_000_000_000])
            )
        if self.random.random() < 0.3:
            headers |= self._identity(body)
            self.unsure[body] = {"destination": destination} | headers
        self.checkers.headers_of[body] = headers
        return headers


class Turns:
    """The queues with exclusive consumers: which consumer has messages in flight, and in which order they came."""

    def __init__(self) -> None:
        self.pickers: list[Picker] = []
        self.now = 0  # subscriptions and their receipts, counted

    def tick(self) -> int:
        self.now += 1
        return self.now

    def took(self, who: Picker, queue: str) -> None:
        for other in self.pickers:
            if other is who or not other.present:
                continue
            alone = other.is_exclusive(queue) or who.is_exclusive(queue)
            if alone and any(frame.headers["destination"] == queue for frame in other.held):
                raise Violation(f"{queue}: {who} was sent something, and {other} holds something of it")
            if other.what == queue and other.is_exclusive(queue) and 0 < other.confirmed < who.asked:
                raise Violation(f"{queue}: {who} was sent something before {other}, which came first and is exclusive")


class Picker(Consumer):
    """A consumer with a selector, or exclusive, or both, or neither."""

    def __init__(
        self, name: str, world: World, random: Random, checkers: Checkers, queues: list[str], turns: Turns
    ) -> None:
        super().__init__(name, world, random, checkers)
        self.queues = queues
        self.turns = turns
        self.what = ""
        self.exclusive = False
        self.held = []
        turns.pickers.append(self)

    def _subscribe(self) -> None:
        self.subscription += 1
        self.mode = self.random.choice(["client", "client-individual"])
        self.window = self.random.choice([1, 1, 2, 5])
        self.what = self.random.choice([*self.queues, *self.queues, DEAD, "/queue/*"])
        self.selector = self.random.choice(list(SELECTORS))
        self.exclusive = self.what != "/queue/*" and self.random.random() < 0.3
        self.last: dict[str, int] = {}
        self.asked, self.confirmed = self.turns.tick(), 0
        self.asking = self.new_receipt()
        self.say(
            "SUBSCRIBE",
            id=self.subscription,
            destination=self.what,
            ack=self.mode,
            prefetch_count=None if self.window == 1 else self.window,
            selector=self.selector or None,
            exclusive="true" if self.exclusive else None,
            receipt=self.asking,
        )

    def is_exclusive(self, queue: str) -> bool:
        return self.exclusive or queue == SOLE

    @property
    def present(self) -> bool:
        return super().present and self.subscription > 0

    def heard(self, frame: Frame) -> None:
        if frame.command == "RECEIPT" and frame.headers["receipt-id"] == self.asking:
            self.confirmed = self.turns.tick()
        super().heard(frame)

    def _took(self, frame: Frame) -> None:
        partition, offset, body = frame.headers["partition"], int(frame.headers["offset"]), frame.body
        if not SELECTORS[self.selector](self.checkers.headers_of.get(body, {})):
            raise Violation(f"{body[:30]!r} came to {self}, who wants {self.selector}")
        self.checkers.partition_of.setdefault(self.checkers.of(frame), partition)
        if "redelivered" not in frame.headers and not self.checkers.moments.waited(body):
            if self.last.get(partition, -1) >= offset:
                raise Violation(f"{partition}@{offset} came to {self} behind {self.last[partition]}")
            self.last[partition] = offset
        if self.present:
            self.turns.took(self, frame.headers["destination"])
        self.checkers.counts["selected"] += bool(self.selector)
        self.checkers.counts["exclusive"] += self.is_exclusive(frame.headers["destination"])
        self.checkers.counts["waited"] += self.checkers.moments.waited(body)
        super()._took(frame)

    def lose(self) -> None:
        super().lose()
        self.held, self.confirmed = [], 0

    def broker_died(self) -> None:
        super().broker_died()
        self.held, self.confirmed = [], 0
