"""Destination filters: which records of a log belong to a queue.

Queues, bound queues of a ``fan_out`` and durable subscriptions all have consumers and stored cursors. They differ in
the records that belong to them. A filter decides that once per batch, from the destinations that occur in the batch:
``whole`` is the fast path, and where ``whole`` is False ``firsts`` returns the first offset for each destination.

The module knows names of destinations, but not cursors or consumers.
Invariant: only the queues that own a destination need its records, so the records may be deleted once all these queues
have settled them. Other filters leave deletion to the log's retention.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from radiator.routing.rights import Permitted
    from radiator.storage.batch import RecordBatch

NEVER = 1 << 63  # greater than any offset
NAMES_KNOWN_MAX = 10_000  # destinations whose match one filter caches


class DestinationFilter(Protocol):
    """A filter over the records of a log."""

    @property
    def owned(self) -> AbstractSet[str]:
        """Destinations whose messages are stored for queues only."""

    def has(self, name: str) -> bool:
        """Return True if messages to destination ``name`` belong to the queue, at least from some offset on."""

    def any_of(self, names: Collection[str]) -> bool:
        """Return True if messages to one of these destinations belong to the queue, at least from some offset on."""

    def all_of(self, names: Collection[str]) -> bool:
        """Return True if messages to all these destinations belong to the queue."""

    def whole(self, partition: str, batch: RecordBatch) -> bool:
        """Return True if every record of the batch is known to belong to the queue. False means unknown."""

    def firsts(self, partition: str, batch: RecordBatch) -> list[int]:
        """Return, for each of ``batch.names``, the first offset that belongs to the queue; ``NEVER`` if none does."""

    def takes(self, partition: str, batch: RecordBatch, index: int) -> bool:
        """Return True if the destination of record ``index`` of the batch belongs to the queue."""

    def take_back(self, partition: str, high_watermark: int) -> None:
        """Handle a failed write: offsets from ``high_watermark`` on will be assigned to other messages."""


class QueueFilter:
    """The filter of a queue: its own messages, and those of its fan-out sources.

    Args:
        name: The name of the queue.
    """

    __slots__ = ("owned",)

    def __init__(self, name: str) -> None:
        self.owned: set[str] = {name}

    def has(self, name: str) -> bool:
        """Return True if ``name`` is the queue or one of its fan-out sources."""
        return name in self.owned

    def any_of(self, names: Collection[str]) -> bool:
        """Return True if one of ``names`` is the queue or one of its fan-out sources."""
        return not self.owned.isdisjoint(names)

    def all_of(self, names: Collection[str]) -> bool:
        """Return True if all ``names`` are the queue or its fan-out sources."""
        return self.owned.issuperset(names)

    def whole(self, partition: str, batch: RecordBatch) -> bool:
        """Return True if the batch has a single destination and it is owned."""
        names = batch.names
        return len(names) == 1 and names[0] in self.owned

    def firsts(self, partition: str, batch: RecordBatch) -> list[int]:
        """Return 0 for each owned destination of the batch and ``NEVER`` for the others."""
        owned = self.owned
        return [0 if name in owned else NEVER for name in batch.names]

    def takes(self, partition: str, batch: RecordBatch, index: int) -> bool:
        """Return True if the destination of record ``index`` is owned."""
        return batch.names[batch.destination_ids[index]] in self.owned

    def take_back(self, partition: str, high_watermark: int) -> None:
        """Do nothing: the filter has no offsets."""


class TopicFilter:
    """The filter of a durable subscription: topics that match its patterns and that its user may read.

    A subscription may start later in a topic than its cursor. The filter stores the first wanted offset by partition
    and destination, and the first wanted receive time for all topics (``since_ns``) or for one (``since``).

    Args:
        matches: Returns True for the name of a wanted topic.

    Attributes:
        permitted: What the last subscriber may read; None means everything.
        since_ns: The first wanted receive time, in nanoseconds since the epoch.
        since: The same for single topics, by name. It takes precedence over ``since_ns``.
    """

    __slots__ = ("_highest", "_known", "_latest_ns", "_matches", "_starts", "permitted", "since", "since_ns")

    owned: frozenset[str] = frozenset()

    def __init__(self, matches: Callable[[str], bool]) -> None:
        self._matches = matches
        self._known: dict[str, bool] = {}
        self._starts: dict[str, dict[str, int]] = {}
        self._highest: dict[str, int] = {}  # by partition: the highest of its starts
        self.since_ns = 0
        self.since: dict[str, int] = {}
        self._latest_ns = 0  # the latest of since_ns and since
        self.permitted: Permitted | None = None

    def permit(self, permitted: Permitted | None) -> None:
        """Set what the user of the subscription may read; None means everything."""
        self.permitted = permitted

    def set_patterns(self, matches: Callable[[str], bool]) -> None:
        """Replace the patterns."""
        self._matches = matches
        self._known.clear()

    def begin_again(self) -> None:
        """Remove all start offsets and start times."""
        self._starts.clear()
        self._highest.clear()
        self.since.clear()
        self.since_ns = self._latest_ns = 0

    def want_from(self, partition: str, starts: Mapping[str, int]) -> None:
        """Set the first wanted offset in ``partition`` for each destination in ``starts``."""
        if starts:
            self._starts.setdefault(partition, {}).update(starts)
            self._highest[partition] = max(self._highest.get(partition, 0), *starts.values())

    def want_since(self, since_ns: int, names: Iterable[str] | None = None) -> None:
        """Set the first wanted receive time.

        Args:
            since_ns: Nanoseconds since the epoch.
            names: The topics that it applies to; None means all.
        """
        if names is None:
            self.since_ns = since_ns
        else:
            self.since.update(dict.fromkeys(names, since_ns))
        self._latest_ns = max(self._latest_ns, since_ns)

    def forget(self, partition: str) -> None:
        """Remove the start offsets of a partition that is not read any more."""
        self._starts.pop(partition, None)
        self._highest.pop(partition, None)

    def wants(self, name: str) -> bool:
        """Return True if ``name`` matches the patterns, whatever the rights of the user."""
        wanted = self._known.get(name)
        if wanted is None:
            if len(self._known) >= NAMES_KNOWN_MAX:
                self._known.clear()
            wanted = self._known[name] = self._matches(name)
        return wanted

    def has(self, name: str) -> bool:
        """Return True if ``name`` matches the patterns and the user may read it."""
        wanted = self.wants(name)
        if wanted and self.permitted is not None:
            return self.permitted.matches(name)
        return wanted

    def any_of(self, names: Collection[str]) -> bool:
        """Return True if the subscription wants one of these topics and may read it."""
        return any(map(self.has, names))

    def all_of(self, names: Collection[str]) -> bool:
        """Return True if the subscription has all of these topics."""
        return all(map(self.has, names))

    def whole(self, partition: str, batch: RecordBatch) -> bool:
        """Return True if the batch has a single wanted topic and is behind all start offsets and start times."""
        names = batch.names
        if len(names) > 1 or not self.has(names[0]):
            return False
        return batch.base_offset >= self._highest.get(partition, 0) and self._all_since(batch)

    def firsts(self, partition: str, batch: RecordBatch) -> list[int]:
        """Return, for each topic of the batch, the first wanted offset; ``NEVER`` if none is wanted."""
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
        index = bisect_left(batch.receive_ns, since_ns)  # receive times never decrease within a log
        return batch.offsets[index] if index < len(batch) else NEVER

    def takes(self, partition: str, batch: RecordBatch, index: int) -> bool:
        """Return True if the topic of record ``index`` is wanted."""
        return self.has(batch.names[batch.destination_ids[index]])

    def take_back(self, partition: str, high_watermark: int) -> None:
        """Lower the start offsets above ``high_watermark``, because those offsets will be assigned again."""
        starts = self._starts.get(partition, {})
        for name, start in starts.items():
            starts[name] = min(start, high_watermark)


class FilterIndex:
    """Finds the sources of one log whose filter has a destination.

    Args:
        sources: The ``QueueSource`` objects of the log.
    """

    __slots__ = ("_with_patterns", "_by_name")

    def __init__(self, sources: Iterable[Any]) -> None:
        self._by_name: dict[str, dict[Any, None]] = {}
        self._with_patterns: dict[Any, None] = {}  # sources with patterns: their filter has to be evaluated
        for source in sources:
            self.add(source)

    def add(self, source: Any) -> None:
        """Add a source."""
        owned = source.queue.filter.owned
        if not owned:
            self._with_patterns[source] = None
        for name in owned:
            self._by_name.setdefault(name, {})[source] = None

    def of(self, names: Iterable[str]) -> list[Any]:
        """Return the sources whose filter has at least one of these destinations."""
        found: dict[Any, None] = {}
        for name in names:
            found.update(self._by_name.get(name, {}))
        return [*found, *(source for source in self._with_patterns if any(map(source.queue.filter.has, names)))]
