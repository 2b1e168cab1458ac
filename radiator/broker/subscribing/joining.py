"""Joining: a subscription joins the destinations that it matches, one after the other.

A SUBSCRIBE may match a hundred thousand destinations, and each needs a reader or a consumer. Each turn joins as many as
the budget allows; a small SUBSCRIBE is done in one turn. The result is the same: the end offsets of all logs are taken
at the start (``partition.EndOffsets``), so the subscription reads from one moment on, and gets all messages of a
transaction or none. Nothing is delivered before all destinations are joined, and the RECEIPT is sent first.
Destinations that are created meanwhile are joined at their creation.

This module knows readers and positions. It knows no headers and no receipts.

Invariants: a turn joins no more than the budget allows, plus one destination; no destination is joined twice; while
``subscription.joining``, its readers wait and it has no credit with queues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from radiator.broker.clients.joined import JOINED_BYTES
from radiator.broker.clients.session import Reader, Subscription
from radiator.broker.clients.windows import without_limit
from radiator.broker.delivery import last_messages
from radiator.broker.destinations import fan_out
from radiator.broker.headers.positions import FIRST, NEXT, Position
from radiator.broker.subscribing import searching
from radiator.clock import WallNs
from radiator.errors import ProtocolError
from radiator.routing.rules import TEMPORARY

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.logs.feed import Feed
    from radiator.broker.services import Services
    from radiator.storage.partition import EndOffsets

JOIN_UNITS = 5  # per destination, and per log
LOOK_UP_UNITS = 15  # more, of a log in which a position has to be looked up
RIGHTS_UNITS = 2  # per name, unless the user may read everything
WAKE_UNITS = 1  # per reader and queue, once all are joined


class Joining:
    """The progress of one SUBSCRIBE.

    Args:
        subscription: The subscription; it has joined nothing yet.
        start: The start position of its readers; None: the end.
        starts: Start offsets by partition (``start-at``), which take precedence.
        stop: The stop position; None: none.
        now_ns: The time of the SUBSCRIBE, in nanoseconds since 1970.
    """

    __slots__ = ("_joined", "_end_offsets", "_now_ns", "_start", "_starts", "stop", "subscription")

    def __init__(
        self,
        subscription: Subscription,
        start: Position | None,
        starts: Mapping[str, int],
        stop: Position | None,
        now_ns: WallNs,
    ) -> None:
        self.subscription = subscription
        self._start = start
        self._starts = starts
        self.stop = stop
        self._now_ns = now_ns
        self._joined: list[Destination] = []
        self._end_offsets: EndOffsets

    def steps(self, broker: Services) -> Steps:
        """Join every matching destination, in steps.

        Raises:
            ProtocolError: A destination or a limit refuses it.
        """
        subscription, asked = self.subscription, self.subscription.asked
        subscription.begin_joining()
        with self._begun(broker):
            for name in asked.names:
                self._join(broker, broker.destination(name))
                yield True
            if not asked.is_literal:
                if self.stop is None:
                    broker.creation.watch(subscription)
                for found in searching.matching(broker, asked):
                    if found is not None and (destination := broker.destinations.get(found)) is not None:
                        self._join(broker, destination)
                    yield True
            if any(each is not None and each.kind == "last" for each in (self._start, self.stop)):
                yield from last_messages.place(
                    broker.budget, broker.reading, subscription, self._joined, self._start, self.stop, self._starts
                )
        subscription.end_joining()

    def wake(self, broker: Services) -> Steps:
        """Make the subscription's readers and queues ready, in steps. Called once all are joined."""
        subscription, ready, budget = self.subscription, broker.ready, broker.budget
        ready.credit_session(subscription.session)
        for reader in list(subscription.readers.values()):
            ready.reader(reader)
            budget.spend(WAKE_UNITS)
            yield True
        for queue in list(subscription.queues):
            queue.credited(subscription)
            ready.queue(queue)
            budget.spend(WAKE_UNITS)
            yield True

    @contextmanager
    def _begun(self, broker: Services) -> Iterator[None]:
        self._end_offsets = broker.store.end_offsets()
        try:
            yield
        finally:
            self._end_offsets.close()

    def _join(self, broker: Services, destination: Destination) -> None:
        """Join a destination, if it is permitted and not joined yet."""
        subscription, name = self.subscription, destination.name
        session, right = subscription.session, subscription.right
        if destination in subscription.destinations or subscription.closed:
            return
        if name not in subscription.asked.names:
            if name.startswith(TEMPORARY):
                return
            if not session.rights.covers_all(right):
                broker.budget.spend(RIGHTS_UNITS)
                if not session.rights.may(right, name):
                    return
        if fan_out.is_passed_over(destination, subscription.asked, subscription.browser):
            return
        _check_starts(self._starts, destination)
        session.joined.check()
        broker.memory_watch.require_subscription(JOINED_BYTES)
        broker.budget.spend(JOIN_UNITS * (1 + len(destination.feeds)))
        if any(each is not None and each.kind == "last" for each in (self._start, self.stop)):
            self._joined.append(destination)
        if destination.queue is not None and not subscription.browser:
            if subscription.prefetch == 0:
                without_limit([destination], None, subscription.ack, session.limits.in_flight)
            broker.consume(subscription, destination)
            return
        subscription.enter(destination)
        for feed in fan_out.read_for(destination):
            self._read(broker, destination, feed, self._end_offsets.end_of(feed.partition))

    def _read(self, broker: Services, destination: Destination, feed: Feed, end: int) -> None:
        """Start a reader on one partition, or let an existing reader include this destination."""
        subscription, partition, start = self.subscription, feed.partition, self._start
        reader = subscription.readers.get(feed)
        if reader is None:
            reader = Reader(subscription, feed, end, end)
            if feed not in destination.feeds:
                reader.show_only(destination.queue)
            if subscription.browser and start is None and destination.policy.kind == "queue":
                reader.browse()
            broker.read(subscription, feed, reader)
            if self.stop is not None:
                _set_stop(broker, reader, self.stop, end, self._now_ns)
        if partition.name in self._starts:
            reader.start_at(self._starts[partition.name])
            return
        _set_start(broker, reader, start or NEXT)


