"""The start of a queue's cursor in a log over which the queue has no cursor.

There are three possible reasons: the log is new, the queue was not bound to it until now, or the cursor was lost (a
kill before it was stored, deleted files). Only a record on the disk that is independent of the cursors may distinguish
the first two from the third. Without such a record the queue starts at the first message.

    messages in the log                                      the cursor starts
    none of the queue or of a fan-out source                 at the end
    some of the queue                                        at the first; if the queue was a fan-out source until now,
                                                             at the position of the slowest of its bound queues
    some of a fan-out source that was a queue of its own     at its position, acknowledgements included
    the source was a topic, or had only other bound queues,  at the end
    in the last run
    otherwise                                                at the first

With several rows that apply, the first one counts. A queue that is bound to a log in which it also stores messages has
one cursor for both. Then messages that the fan-out source had not settled are unsettled in this cursor too, although it
had passed them.

The rules of the last run are in a file (``storage.last_rules``).
The module knows rules, cursors, and the destinations of logs, but not sources or consumers.
Invariant: a start position does not depend on what the present start of the broker has created.
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
NO_SOURCES: Mapping[str, Policy] = {}


class Place(NamedTuple):
    """A start position. Settled is everything below ``floor``, and the ranges ``above``.

    Attributes:
        floor: The first unsettled offset.
        above: The settled ranges above ``floor``, as (start, stop).
        cursor: The cursor that the position was copied from, or None.
    """

    floor: int
    above: Ranges
    cursor: Cursor | None = None


class CursorStarts:
    """Opens the cursors of queues at the positions that the table above gives.

    Args:
        rules: The present rules.
        store: The logs and cursors.
    """

    __slots__ = ("_last_cursors", "_entries", "_parents", "_rules", "_store", "_last_rules", "_unopened")

    def __init__(self, rules: Rules, store: Store) -> None:
        self._rules = rules
        self._store = store
        self._last_cursors: set[tuple[str, str]] = set()  # the cursors of the last run
        self._unopened: set[tuple[str, str]] = set()  # those that no queue has opened yet
        self._parents: dict[str, dict[str, Policy]] = {}  # by bound queue: its sources with messages in some log
        self._entries: last_rules.Entries | None = None
        self._last_rules: PreviousRules | None = None  # the rules of the last run; None: unknown

    def use(self, rules: Rules) -> None:
        """Use other rules from now on."""
        self._rules = rules

    # --- start of the broker ------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Read what the last run has left. Called before any cursor is created."""
        store = self._store
        self._last_cursors = set(store.cursors.names())
        self._unopened = set(self._last_cursors)
        self._entries = last_rules.load(store.fs, store.root)
        try:
            self._last_rules = None if self._entries is None else PreviousRules(self._entries)
        except ValueError as error:
            log.warning("%s: the rules of the last run cannot be used: %s", store.root, error)
        feeds = any(rule.fan_out for rule in self._rules.config.rules)  # without a fan_out there are no sources
        for partition in store.partitions.values() if feeds else ():
            for name in partition.destinations:
                try:
                    policy = self._rules.policy_for(name)
                except ProtocolError:
                    continue  # the registry logs it
                for child in policy.fan_out:
                    self._parents.setdefault(child, {})[name] = policy

    def made(self) -> None:
        """Store the present rules: all destinations of the last run exist again.

        Raises:
            StorageError: The rules could not be stored.
        """
        self._last_cursors.clear()
        self._unopened.clear()
        self._parents.clear()
        self._last_rules = None
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
        self,
        opening: CursorCreation,
        name: str,
        policy: Policy,
        partition: Any,
        feeding: Mapping[str, Policy] = NO_SOURCES,
    ) -> Cursor:
        """Open the cursor of a queue over a log; create it at its start position.

        Args:
            opening: The creation that the cursor belongs to.
            name: The name of the queue.
            policy: The policy of the queue.
            partition: The log.
            feeding: A fan-out source that is about to be created, with its policy, by name.

        Raises:
            StorageError: The cursor could not be created.
        """
        parents = {**self._parents.get(name, NO_SOURCES), **feeding}
        cursors, key = self._store.cursors, (cursor_names.of_queue(name), partition.name)
        existing = cursors.get(*key)
        places: list[Place] = []
        if existing is None:
            own = partition.name in policy.partitions
            places = self._places(name, own, partition, parents)
        elif key in self._unopened:
            places = [
                place for each in sorted(parents) if (place := self._beside_own_cursor(each, parents[each], partition))
            ]
            if places:
                places.append(Place(existing.floor, existing.intervals, existing))
                cursors.delete(*key)
        self._unopened.discard(key)
        floor, above = settled_in_all(places, partition.high_watermark)
        if isinstance(partition, MemoryPartition):
            return Cursor(floor)
        cursor, _ = opening.open(*key, floor, policy.settings.sync)
        for start, stop in above:
            cursor.ack_range(start, stop)
        for place in places:
            _copy_deliveries(cursor, place.cursor)
        return cursor

    def _places(self, name: str, own: bool, partition: Any, parents: Mapping[str, Policy]) -> list[Place]:
        """Return the start position for each owner of messages in the log: the queue, and its fan-out sources."""
        places = []
        if own and _may_hold(partition, name):
            places.append(self._slowest_of_bound_queues(name, partition))
        for parent in sorted(parents):
            if _may_hold(partition, parent):
                place = self._as_own_queue(parent, parents[parent], partition)
                places.append(place or self._start_in_source(parent, parents[parent], name, partition))
        return places

    def _slowest_of_bound_queues(self, name: str, partition: Any) -> Place:
        children = self._last_rules.of(name).children if self._last_rules is not None else ()
        keys = [(cursor_names.of_queue(child), partition.name) for child in children]
        cursors = [self._store.cursors.get(*key) for key in keys if key in self._last_cursors]
        floors = [cursor.floor for cursor in cursors if cursor is not None]
        whole = bool(floors) and len(floors) == len(children)
        return Place(max(partition.log_start_offset, min(floors)) if whole else partition.log_start_offset, [])

    def _as_own_queue(self, parent: str, policy: Policy, partition: Any) -> Place | None:
        """Return the position of a fan-out source that was a queue of its own until now."""
        key = (cursor_names.of_queue(parent), partition.name)
        cursor = self._store.cursors.get(*key) if key in self._last_cursors else None
        if cursor is None or policy.kind != "queue" or partition.name not in policy.partitions:
            return None
        return Place(cursor.floor, cursor.intervals, cursor)

    def _beside_own_cursor(self, parent: str, policy: Policy, partition: Any) -> Place | None:
        """Return the same if the queue has a cursor here already.

        The cursor of the source may be deleted; then only the rules of the last run say that it was a queue.
        """
        if policy.kind != "queue" or partition.name not in policy.partitions or not _may_hold(partition, parent):
            return None
        own = self._as_own_queue(parent, policy, partition)
        alone = self._last_rules is not None and self._last_rules.of(parent) == ("queue", ())
        return own or (Place(partition.log_start_offset, []) if alone else None)

    def _start_in_source(self, parent: str, policy: Policy, child: str, partition: Any) -> Place:
        last = self._last_rules.of(parent) if self._last_rules is not None else None
        if last is not None and child not in last.children and (last.children or last.kind == policy.kind == "topic"):
            return Place(partition.high_watermark, [])
        return Place(partition.log_start_offset, [])


