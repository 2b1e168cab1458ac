"""What a broker owes its clients, kept beside it: who holds what, what waits, what was settled, what must come next.

It is told what clients do and what they hear, and nothing else: it never looks into the broker. It knows no logs,
cursors or outboxes; a queue is a heap of messages in the order in which they were sent.

    hears      a delivery: to whom, was it there to be given, does it keep the order, is there room in the window
    rests      nothing moves any more: whatever waits, waits only for room
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

ENDLESS = 1 << 30
IN_FLIGHT_MAX = 65_536  # limits.in_flight


class Violation(AssertionError):
    """The broker broke a promise."""


def demand(holds: bool, text: str) -> None:
    if not holds:
        raise Violation(text)


@dataclass(eq=False)
class Message:
    number: int  # in the order of sending
    destination: str
    priority: int | None = None
    partition: str | None = None  # known once it is heard
    deliveries: int = 0
    holder: Subscription | None = None
    settled: bool = False
    restarted: bool = False  # since the deliveries above the broker was started anew

    @property
    def is_queued(self) -> bool:
        return self.destination.startswith("/queue/")

    def __str__(self) -> str:
        return f"{self.number} of {self.destination}"


@dataclass(eq=False)
class Subscription:
    client: Client
    name: str
    patterns: list[re.Pattern[str]]
    mode: str
    asked: int | None  # prefetch-count
    window: int | None  # None: shares that of the client
    held: dict[int, Message] = field(default_factory=dict)  # by number, in the order of delivery
    due: dict[str, deque[Message]] = field(default_factory=dict)  # of topics, by destination

    def matches(self, destination: str) -> bool:
        return any(pattern.fullmatch(destination) for pattern in self.patterns)

    def counted(self) -> int:
        """What is held here and counts against the client's window."""
        if self.client.cap is not None:
            return len(self.held)
        return sum(message.is_queued for message in self.held.values()) if self.window is None else 0

    def room(self, destination: str) -> int:
        """How many more messages of this destination it may be sent."""
        if self.mode == "auto":
            return ENDLESS
        shared = self.client.window - sum(each.counted() for each in self.client.subscriptions.values())
        own = ENDLESS if self.asked is None else self.asked - len(self.held)
        if destination.startswith("/queue/"):
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

    @property
    def window(self) -> int:
        return self.cap or 1

    def holds(self) -> Iterator[tuple[Subscription, Message]]:
        for subscription in self.subscriptions.values():
            for message in subscription.held.values():
                yield subscription, message


def patterns_of(text: str) -> list[re.Pattern[str]]:
    return [re.compile(re.escape(each).replace(r"\*", "[^./]*")) for each in text.split(",")]


