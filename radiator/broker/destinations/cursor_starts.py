"""Where a queue's cursor begins in a log over which it has none.

There are three reasons why it has none: nothing of it is there yet, it was not fed from there until now, or its cursor
was lost (a kill before it was stored, files that are gone). Only something that is on the disk and does not hang on the
cursors may tell the first two from the third; where nothing does, the queue begins with the first message.

    of the log's messages                                    it begins
    none is its own, or of a parent                          at the end
    some are its own                                         with the first; if it was a parent until now, where the
                                                             slowest of its children had come to
    some are a parent's, which was a queue of its own        where that had come to, acknowledgements included
    the parent was a topic, or had only other children,      at the end: from now on
    in the last run
    else                                                     with the first

Of several the first counts. A queue that is fed from a log which it stores into itself has one cursor for both; then
what the parent had not settled is unsettled in that, too, although it had been passed over as another's.

What the last run's rules said is in a file (``storage.last_rules``). Knows: rules, cursors, logs' lists of names. Must
not know: sources, consumers. Invariant: where a queue begins depends on nothing that this start has made.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from radiator.broker.logs import cursor_names
from radiator.clock import BEFORE
from radiator.errors import ProtocolError, StorageError
from radiator.routing.previous_rules import PreviousRules, entries_of
from radiator.storage import last_rules
from radiator.storage.cursor import Cursor
from radiator.storage.memory import MemoryPartition

if TYPE_CHECKING:
    from radiator.broker.destinations.cursor_creation import CursorCreation
    from radiator.routing.policy import Policy
    from radiator.routing.rules import Rules
    from radiator.storage.store import Store

log = logging.getLogger("radiator.broker")

Ranges = list[tuple[int, int]]
NOBODY: Mapping[str, Policy] = {}


class Place(NamedTuple):
    """Settled is what lies below ``floor``, and in ``above``. ``cursor``: what it was taken from."""

    floor: int
    above: Ranges
    cursor: Cursor | None = None


class CursorStarts:
    """See the top of the file."""

    __slots__ = ("_before", "_entries", "_parents", "_rules", "_store", "_then", "_unopened")

    def __init__(self, rules: Rules, store: Store) -> None:
        self._rules = rules
        self._store = store
        self._before: set[tuple[str, str]] = set()  # cursors that there were
        self._unopened: set[tuple[str, str]] = set()  # those of them that no queue has asked for yet
        self._parents: dict[str, dict[str, Policy]] = {}  # by child: those that have messages in some log
        self._entries: last_rules.Entries | None = None
        self._then: PreviousRules | None = None  # None: not known

    # --- a start ----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """What the last run has left, before anything is made of it."""
        store = self._store
        self._before = set(store.cursors.names())
        self._unopened = set(self._before)
        self._entries = last_rules.load(store.fs, store.root)
        try:
            self._then = None if self._entries is None else PreviousRules(self._entries)
        except ValueError as error:
            log.warning("%s: makes no sense: %s", store.root, error)
        feeds = any(rule.fan_out for rule in self._rules.config.rules)  # else nobody has a parent
        for partition in store.partitions.values() if feeds else ():
            for name in partition.destinations:
                try:
                    policy = self._rules.policy_for(name)
                except ProtocolError:
                    continue  # whoever goes through the names tells of it
                for child in policy.fan_out:
                    self._parents.setdefault(child, {})[name] = policy

    def made(self) -> None:
        """All that was there is there again. Raises StorageError."""
        self._before.clear()
        self._unopened.clear()
        self._parents.clear()
        self._then = None
        entries = entries_of(self._rules.config)
        if entries != self._entries:
            store = self._store
            try:
                store.store_cursors(BEFORE)
            except StorageError as error:
                log.warning("%s", error)
                last_rules.remove(store.fs, store.root)
            else:
                last_rules.replace(store.fs, store.root, entries)

    # --- cursors ----------------------------------------------------------------------------------------------------

    def open(
        self, opening: CursorCreation, name: str, policy: Policy, partition: Any, feeding: Mapping[str, Policy] = NOBODY
    ) -> Cursor:
        """The cursor of the queue ``name`` over this log. ``feeding``: a parent that is about to be. Raises
        StorageError."""
        parents = {**self._parents.get(name, NOBODY), **feeding}
        cursors, key = self._store.cursors, (cursor_names.of_queue(name), partition.name)
        there = cursors.get(*key)
        places: list[Place] = []
        if there is None:
            own = partition.name in policy.partitions
            places = self._places(name, own, partition, parents)
        elif key in self._unopened:
            places = [place for each in sorted(parents) if (place := self._handed_on(each, parents[each], partition))]
            if places:
                places.append(Place(there.floor, there.intervals, there))
                cursors.delete(*key)
        self._unopened.discard(key)
        floor, above = settled_in_all(places, partition.high_watermark)
        if isinstance(partition, MemoryPartition):
            return Cursor(floor)
        cursor, _ = opening.open(*key, floor, policy.settings.sync)
        for start, stop in above:
            cursor.ack_range(start, stop)
        for place in places:
            _go_on(cursor, place.cursor)
        return cursor

    def _places(self, name: str, own: bool, partition: Any, parents: Mapping[str, Policy]) -> list[Place]:
        """Where each that has messages here, or may have, wants to begin."""
        places = []
        if own and _may_hold(partition, name):
            places.append(self._left_by_children(name, partition))
        for parent in sorted(parents):
            if _may_hold(partition, parent):
                place = self._own_of(parent, parents[parent], partition)
                places.append(place or self._fed_from(parent, parents[parent], name, partition))
        return places

    def _left_by_children(self, name: str, partition: Any) -> Place:
        children = self._then.of(name).children if self._then is not None else ()
        keys = [(cursor_names.of_queue(child), partition.name) for child in children]
        cursors = [self._store.cursors.get(*key) for key in keys if key in self._before]
        floors = [cursor.floor for cursor in cursors if cursor is not None]
        whole = bool(floors) and len(floors) == len(children)
        return Place(max(partition.log_start_offset, min(floors)) if whole else partition.log_start_offset, [])

    def _own_of(self, parent: str, policy: Policy, partition: Any) -> Place | None:
        """Where a parent had come to that was a queue of its own until now."""
        key = (cursor_names.of_queue(parent), partition.name)
        cursor = self._store.cursors.get(*key) if key in self._before else None
        if cursor is None or policy.kind != "queue" or partition.name not in policy.partitions:
            return None
        return Place(cursor.floor, cursor.intervals, cursor)

    def _handed_on(self, parent: str, policy: Policy, partition: Any) -> Place | None:
        """The same for one who has a cursor here: that cursor may be gone, and only the rules tell what it was."""
        if policy.kind != "queue" or partition.name not in policy.partitions or not _may_hold(partition, parent):
            return None
        own = self._own_of(parent, policy, partition)
        alone = self._then is not None and self._then.of(parent) == ("queue", ())
        return own or (Place(partition.log_start_offset, []) if alone else None)

    def _fed_from(self, parent: str, policy: Policy, child: str, partition: Any) -> Place:
        then = self._then.of(parent) if self._then is not None else None
        if then is not None and child not in then.children and (then.children or then.kind == policy.kind == "topic"):
            return Place(partition.high_watermark, [])
        return Place(partition.log_start_offset, [])


def _may_hold(partition: Any, name: str) -> bool:
    return name in partition.destinations or not partition.whole


def _go_on(cursor: Cursor, before: Cursor | None) -> None:
    """What had been handed out by that one may have been handed out by this one."""
    if before is None:
        return
    cursor.mark_delivered(max(cursor.delivered, before.delivered))
    for offset, count in before.counts.items():
        if offset >= cursor.floor and not cursor.is_acked(offset):
            cursor.set_count(offset, count)


def settled_in_all(places: list[Place], end: int) -> tuple[int, Ranges]:
    """The floor, and what is settled above it, of one who needs what any of these needs; ``end`` where nobody does."""
    if not places:
        return end, []
    common = [(0, places[0].floor), *places[0].above]
    for place in places[1:]:
        common = list(_both(common, [(0, place.floor), *place.above]))
    floor = next((stop for start, stop in common if start == 0), 0)
    return floor, [each for each in common if each[0] > floor]


def _both(one: Ranges, other: Ranges) -> Iterator[tuple[int, int]]:
    """What lies in both, of ranges that are in order."""
    left, right = 0, 0
    while left < len(one) and right < len(other):
        start, stop = max(one[left][0], other[right][0]), min(one[left][1], other[right][1])
        if start < stop:
            yield start, stop
        if one[left][1] < other[right][1]:
            left += 1
        else:
            right += 1
