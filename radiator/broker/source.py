"""A queue's source: its cursor over one partition, and what it has handed out and got back.

The log is the queue: nothing is kept here but offsets. *Fresh* messages come in the order of the log; before them come
those that were *returned* (nack, lost consumer, restart), lowest offset first, so each takes its original place again.

Invariants: every offset below ``next_offset`` is settled, in flight to exactly one subscription, or in ``returned``
(or in ``early``, on its way to be settled); ``cursor.delivered`` is at least the highest fresh offset handed out,
before its bytes leave.
"""

from __future__ import annotations

from heapq import heapify, heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from radiator.broker.feed import Feed
    from radiator.broker.queue import Queue
    from radiator.storage.batch import RecordBatch


class QueueSource:
    """A queue's cursor over one partition."""

    __slots__ = (
        "_dirty",
        "batch",
        "counted_to",
        "cursor",
        "early",
        "feed",
        "idle_to",
        "loading",
        "next_offset",
        "queue",
        "returned",
        "settled",
        "waiting",
    )

    def __init__(self, queue: Queue, feed: Feed, cursor: Any, dirty: dict[QueueSource, None]) -> None:
        self.queue = queue
        self.feed = feed
        self.cursor = cursor
        self._dirty = dirty
        self.settled: list[int] = []
        self.early: list[int] = []  # dropped before they were stored
        self.counted_to = feed.partition.next_offset
        unsettled = self.counted_to - cursor.floor - sum(stop - start for start, stop in cursor.intervals)
        self.waiting = max(0, unsettled)  # after a restart other destinations' records may be among them
        self.batch: RecordBatch | None = None
        self.loading = False
        end = feed.partition.next_offset
        self.next_offset = min(max(cursor.delivered, cursor.ceiling, cursor.floor), max(end, cursor.floor))
        self.idle_to = self.next_offset  # up to here there is nothing of ours from next_offset on
        self.returned = list(cursor.unacked(self.next_offset))
        heapify(self.returned)

    @property
    def ready(self) -> bool:
        """True if a message could be handed out now."""
        return not self.loading and (bool(self.returned) or self.next_offset < self.feed.partition.high_watermark)

    def rest(self) -> None:
        """An idle queue does not hold on to a batch."""
        if not self.ready:
            self.batch = None
            self.idle_to = self.next_offset

    def settle(self, offsets: list[int]) -> None:
        """These messages are done with, for ever; the cursor learns of it once per turn."""
        self.waiting -= len(offsets)
        self._settle(offsets)

    def skip(self, offsets: list[int]) -> None:
        """These records of a shared partition are other destinations'."""
        if offsets[0] < self.counted_to:
            self.waiting -= sum(offset < self.counted_to for offset in offsets)
        self._settle(offsets)

    def _settle(self, offsets: list[int]) -> None:
        self.settled += offsets
        self._dirty[self] = None

    def drop_next(self) -> None:
        """Settle the next fresh message undelivered. One that is not stored yet is settled when it is."""
        if self.next_offset < self.feed.partition.high_watermark:
            self.settle([self.next_offset])
        else:
            self.waiting -= 1
            self.early.append(self.next_offset)
        self.next_offset += 1

    def committed(self, lost: int) -> None:
        """The high watermark has moved, or a batch with ``lost`` messages of this queue could not be stored: then the
        offsets from the high watermark on will be given to other messages."""
        high_watermark = self.feed.partition.high_watermark
        if lost:
            self.waiting -= lost - sum(offset >= high_watermark for offset in self.early)
            self.early = [offset for offset in self.early if offset < high_watermark]
            self.next_offset = min(self.next_offset, high_watermark)
            self.counted_to = min(self.counted_to, high_watermark)
        stored = [offset for offset in self.early if offset < high_watermark]
        if stored:
            self.early = self.early[len(stored) :]
            self._settle(stored)

    def flush(self) -> None:
        """Tell the cursor what was settled in this turn, and the partition what it must still keep."""
        settled, self.settled = self.settled, []
        self.cursor.ack(settled)
        self.feed.pin()

    def give_back(self, offsets: list[int]) -> None:
        """These messages were in flight and are not settled: they take their places again."""
        for offset in offsets:
            heappush(self.returned, offset)

    @property
    def waits(self) -> bool:
        """False if the answer of a cold read is not needed any more (``Waiter``)."""
        return bool(self.queue.consumers)

    def pass_by(self, batch: RecordBatch) -> None:
        """A batch was stored. If there is nothing of ours in it, and was not since we had read everything, it need not
        be read: see ``advance``."""
        if self.idle_to == batch.base_offset and self.queue.name not in batch.names:
            self.idle_to = batch.next_offset

    def advance(self) -> None:
        """Let an empty queue in a shared partition not hold back the retention of what others store there."""
        if self.idle_to > self.next_offset == self.cursor.floor and not self.returned:
            self.waiting -= max(0, min(self.idle_to, self.counted_to) - self.next_offset)
            self.cursor.ack_range(self.next_offset, self.idle_to)
            self.next_offset = self.idle_to
            self.feed.pin()

    def loaded(self, offset: int, batch: RecordBatch | None, skip_to: int | None) -> None:
        """A cold read has ended (``Waiter``)."""
        self.loading = False
        if batch is not None and len(batch) and batch.next_offset > offset:
            self.batch = batch
        elif skip_to is not None and skip_to > offset:
            self._lost(offset, skip_to)

    def _lost(self, start: int, stop: int) -> None:
        """Offsets that the log no longer has: retention or damage took them. They cannot be delivered; counted."""
        self.queue.lost(stop - start)
        self.waiting -= stop - start
        self.cursor.ack_range(start, stop)
        if self.next_offset >= start:
            self.next_offset = max(self.next_offset, stop)
        self.returned = [offset for offset in self.returned if not start <= offset < stop]
        heapify(self.returned)

    def batch_at(self, offset: int) -> RecordBatch | None:
        """The batch that holds ``offset``, or None: then a cold read is under way, or the offset is gone."""
        start = self.feed.partition.log_start_offset
        if offset < start:
            self._lost(offset, start)
            return None
        batch = self.batch
        if batch is None or not batch.base_offset <= offset < batch.next_offset:
            batch = self.batch = self.feed.partition.read(offset)
            if batch is None:
                self.loading = True
                self.feed.load(offset, self)
                return None
        index = batch.index_at(offset)
        if batch.offsets[index] != offset:
            self._lost(offset, batch.offsets[index])
            return None
        return batch
