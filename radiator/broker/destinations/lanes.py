"""Lanes: the logs of a queue with priorities, one for each priority, made when they are first used.

A message's lane is its header ``priority``. Sources of such a queue stand in it from the highest lane to the lowest,
and nothing is taken from a lane while a higher one has something (``Queue.pump``). All else (order, requeue in the
original place, restart) is what a log has anyway.

Knows: which lane, and in which order. Must not know: consumers, records.
Invariant: the lane of the default priority exists with the queue, so whoever watches the queue is found there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from radiator.broker.subscriptions.reader import Reader
from radiator.errors import ProtocolError
from radiator.routing.rules import DEFAULT_PRIORITY, PRIORITIES

if TYPE_CHECKING:
    from radiator.broker.broker import Broker
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.destinations.feed import Feed
    from radiator.broker.queues.source import QueueSource
    from radiator.routing.policy import Policy

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


def highest_first(policy: Policy, source: QueueSource) -> int:
    """The key by which the sources of a queue with priorities are sorted."""
    return -policy.partitions.index(source.feed.partition.name)


def holds(source: QueueSource) -> bool:
    """True if this lane has something, or may have it when a read has ended: lower ones wait for it."""
    return source.loading or source.ready


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
