"""Brokers with a bug each, on purpose: the checkers must notice every one of them, or their silence means nothing.

Those that the simulation has to do itself, as they are bugs of the shell, are told by their names alone (``SHELL``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappush
from typing import Any, NamedTuple
from unittest.mock import patch

from radiator.broker.destinations import lanes
from radiator.broker.due import moments
from radiator.broker.due.timing import NEVER_NS
from radiator.broker.named.names import Names
from radiator.broker.queues import dead_letters, selective
from radiator.broker.queues.dead_letters import DeadLetters
from radiator.broker.queues.owners import Owners
from radiator.broker.queues.queue import Queue
from radiator.broker.queues.returning import Returns
from radiator.broker.queues.selection import NO, YES, Selection
from radiator.clock import NS_PER_SECOND
from radiator.storage.cursor_store import CursorStore
from radiator.storage.partition import Partition

Make = Callable[[Any], Any]
SHELL = ["receipt before sync", "acks forgotten", "a window too wide", "no redo log", "ids forgotten"]
BUGS: dict[str, Bug] = {}


class Bug(NamedTuple):
    """What is wrong, and the ``cast`` that has to meet it."""

    owner: Any
    attribute: str
    make: Make
    cast: str


def bug(owner: Any, name: str, cast: str = "choosy") -> Callable[[Make], Make]:
    """What is decorated gets what is right and returns what is wrong; its own name tells the bug."""

    def add(make: Make) -> Make:
        BUGS[make.__name__.replace("_", " ")] = Bug(owner, name, make, cast)
        return make

    return add


@contextmanager
def broken(name: str) -> Iterator[None]:
    """For a time; without a name, or with one of ``SHELL``, nothing is broken here."""
    if name not in BUGS:
        assert not name or name in SHELL, name
        yield
        return
    owner, attribute, make, _ = BUGS[name]
    with patch.object(owner, attribute, make(getattr(owner, attribute))):
        yield


@bug(dead_letters, "MemoryPartition", "plain")
def a_dead_letter_and_its_ack_apart(right: Any) -> Any:
    return Partition


@bug(DeadLetters, "decided", "plain")
def a_dead_letter_twice(right: Any) -> Any:
    """Whoever has buried it does not know, and does it again."""

    def decided(self: Any, letter: Any, together: bool, holds: bool) -> None:
        if holds and letter.offset % 3 == 0 and letter.deliveries < 1_000:
            self.bury([letter._replace(deliveries=1_000)])
        else:
            right(self, letter, together, holds)

    return decided


@bug(Owners, "_held")
def a_partition_is_given_to_the_next_before_the_last_is_done(right: Any) -> Any:
    return lambda self, source, wanted, consumers: False


@bug(Owners, "takers")
def partitions_of_a_group_belong_to_nobody(right: Any) -> Any:
    return lambda self, source, consumers: consumers


@bug(Queue, "_hand_out")
def what_comes_back_waits_for_what_is_new(right: Any) -> Any:
    def hand_out(self: Any, source: Any, credits: Any, count_max: int) -> Any:
        back = []
        if source.returned and source.next_offset < source.feed.partition.high_watermark:
            back, source.returned = source.returned, []
        try:
            return right(self, source, credits, count_max)
        finally:
            for offset in back:
                heappush(source.returned, offset)

    return hand_out


@bug(Returns, "left")
def what_a_member_held_is_settled_when_it_goes(right: Any) -> Any:
    def left(self: Any, source: Any, offsets: Any) -> None:
        if source.queue.name.startswith(("group:", "sub:")):
            source.settle(offsets)
        else:
            right(self, source, offsets)

    return left


@bug(Names, "_take_over")
def a_name_is_not_taken_over(right: Any) -> Any:
    return lambda self, named: None


@bug(CursorStore, "delete")
def a_deleted_name_keeps_its_place(right: Any) -> Any:
    return lambda self, name, where=None: None


@bug(Owners, "active")
def nobody_is_exclusive(right: Any) -> Any:
    return property(lambda self: None)


@bug(Owners, "active")
def the_last_exclusive_consumer_has_its_turn(right: Any) -> Any:
    return property(lambda self: next(reversed(self._alone), None))


@bug(Selection, "verdicts")
def a_selector_takes_everything(right: Any) -> Any:
    return lambda self, wire, batch, start, stop: bytearray([YES]) * len(batch)


@bug(Selection, "verdicts")
def a_selector_misses_one(right: Any) -> Any:
    def verdicts(self: Any, wire: Any, batch: Any, start: int, stop: int) -> bytearray:
        found = bytearray(right(self, wire, batch, start, stop))
        for index, offset in enumerate(batch.offsets):
            if offset % 5 == 2:
                found[index] = NO
        return found

    return verdicts


@bug(selective, "_park")
def what_nobody_wants_now_is_settled(right: Any) -> Any:
    return lambda source, parked, verdicts, batch, index: source.settle([batch.offsets[index]])


@bug(selective, "_unpark")
def what_was_parked_is_not_looked_at_again(right: Any) -> Any:
    return lambda source, parked, takers: None


@bug(lanes, "put_in_order")
def the_lowest_priority_goes_first(right: Any) -> Any:
    def put_in_order(queue: Queue) -> None:
        right(queue)
        queue.sources.reverse()

    return put_in_order


@bug(moments, "_deliver_at")
def what_is_to_wait_does_not(right: Any) -> Any:
    return lambda block: None


@bug(moments, "expiry")
def what_has_expired_is_delivered(right: Any) -> Any:
    return lambda batch, index, ttl_ns: NEVER_NS


@bug(moments, "expiry")
def what_expires_does_so_too_early(right: Any) -> Any:
    return lambda batch, index, ttl_ns: right(batch, index, ttl_ns) - 1_000_000 * NS_PER_SECOND
