"""A subscription takes part in what it has found, in portions.

A SUBSCRIBE may have found a hundred thousand destinations, and each is a reader that is begun, or a queue that has one
more consumer. It joins some in each visit and comes again (``Unfinished``); one that is small is a single visit. It
promises the same: where the logs end is noted at the first portion, so that it is read from one moment on, whenever a
destination is joined, and of a transaction all or nothing; nothing is delivered before all have joined, and the RECEIPT
comes first. The session's own frames behind it wait. Destinations that are born meanwhile join at their birth.

Knows: readers, positions. Must not know: headers, receipts.
Invariants: a visit does no more than STEPS_A_VISIT, and one destination; no destination is joined twice; while
``subscription.joining`` its readers wait (``resolving``) and it has no credit with queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from radiator.broker.destinations import fan_out
from radiator.broker.subscriptions import newest
from radiator.broker.subscriptions.positions import FIRST, NEXT, Position
from radiator.broker.subscriptions.reader import Reader
from radiator.broker.subscriptions.searching import Unfinished

if TYPE_CHECKING:
    from radiator.broker.broker import Broker
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.destinations.feed import Feed
    from radiator.broker.subscriptions.subscription import Subscription

STEPS_A_VISIT = 128  # logs, and destinations: 5 us each


class Joining:
    """How far one SUBSCRIBE has come."""

    __slots__ = ("_at", "_destinations", "_ends", "_joined", "_now_ns", "_start", "_starts", "stop", "subscription")

    def __init__(
        self,
        subscription: Subscription,
        destinations: list[Destination],
        start: Position | None,
        starts: Mapping[str, int],
        stop: Position | None,
        now_ns: int,
    ) -> None:
        self.subscription = subscription
        self._destinations = destinations
        self._start = start
        self._starts = starts
        self.stop = stop
        self._now_ns = now_ns
        self._at = 0
        self._joined: list[Destination] = []
        count = len(destinations)
        many = count > STEPS_A_VISIT or count + sum(len(each.feeds) for each in destinations) > STEPS_A_VISIT
        subscription.joining = many
        self._ends = {feed: feed.partition.next_offset for each in destinations for feed in each.feeds} if many else {}

    def go_on(self, broker: Broker) -> None:
        """One portion; all of it, where that is little. Raises Unfinished as long as there is more."""
        subscription, destinations = self.subscription, self._destinations
        steps = 0
        while self._at < len(destinations):
            if steps >= STEPS_A_VISIT:
                broker.give_way()
                raise Unfinished
            destination = destinations[self._at]
            self._at += 1
            steps += 1 + len(destination.feeds)
            if not subscription.joining or self._wanted(broker, destination):
                self._join(broker, destination)
        if any(each is not None and each.kind == "last" for each in (self._start, self.stop)):
            newest.place(broker, subscription, self._joined, self._start, self.stop, self._starts)
        if subscription.joining:
            subscription.joining = False
            for reader in subscription.readers.values():
                reader.resolving -= 1
            broker.ready.credit(subscription)

    def _wanted(self, broker: Broker, destination: Destination) -> bool:
        """It may have gone since it was found, or have come again and joined then; or be denied since."""
        subscription = self.subscription
        there = broker.destinations.get(destination.name) is destination
        rights, right = subscription.session.rights, subscription.right
        may = rights.over_all(right) or rights.may(right, destination.name)
        return there and may and destination not in subscription.destinations

    def _join(self, broker: Broker, destination: Destination) -> None:
        subscription = self.subscription
        self._joined.append(destination)
        if destination.queue is not None and not subscription.browser:
            broker.consume(subscription, destination)
            return
        subscription.enter(destination)
        for feed in fan_out.read_for(destination):
            end = min(self._ends.get(feed, feed.partition.next_offset), feed.partition.next_offset)
            self._read(broker, destination, feed, end)

    def _read(self, broker: Broker, destination: Destination, feed: Feed, end: int) -> None:
        """Start a reader on one partition, or let the one that is there already take this destination along."""
        subscription, partition, start = self.subscription, feed.partition, self._start
        reader = subscription.readers.get(feed)
        if reader is None:
            reader = Reader(subscription, feed, end, end)
            if feed not in destination.feeds:
                reader.queue = destination.queue
            if subscription.browser and start is None and destination.policy.kind == "queue":
                floors = [source.cursor.floor for source in reader.browsed()]
                reader.next_offset = min(floors, default=partition.log_start_offset)
                reader.skip_settled = True
            broker.read(subscription, feed, reader)
            if self.stop is not None:
                _set_stop(broker, reader, self.stop, end, self._now_ns)
        if partition.name in self._starts:
            reader.next_offset = self._starts[partition.name]
            if reader.next_offset < partition.log_start_offset:
                reader.adjust(partition.log_start_offset)
            return
        _set_start(broker, reader, start or NEXT)


def _set_start(broker: Broker, reader: Reader, start: Position) -> None:
    partition = reader.feed.partition
    first = partition.log_start_offset
    if reader.skip_settled:
        return
    if start == FIRST:
        reader.next_offset = first
    elif start.kind == "offset":
        reader.next_offset = start.value
        if start.value < first:
            reader.adjust(first)
    elif start.kind == "time":

        def begin(found: Any) -> None:
            reader.next_offset = found.offset

        broker.reading.resolve([reader], partial(partition.offset_for_time, start.value), begin)


def _set_stop(broker: Broker, reader: Reader, stop: Position, end: int, now_ns: int) -> None:
    first = reader.feed.partition.log_start_offset
    if stop.kind in ("end", "next", "last"):
        reader.stop_offset = end  # of ``last`` for now: where that is has to be found
    elif stop.kind == "first":
        reader.stop_offset = first
    elif stop.kind == "offset":
        reader.stop_offset = stop.value + 1
    elif stop.value > now_ns:
        broker.stop_at(stop.value, reader)
    else:
        stop_at(broker, reader, stop.value)


def stop_at(broker: Broker, reader: Reader, time_ns: int) -> None:
    """Let a reader stop before the first record received at ``time_ns``, which is past, or later."""

    def then(found: Any) -> None:
        reader.stop_offset = found.offset

    if not reader.subscription.closed:
        broker.reading.resolve([reader], partial(reader.feed.partition.offset_for_time, time_ns), then)
