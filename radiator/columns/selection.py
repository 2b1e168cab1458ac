"""Which records a read wants: a conjunction of small conditions, in a form that can be tested early and cheaply.

Conditions on text (destination, partition) are tested once per distinct name; those on offsets and receive times are
ranges, so the planner can cut segments by its index and the decoder can drop whole batches by their header. Options
and pushed filters both end here. Bounds are half open: ``low <= value < high``.

Knows: names, offsets, times. Must not know: pyspark, files. Instances are immutable and can be pickled.
Invariant: a selection only ever narrows; a record is in it exactly if every condition holds for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from radiator.routing.pattern import PatternSet, parse_list

LOW, HIGH = -(1 << 63), (1 << 63) - 1  # of an i64; no record has HIGH as offset or time


@dataclass(frozen=True)
class NameCondition:
    """One condition on a destination or a partition name. ``kind`` is a key of ``_TESTS``."""

    kind: str
    values: tuple[str, ...]
    negated: bool = False

    def matches(self, name: str) -> bool:
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
    destinations: tuple[NameCondition, ...] = ()
    partitions: tuple[NameCondition, ...] = ()
    offset_low: int = LOW
    offset_high: int = HIGH
    receive_low_ns: int = LOW
    receive_high_ns: int = HIGH
    starts: Mapping[str, int] = field(default_factory=dict)  # per partition, over and above offset_low
    ends: Mapping[str, int] | None = None  # if given: only these partitions, each below its end

    def destination(self, kind: str, *values: str, negated: bool = False) -> Selection:
        return replace(self, destinations=(*self.destinations, NameCondition(kind, values, negated)))

    def partition(self, kind: str, *values: str, negated: bool = False) -> Selection:
        return replace(self, partitions=(*self.partitions, NameCondition(kind, values, negated)))

    def offsets(self, low: int = LOW, high: int = HIGH) -> Selection:
        return replace(self, offset_low=max(self.offset_low, low), offset_high=min(self.offset_high, high))

    def received(self, low_ns: int = LOW, high_ns: int = HIGH) -> Selection:
        return replace(
            self, receive_low_ns=max(self.receive_low_ns, low_ns), receive_high_ns=min(self.receive_high_ns, high_ns)
        )

    def of(self, partitions: Collection[str]) -> Selection:
        """The same for a read of these partitions, without what it says of others."""
        ends = self.ends
        return replace(
            self,
            starts={name: self.starts[name] for name in partitions if name in self.starts},
            ends=None if ends is None else {name: ends[name] for name in partitions if name in ends},
        )

    def wants_destination(self, name: str) -> bool:
        return all(condition.matches(name) for condition in self.destinations)

    def wants_partition(self, name: str) -> bool:
        if self.ends is not None and name not in self.ends:
            return False
        return all(condition.matches(name) for condition in self.partitions)

    def offsets_of(self, partition: str) -> tuple[int, int]:
        """The half open range of offsets wanted of one partition."""
        low, high = max(self.offset_low, self.starts.get(partition, LOW)), self.offset_high
        return low, high if self.ends is None else min(high, self.ends.get(partition, LOW))

    @property
    def by_time(self) -> bool:
        return self.receive_low_ns > LOW or self.receive_high_ns < HIGH
