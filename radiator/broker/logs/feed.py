"""A feed: the broker's side of one partition, where readers and queues wait for its high watermark.

It joins three things: the partition (storage), the wire form of its messages, and who reads it. A cold read is asked
for once however many readers want the same place, and its result is handed to each of them.

Invariants: a reader listed in ``readers`` is woken by every commit; ``loading`` has at most one job per offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappush, heapreplace
from itertools import islice
from typing import Any, Protocol

from radiator import limits
from radiator.broker.logs.destination_filter import FilterIndex
from radiator.broker.logs.wire import PartitionWire, Whole
from radiator.storage.batch import RecordBatch
from radiator.storage.layout import encode_name
from radiator.storage.memory import MemoryPartition


class Waiter(Protocol):
    """Who can wait for a feed: a topic reader or a queue's source."""

    @property
    def waits(self) -> bool:
        """False if the answer is not needed any more."""

    def loaded(self, offset: int, batch: RecordBatch | None, skip_to: int | None) -> None:
        """The cold read that was asked for at ``offset`` has ended."""


class Read:
    """Disk work for a reader: ``run`` on a read thread, then ``Broker.read_done`` on the loop."""

    __slots__ = ("_wanted", "job", "then")

    def __init__(self, job: Any, then: Callable[[Any], None], wanted: Callable[[], bool] | None = None) -> None:
        self.job = job
        self.then = then
        self._wanted = wanted

    def run(self) -> None:
        """On a read thread; errors stay in the job."""
        if self._wanted is None or self._wanted():
            self.job.run()


