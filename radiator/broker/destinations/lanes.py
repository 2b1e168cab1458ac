"""Lanes: the logs of a queue with priorities, one for each priority, made when they are first used.

A message's lane is its header ``priority``. Sources of such a queue stand in it from the highest lane to the lowest,
and nothing is taken from a lane while a higher one has something (``Queue.pump``). All else (order, requeue in the
original place, restart) is what a log has anyway.

Knows: which lane, and in which order. Must not know: consumers, records.
Invariant: the lane of the default priority exists with the queue, so whoever watches the queue is found there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from radiator.broker.subscriptions.reader import Reader
from radiator.errors import ProtocolError
from radiator.routing.rules import DEFAULT_PRIORITY, PRIORITIES

if TYPE_CHECKING:
    from radiator.broker.broker import Broker
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.destinations.feed import Feed
    from radiator.broker.queues.queue import Queue
    from radiator.broker.queues.source import QueueSource
    from radiator.broker.subscriptions.subscription import Subscription
    from radiator.routing.policy import Policy

_LANE = re.compile(r"-p([0-9])\Z", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,9}", re.ASCII)


def priority_of(headers: Mapping[str, str]) -> int:
    """The priority of a message, 0 to 9; what lies beyond is the nearest of them. Raises ProtocolError."""
    text = headers.get("priority")
    if text is None:
        return DEFAULT_PRIORITY
    if _NUMBER.fullmatch(text) is None:
        raise ProtocolError(
            "bad-header",
            f"header priority: not a number: {text[:100]!r}",
            f"Expected 0 to {PRIORITIES - 1}, as the rule of the destination says priority: true.",
        )
    return min(max(int(text), 0), PRIORITIES - 1)


def at_birth(policy: Policy, stored: Mapping[str, object]) -> list[str]:
    """The lanes that a destination begins with: that of the default priority, and those that are ``stored``."""
    names = policy.partitions
    return [name for priority, name in enumerate(names) if priority == DEFAULT_PRIORITY or name in stored]


def lane_of(partition: str) -> int:
    """The priority of what a former log has: its name tells if it was a lane."""
    found = _LANE.search(partition)
    return DEFAULT_PRIORITY if found is None else int(found[1])


def put_in_order(queue: Queue) -> None:
    """Sort its sources: by priority, the highest first; former logs before others, of each priority or at all."""
    ordered = queue.ordered
    queue.sources = sorted(
        queue.sources, key=lambda each: (-each.lane, not each.former) if ordered else (not each.former, -each.lane)
    )


def given_up(queue: Queue) -> Iterable[QueueSource]:
    """In which order its sources give up a message to make room: the oldest, of the lowest priority."""
    if not queue.ordered:
        return [each for each in queue.sources if not each.fed]
    return sorted(queue.sources, key=lambda each: (each.lane, not each.former))


def holds(source: QueueSource, consumer: Subscription | None) -> bool:
    """True if this lane has something, or may have it when a read has ended: lower ones wait for it.

    Args:
        source: The lane.
        consumer: The one to which messages are handed out; None: to all.
    """
    if source.loading or source.ready:
        return True
    selectors, skipped = source.queue.selectors, source.skipped
    if skipped is None or selectors is None:
        return False
    return skipped.pending(None if consumer is None else selectors.group_of(consumer))


def watch(broker: Broker, destination: Destination, feed: Feed) -> None:
    """A lane was born: who looks at the queue, and has not been told to stop, looks there too."""
    others = [each for each in destination.feeds if each is not feed]
    for reader in list(others[0].readers) if others else ():
        subscription = reader.subscription
        if feed in subscription.readers or reader.stop_offset is not None:
            continue
        if destination not in subscription.destinations:
            continue
        start = feed.partition.next_offset
        new = Reader(subscription, feed, start, start)
        broker.read(subscription, feed, new)
        broker.stop_as(reader, new)
