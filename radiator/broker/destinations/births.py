"""Destinations that are born while somebody is subscribed to a pattern that matches them.

Knows: who watches for new names, how a subscription takes part in a destination. Must not know: what is delivered.
Invariant: a new destination has joined every pattern that matches it before its first message is delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.broker.subscriptions.reader import Reader
from radiator.broker.subscriptions.windows import window_of
from radiator.routing.index import PatternIndex

if TYPE_CHECKING:
    from collections.abc import Collection

    from radiator.broker.broker import Broker
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.subscriptions.subscription import Subscription

BIRTH_WORK = 10  # of a destination, where looking at one is 1


class Births:
    """See the top of the file."""

    __slots__ = ("_broker", "_watchers")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._watchers: PatternIndex[Subscription] = PatternIndex()

    @property
    def tried(self) -> Collection[Subscription]:
        """Those whose pattern no index finds."""
        return self._watchers.tried

    def watch(self, subscription: Subscription) -> None:
        """Have destinations that are born later join this subscription."""
        self._watchers.add(subscription, subscription.asked.patterns)

    def forget(self, subscription: Subscription) -> None:
        """It has ended."""
        self._watchers.remove(subscription, subscription.asked.patterns)

    def born(self, destination: Destination) -> None:
        """A new destination: it joins the patterns that match it."""
        found = self._watchers.find(destination.name)
        self._broker.work += BIRTH_WORK + len(found) + len(self.tried) + self._broker.names.born(destination)
        for subscription in found:
            asked, permitted = subscription.asked, subscription.patterns
            if permitted is asked or permitted.matches(destination.name):
                self._join(subscription, destination)

    def receiver(self, name: str) -> Destination:
        """The destination of that name, created if its rule allows it, of one who is about to send to it: names over
        topics have joined it by then. Raises ProtocolError."""
        broker = self._broker
        destination = broker.destination(name)
        if not destination.sent:
            destination.sent = True
            broker.work += broker.names.born(destination)
        return destination

    def _join(self, subscription: Subscription, destination: Destination) -> None:
        broker = self._broker
        if destination.policy.kind == "queue" and not subscription.browser:
            if destination.queue is not None:
                most = subscription.session.limits.in_flight
                window = window_of(None, subscription.prefetch, subscription.ack, [destination], most)
                if window is not None and window > (subscription.window or 1):
                    subscription.widen(window)
                    broker.ready.credit(subscription)
                    broker.ready.credit_session(subscription.session)
                broker.consume(subscription, destination)
            return
        subscription.enter(destination)
        for feed in destination.feeds:
            if feed not in subscription.readers:
                next_offset = feed.partition.next_offset
                broker.read(subscription, feed, Reader(subscription, feed, next_offset, next_offset))
