"""A claim: which records of a log belong to a queue.

Queues, children of a ``fan_out`` and named subscriptions are all the same thing, consumers and named cursors; what
tells them apart is what of a log is theirs. It is decided once per batch, from the names that occur in it: ``whole``
is the fast way, and where that is false ``firsts`` gives for each of those names the first offset that is claimed.

Knows: names of destinations. Must not know: cursors, consumers.
Invariant: what is stored under ``owned`` names is of use to no one but the queues that own them, so that it may go
once all of them have settled it; other claims leave the log to its retention.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from collections.abc import Set as AbstractSet

    from radiator.broker.subscription import Subscription
    from radiator.storage.batch import RecordBatch

NEVER = 1 << 63  # an offset above all others
NAMES_KNOWN_MAX = 10_000  # remembered, of one claim


class Claim(Protocol):
    """What a queue asks."""

    @property
    def owned(self) -> AbstractSet[str]:
        """Names whose messages are kept for queues alone."""

    def has(self, name: str) -> bool:
        """Messages to this destination are claimed, or were from some offset on."""

    def all_of(self, names: Collection[str]) -> bool:
        """Nobody else stores under these names."""

    def whole(self, partition: str, batch: RecordBatch) -> bool:
        """True if every record of the batch is claimed. False says nothing."""

    def firsts(self, partition: str, batch: RecordBatch) -> list[int]:
        """For each of ``batch.names`` the first offset that is claimed, ``NEVER`` for the destinations of others."""

    def takes(self, partition: str, batch: RecordBatch, index: int) -> bool:
        """True if this record is claimed: where one is asked for."""

    def take_back(self, partition: str, high_watermark: int) -> None:
        """Offsets from there on were given out and never stored: they will be others'."""


class Names:
    """The claim of a queue: what is sent to it, and to those whose messages it gets as well."""

    __slots__ = ("owned",)

    def __init__(self, name: str) -> None:
        self.owned: set[str] = {name}

    def has(self, name: str) -> bool:
        return name in self.owned

    def all_of(self, names: Collection[str]) -> bool:
        return self.owned.issuperset(names)

    def whole(self, partition: str, batch: RecordBatch) -> bool:
        names = batch.names
        return len(names) == 1 and names[0] in self.owned

    def firsts(self, partition: str, batch: RecordBatch) -> list[int]:
        owned = self.owned
        return [0 if name in owned else NEVER for name in batch.names]

    def takes(self, partition: str, batch: RecordBatch, index: int) -> bool:
        return batch.names[batch.destination_ids[index]] in self.owned

    def take_back(self, partition: str, high_watermark: int) -> None:
        pass


class Topics:
    """The claim of a named subscription: topics that match its patterns, as far as its user may read them.

    ``starts`` gives, by partition and destination, the first offset that is wanted, where that is not the cursor's
    place; nothing received before ``since_ns`` is wanted. ``reader`` is the last subscription that used the name.
    """

    __slots__ = ("_known", "_matches", "_passed", "reader", "since_ns", "starts")

    owned: frozenset[str] = frozenset()

    def __init__(self, matches: Callable[[str], bool]) -> None:
        self._matches = matches
        self._known: dict[str, bool] = {}
        self.starts: dict[str, dict[str, int]] = {}
        self.since_ns = 0
        self._passed: set[str] = set()  # partitions that have come to that time
        self.reader: Subscription | None = None

    def ask_anew(self, matches: Callable[[str], bool]) -> None:
        """Other topics are wanted from now on."""
        self._matches = matches
        self._known.clear()

    def begin_anew(self) -> None:
        """Whatever was passed is wanted again."""
        self.since_ns = 0
        self._passed.clear()

    def wants(self, name: str) -> bool:
        """A topic that matches, whoever may read it."""
        wanted = self._known.get(name)
        if wanted is None:
            if len(self._known) >= NAMES_KNOWN_MAX:
                self._known.clear()
            wanted = self._known[name] = self._matches(name)
        return wanted

    def has(self, name: str) -> bool:
        wanted = self.wants(name)
        reader = self.reader
        if wanted and reader is not None and reader.patterns is not reader.asked:
            return reader.patterns.matches(name)
        return wanted

    def all_of(self, names: Collection[str]) -> bool:
        return all(map(self.has, names))

    def whole(self, partition: str, batch: RecordBatch) -> bool:
        names = batch.names
        if partition in self.starts or (self.since_ns and partition not in self._passed):
            return False
        return len(names) == 1 and self.has(names[0])

    def firsts(self, partition: str, batch: RecordBatch) -> list[int]:
        lowest = 0
        if self.since_ns and partition not in self._passed:
            index = bisect_left(batch.receive_ns, self.since_ns)  # times never fall within a log
            lowest = batch.offsets[index] if index < len(batch) else NEVER
            if index == 0:
                self._passed.add(partition)
        starts = self.starts.get(partition)
        if starts is None:
            return [lowest if self.has(name) else NEVER for name in batch.names]
        if batch.base_offset >= max(starts.values()):
            del self.starts[partition]
        return [max(lowest, starts.get(name, 0)) if self.has(name) else NEVER for name in batch.names]

    def takes(self, partition: str, batch: RecordBatch, index: int) -> bool:
        return self.has(batch.names[batch.destination_ids[index]])

    def take_back(self, partition: str, high_watermark: int) -> None:
        starts = self.starts.get(partition, {})
        for name, start in starts.items():
            starts[name] = min(start, high_watermark)
