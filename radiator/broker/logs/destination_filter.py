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
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from radiator.routing.rights import Permitted
    from radiator.storage.batch import RecordBatch

NEVER = 1 << 63  # an offset above all others
NAMES_KNOWN_MAX = 10_000  # remembered, of one claim


class DestinationFilter(Protocol):
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


class QueueFilter:
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


class TopicFilter:
    """The claim of a named subscription: topics that match its patterns, as far as its user may read them.

    By partition and destination it knows the first offset that is wanted, where that is not the cursor's place. Nothing
    received before ``since_ns`` is wanted, or where ``since`` names the topic, before that. ``permitted`` is what the
    last subscription that used the name may read, where that is not everything.
    """

    __slots__ = ("_highest", "_known", "_latest_ns", "_matches", "_starts", "permitted", "since", "since_ns")

    owned: frozenset[str] = frozenset()

    def __init__(self, matches: Callable[[str], bool]) -> None:
        self._matches = matches
        self._known: dict[str, bool] = {}
        self._starts: dict[str, dict[str, int]] = {}
        self._highest: dict[str, int] = {}  # by partition: none of its starts is above
        self.since_ns = 0
        self.since: dict[str, int] = {}
        self._latest_ns = 0  # none of these is later
        self.permitted: Permitted | None = None

    def permit(self, permitted: Permitted | None) -> None:
        """Set what the user of the subscription may read; None: everything."""
        self.permitted = permitted

    def set_patterns(self, matches: Callable[[str], bool]) -> None:
        """Other topics are wanted from now on."""
        self._matches = matches
        self._known.clear()

    def begin_again(self) -> None:
        """Whatever was passed is wanted again."""
        self._starts.clear()
        self._highest.clear()
        self.since.clear()
        self.since_ns = self._latest_ns = 0

    def want_from(self, partition: str, starts: Mapping[str, int]) -> None:
        """Of these destinations, what is stored from these offsets on."""
        if starts:
            self._starts.setdefault(partition, {}).update(starts)
            self._highest[partition] = max(self._highest.get(partition, 0), *starts.values())

    def want_since(self, since_ns: int, names: Iterable[str] | None = None) -> None:
        """What was received from then on: of these, or (None) of all."""
        if names is None:
            self.since_ns = since_ns
        else:
            self.since.update(dict.fromkeys(names, since_ns))
        self._latest_ns = max(self._latest_ns, since_ns)

    def forget(self, partition: str) -> None:
        """It is not read any more."""
        self._starts.pop(partition, None)
        self._highest.pop(partition, None)

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
        if wanted and self.permitted is not None:
            return self.permitted.matches(name)
        return wanted

    def all_of(self, names: Collection[str]) -> bool:
        return all(map(self.has, names))

    def whole(self, partition: str, batch: RecordBatch) -> bool:
        names = batch.names
        if len(names) > 1 or not self.has(names[0]):
            return False
        return batch.base_offset >= self._highest.get(partition, 0) and self._all_since(batch)

    def firsts(self, partition: str, batch: RecordBatch) -> list[int]:
        passed = batch.base_offset >= self._highest.get(partition, 0)
        starts = {} if passed else self._starts[partition]
        if self._all_since(batch):
            return [starts.get(name, 0) if self.has(name) else NEVER for name in batch.names]
        return [max(self._since(name, batch), starts.get(name, 0)) if self.has(name) else NEVER for name in batch.names]

    def _all_since(self, batch: RecordBatch) -> bool:
        return not self._latest_ns or batch.receive_ns[0] >= self._latest_ns

    def _since(self, name: str, batch: RecordBatch) -> int:
        since_ns = self.since.get(name, self.since_ns)
        if not since_ns:
            return 0
        index = bisect_left(batch.receive_ns, since_ns)  # times never fall within a log
        return batch.offsets[index] if index < len(batch) else NEVER

    def takes(self, partition: str, batch: RecordBatch, index: int) -> bool:
        return self.has(batch.names[batch.destination_ids[index]])

    def take_back(self, partition: str, high_watermark: int) -> None:
        starts = self._starts.get(partition, {})
        for name, start in starts.items():
            starts[name] = min(start, high_watermark)


class FilterIndex:
    """Which sources of one log claim a name, so that a batch is told only to those that it concerns."""

    __slots__ = ("_asked", "_sources_of")

    def __init__(self, sources: Iterable[Any]) -> None:
        self._sources_of: dict[str, dict[Any, None]] = {}
        self._asked: dict[Any, None] = {}  # which know what they claim only when they are asked
        for source in sources:
            self.add(source)

    def add(self, source: Any) -> None:
        """One more."""
        owned = source.queue.filter.owned
        if not owned:
            self._asked[source] = None
        for name in owned:
            self._sources_of.setdefault(name, {})[source] = None

    def of(self, names: Iterable[str]) -> list[Any]:
        """Those that claim one of these names."""
        found: dict[Any, None] = {}
        for name in names:
            found.update(self._sources_of.get(name, {}))
        return [*found, *(source for source in self._asked if any(map(source.queue.filter.has, names)))]
