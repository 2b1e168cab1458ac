"""Destination creation while subscriptions with matching patterns exist.

The module knows the subscriptions with patterns, and how a subscription joins a destination, but not messages.
Invariant: a new destination has joined every matching subscription before its first message is delivered.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from radiator.broker.clients.session import Reader
from radiator.errors import ProtocolError
from radiator.routing.index import PatternIndex
from radiator.routing.pattern import DELIVERIES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from radiator.broker.clients.session import Subscription
    from radiator.broker.core import Core
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.durable.subscriptions import DurableSubscriptions
    from radiator.broker.logs.feed import Feed
    from radiator.routing.pattern import PatternSet

CREATION_UNITS = 60  # cost of creating a destination
JOIN_UNITS = 4  # cost of joining a subscription, a durable subscription, or trying an expression


class DestinationCreation:
    """Adds new destinations to the subscriptions whose patterns match them.

    Args:
        core: The core of the broker.
        names: The durable subscriptions.
    """

    __slots__ = ("_core", "_collecting", "_names", "_watchers")

    def __init__(self, core: Core, names: DurableSubscriptions) -> None:
        self._core = core
        self._names = names
        self._watchers: PatternIndex[Subscription] = PatternIndex()
        self._collecting: list[tuple[PatternSet, list[Destination]]] = []

    @property
    def tried(self) -> Collection[Subscription]:
        """The subscriptions whose patterns have to be tried one by one: no index finds them."""
        return self._watchers.regexes

    def watch(self, subscription: Subscription) -> None:
        """Add destinations that are created later to this subscription."""
        self._watchers.add(subscription, subscription.asked.patterns)

    def forget(self, subscription: Subscription) -> None:
        """Remove a subscription that has ended."""
        self._watchers.remove(subscription, subscription.asked.patterns)

    @contextmanager
    def gathering(self, patterns: PatternSet) -> Iterator[list[Destination]]:
        """Yield a list that collects the new destinations that match ``patterns``.

        For callers that iterate over all destinations in several turns.
        """
        entry: tuple[PatternSet, list[Destination]] = (patterns, [])
        self._collecting.append(entry)
        try:
            yield entry[1]
        finally:
            self._collecting = [each for each in self._collecting if each is not entry]

    def created(self, destination: Destination) -> None:
        """Add a new destination to the subscriptions that match it, and watch it if it may expire."""
        self._core.idle.created(destination)
        found = self._watchers.find(destination.name)
        if destination.name == DELIVERIES:
            found = [each for each in found if each.asked.matches(DELIVERIES)]
        for patterns, late in self._collecting:
            if patterns.matches(destination.name):
                late.append(destination)
        joined = len(found) + len(self.tried) + self._names.created(destination)
        self._core.budget.spend(CREATION_UNITS + JOIN_UNITS * joined)
        for subscription in found:
            asked, permitted = subscription.asked, subscription.patterns
            if permitted is asked or permitted.matches(destination.name):
                self._join(subscription, destination)

    def receiver(self, name: str) -> Destination:
        """Return the destination ``name`` for a SEND; create it if its rule allows that.

        Durable subscriptions over topics have joined the destination when the call returns.

        Raises:
            ProtocolError: The destination does not exist and cannot be created.
        """
        core = self._core
        destination = core.destination(name)
        if not destination.sent:
            destination.note_sent()
            core.budget.spend(JOIN_UNITS * self._names.created(destination))
        return destination

    def _join(self, subscription: Subscription, destination: Destination) -> None:
        core = self._core
        if subscription.closed or destination in subscription.destinations:
            return
        try:
            subscription.session.joined.check()
            if destination.policy.kind == "queue" and not subscription.browser:
                if destination.queue is not None:
                    core.consume(subscription, destination)
                return
        except ProtocolError as error:  # a subscription that silently misses a destination would be worse
            core.stats.count(joins_refused=1)
            core.refuse(subscription.session, error)
            return
        subscription.enter(destination)
        for feed in destination.feeds:
            if feed not in subscription.readers:
                next_offset = feed.partition.next_offset
                core.read(subscription, feed, Reader(subscription, feed, next_offset, next_offset))

    def priority_opened(self, destination: Destination, feed: Feed) -> None:
        """Add the log of a new priority level to the readers of a queue that have not reached their stop position."""
        others = [each for each in destination.feeds if each is not feed]
        for reader in list(others[0].readers) if others else ():
            subscription = reader.subscription
            if feed in subscription.readers or reader.stop_offset is not None:
                continue
            if destination not in subscription.destinations:
                continue
            start = feed.partition.next_offset
            new = Reader(subscription, feed, start, start)
            self._core.read(subscription, feed, new)
            self._core.stop_as(reader, new)
