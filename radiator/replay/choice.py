"""Which records are replayed, as a value: names, partitions, offsets, times, headers.

This module knows patterns, selectors, and the values of a record that a selector can use. It does not know where
records are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from radiator.broker.logs.selection import DEFAULT_PRIORITY, JMS, OF_A_DELIVERY
from radiator.clock import NS_PER_MS
from radiator.errors import ProtocolError
from radiator.export.records import Bounds
from radiator.export.rows import Row
from radiator.routing.pattern import PatternSet, parse_list
from radiator.routing.selector import compile_selector


@dataclass(frozen=True)
class Choice:
    """``starts``: offsets that an interrupted replay has reached."""

    destination: str | None = None
    partitions: frozenset[str] = frozenset()
    bounds: Bounds = field(default_factory=Bounds)
    selector: str | None = None
    starts: Mapping[str, int] = field(default_factory=dict)

    @property
    def patterns(self) -> PatternSet | None:
        """The patterns of destinations, or None. Raises ProtocolError."""
        return None if self.destination is None else parse_list(self.destination)

    def has(self, partition: str) -> bool:
        """Return whether a partition is chosen."""
        return not self.partitions or partition in self.partitions

    def start_of(self, partition: str) -> int:
        """Return the first offset of a partition."""
        return max(self.bounds.start_offset or 0, self.starts.get(partition, 0))


class Condition:
    """A selector over rows. Raises ProtocolError (bad-selector)."""

    def __init__(self, text: str) -> None:
        selector = compile_selector(text)
        for name in selector.names:
            if name in OF_A_DELIVERY or name == "content-length":
                raise ProtocolError("bad-selector", f"{name} cannot be used: a selector reads what was sent")
        self._test = selector.test
        self._names = selector.names

    def takes(self, row: Row) -> bool:
        """Return whether a row is selected."""
        return self._test([_value(row, name) for name in self._names]) is True


def _value(row: Row, name: str) -> str | None:
    if name == "JMSPriority":
        return row.headers.get("priority", DEFAULT_PRIORITY)
    if name == "JMSTimestamp":
        return str(row.receive_ns // NS_PER_MS)
    asked = JMS.get(name, name)
    if asked == "destination":
        return row.destination
    if asked == "partition":
        return row.partition
    if asked == "offset":
        return str(row.offset)
    if asked == "receive-time":
        return str(row.receive_ns)
    if asked == "message-id":
        return row.message_id
    return row.headers.get(asked)