def _may_hold(partition: Any, name: str) -> bool:
    return name in partition.destinations or not partition.whole


def _copy_deliveries(cursor: Cursor, before: Cursor | None) -> None:
    """Copy the delivery counts of ``before`` to a cursor that takes its place."""
    if before is None:
        return
    cursor.mark_delivered(max(cursor.delivered, before.delivered))
    for offset, count in before.counts.items():
        if offset >= cursor.floor and not cursor.is_acked(offset):
            cursor.set_count(offset, count)


def settled_in_all(places: list[Place], end: int) -> tuple[int, Ranges]:
    """Return the floor and the settled ranges above it of a cursor that needs everything that any position needs.

    Args:
        places: The positions.
        end: The floor without positions.
    """
    if not places:
        return end, []
    common = [(0, places[0].floor), *places[0].above]
    for place in places[1:]:
        common = list(_intersection(common, [(0, place.floor), *place.above]))
    floor = next((stop for start, stop in common if start == 0), 0)
    return floor, [each for each in common if each[0] > floor]


def _intersection(one: Ranges, other: Ranges) -> Iterator[tuple[int, int]]:
    """Yield the ranges that are in both of two ordered lists."""
    left, right = 0, 0
    while left < len(one) and right < len(other):
        start, stop = max(one[left][0], other[right][0]), min(one[left][1], other[right][1])
        if start < stop:
            yield start, stop
        if one[left][1] < other[right][1]:
            left += 1
        else:
            right += 1
