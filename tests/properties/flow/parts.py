"""The parts of the model: messages, the backlogs in which they wait, and the consumers.

A backlog delivers each of its messages to one of its consumers: a queue, a bound queue of a fan-out, a durable
subscription. The state of a message in a backlog is an *entry*; a message in several backlogs has one in each.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from tests.properties.flow.rules import SELECTORS, Naming, Rule, rule_of

Key = tuple[int, str]  # number and backlog: which entry
ENDLESS = 1 << 30
IN_FLIGHT_MAX = 65_536  # limits.in_flight


class Violation(AssertionError):
    """The broker broke a promise."""


def demand(holds: bool, text: str) -> None:
    if not holds:
        raise Violation(text)


@dataclass(frozen=True)
class Death:
    """The reason why a message is in a dead-letter queue, and the expected headers."""

    reason: str
    origin: str
    deliveries: int
    is_sure: bool  # of the deliveries


@dataclass(eq=False)
class Message:
    number: int  # in the order of sending
    destination: str
    body: bytes = b""
    priority: int | None = None
    colour: str | None = None
    due: int = 0  # the first step in which it may be delivered
    lapses: int = ENDLESS  # the step in which it expires
    born: int = 0  # step in which it was sent
    death: Death | None = None
    partition: str | None = None  # known once it is received

    def __str__(self) -> str:
        return f"{self.number} of {self.destination}"


@dataclass(eq=False)
class Entry:
    """The state of a message in a backlog, or at one subscriber of a topic, which is no backlog."""

    message: Message
    backlog: Backlog | None
    deliveries: int = 0
    unsent: int = 0  # of these; with ack:auto, never written to the socket: they end nothing
    holder: Subscription | None = None
    settled: bool = False
    restarted: bool = False  # the broker was restarted since these deliveries
    not_before: int = 0  # step, after a NACK
    age: int = 0  # steps since its delivery
    delivery: int = -1  # the number of its latest delivery, as its client received it

    @property
    def key(self) -> Key:
        return self.message.number, "" if self.backlog is None else self.backlog.name

    @property
    def rule(self) -> Rule:
        """Return the rule of the queue, or that of the topic for a durable subscription."""
        assert self.backlog is not None
        return rule_of(self.message.destination if self.backlog.naming else self.backlog.name)

    @property
    def is_timed(self) -> bool:
        """Return whether its consumer must answer within ``ack_timeout``."""
        return self.backlog is not None and self.rule.ack_timeout is not None

    def is_due(self, now: int) -> bool:
        return now >= self.message.due and now >= self.not_before

    def is_lapsed(self, now: int) -> bool:
        ttl = self.rule.ttl
        return now >= self.message.lapses or (ttl is not None and now >= self.message.born + ttl)

    @property
    def has_no_order(self) -> bool:
        """Return whether the order is unknown: dead letters have that of their deaths, and twins look alike."""
        return self.message.death is not None or self.rule.is_twin

    def __str__(self) -> str:
        return f"{self.message} in {self.backlog.name if self.backlog else 'a topic'}"


@dataclass(eq=False)
class Backlog:
    name: str
    naming: Naming | None = None
    entries: dict[int, Entry] = field(default_factory=dict)  # all entries ever, by number
    waiting: dict[int, Entry] = field(default_factory=dict)  # neither settled nor in flight
    old: set[int] = field(default_factory=set)  # waited, and might have been delivered, when the round began
    came_back: set[int] = field(default_factory=set)  # in this round, or may come out of order for another reason
    last: dict[tuple[Subscription, str], int] = field(default_factory=dict)  # highest received number, by log
    lowest: dict[Subscription, int] = field(default_factory=dict)  # priority received in this round

    def begin_round(self, now: int) -> None:
        self.old = {number for number, each in self.waiting.items() if each.is_due(now)}
        self.came_back = {number for number, each in self.waiting.items() if not each.is_due(now) or each.has_no_order}
        self.last.clear()
        self.lowest.clear()

    def held(self, but: Subscription | None = None, partition: str | None = None) -> Entry | None:
        """Return a message that another consumer has in flight, or None."""
        for each in self.entries.values():
            if each.holder not in (None, but) and partition in (None, each.message.partition):
                return each
        return None


@dataclass(eq=False)
class Subscription:
    client: Client
    name: str
    text: str  # its destination
    mode: str
    asked: int | None  # prefetch-count
    window: int | None  # None: shares that of the client
    selector: str | None = None
    exclusive: bool = False
    named: Backlog | None = None
    serial: int = 0
    grace: bool = False  # it lost a right since it last received something
    held: dict[Key, Entry] = field(default_factory=dict)  # in the order of delivery
    due: dict[str, deque[Message]] = field(default_factory=dict)  # of topics, by destination
    transactional: dict[Key, str] = field(default_factory=dict)  # what an open transaction has answered
    lost: set[int] = field(default_factory=set)  # deliveries that were requeued unacknowledged, by number
    timed_out: set[int] = field(default_factory=set)  # ``client``: those that no later answer covers yet

    @property
    def is_durable(self) -> bool:
        return self.named is not None and self.named.naming is not None and not self.named.naming.is_group

    def matches(self, destination: str) -> bool:
        return matches(self.text, destination)

    def consumes(self, backlog: Backlog) -> bool:
        if backlog.naming is not None or self.named is not None:
            return self.named is backlog
        return not rule_of(backlog.name).children and self.matches(backlog.name)

    def is_exclusive(self, backlog: Backlog) -> bool:
        return backlog.naming is None and (self.exclusive or rule_of(backlog.name).exclusive)

    def wants(self, message: Message) -> bool:
        return takes(self.selector, message)

    def counted(self) -> int:
        """Return the number of messages in flight here that count against the client's window."""
        if self.client.cap is not None:
            return len(self.held)
        return sum(each.backlog is not None for each in self.held.values()) if self.window is None else 0

    def room(self, is_queued: bool) -> int:
        """Return how many more messages of queues, or of topics, the broker may send to it."""
        if self.mode == "auto":
            return ENDLESS
        shared = self.client.window - sum(each.counted() for each in self.client.subscriptions.values())
        own = ENDLESS if self.asked is None else self.asked - len(self.held)
        if is_queued:
            if self.window is None:
                return min(own, shared)
            own = self.window - len(self.held)
        else:
            own = min(own, IN_FLIGHT_MAX - len(self.held))
        return own if self.client.cap is None else min(own, shared)


@dataclass(eq=False)
class Client:
    name: str
    cap: int | None  # max-in-flight
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    receipts: deque[str] = field(default_factory=deque)
    may_have_lost: bool = False  # a delivery, received or not, was requeued unacknowledged

    @property
    def window(self) -> int:
        return self.cap or 1

    def holds(self) -> Iterator[tuple[Subscription, Entry]]:
        for subscription in self.subscriptions.values():
            for entry in subscription.held.values():
                yield subscription, entry


def takes(selector: str | None, message: Message) -> bool:
    return selector is None or SELECTORS[selector](message.colour)


@cache
def matches(text: str, destination: str) -> bool:
    patterns = (re.escape(each).replace(r"\*", "[^./]*") for each in text.split(","))
    return any(re.fullmatch(pattern, destination) for pattern in patterns)
