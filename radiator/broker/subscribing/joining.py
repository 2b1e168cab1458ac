"""Joining: a subscription joins the destinations that it matches, one after the other.

A SUBSCRIBE may match a hundred thousand destinations, and each needs a reader or a consumer. Each turn joins as many as
the budget allows; a small SUBSCRIBE is done in one turn. The result is the same: the end offsets of all logs are taken
at the start (``partition.EndOffsets``), so the subscription reads from one moment on, and gets all messages of a
transaction or none. Nothing is delivered before all destinations are joined, and the RECEIPT is sent first.
Destinations that are created meanwhile are joined at their creation.

This module knows readers and positions. It knows no receipts.

Invariants: a turn joins no more than the budget allows, plus one destination; no destination is joined twice; while
``subscription.joining``, its readers wait and it has no credit with queues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from radiator.broker.clients.joined import JOINED_BYTES
from radiator.broker.clients.session import Reader, Subscription
from radiator.broker.destinations import fan_out
from radiator.broker.headers.positions import FIRST
from radiator.broker.subscribing import searching
from radiator.clock import WallNs
from radiator.errors import ProtocolError
from radiator.routing.rules import TEMPORARY

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.headers.subscribe import SubscribeHeaders
    from radiator.broker.logs.feed import Feed
    from radiator.broker.services import Services
    from radiator.storage.partition import EndOffsets, Partition

JOIN_UNITS = 5  # per destination, and per log
RIGHTS_UNITS = 2  # per name, unless the user may read everything
WAKE_UNITS = 1  # per reader and queue, once all are joined


class Joining:
    """The progress of one SUBSCRIBE.

    Args:
        subscription: The subscription; it has joined nothing yet.
        headers: The headers of the SUBSCRIBE.
        now_ns: The time of the SUBSCRIBE, in nanoseconds since 1970.
    """

    __slots__ = ("_end_offsets", "_headers", "_joined", "_now_ns", "_subscription")

    def __init__(self, subscription: Subscription, headers: SubscribeHeaders, now_ns: WallNs) -> None:
        self._subscription = subscription
        self._headers = headers
        self._now_ns = now_ns
        self._joined: list[Destination] = []
        self._end_offsets: EndOffsets

    def steps(self, broker: Services) -> Steps:
        """Join every matching destination, in steps.

        Raises:
            ProtocolError: A destination or a limit refuses it.
        """
        subscription, asked = self._subscription, self._subscription.asked
        subscription.begin_joining()
        with self._begun(broker):
            for name in asked.names:
                yield from broker.until_removed(name)
                is_new = name not in broker.destinations
                self._join(broker, broker.destination(name))
                if is_new and not subscription.browser:
                    broker.idle.ask(broker.destinations[name], self._headers.auto_delete, self._headers.expires_ns)
                yield True
            if not asked.is_literal:
                if self._headers.stop is None:
                    broker.creation.watch(subscription)
                for found in searching.matching(broker, asked):
                    if found is not None and (destination := broker.destinations.get(found)) is not None:
                        self._join(broker, destination)
                    yield True
            yield from broker.reading.place(broker.budget, subscription, self._joined, self._headers, self._now_ns)
        subscription.end_joining()

    def wake(self, broker: Services) -> Steps:
        """Make the subscription's readers and queues ready, in steps. Called once all are joined."""
        subscription, ready, budget = self._subscription, broker.ready, broker.budget
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
        headers = self._headers
        subscription, name = self._subscription, destination.name
        if destination in subscription.destinations or subscription.closed:
            return
        if name not in subscription.asked.names:
            if name.startswith(TEMPORARY):
                return
            if subscription.patterns is not subscription.asked:
                broker.budget.spend(RIGHTS_UNITS)
                if not subscription.patterns.matches(name):
                    return
        if fan_out.is_passed_over(destination, subscription.asked, subscription.browser):
            return
        _check_starts(headers.starts, destination)
        subscription.session.joined.check()
        broker.memory_watch.require_subscription(JOINED_BYTES)
        broker.budget.spend(JOIN_UNITS * (1 + len(destination.feeds)))
        self._joined.append(destination)
        if destination.queue is not None and not subscription.browser:
            if headers.prefetch == 0:
                subscription.check_unlimited([destination])
            broker.consume(subscription, destination)
            return
        subscription.enter(destination)
        for feed in fan_out.read_for(destination):
            self._read(broker, destination, feed)

    def _read(self, broker: Services, destination: Destination, feed: Feed) -> None:
        """Start a reader on one partition, or let an existing reader include this destination."""
        headers = self._headers
        subscription, end = self._subscription, self._end_offsets.end_of(feed.partition)
        start, stop = self._start_in(feed.partition), self._stop_in(feed.partition, end)
        reader = subscription.readers.get(feed)
        if reader is None:
            reader = Reader(subscription, feed, end, end, stop)
            if feed not in destination.feeds:
                reader.show_only(destination.queue)
            if subscription.browser and headers.start is None and destination.policy.kind == "queue":
                reader.browse()
            broker.read(subscription, feed, reader)
            if headers.stop is not None and headers.stop.kind == "time" and headers.stop.value > self._now_ns:
                broker.stop_at(WallNs(headers.stop.value), reader)
        if start is not None:
            reader.start_at(start)

    def _start_in(self, partition: Partition) -> int | None:
        """Return the offset where a reader begins; None: at the end, or where a look-up finds the position."""
        start = self._headers.start
        if partition.name in self._headers.starts:
            return self._headers.starts[partition.name]
        if start is not None and start.kind == "offset":
            return start.value
        return partition.log_start_offset if start == FIRST else None

    def _stop_in(self, partition: Partition, end: int) -> int | None:
        """Return the offset before which a reader stops; None: none, or where a look-up finds the position."""
        stop = self._headers.stop
        if stop is None or stop.kind == "time":
            return None
        if stop.kind == "offset":
            return stop.value + 1
        return partition.log_start_offset if stop == FIRST else end  # ``last``: until the look-up has found its place


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
