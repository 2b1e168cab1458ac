"""The class ``Feed``: one partition and all of its readers in the broker.

A feed connects the partition (storage), the wire form of its messages, the readers of topics and the sources of queues.
Readers wait for the high watermark of the partition. Readers that need the same place of the disk share one cold read.

Invariants: every commit wakes the readers in ``readers``. ``loading`` has at most one job per offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappush, heapreplace
from itertools import islice
from typing import Any, Protocol

from radiator import limits
from radiator.broker.logs.destination_filter import FilterIndex
from radiator.broker.logs.wire import PartitionWire, Whole
from radiator.broker.stats import RuleTraffic
from radiator.storage.batch import RecordBatch
from radiator.storage.layout import encode_name
from radiator.storage.memory import MemoryPartition


class Waiter(Protocol):
    """An object that can wait for a cold read: a topic reader or the source of a queue."""

    @property
    def waits(self) -> bool:
        """False if the result is not needed any more."""

    def loaded(self, offset: int, batch: RecordBatch | None, skip_to: int | None) -> None:
        """Handle the end of the cold read at ``offset``.

        Args:
            offset: The offset that was requested.
            batch: The batch with the offset, or None if the log does not have it.
            skip_to: The next offset that exists, or None.
        """


class Feed:
    """One partition and all of its readers: topic readers, and the sources (cursors) of queues.

    Args:
        partition: The partition of the store.
        start_read: Called with the feed and a job for each cold read, to run the job off the event loop.
        whole: The encoder of whole batches, shared by all feeds.
        traffic: The counters of the rule of the destination that opens the log.

    Attributes:
        readers: The topic readers.
        sources: The sources of queues.
        sent_first: Counts messages that are sent for the first time (``RuleTraffic``).
        committed_to: The end of the last batch that was reported to the sources.
        destinations: The number of destinations that store in the partition.
        orphaned: The number of those whose rule does not name the partition any more.
        topics: The number of those that are topics.
        loading: The waiters of each cold read, by offset.
        failures: How often the disk failed a cold read, by offset.
    """

    __slots__ = (
        "_filters",
        "_floors",
        "_foreign",
        "_joined",
        "_owned",
        "_seen",
        "_start_read",
        "committed_to",
        "destinations",
        "failures",
        "orphaned",
        "loading",
        "partition",
        "readers",
        "sent_first",
        "sources",
        "topics",
        "traffic",
        "wire",
    )

    def __init__(
        self,
        partition: Any,
        start_read: Callable[[Feed, Any], None],
        whole: Whole | None = None,
        traffic: RuleTraffic | None = None,
    ) -> None:
        self.partition = partition
        self.traffic = traffic or RuleTraffic()
        self.sent_first = self.traffic.sent_first
        self.wire = PartitionWire(partition.name, encode_name(partition.name), whole or Whole())
        self.readers: dict[Any, None] = {}
        self.sources: list[Any] = []
        self.committed_to: int = partition.high_watermark
        self._filters: FilterIndex | None = None  # created on demand: most logs have one reader
        self._floors: list[tuple[int, int, Any]] = []  # a heap: an earlier floor of a source, a number, the source
        self._joined = 0
        self.destinations = 0
        self.orphaned = 0
        self.topics = 0
        self.loading: dict[int, list[Waiter]] = {}
        self.failures: dict[int, int] = {}
        self._start_read = start_read
        self._owned: set[str] | None = set()  # destinations owned by the queues here; None: unknown
        self._seen = 0  # how many of the stored destinations were checked
        self._foreign: set[str] = set()  # the checked destinations that no queue here owns
        partition.report_to(self.forced, self.settled_in)

    def count_for(self, traffic: RuleTraffic) -> None:
        """Count for another rule from now on."""
        self.traffic, self.sent_first = traffic, traffic.sent_first

    def add_destination(self, kind: str) -> None:
        """Count another destination that stores in the partition."""
        self.destinations += 1
        self.topics += kind == "topic"

    def remove_destination(self, kind: str) -> None:
        """Count one destination less."""
        self.destinations -= 1
        self.topics -= kind == "topic"

    def count_orphaned(self, number: int) -> None:
        """Count ``number`` more queues that drain the log though their rule does not name it; fewer if negative."""
        self.destinations += number
        self.orphaned += number

    def load(self, offset: int, waiter: Waiter) -> None:
        """Start a cold read of the batch with ``offset``, or join one; ``waiter.loaded`` gets the result."""
        waiters = self.loading.get(offset)
        if waiters is not None:
            waiters.append(waiter)
            return
        self.loading[offset] = [waiter]
        self._start_read(self, self.partition.fetch(offset, limits.READ_CHUNK_BYTES))

    def read_done(self, offset: int, job: Any) -> None:
        """Pass the result of a cold read to all of its waiters."""
        self.failures.pop(offset, None)
        for waiter in self.loading.pop(offset, ()):
            waiter.loaded(offset, job.result, job.skip_to)

    def failed(self, offset: int) -> int:
        """Count a cold read that the disk failed and return the number of failures. The waiters go on waiting."""
        self.failures[offset] = self.failures.get(offset, 0) + 1
        return self.failures[offset]

    def retry(self, offset: int) -> None:
        """Repeat a failed cold read if a waiter still needs it."""
        waiters = [waiter for waiter in self.loading.get(offset, ()) if waiter.waits]
        if not waiters:
            for waiter in self.loading.pop(offset, ()):
                waiter.loaded(offset, None, None)
            self.failures.pop(offset, None)
            return
        self._start_read(self, self.partition.fetch(offset, limits.READ_CHUNK_BYTES))

    def committed(self, batch: RecordBatch, failed: bool) -> Iterable[Any]:
        """Report a batch to the sources.

        If the write failed, the offsets of the batch and all later ones will be assigned again, so readers and sources
        behind the high watermark are set back.

        Args:
            batch: The batch.
            failed: True if it could not be stored.

        Returns:
            The sources whose queues may have messages to deliver.
        """
        if not failed:
            concerned = self.sources if len(self.sources) <= 1 else self._concerned(batch)
            for source in concerned:
                source.pass_by(batch)
                if source.dropped:
                    source.stored(self.partition.high_watermark)
            self.committed_to = batch.next_offset
            return concerned
        high_watermark = self.partition.high_watermark
        for reader in self.readers:
            reader.take_back(high_watermark)
        for source in self.sources:
            firsts = source.queue.filter.firsts(self.partition.name, batch)
            ids = zip(batch.offsets, batch.destination_ids, strict=True)
            source.queue.filter.take_back(self.partition.name, high_watermark)
            source.failed_write(high_watermark, sum(offset >= firsts[each] for offset, each in ids))
        return self.sources

    def _concerned(self, batch: RecordBatch) -> Iterable[Any]:
        """Return the sources whose filter has a destination of the batch.

        In a memory partition it is all sources: records that a source has not passed use memory.
        """
        if isinstance(self.partition, MemoryPartition):
            return self.sources
        if self._filters is None:
            self._filters = FilterIndex(self.sources)
        return self._filters.of(batch.names)

    def forced(self, start: int) -> None:
        """Handle forced retention: records below ``start`` were removed although a source may need them."""
        for source in self.sources:
            source.forced(start)
        self.pin()

    def join(self, source: Any, pins: bool = True) -> None:
        """Add a queue as a reader. If ``pins``, its cursor holds back retention."""
        self.sources.append(source)
        if self._filters is not None:
            self._filters.add(source)
        if self._owned is not None:
            self._owned |= source.queue.filter.owned
            self._foreign -= source.queue.filter.owned
        if not pins:
            return
        self._joined += 1
        heappush(self._floors, (source.cursor.floor, self._joined, source))

    def filters_changed(self) -> None:
        """Discard caches after the filter of a queue here was extended."""
        self._owned = self._filters = None

    def leave(self, queue: Any) -> None:
        """Remove the sources of ``queue``."""
        self.sources = [source for source in self.sources if source.queue is not queue]
        self._owned = self._filters = None
        self._floors = [each for each in self._floors if each[2].queue is not queue]
        heapify(self._floors)

    def close(self) -> None:
        """Remove all sources: the log is forgotten."""
        self.sources, self._floors, self._owned, self._filters = [], [], None, None

    def release_settled(self) -> None:
        """Remove sources that have drained the log: another destination stores in it now."""
        for source in [each for each in self.sources if each.orphaned and each not in each.queue.sources]:
            self.leave(source.queue)

    def settled_in(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the intervals in [start, stop) that every queue here has settled."""
        if not self.sources:
            return []
        if len(self.sources) == 1:
            only: list[tuple[int, int]] = self.sources[0].cursor.settled_in(start, stop)
            return only
        needed: list[tuple[int, int]] = []
        for source in self.sources:
            needed += between(source.cursor.settled_in(start, stop), start, stop)
        return between(sorted(needed), start, stop)

    def pin(self) -> None:
        """Set the lowest offset that a queue still needs, for retention.

        Floors only rise, so only the lowest remembered floor needs a check.
        """
        floors = self._floors
        while floors and floors[0][0] != floors[0][2].cursor.floor:
            _, number, source = floors[0]
            heapreplace(floors, (source.cursor.floor, number, source))
        self.partition.pin(floors[0][0] if floors else None, len(floors), not self._holds_queues_only())

    def _holds_queues_only(self) -> bool:
        """Return True if all stored and future records of the partition belong to the queues that read it."""
        if self.topics or not self.partition.whole:
            return False
        if self._owned is None:
            self._owned = set().union(*(source.queue.filter.owned for source in self.sources))
            self._foreign, self._seen = set(), 0
        stored = self.partition.destinations
        new = len(stored) - self._seen
        if new:
            self._foreign.update(name for name in islice(reversed(stored), new) if name not in self._owned)
            self._seen += new
        return not self._foreign


def between(intervals: list[tuple[int, int]], start: int, stop: int) -> list[tuple[int, int]]:
    """Return the parts of [start, stop) outside of ``intervals``, which are sorted and may overlap."""
    found: list[tuple[int, int]] = []
    for first, end in intervals:
        if first > start:
            found.append((start, first))
        start = max(start, end)
    if start < stop:
        found.append((start, stop))
    return found
