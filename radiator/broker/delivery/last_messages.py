"""Position ``last:N``: find where the last N messages of each destination begin.

A destination may have several logs, and a log may have several destinations:

    one log, not shared, without gaps      the offsets give the answer, without a read
    one log                                one look-up counts backwards, for all destinations of the log
    several logs                           one look-up walks them backwards together, by receive time

Messages that were sent before the SUBSCRIBE count, stored or not. A look-up starts once they are stored.

This module knows destinations, readers and look-ups. It knows no headers.

Invariant: destinations with a common log are looked up together, so each reader is placed once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from radiator.storage.last_messages import LastJob, Wanted

if TYPE_CHECKING:
    from radiator.broker.budget import Budget, Steps
    from radiator.broker.clients.session import Reader, Subscription
    from radiator.broker.delivery.cold_reads import ColdReads, Ends
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.headers.positions import Position
    from radiator.broker.logs.feed import Feed

PART_UNITS = 2  # per log: grouping it with logs of the same destinations
PLACE_UNITS = 10  # per log: placing a reader, or starting a look-up

Keys = dict[str, str]  # the names in a log that count, each with the destination that they count for
Part = dict["Feed", Keys]
Found = dict[str, int]  # destination name -> offset


def parts(budget: Budget, destinations: Iterable[Destination]) -> Generator[bool, None, list[Part]]:
    """Group the logs of destinations and of their fan-out sources. Destinations with a common log are in one group.

    Args:
        budget: The budget of the turn; each step spends some of it.
        destinations: The destinations.

    Returns:
        The groups, once all steps are done.
    """
    of: dict[Feed, Part] = {}
    for destination in destinations:
        budget.spend(PART_UNITS * len(destination.feeds))
        yield True
        part: Part = {feed: {destination.name: destination.name} for feed in destination.feeds}
        for parent in destination.parents:
            for feed in parent.feeds:
                part.setdefault(feed, {})[parent.name] = destination.name
        feeds = list(part)
        for other in {id(of[feed]): of[feed] for feed in feeds if feed in of}.values():
            small, part = sorted((part, other), key=len)
            for feed, keys in small.items():
                part.setdefault(feed, {}).update(keys)
                of[feed] = part
        of.update(dict.fromkeys(feeds, part))
    return list({id(part): part for part in of.values()}.values())


def place(
    budget: Budget,
    reading: ColdReads,
    subscription: Subscription,
    destinations: list[Destination],
    start: Position | None,
    stop: Position | None,
    starts: Mapping[str, int],
) -> Steps:
    """Place the readers of a subscription at their ``last:N`` positions, in steps.

    Args:
        budget: The budget of the turn.
        reading: Where look-ups are started.
        subscription: The subscription; it has a reader for each log of the destinations.
        destinations: The destinations.
        start: The start position; other kinds than ``last`` are ignored.
        stop: The stop position; other kinds than ``last`` are ignored.
        starts: Start offsets by partition (``start-at``), which take precedence over ``start``.
    """
    for part in (yield from parts(budget, destinations)):
        if subscription.closed:
            return
        budget.spend(PLACE_UNITS * len(part))
        yield True
        readers = {feed: subscription.readers[feed] for feed in part}
        if stop is not None and stop.kind == "last":
            _find(reading, part, readers, stop.value, _stop)
        placed = {feed: reader for feed, reader in readers.items() if feed.partition.name not in starts}
        if start is not None and start.kind == "last" and placed:
            _find(reading, {feed: part[feed] for feed in placed}, placed, start.value, _start)


def _find(
    reading: ColdReads, part: Part, readers: dict[Feed, Reader], number: int, then: Callable[[Reader, Found], None]
) -> None:
    at_once = from_offsets(part, number)
    if at_once is not None:
        for feed, reader in readers.items():
            then(reader, at_once[feed.partition.name])
        return

    make, ends = look_up(part, number)

    def placed(finished: Any) -> None:
        for feed, reader in readers.items():
            then(reader, found_in(finished, feed, part[feed]))

    reading.resolve(list(readers.values()), make, placed, ends)


def from_offsets(part: Part, number: int) -> dict[str, Found] | None:
    """Return the offsets of ``last:number`` by partition and destination, if no look-up is necessary for them.

    Returns:
        None if a look-up is necessary.
    """
    feed, names = next(iter(part.items()))
    partition = feed.partition
    first, end, dense = partition.log_start_offset, partition.next_offset, partition.dense_from
    if len(part) > 1 or feed.destinations > 1 or not (dense <= first or end - number >= dense):
        return None
    return {partition.name: dict.fromkeys(names, max(first, end - number))}


def look_up(part: Part, number: int) -> tuple[Callable[[], Any], Ends]:
    """Return a function that makes the look-up job, and the end offsets below which everything has to be stored first.

    Args:
        part: A group of logs (``parts``).
        number: N of ``last:N``.
    """
    feed = next(iter(part))
    if len(part) == 1 and feed.destinations == 1:
        partition, end = feed.partition, feed.partition.next_offset
        # Some of the last messages may not be stored yet. More of them are if the look-up is repeated.
        return lambda: partition.offset_of_last(max(0, number + partition.high_watermark - end)), []
    wanted = [Wanted(feed.partition, feed.partition.next_offset, keys) for feed, keys in part.items()]
    return partial(LastJob, wanted, number), [(each.partition, each.end_offset) for each in wanted]


def found_in(finished: Any, feed: Feed, names: Iterable[str]) -> Found:
    """Return the offsets that a finished look-up has found in one log, by destination."""
    if isinstance(finished, LastJob):
        return finished.starts[feed.partition.name]
    return dict.fromkeys(names, finished.offset)


def _start(reader: Reader, found: Found) -> None:
    reader.start_at_each(found)


def _stop(reader: Reader, found: Found) -> None:
    reader.stop_at_each(found)
