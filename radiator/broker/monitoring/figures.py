"""Numbers about one destination or queue, from cursors and ends of logs. Nothing is counted per message for them.

A log that several destinations share is not read, so numbers about it are unknown (None).

This module changes nothing, and runs on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.queues.queue import Queue
    from radiator.clock import WallNs

COUNTED: Final = ("ready", "in_flight", "delayed", "dead_lettering", "unchecked", "total")  # messages of a queue


def counts(queue: Queue, now_ns: WallNs) -> dict[str, int | None]:
    """Return the numbers of waiting and unacknowledged messages of a queue, by the names in ``COUNTED``."""
    if any(source.shared for source in queue.sources):
        return dict.fromkeys(COUNTED)
    waiting = delayed = dead_lettering = unchecked = total = 0
    for source in queue.sources:
        cursor = source.cursor
        settled = cursor.settled_above + cursor.floor
        waiting += source.available + source.fresh + len(source.deferred)
        delayed += source.delayed(now_ns)
        dead_lettering += source.burying
        unchecked += source.unlooked
        total += source.feed.partition.next_offset - settled - source.unflushed
    figures = (waiting - delayed, max(0, total - waiting - dead_lettering), delayed, dead_lettering, unchecked, total)
    return dict(zip(COUNTED, figures, strict=True))


def ready(queue: Queue, now_ns: WallNs) -> int | None:
    """Return the number of messages that a consumer would get now, with less work than ``counts``."""
    waiting = 0
    for source in queue.sources:
        if source.shared:
            return None
        waiting += source.available + source.fresh + len(source.deferred)
    return waiting - sum(source.delayed(now_ns) for source in queue.sources) if waiting else 0


def published(destination: Destination) -> int | None:
    """Return how many messages were ever sent to a destination."""
    total = 0
    for feed in destination.feeds:
        if feed.destinations > 1 or len(feed.partition.destinations) > 1:
            return None
        total += feed.partition.next_offset
    return total


def delivered(queue: Queue) -> int:
    """Return a number that grows by one for each message that is delivered for the first time, or passed over."""
    return sum(source.next_offset for source in queue.sources)


def settled(queue: Queue) -> int:
    """Return a number that grows by one for each message that is settled."""
    return sum(source.cursor.floor + source.cursor.settled_above + source.unflushed for source in queue.sources)


def _count(name: str) -> Callable[[Destination, WallNs], int]:
    def value(destination: Destination, now_ns: WallNs) -> int:
        if destination.queue is None:
            return -1
        found = counts(destination.queue, now_ns)[name]
        return -1 if found is None else found

    return value


def _published(destination: Destination, now_ns: WallNs) -> int:
    found = published(destination)
    return -1 if found is None else found


def _bytes(destination: Destination, now_ns: WallNs) -> int:
    return sum(feed.partition.size_bytes for feed in destination.feeds)


def _consumers(destination: Destination, now_ns: WallNs) -> int:
    return destination.subscribers if destination.queue is None else len(destination.queue.consumers)


ORDERS: Final[dict[str, Callable[[Destination, WallNs], int]]] = {
    "ready": _count("ready"),
    "in_flight": _count("in_flight"),
    "bytes": _bytes,
    "consumers": _consumers,
    "published": _published,
}
"""What a list of destinations can be sorted by, beside the name. An unknown number counts as -1."""