class Model:
    """``prefetch``: what rules say, by destination; 1 for all others."""

    def __init__(self, prefetch: dict[str, int]) -> None:
        self.prefetch = prefetch
        self.messages: list[Message] = []
        self.waiting: dict[str, dict[int, Message]] = {}  # queues: not settled, in nobody's hands
        self.clients: dict[str, Client] = {}
        self.destinations: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.begin_round()

    def begin_round(self) -> None:
        self.old = {queue: dict(waiting) for queue, waiting in self.waiting.items()}
        self.came_back: set[int] = set()
        self.last: dict[tuple[Subscription, str], int] = {}  # by queue and partition: the highest number heard
        self.lowest: dict[str, int] = {}  # by queue: the lowest priority that was heard

    # --- what clients do ----------------------------------------------------------------------------------------------

    def sent(self, destination: str, priority: int | None = None) -> Message:
        message = Message(len(self.messages), destination, priority)
        self.messages.append(message)
        self._born(destination)
        if message.is_queued:
            self.waiting.setdefault(destination, {})[message.number] = message
        else:
            for client in self.clients.values():
                for subscription in client.subscriptions.values():
                    if subscription.matches(destination):
                        subscription.due.setdefault(destination, deque()).append(message)
        return message

    def _born(self, destination: str) -> None:
        """It is there, perhaps from now on: then it may widen the windows of patterns."""
        if destination in self.destinations:
            return
        self.destinations.add(destination)
        prefetch = self.prefetch.get(destination, 1)
        for client in self.clients.values():
            for each in client.subscriptions.values():
                if each.mode != "auto" and each.asked is None and each.matches(destination):
                    each.window = None if max(each.window or 1, prefetch) == 1 else max(each.window or 1, prefetch)

    def subscribed(self, client: Client, name: str, text: str, mode: str, asked: int | None) -> Subscription:
        patterns = patterns_of(text)
        subscription = Subscription(client, name, patterns, mode, asked, None)
        for each in text.split(","):
            if "*" not in each:
                self._born(each)
        if mode != "auto":
            rules = [self.prefetch.get(each, 1) for each in self.destinations if subscription.matches(each)]
            window = asked or max(rules, default=1)
            subscription.window = None if window == 1 else window
        client.subscriptions[name] = subscription
        return subscription

    def answered(self, subscription: Subscription, number: int, settles: bool) -> None:
        """ACK or NACK of a message; one that is not held any more changes nothing."""
        if number not in subscription.held:
            self.counts["late"] += 1
            return
        covered = [number]
        if subscription.mode == "client":
            held = list(subscription.held)
            covered = held[: held.index(number) + 1]
        for each in covered:
            message = subscription.held.pop(each)
            message.holder = None
            if settles or not message.is_queued:
                message.settled = message.is_queued
                self.counts["settled"] += 1
            else:
                self._returned(message)

    def unsubscribed(self, subscription: Subscription) -> None:
        for message in subscription.held.values():
            message.holder = None
            if message.is_queued:
                self._returned(message)
        subscription.held.clear()
        del subscription.client.subscriptions[subscription.name]

    def left(self, client: Client) -> None:
        for subscription in list(client.subscriptions.values()):
            self.unsubscribed(subscription)
        del self.clients[client.name]

    def restarted(self, forgotten: set[str]) -> None:
        """All have left, and the broker was started anew; these destinations were in memory only."""
        for message in self.messages:
            message.restarted = True
        for destination in forgotten:
            self.waiting.pop(destination, None)
        self.begin_round()

    def _returned(self, message: Message) -> None:
        self.counts["returned"] += 1
        self.came_back.add(message.number)
        self.waiting[message.destination][message.number] = message

    # --- what clients hear --------------------------------------------------------------------------------------------

    def delivered(
        self, client: Client, name: str, number: int, destination: str, partition: str, count: int, marked: bool
    ) -> None:
        self.counts["delivered"] += 1
        message = self.messages[number]
        where = f"{message}, to {client.name}/{name}"
        demand(message.destination == destination, f"{where}: came from {destination}")
        demand(name in client.subscriptions, f"{where}: no such subscription")
        subscription = client.subscriptions[name]
        demand(subscription.matches(destination), f"{where}: the subscription does not match")
        if subscription.mode != "auto":
            demand(subscription.room(destination) > 0, f"{where}: there is no room in the window")
            subscription.held[number] = message
        if not message.is_queued:
            self._of_topic(subscription, message, where)
            return
        demand(not message.settled, f"{where}: it was settled before")
        holder = message.holder
        demand(holder is None, f"{where}: it is held by {holder and holder.client.name}/{holder and holder.name}")
        self._counted(message, count, marked, where)
        message.partition = partition
        self._in_order(subscription, message, where)
        del self.waiting[destination][number]
        if subscription.mode == "auto":
            message.settled = True
        else:
            message.holder = subscription

    def lost_on_the_way(self, number: int, count: int, marked: bool, partition: str) -> None:
        """A delivery that was under way to a client when its connection broke: it goes back."""
        message = self.messages[number]
        if message.is_queued:
            self.counts["lost on the way"] += 1
            demand(not message.settled and message.holder is None, f"{message}: it was not there to be given")
            self._counted(message, count, marked, str(message))
            message.partition = partition
            self.came_back.add(number)

    def receipt(self, client: Client, name: str) -> None:
        demand(bool(client.receipts), f"{client.name}: receipt {name} was not asked for")
        expected = client.receipts.popleft()
        demand(name == expected, f"{client.name}: receipt {name} before {expected}")

    def _of_topic(self, subscription: Subscription, message: Message, where: str) -> None:
        due = subscription.due.get(message.destination)
        demand(bool(due), f"{where}: came once too often, or before its time")
        assert due is not None
        if due[0] is not message:  # of several partitions each has an order of its own
            demand("parts" in message.destination, f"{where}: before {due[0]}")
        demand(message in due, f"{where}: came twice")
        due.remove(message)

    def _counted(self, message: Message, count: int, marked: bool, where: str) -> None:
        before, message.deliveries = message.deliveries, count
        right = count > before if message.restarted else count == before + 1
        demand(right, f"{where}: delivery-count {count} after {before}")
        demand(marked == (count > 1), f"{where}: redelivered {marked} in delivery {count}")

    def _in_order(self, subscription: Subscription, message: Message, where: str) -> None:
        number = message.number
        key = (subscription, f"{message.destination} {message.partition}")
        before = self.last.get(key, -1)
        if number not in self.came_back:
            demand(number > before, f"{where}: after {before}")
        self.last[key] = max(before, number)
        if message.priority is not None:
            lowest = self.lowest.get(message.destination, message.priority)
            self.lowest[message.destination] = min(lowest, message.priority)

    # --- what must hold when nothing moves ----------------------------------------------------------------------------

    def rests(self) -> None:
        """Everybody has heard everything."""
        self.counts["rests"] += 1
        subscriptions = [each for client in self.clients.values() for each in client.subscriptions.values()]
        for queue, waiting in self.waiting.items():
            if not waiting:
                continue
            for each in subscriptions:
                if each.matches(queue):
                    stalled = each.room(queue) > 0
                    demand(not stalled, f"{len(waiting)} messages of {queue} wait, {each.client.name} has room")
            self._oldest_went_first(queue, waiting)
        for each in subscriptions:
            for destination, due in each.due.items():
                stalled = bool(due) and each.room(destination) > 0
                demand(not stalled, f"{len(due)} messages of {destination} have not come to {each.client.name}")
        for client in self.clients.values():
            demand(not client.receipts, f"{client.name}: receipts did not come: {list(client.receipts)[:5]}")
        self.begin_round()

    def _oldest_went_first(self, queue: str, waiting: dict[int, Message]) -> None:
        """What waited all the time is never passed over for a later message of the same partition."""
        if "parts" in queue:  # where those are that nobody has heard yet is not known
            return
        patient = [number for number in waiting if number in self.old.get(queue, ()) and number not in self.came_back]
        if patient and queue in self.lowest:
            highest = max(self.messages[number].priority or 0 for number in patient)
            demand(self.lowest[queue] >= highest, f"priority {highest} of {queue} was passed over")
        elif patient:
            for (_, key), number in self.last.items():
                if key.startswith(queue + " "):
                    demand(number < min(patient), f"{number} of {queue} went out, and {min(patient)} still waits")
