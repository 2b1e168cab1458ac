"""Recent batches in memory: those just committed (the tail of each partition) and those just read from disk.

Both have one budget for all partitions of a store, and drop the oldest first, so memory is bounded whatever the
backlog. A tail is contiguous and ends at the high watermark. Records that were removed from a file are removed from
memory too, so that the log and deliveries agree. Reading small batches in a row merges them in place, once: a reader
that lags behind a producer of single messages gets lists, not single records.

This module knows batches and offsets. It does not know files or jobs. The event loop owns it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from radiator.storage.batch import RecordBatch
from radiator.storage.merge import merge

MERGE_RECORDS_MAX = 512  # about what one reader takes at a time; larger merges delay its first record
MERGE_BYTES_MAX = 256 * 1024
MERGE_BATCHES_MIN = 4  # fewer are not worth the copy
SMALL_RECORDS = 64  # a batch of this many is a list already
COMPACT_AT = 1_024  # forgotten places at the front of a tail's lists, or in a budget's order, before they are cut off


class Tail:
    """The newest batches of one partition, contiguous, in order."""

    __slots__ = ("bases", "batches", "budget", "bytes", "start")

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.bytes = 0
        self.bases: list[int] = []
        self.batches: list[RecordBatch | None] = []
        self.start = 0  # places before this one are forgotten

    def add(self, batch: RecordBatch) -> None:
        """Add the batch that follows the last one."""
        self.bases.append(batch.base_offset)
        self.batches.append(batch)
        cost = batch.cost_bytes
        self.bytes += cost
        self.budget.added(self, batch.next_offset, cost)

    def base_before(self, offset: int) -> bool:
        """Return whether anything below ``offset`` is in memory."""
        return self.start < len(self.bases) and self.bases[self.start] < offset

    def find(self, offset: int) -> RecordBatch | None:
        """Return the batch that contains ``offset``, merged with small batches that follow it, or None."""
        batches = self.batches
        if self.start == len(batches):
            return None
        last = batches[-1]
        assert last is not None
        if last.base_offset <= offset:
            return last if offset < last.next_offset else None
        place = bisect_right(self.bases, offset, self.start) - 1
        if place < self.start:
            return None
        batch = batches[place]
        assert batch is not None
        if len(batch.blocks) < SMALL_RECORDS:
            return self._merged(place, batch)
        return batch

    def _merged(self, place: int, batch: RecordBatch) -> RecordBatch:
        stop, records, size = place, 0, 0
        batches = self.batches
        while stop < len(batches):
            each = batches[stop]
            assert each is not None
            records += len(each.blocks)
            size += each.size_bytes
            if stop > place and (records > MERGE_RECORDS_MAX or size > MERGE_BYTES_MAX):
                break
            stop += 1
        if stop - place < MERGE_BATCHES_MIN:
            return batch
        parts = [each for each in batches[place:stop] if each is not None]
        merged = merge(parts)
        self._resize(merged.cost_bytes - sum(each.cost_bytes for each in parts))
        batches[place:stop] = [merged]
        del self.bases[place + 1 : stop]
        return merged

    def drop_below(self, offset: int) -> None:
        """Drop the batches that end at or below ``offset``."""
        batches, start = self.batches, self.start
        freed = 0
        while start < len(batches):
            batch = batches[start]
            assert batch is not None
            if batch.next_offset > offset:
                break
            freed += batch.cost_bytes
            batches[start] = None
            start += 1
        if start > COMPACT_AT or start == len(batches):
            del batches[:start], self.bases[:start]
            start = 0
        self.start = start
        if freed:
            self._resize(-freed)

    def cut_below(self, offset: int) -> None:
        """Drop everything below ``offset``, also the part of a batch."""
        self.drop_below(offset)
        batch = self.oldest()
        if batch is None or batch.base_offset >= offset:
            return
        part = batch.part(batch.index_at(offset), len(batch), offset)
        self.batches[self.start], self.bases[self.start] = part, offset
        self._resize(part.cost_bytes - batch.cost_bytes)

    def _resize(self, cost: int) -> None:
        self.bytes += cost
        self.budget.resize(cost)

    def oldest(self) -> RecordBatch | None:
        """Return the oldest batch, or None."""
        return self.batches[self.start] if self.start < len(self.batches) else None

    def newest_first(self) -> list[RecordBatch]:
        """Return the batches, newest first."""
        return [batch for batch in reversed(self.batches[self.start :]) if batch is not None]


class Budget:
    """The bytes that all tails of a store may take together."""

    __slots__ = ("bytes", "bytes_max", "compact_at", "order")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.order: deque[tuple[Tail, int]] = deque()  # (tail, end of a batch), oldest first
        self.compact_at = COMPACT_AT

    def added(self, tail: Tail, end: int, cost: int) -> None:
        """Count a batch that has joined a tail."""
        self.order.append((tail, end))
        self.resize(cost)
        if self.bytes > self.bytes_max:
            self.evict()
        elif len(self.order) > self.compact_at:  # retention drops batches without telling
            self.order = deque(entry for entry in self.order if entry[0].base_before(entry[1]))
            self.compact_at = 2 * len(self.order) + COMPACT_AT

    def limit(self, bytes_max: int) -> None:
        """Set the budget. The next batch evicts what is beyond it."""
        self.bytes_max = bytes_max

    def resize(self, cost: int) -> None:
        """Count ``cost`` more bytes, or fewer if it is negative."""
        self.bytes += cost

    def evict(self) -> None:
        """Drop the oldest batches beyond the budget."""
        order = self.order
        while self.bytes > self.bytes_max and order:
            tail, end = order.popleft()
            tail.drop_below(end)


class ColdCache:
    """The results of cold reads, for the next deliveries and for other readers at the same place. Oldest goes first."""

    __slots__ = ("bytes", "bytes_max", "order")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.order: deque[tuple[list[RecordBatch], RecordBatch]] = deque()

    def limit(self, bytes_max: int) -> None:
        """Set how much is cached. The next batch evicts what is beyond it."""
        self.bytes_max = bytes_max

    def add(self, cached: list[RecordBatch], batch: RecordBatch) -> None:
        """Add a batch to ``cached``, the partition's own list, newest last."""
        cached.append(batch)
        self.order.append((cached, batch))
        self.bytes += batch.cost_bytes
        while self.bytes > self.bytes_max and len(self.order) > 1:
            old_cached, old = self.order.popleft()
            old_cached.remove(old)  # the oldest, so it is found at once
            self.bytes -= old.cost_bytes

    def drop(self, cached: list[RecordBatch], start: int, stop: int) -> None:
        """Drop the batches in ``cached`` that cover an offset from ``start`` up to, not including, ``stop``."""
        gone = {each for each in cached if each.base_offset < stop and start < each.next_offset}
        if gone:
            self.order = deque(entry for entry in self.order if entry[0] is not cached or entry[1] not in gone)
            cached[:] = [each for each in cached if each not in gone]
            self.bytes -= sum(each.cost_bytes for each in gone)


def find_cold(cached: list[RecordBatch], offset: int) -> RecordBatch | None:
    """Return the batch that contains ``offset``, or None."""
    for batch in reversed(cached):
        if batch.base_offset <= offset < batch.next_offset:
            return batch
    return None