def _check_starts(starts: Mapping[str, int], destination: Destination) -> None:
    """Refuse an offset in ``start-at`` that its log has not reached: the client followed another log."""
    for partition in [feed.partition for feed in destination.feeds] if starts else ():
        if starts.get(partition.name, -1) >= partition.next_offset:
            raise ProtocolError(
                "bad-position",
                f"header start-at: {partition.name[:300]} has no offset {starts[partition.name]}, "
                f"its log ends at {partition.next_offset}",
                "The log was restored from a backup, lost its end in a power failure, or is stored in memory.",
            )


def _set_start(broker: Services, reader: Reader, start: Position) -> None:
    partition = reader.feed.partition
    first = partition.log_start_offset
    if reader.skip_settled:
        return
    if start == FIRST:
        reader.start_at(first)
    elif start.kind == "offset":
        reader.start_at(start.value)
    elif start.kind == "time":

        def begin(found: Any) -> None:
            reader.place_at(found.offset)

        broker.reading.resolve([reader], partial(partition.offset_for_time, start.value), begin)


def _set_stop(broker: Services, reader: Reader, stop: Position, end: int, now_ns: WallNs) -> None:
    first = reader.feed.partition.log_start_offset
    if stop.kind in ("end", "next", "last"):
        reader.stop_before(end)  # for ``last`` until the look-up has found its place
    elif stop.kind == "first":
        reader.stop_before(first)
    elif stop.kind == "offset":
        reader.stop_before(stop.value + 1)
    elif stop.value > now_ns:
        broker.stop_at(WallNs(stop.value), reader)
    else:
        stop_at(broker, reader, stop.value)


def stop_at(broker: Services, reader: Reader, time_ns: int) -> None:
    """Let a reader stop before the first record that was received at ``time_ns`` or later. The time has passed.

    Args:
        broker: The services of the broker.
        reader: The reader; it waits for the look-up.
        time_ns: The time, in nanoseconds since 1970.
    """

    def then(found: Any) -> None:
        reader.stop_before(found.offset)

    if not reader.subscription.closed:
        broker.reading.resolve([reader], partial(reader.feed.partition.offset_for_time, time_ns), then)
