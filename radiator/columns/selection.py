"""Select the records of a read: a conjunction of simple conditions that can be tested early and cheaply.

Conditions on text (destination, partition) are tested once per distinct name. Conditions on offsets and receive times
are ranges, so that planning can cut segments by their index, and the decoder can drop whole batches by their header.
Options and Spark's filters are both converted to a selection. Ranges are half-open: ``low <= value < high``.

Must not import pyspark or files. Instances are immutable and can be pickled.
Invariant: a method of a selection returns a selection that is equal or narrower; a record matches if every condition is
true.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from radiator.routing.pattern import PatternSet, parse_list

LOW, HIGH = -(1 << 63), (1 << 63) - 1  # the range of an i64; no record has HIGH as offset or time


@dataclass(frozen=True)
class NameCondition:
    """One condition on the name of a destination or a partition.

    Attributes:
        kind: ``in``, ``pattern``, ``starts``, ``ends`` or ``contains``.
        values: The names, patterns or parts of names; one of them must match.
        negated: True to select the names that do not match.
    """

    kind: str
    values: tuple[str, ...]
    negated: bool = False

    def matches(self, name: str) -> bool:
        """Return True if the condition is true for a name.

        Args:
            name: The name of a destination or a partition.
        """
        return _TESTS[self.kind](name, self.values) != self.negated


@lru_cache(maxsize=256)
def _pattern(text: str) -> PatternSet:
    return parse_list(text)


_TESTS: dict[str, Callable[[str, tuple[str, ...]], bool]] = {
    "in": lambda name, values: name in values,
    "pattern": lambda name, values: any(_pattern(text).matches(name) for text in values),
    "starts": lambda name, values: name.startswith(values),
    "ends": lambda name, values: name.endswith(values),
    "contains": lambda name, values: any(value in name for value in values),
}


@dataclass(frozen=True)
class Selection:
    """The conditions of a read. Without arguments it selects all records.

    Attributes:
        destinations: Conditions on the destination; all must be true.
        partitions: Conditions on the name of the partition; all must be true.
        offset_low: The first offset.
        offset_high: The offset after the last one.
        receive_low_ns: The first receive time, in nanoseconds since the epoch.
        receive_high_ns: The receive time after the last one, in nanoseconds since the epoch.
        starts: The first offset of single partitions, by name; ``offset_low`` is in effect too.
        ends: If given, only these partitions are read, each up to its end (exclusive).

    Example:
        >>> Selection().destination("pattern", "/topic/flights.*").offsets(low=10).offset_low
        10
    """

    destinations: tuple[NameCondition, ...] = ()
    partitions: tuple[NameCondition, ...] = ()
    offset_low: int = LOW
    offset_high: int = HIGH
    receive_low_ns: int = LOW
    receive_high_ns: int = HIGH
    starts: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[str, int] | None = None

    def destination(self, kind: str, *values: str, negated: bool = False) -> Selection:
        """Return a selection with one more condition on the destination.

        Args:
            kind: The kind of condition, see ``NameCondition``.
            *values: The names, patterns or parts of names.
            negated: True to select the destinations that do not match.
        """
        return replace(self, destinations=(*self.destinations, NameCondition(kind, values, negated)))

    def partition(self, kind: str, *values: str, negated: bool = False) -> Selection:
        """Return a selection with one more condition on the name of the partition.

        Args:
            kind: The kind of condition, see ``NameCondition``.
            *values: The names, patterns or parts of names.
            negated: True to select the partitions that do not match.
        """
        return replace(self, partitions=(*self.partitions, NameCondition(kind, values, negated)))

    def offsets(self, low: int = LOW, high: int = HIGH) -> Selection:
        """Return a selection that is narrowed to a range of offsets.

        Args:
            low: The first offset.
            high: The offset after the last one.
        """
        return replace(self, offset_low=max(self.offset_low, low), offset_high=min(self.offset_high, high))

    def received(self, low_ns: int = LOW, high_ns: int = HIGH) -> Selection:
        """Return a selection that is narrowed to a range of receive times.

        Args:
            low_ns: The first time, in nanoseconds since the epoch.
            high_ns: The time after the last one, in nanoseconds since the epoch.
        """
        return replace(
            self, receive_low_ns=max(self.receive_low_ns, low_ns), receive_high_ns=min(self.receive_high_ns, high_ns)
        )

    def until(self, ends: Mapping[str, int]) -> Selection:
        """Return a selection that reads only the given partitions, each to its end.

        Args:
            ends: The first offset that is not read, by partition.
        """
        own = self.ends
        if own is not None:
            ends = {name: min(end, own[name]) for name, end in ends.items() if name in own}
        return replace(self, ends=ends)

    def of(self, partitions: Collection[str]) -> Selection:
        """Return a selection whose ``starts`` and ``ends`` name only the given partitions.

        Args:
            partitions: The partitions of a read.
        """
        ends = self.ends
        return replace(
            self,
            starts={name: self.starts[name] for name in partitions if name in self.starts},
            ends=None if ends is None else {name: ends[name] for name in partitions if name in ends},
        )

    def wants_destination(self, name: str) -> bool:
        """Return True if a destination matches.

        Args:
            name: The destination.
        """
        return all(condition.matches(name) for condition in self.destinations)

    def wants_partition(self, name: str) -> bool:
        """Return True if a partition matches.

        Args:
            name: The name of the partition.
        """
        if self.ends is not None and name not in self.ends:
            return False
        return all(condition.matches(name) for condition in self.partitions)

    def offsets_of(self, partition: str) -> tuple[int, int]:
        """Return the half-open range of offsets to read of one partition.

        Args:
            partition: The name of the partition.
        """
        low, high = max(self.offset_low, self.starts.get(partition, LOW)), self.offset_high
        return low, high if self.ends is None else min(high, self.ends.get(partition, LOW))

    @property
    def by_time(self) -> bool:
        """True if the selection limits the receive time."""
        return self.receive_low_ns > LOW or self.receive_high_ns < HIGH

    @property
    def tested_columns(self) -> tuple[str, ...]:
        """The columns whose values decide which records of a partition match, the offset aside."""
        return ("receive_ns",) * self.by_time + ("destination",) * bool(self.destinations)


@dataclass(frozen=True)
class DeliveryFilter:
    """Conditions on the text columns of deliveries; all must be true. A null matches no condition.

    Attributes:
        conditions: Pairs of a column and a condition.
    """

    conditions: tuple[tuple[str, NameCondition], ...] = ()

    def where(self, column: str, kind: str, *values: str, negated: bool = False) -> DeliveryFilter:
        """Return a filter with one more condition.

        Args:
            column: The column, one of ``radiator.columns.deliveries.TEXTS``.
            kind: The kind of condition, see ``NameCondition``.
            *values: The texts, patterns or parts of texts.
            negated: True to select the rows that do not match.
        """
        return replace(self, conditions=(*self.conditions, (column, NameCondition(kind, values, negated))))
