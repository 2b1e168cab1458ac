"""Find the last N messages of a destination with several logs: where do they begin in each log?

Within a log receive times rise. So all logs are walked backwards at once, a batch at a time and always in the log whose
next batch ends latest: messages received after every batch that is still ahead are counted, whole batches at once.
Messages received in the same nanosecond count in the order of the logs.

It is a job like those of ``reads``, but ``run`` does a bounded part and must be called until it is ``finished``, so
that other reads on the read thread have their turn. It holds a stretch of each log between two entries of its index;
logs whose destinations have all their messages are walked no further.

This module knows partitions and batches. It does not know subscriptions. ``starts`` has the first offset by partition
and name.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple, Protocol

from radiator.clock import Now
from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.files import opened, storage_error
from radiator.storage.format import StoredBatch
from radiator.storage.reads import SCAN_BYTES, ReadableLog
from radiator.storage.segment import SegmentInfo, Window, entry_matches, load_index, whole_batches

if TYPE_CHECKING:
    from radiator.storage.batch import RecordBatch

_Batch = tuple[Sequence[int], Sequence[int], Sequence[int], list[str], int]  # offsets, times, ids, names, bytes read
BEFORE_ALL = -(1 << 63)
RUN_BATCHES = 2_000  # in one go: some ten milliseconds
RUN_BYTES = 32 * 1024 * 1024


class NamedLog(ReadableLog, Protocol):
    """A log and what is stored there."""

    name: str
    destinations: dict[str, None]


class Wanted(NamedTuple):
    """A log up to ``end_offset``. ``keys``: the destination that each of its names counts for."""

    partition: NamedLog
    end_offset: int
    keys: Mapping[str, str]


class _Facts:
    """The offsets, times and names of a batch; the records from ``stop`` on are counted."""

    __slots__ = ("ids", "names", "offsets", "start", "stop", "times")

    def __init__(
        self, offsets: Sequence[int], times: Sequence[int], ids: Sequence[int], names: list[str], start: int, stop: int
    ) -> None:
        self.offsets = offsets
        self.times = times
        self.ids = ids
        self.names = names
        self.start = start
        self.stop = stop

    @property
    def earliest_ns(self) -> int:
        """When the first of the uncounted records was received."""
        return self.times[self.start]

    @property
    def latest_ns(self) -> int:
        """When the last of the uncounted records was received."""
        return self.times[self.stop - 1]

    def places(self, since: int) -> Iterator[tuple[str, Sequence[int]]]:
        """Yield the places of each name's records, from the place ``since`` on."""
        if len(self.names) == 1:
            yield self.names[0], range(since, self.stop)
            return
        found: dict[int, list[int]] = {}
        ids = self.ids
        for place in range(since, self.stop):
            found.setdefault(ids[place], []).append(place)
        for number, places in found.items():
            yield self.names[number], places


class _Log:
    """A log that is read backwards. ``next`` is the batch to read next, and ``rank`` its place in the order."""

    __slots__ = (
        "_below",
        "_walk",
        "bytes_read",
        "directory",
        "end",
        "keys",
        "next",
        "open",
        "pending",
        "rank",
        "start",
    )

    def __init__(self, wanted: Wanted, rank: int) -> None:
        partition = wanted.partition
        self.rank = rank
        self.directory = partition.directory
        self.keys = wanted.keys
        self.open = {key for name, key in wanted.keys.items() if name in partition.destinations}  # not found yet
        self.start = partition.log_start_offset
        self.end = self._below = min(wanted.end_offset, partition.high_watermark)
        self.pending: list[_Facts] = []  # walked over, and not counted yet; newest first
        self.next: _Facts | None = None
        self.bytes_read = 0
        self._walk = _backwards(partition, partition.newest_first(), partition.segments[:], self.start, self.end)

    def advance(self) -> None:
        """Find the next batch with records of the wanted names."""
        keys = self.keys
        for offsets, times, ids, names, size_bytes in self._walk:
            self.bytes_read += size_bytes
            start, stop = 0, len(offsets)
            if offsets[-1] >= self._below or offsets[0] < self.start:
                start = sum(offset < self.start for offset in offsets)
                stop = sum(offset < self._below for offset in offsets)
            self._below = min(self._below, offsets[0])
            if start < stop and any(name in keys for name in names):
                self.next = _Facts(offsets, times, ids, names, start, stop)
                return
        self.next = None


def _backwards(
    partition: NamedLog, tail: list[RecordBatch], segments: list[SegmentInfo], start: int, below: int
) -> Iterator[_Batch]:
    """Yield batches, newest first: from memory, then from the files, between two index entries at a time."""
    fs, directory = partition.fs, partition.directory
    for batch in tail:
        if batch.base_offset < below and len(batch):
            yield batch.offsets, batch.receive_ns, batch.destination_ids, batch.names, 0
            below = batch.base_offset
    for segment in reversed(segments):
        if segment.base_offset >= below or below <= start:
            continue
        path = layout.segment_path(directory, segment.base_offset)
        try:
            fd = fs.open_read(path)
        except FileNotFoundError:
            return  # taken by retention meanwhile, and so is everything before it
        with opened(fs, fd):
            window, stop = Window(fs, fd, SCAN_BYTES, path), fs.size(fd)
            for entry in reversed(load_index(fs, directory, segment.base_offset)):
                if 0 < entry.position < stop and entry_matches(window, entry):
                    yield from reversed(_stretch(window, entry.position, stop, entry.base_offset, below))
                    stop = entry.position
            yield from reversed(_stretch(window, 0, stop, segment.base_offset, below))


