"""``last:N``: where the last N messages of each destination begin, which may have several logs, and share them.

    one log, its own, nothing taken out        told by the numbers alone
    one log                                    a look-up counts backwards, for all destinations of the log at once
    several                                    they are walked backwards together, by the time of receipt

What was sent before the SUBSCRIBE counts, stored or not: a look-up begins when it is stored.

Knows: destinations, readers, look-ups. Must not know: headers.
Invariant: destinations that have a log in common are looked up together, so a reader is placed once.
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

PART_UNITS = 2  # of a log, to find what it has in common with others
PLACE_UNITS = 10  # of a log, to find where a reader begins or stops, or to ask for that

Keys = dict[str, str]  # which names of a log count, and for which destination
Part = dict["Feed", Keys]
Found = dict[str, int]  # an offset for each name


def parts(budget: Budget, destinations: Iterable[Destination]) -> Generator[bool, None, list[Part]]:
    """The logs of these destinations, and of those that feed them; together what has a log in common. Returns them
    when all steps are done."""
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
    """Put the readers of a subscription at their ``last:N``; but not where ``starts`` says where to begin."""
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
    """The same as a look-up would, if the numbers of the log tell it."""
    feed, names = next(iter(part.items()))
    partition = feed.partition
    first, end, dense = partition.log_start_offset, partition.next_offset, partition.dense_from
    if len(part) > 1 or feed.destinations > 1 or not (dense <= first or end - number >= dense):
        return None
    return {partition.name: dict.fromkeys(names, max(first, end - number))}


def look_up(part: Part, number: int) -> tuple[Callable[[], Any], Ends]:
    """What makes the job, once what lies below these ends is stored."""
    feed = next(iter(part))
    if len(part) == 1 and feed.destinations == 1:
        partition, end = feed.partition, feed.partition.next_offset
        # The last of them are not stored yet; if it has to be tried again, there are more that are.
        return lambda: partition.offset_of_last(max(0, number + partition.high_watermark - end)), []
    wanted = [Wanted(feed.partition, feed.partition.next_offset, keys) for feed, keys in part.items()]
    return partial(LastJob, wanted, number), [(each.partition, each.end_offset) for each in wanted]


def found_in(finished: Any, feed: Feed, names: Iterable[str]) -> Found:
    """What such a job has found in one of its logs."""
    if isinstance(finished, LastJob):
        return finished.starts[feed.partition.name]
    return dict.fromkeys(names, finished.offset)


def _start(reader: Reader, found: Found) -> None:
    reader.start_at_each(found)


def _stop(reader: Reader, found: Found) -> None:
    reader.stop_at_each(found)