class Feed:
    """One partition and those who read it. ``start_read`` is given each cold read to run off the loop."""

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
        "sources",
        "topics",
        "wire",
    )

    def __init__(self, partition: Any, start_read: Callable[[Feed, Any], None], whole: Whole | None = None) -> None:
        self.partition = partition
        self.wire = PartitionWire(partition.name, encode_name(partition.name), whole or Whole())
        self.readers: dict[Any, None] = {}
        self.sources: list[Any] = []
        self.committed_to: int = partition.high_watermark  # as far as the sources have been told
        self._filters: FilterIndex | None = None  # made when it is asked for: most logs have one reader
        self._floors: list[tuple[int, int, Any]] = []  # a heap: a floor that a source had, a number, the source
        self._joined = 0
        self.destinations = 0
        self.orphaned = 0  # of these: their rules do not name it any more
        self.topics = 0  # of these
        self.loading: dict[int, list[Waiter]] = {}
        self.failures: dict[int, int] = {}  # cold reads that the disk failed, and how often
        self._start_read = start_read
        self._owned: set[str] | None = set()  # what is sent to the queues here; None: it has to be found out again
        self._seen = 0  # names of those that are stored: so many were looked at
        self._foreign: set[str] = set()  # those of them that belong to no queue here
        partition.report_to(self.forced, self.settled_in)

    def add_destination(self, kind: str) -> None:
        """One more destination stores here."""
        self.destinations += 1
        self.topics += kind == "topic"

    def remove_destination(self, kind: str) -> None:
        """A destination is forgotten."""
        self.destinations -= 1
        self.topics -= kind == "topic"

    def count_orphaned(self, number: int) -> None:
        """Count ``number`` more queues that drain the log though their rule does not name it; fewer if negative."""
        self.destinations += number
        self.orphaned += number

    def load(self, offset: int, waiter: Waiter) -> None:
        """Ask for the batch that holds ``offset``; the answer comes to ``waiter.loaded``."""
        waiters = self.loading.get(offset)
        if waiters is not None:
            waiters.append(waiter)
            return
        self.loading[offset] = [waiter]
        self._start_read(self, self.partition.fetch(offset, limits.READ_CHUNK_BYTES))

    def read_done(self, offset: int, job: Any) -> None:
        """A cold read has ended: hand its result to all who wait for it."""
        self.failures.pop(offset, None)
        for waiter in self.loading.pop(offset, ()):
            waiter.loaded(offset, job.result, job.skip_to)

    def failed(self, offset: int) -> int:
        """The disk failed a cold read; returns how often now. Who waits for it goes on waiting."""
        self.failures[offset] = self.failures.get(offset, 0) + 1
        return self.failures[offset]

    def retry(self, offset: int) -> None:
        """Ask again for the place of a read that failed, if anybody still waits for it."""
        waiters = [waiter for waiter in self.loading.get(offset, ()) if waiter.waits]
        if not waiters:
            for waiter in self.loading.pop(offset, ()):
                waiter.loaded(offset, None, None)
            self.failures.pop(offset, None)
            return
        self._start_read(self, self.partition.fetch(offset, limits.READ_CHUNK_BYTES))

    def committed(self, batch: RecordBatch, failed: bool) -> Iterable[Any]:
        """A batch was stored, or could not be: then its offsets, and all after it, will be given to other messages, and
        nobody may already stand behind them. Returns the sources whose queues have something to do by that."""
        if not failed:
            concerned = self.sources if len(self.sources) <= 1 else self._concerned(batch)
            for source in concerned:
                source.pass_by(batch)
                if source.early:
                    source.committed(0)
            self.committed_to = batch.next_offset
            return concerned
        high_watermark = self.partition.high_watermark
        for reader in self.readers:
            reader.take_back(high_watermark)
        for source in self.sources:
            firsts = source.queue.filter.firsts(self.partition.name, batch)
            ids = zip(batch.offsets, batch.destination_ids, strict=True)
            source.queue.filter.take_back(self.partition.name, high_watermark)
            source.take_back(high_watermark)
            source.committed(sum(offset >= firsts[each] for offset, each in ids))
        return self.sources

    def _concerned(self, batch: RecordBatch) -> Iterable[Any]:
        """Those of which the batch has something. In memory all are told: what they have not passed over takes room."""
        if isinstance(self.partition, MemoryPartition):
            return self.sources
        if self._filters is None:
            self._filters = FilterIndex(self.sources)
        return self._filters.of(batch.names)

    def forced(self, start: int) -> None:
        """Retention has taken what lies below ``start``, as the rule forces it to, whoever still needs it."""
        for source in self.sources:
            source.forced(start)
        self.pin()

    def join(self, source: Any, pins: bool = True) -> None:
        """Another queue reads here, and unless it takes what it can get, what it needs is kept."""
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
        """A queue here claims more than it did."""
        self._owned = self._filters = None

    def leave(self, queue: Any) -> None:
        """That queue does not any more."""
        self.sources = [source for source in self.sources if source.queue is not queue]
        self._owned = self._filters = None
        self._floors = [each for each in self._floors if each[2].queue is not queue]
        heapify(self._floors)

    def close(self) -> None:
        """Its log is forgotten, and so are those who read it."""
        self.sources, self._floors, self._owned, self._filters = [], [], None, None

    def release_settled(self) -> None:
        """Others store here from now on: who is done with the log, and has it kept as one of its own, lets go of it."""
        for source in [each for each in self.sources if each.orphaned and each not in each.queue.sources]:
            self.leave(source.queue)

    def settled_in(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The intervals from ``start`` up to, not including, ``stop`` that every queue here has settled."""
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
        """Tell the partition the lowest offset that a queue still needs. Floors only rise, so only the lowest one that
        is remembered is asked whether it has."""
        floors = self._floors
        while floors and floors[0][0] != floors[0][2].cursor.floor:
            _, number, source = floors[0]
            heapreplace(floors, (source.cursor.floor, number, source))
        self.partition.pin(floors[0][0] if floors else None, len(floors), not self._holds_queues_only())

    def _holds_queues_only(self) -> bool:
        """Whether all that is stored here, or will be, belongs to the queues that read it."""
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
    """What is in none of them; they are sorted, and may overlap."""
    found: list[tuple[int, int]] = []
    for first, end in intervals:
        if first > start:
            found.append((start, first))
        start = max(start, end)
    if start < stop:
        found.append((start, stop))
    return found
