"""A model of a broker: which messages are in flight, wait, or were settled, and which must come next.

Its only input is what clients do and receive; it does not look into the broker. It has no logs, cursors or outboxes: a
queue is a heap of messages in the order in which they were sent. ``promises`` has the checks of deliveries, ``endings``
how messages end.

    hears      check a delivery: its consumer, whether the message was available, the order, the window
    rests      check that nothing can move: each waiting message waits for credit, or for its time
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from tests.properties.flow.parts import (
    IN_FLIGHT_MAX,
    Backlog,
    Client,
    Entry,
    Key,
    Message,
    Subscription,
    demand,
    takes,
)
from tests.properties.flow.promises import Promises
from tests.properties.flow.rules import Naming, rule_of


class Model(Promises):
    def __init__(self) -> None:
        self.now = 0  # in steps of time
        self.messages: list[Message] = []
        self.of_body: dict[tuple[bytes, str], Message] = {}  # and destination
        self.backlogs: dict[str, Backlog] = {}
        self.clients: dict[str, Client] = {}
        self.destinations: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.serial = 0

    def subscriptions(self) -> Iterator[Subscription]:
        for client in self.clients.values():
            yield from client.subscriptions.values()

    def consumers(self, backlog: Backlog) -> list[Subscription]:
        """Return the consumers of a backlog, in the order of their SUBSCRIBE."""
        return sorted((each for each in self.subscriptions() if each.consumes(backlog)), key=lambda each: each.serial)

    def active(self, backlog: Backlog) -> Subscription | None:
        """Return the active exclusive consumer: the first that came."""
        alone = (each for each in self.subscriptions() if each.is_exclusive(backlog) and each.consumes(backlog))
        return min(alone, key=lambda each: each.serial, default=None)

    # --- what clients do ----------------------------------------------------------------------------------------------

    def sent(self, destination: str, body: bytes, delay: int = 0, **more: object) -> Message:
        message = Message(len(self.messages), destination, body, due=self.now + delay, born=self.now, **more)  # type: ignore[arg-type]
        self._created(destination)
        self.enters(message)
        return message

    def enters(self, message: Message) -> None:
        """Add a stored message to each backlog that delivers it, and for each subscriber."""
        self.messages.append(message)
        destination = message.destination
        self.of_body[message.body, destination] = message
        is_queue = destination.startswith("/queue/")
        children = rule_of(destination).children
        for name in children or ([destination] if is_queue else []):
            self._waits(self.backlog(name), message)
        if is_queue:
            return
        for backlog in self.backlogs.values():
            naming = backlog.naming
            if naming is not None and destination in naming.topics and takes(naming.selector, message):
                self._waits(backlog, message)
        for each in self.subscriptions():
            if each.named is None and each.matches(destination) and each.wants(message):
                each.due.setdefault(destination, deque()).append(message)

    def _waits(self, backlog: Backlog, message: Message) -> None:
        entry = Entry(message, backlog)
        backlog.entries[message.number] = backlog.waiting[message.number] = entry
        if entry.has_no_order or not entry.is_due(self.now):
            backlog.came_back.add(message.number)

    def backlog(self, name: str) -> Backlog:
        return self.backlogs.setdefault(name, Backlog(name))

    def _created(self, destination: str) -> None:
        """Note that a destination exists. A new one may widen the windows of patterns."""
        if destination in self.destinations:
            return
        self.destinations.add(destination)
        prefetch = rule_of(destination).prefetch
        for each in self.subscriptions():
            if each.mode != "auto" and each.asked is None and each.named is None and each.matches(destination):
                each.window = None if max(each.window or 1, prefetch) == 1 else max(each.window or 1, prefetch)

    def subscribed(
        self,
        client: Client,
        name: str,
        text: str,
        mode: str,
        asked: int | None,
        selector: str | None = None,
        exclusive: bool = False,
        naming: Naming | None = None,
    ) -> Subscription:
        self.serial += 1
        subscription = Subscription(client, name, text, mode, asked, None, selector, exclusive, serial=self.serial)
        if naming is not None:
            subscription.named = self.backlogs.setdefault(naming.name, Backlog(naming.name, naming))
        for each in text.split(","):
            if "*" not in each:
                self._created(each)
        if naming is not None and not naming.is_group:
            subscription.window = asked or IN_FLIGHT_MAX
        elif mode != "auto":
            matching = [each for each in self.destinations if subscription.matches(each)]
            window = asked or max((rule_of(each).prefetch for each in matching), default=1)
            subscription.window = None if window == 1 else window
        client.subscriptions[name] = subscription
        for each in self.subscriptions():  # messages that other clients are about to receive were rightly sent to them
            each.grace = True
        return subscription

    def answered(
        self, subscription: Subscription, key: Key, settles: bool, requeue: bool = True, pause: int = -1
    ) -> None:
        """Apply an ACK or NACK, unless its message is not in flight. ``pause`` -1: as in the rule."""
        if key not in subscription.held:
            self.counts["late"] += 1
            return
        covered = self._covered(subscription, key)
        if subscription.held[key].delivery > max(subscription.timed_out, default=-1):
            subscription.timed_out.clear()  # it covers all that came before
        for entry in covered:
            subscription.transactional.pop(entry.key, None)  # if it is redelivered, its ack_timeout runs
            self._released(subscription, entry)
            if settles or entry.backlog is None:
                entry.settled = entry.backlog is not None
                self.counts["settled"] += 1
            elif not requeue:
                self.ends(entry, "rejected")
            else:
                self.returns(entry, entry.rule.pause if pause < 0 else pause)

    def transactional(self, subscription: Subscription, key: Key, transaction: str) -> bool:
        """Add an ACK or NACK to a transaction; the ``ack_timeout`` of its messages stops. Return whether it covers a
        message that was requeued already."""
        covered = self._covered(subscription, key)
        for entry in covered:
            subscription.transactional.setdefault(entry.key, transaction)
        last = covered[-1].delivery
        return min(subscription.timed_out, default=last) < last

    def unpledged(self, client: Client, transaction: str) -> None:
        """End a transaction: the ``ack_timeout`` of its messages that are still in flight starts again."""
        for subscription in client.subscriptions.values():
            for key in [key for key, name in subscription.transactional.items() if name == transaction]:
                del subscription.transactional[key]
                if key in subscription.held:
                    subscription.held[key].age = 0

    def _lost(self, subscription: Subscription, entry: Entry) -> None:
        subscription.lost.add(entry.delivery)
        subscription.client.may_have_lost = True

    def touched(self, subscription: Subscription, key: Key) -> None:
        """Apply an ACK with ``touch``: the ``ack_timeout`` starts again."""
        for entry in self._covered(subscription, key):
            entry.age = 0

    def _covered(self, subscription: Subscription, key: Key) -> list[Entry]:
        held = list(subscription.held)
        covered = held[: held.index(key) + 1] if subscription.mode == "client" else [key]
        return [subscription.held[each] for each in covered]

    def _released(self, subscription: Subscription, entry: Entry) -> None:
        del subscription.held[entry.key]
        entry.holder = None

    def unsubscribed(self, subscription: Subscription) -> None:
        subscription.client.may_have_lost = True
        for entry in list(subscription.held.values()):
            self._released(subscription, entry)
            if entry.backlog is not None:
                self._lost(subscription, entry)
                self.consumer_lost(entry)
        del subscription.client.subscriptions[subscription.name]

    def deleted(self, naming: Naming) -> None:
        """Delete a durable subscription."""
        del self.backlogs[naming.name]

    def left(self, client: Client) -> None:
        for subscription in list(client.subscriptions.values()):
            self.unsubscribed(subscription)
        del self.clients[client.name]

    def restarted(self, forgotten: set[str]) -> None:
        """Note a restart of the broker without clients. ``forgotten``: destinations that were in memory only."""
        for backlog in self.backlogs.values():
            for entry in backlog.entries.values():
                entry.restarted = True
                entry.not_before = 0
            backlog.waiting = {
                number: each for number, each in backlog.waiting.items() if each.message.destination not in forgotten
            }
            backlog.begin_round(self.now)

    def time_passed(self) -> None:
        """Let one step of time pass. Clients have received everything before."""
        self.now += 1
        for subscription, entry in [pair for client in self.clients.values() for pair in client.holds()]:
            if not entry.is_timed or entry.key in subscription.transactional:
                continue
            entry.age += 1
            if entry.age >= (entry.rule.ack_timeout or 0):
                assert entry.holder is not None
                self._lost(subscription, entry)
                if subscription.mode == "client":
                    subscription.timed_out.add(entry.delivery)
                self._released(entry.holder, entry)
                self.counts["timed out"] += 1
                self.returns(entry, 0)

    # --- what clients hear --------------------------------------------------------------------------------------------

    def receipt(self, client: Client, name: str) -> None:
        demand(bool(client.receipts), f"{client.name}: receipt {name} was not asked for")
        expected = client.receipts.popleft()
        demand(name == expected, f"{client.name}: receipt {name} before {expected}")

    # --- what must hold when nothing moves ----------------------------------------------------------------------------

    def rests(self) -> None:
        """Check the state at rest: clients have received everything."""
        self.counts["rests"] += 1
        for backlog in self.backlogs.values():
            self.nobody_starves(backlog)
            self.oldest_went_first(backlog)
        for each in self.subscriptions():
            for destination, due in each.due.items():
                stalled = bool(due) and each.room(False) > 0
                demand(not stalled, f"{len(due)} messages of {destination} have not come to {each.client.name}")
        for client in self.clients.values():
            demand(not client.receipts, f"{client.name}: receipts did not come: {list(client.receipts)[:5]}")
        for backlog in self.backlogs.values():
            backlog.begin_round(self.now)