def _stretch(window: Window, position: int, stop: int, expected: int, below: int) -> list[_Batch]:
    found: list[_Batch] = []
    for at, header in whole_batches(window, position, stop, expected):
        if header.base_offset >= below:
            break
        batch = StoredBatch(window.data, window.at(at, header.total_len), header)
        columns = batch.offsets(), batch.receive_ns(), batch.destination_ids(), batch.names()
        found.append((*columns, header.total_len))
    return found


class _Order:
    """The order in which batches are walked over: of all logs the next batch that ends latest.

    Args:
        logs: The logs. Of batches that end in the same nanosecond that of the last log comes first.
    """

    __slots__ = ("_heap",)

    def __init__(self, logs: list[_Log]) -> None:
        self._heap: list[tuple[int, int, _Log]] = []  # minus the end of the next batch, minus the rank
        for log in logs:
            self.advance(log)

    @property
    def latest_ns(self) -> int:
        """When the last record of all next batches was received."""
        return -self._heap[0][0] if self._heap else BEFORE_ALL

    def take(self) -> _Log | None:
        """Walk over one batch, which becomes pending, and return its log. None if no log has any to look for."""
        while self._heap:
            log = heappop(self._heap)[2]
            if log.open and log.next is not None:
                log.pending.append(log.next)
                return log
        return None

    def advance(self, log: _Log) -> None:
        """Find the next batch of a log, unless all its destinations have their messages."""
        if log.open:
            log.advance()
            if log.next is not None:
                heappush(self._heap, (-log.next.latest_ns, -log.rank, log))


class LastJob:
    """Find the last ``count`` messages. ``wanted``: the logs of the destination in their order."""

    __slots__ = ("_left", "_logs", "_order", "_wanted", "error", "finished", "starts")

    def __init__(self, wanted: Sequence[Wanted], count: int) -> None:
        self.error: StorageError | None = None
        self.finished = False
        self._wanted = wanted
        self._logs = [_Log(each, rank) for rank, each in enumerate(wanted)]
        self._left = dict.fromkeys([key for each in wanted for key in each.keys.values()], count)
        self._order: _Order | None = None
        self.starts: dict[str, dict[str, int]] = {
            each.partition.name: dict.fromkeys(each.keys, log.end) for each, log in zip(wanted, self._logs, strict=True)
        }
        if count <= 0:
            self.finished = True
        elif sum(log.end - log.start for log in self._logs) <= count:  # all of them
            for each, log in zip(wanted, self._logs, strict=True):
                self.starts[each.partition.name] = dict.fromkeys(each.keys, log.start)
            self.finished = True

    @property
    def offset(self) -> int:
        """The lowest of the first offsets."""
        return min(offset for found in self.starts.values() for offset in found.values())

    def done(self, now: Now | None = None) -> None:
        """Do nothing; the event loop calls it as for other jobs."""

    def run(self) -> None:
        """Do a part of the work, on the read thread."""
        try:
            self._run()
        except OSError as error:
            self.error, self.finished = storage_error(self._logs[0].directory, "read", error), True
        except StorageError as error:
            self.error, self.finished = type(error)(f"{self._logs[0].directory}: {error}"), True

    def _run(self) -> None:
        if self._order is None:
            self._order = _Order(self._logs)
        order = self._order
        limit = self._bytes_read() + RUN_BYTES
        for _ in range(RUN_BATCHES):
            log = order.take()
            if log is None:
                self._count(BEFORE_ALL)
                self.finished = True
                return
            after_ns = order.latest_ns
            if any(each.pending for each in self._logs if each is not log):  # this log may get later messages
                after_ns = max(after_ns, log.pending[-1].earliest_ns)
            self._count(after_ns)
            order.advance(log)
            if self._bytes_read() > limit:
                return

    def _bytes_read(self) -> int:
        return sum(log.bytes_read for log in self._logs)

    def _count(self, after_ns: int) -> None:
        """Count the messages received after ``after_ns`` in the batches that were walked over."""
        found: dict[str, list[tuple[int, str, _Facts, Sequence[int]]]] = {}
        for log in self._logs:
            rest = []
            for facts in log.pending:
                since = bisect_right(facts.times, after_ns, facts.start, facts.stop)
                for name, places in facts.places(since):
                    key = log.keys.get(name)
                    if key is not None and places and self._left[key]:
                        found.setdefault(key, []).append((log.rank, name, facts, places))
                facts.stop = since
                if facts.start < since:
                    rest.append(facts)
            log.pending = rest
        for key, parts in found.items():
            total = sum(len(places) for *_, places in parts)
            if total > self._left[key]:
                self._choose(parts, self._left[key])
                total = self._left[key]
            else:
                for rank, name, facts, places in parts:
                    self._begin(rank, name, facts.offsets[places[0]])
            self._left[key] -= total
            if not self._left[key]:
                for log in self._logs:
                    log.open.discard(key)

    def _choose(self, parts: list[tuple[int, str, _Facts, Sequence[int]]], count: int) -> None:
        """Count only the newest: there are more than needed."""
        every = [
            (facts.times[place], rank, facts.offsets[place], name)
            for rank, name, facts, places in parts
            for place in places
        ]
        every.sort(reverse=True)
        for _, rank, offset, name in every[:count]:
            self._begin(rank, name, offset)

    def _begin(self, rank: int, name: str, offset: int) -> None:
        starts = self.starts[self._wanted[rank].partition.name]
        starts[name] = min(starts[name], offset)
