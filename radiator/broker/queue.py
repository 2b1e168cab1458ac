"""A queue: one shared cursor per partition, whose window is spread over the consumers.

The log is the queue: nothing is kept here but offsets. A source hands out *fresh* messages in the order of the log
and, before them, messages that were *returned* (nack, lost consumer, restart), lowest offset first, so a returned
message takes its original place again. Between consumers the one served longest ago comes first; between the queues
of one client see ``Session.queue_ring``.

Invariants: every offset below ``next_offset`` of a source is settled, in flight to exactly one subscription, or
in ``returned``; ``cursor.delivered`` is at least the highest fresh offset handed out, before its bytes leave.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from radiator import limits
from radiator.broker.wire import run_length

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from radiator.broker.destination import Destination
    from radiator.broker.feed import Feed
    from radiator.broker.session import Session
    from radiator.broker.subscription import Subscription
    from radiator.storage.batch import RecordBatch

RUN_BYTES = 256 * limits.KIB  # one turn's share of one queue


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


class Queue:
    """The consumers and sources of one queue. ``on_lost`` is told how many messages the log no longer had."""

    __slots__ = ("_on_lost", "consumers", "destination", "name", "sources")

    def __init__(self, destination: Destination, on_lost: Callable[[str, int], None]) -> None:
        self.destination = destination
        self.name = destination.name
        self.sources: deque[QueueSource] = deque()
        self.consumers: deque[Subscription] = deque()
        self._on_lost = on_lost

    def lost(self, count: int) -> None:
        """``count`` messages of this queue were gone from the log before they could be delivered."""
        self._on_lost(self.name, count)

    @property
    def ready(self) -> bool:
        """True if a message waits that could be handed out now."""
        return any(source.ready for source in self.sources)

    def appended(self, partition: Any) -> None:
        """One more message waits. Called only where a rule limits how many may: nobody else asks for ``backlog``."""
        for source in self.sources:
            if source.feed.partition is partition:
                source.waiting += 1

    @property
    def backlog(self) -> int:
        """Messages not settled: waiting or in flight. In a partition that several destinations share, after a restart,
        an upper bound until the queue has been read once."""
        return sum(source.waiting for source in self.sources)

    @property
    def backlog_bytes(self) -> int:
        """About what these messages take in the log."""
        size = 0
        for source in self.sources:
            partition = source.feed.partition
            stored = partition.next_offset - partition.log_start_offset
            size += partition.size_bytes * source.waiting // max(1, stored)
        return size

    @property
    def ready_to_drop(self) -> int:
        """How many messages wait that no consumer holds."""
        return sum(
            len(source.returned) + source.feed.partition.next_offset - source.next_offset for source in self.sources
        )

    def drop_oldest(self) -> bool:
        """Settle the oldest message that no consumer holds, to make room; False if there is none."""
        for source in self.sources:
            if source.returned:
                source.settle([heappop(source.returned)])
                return True
            if source.next_offset < source.feed.partition.next_offset:
                source.drop_next()
                return True
        return False

    def pump(
        self,
        only: Subscription | None = None,
        count_max: int = limits.BATCH_RECORDS_MAX,
        but: Session | None = None,
    ) -> int:
        """Hand out one run from each source in turn. Returns how many messages went out, or else 1 if there was
        progress of another kind (something was skipped), so that 0 means: nothing to do until something happens."""
        handed = 0
        for _ in range(len(self.sources)):
            source = self.sources[0]
            self.sources.rotate(-1)
            if not source.ready:
                continue
            consumers: Iterable[Subscription] = self.consumers if only is None else (only,)
            if but is not None:
                consumers = [consumer for consumer in consumers if consumer.session is not but]
            credits = _credits(consumers)
            if not credits:
                break
            handed += self._hand_out(source, credits, count_max - handed)
            source.rest()
            if handed >= count_max:
                break
        return handed

    def _hand_out(self, source: QueueSource, credits: list[tuple[Subscription, int]], count_max: int) -> int:
        if source.returned:
            return self._hand_out_returned(source, credits[0][0])
        offset = source.next_offset
        batch = source.batch_at(offset)
        if batch is None:
            return 0 if source.loading else 1
        high_watermark = source.feed.partition.high_watermark
        start = batch.index_at(offset)
        stop = len(batch) if batch.next_offset <= high_watermark else batch.index_at(high_watermark)
        room = min(RUN_BYTES, *(consumer.session.room() for consumer, _ in credits))
        stop = start + run_length(batch, start, stop, room)
        if len(batch.names) > 1 or batch.names[0] != self.name:
            return self._hand_out_mixed(source, batch, start, stop, credits, count_max)
        count = min(stop - start, count_max, sum(credit for _, credit in credits))
        indexes = range(start, start + count)
        source.next_offset = batch.offsets[start + count - 1] + 1
        self._spread(source, batch, indexes, credits)
        return count

    def _hand_out_mixed(
        self,
        source: QueueSource,
        batch: RecordBatch,
        start: int,
        stop: int,
        credits: list[tuple[Subscription, int]],
        count_max: int,
    ) -> int:
        """As above, in a partition that other destinations share: what is not ours counts as settled."""
        count = min(count_max, sum(credit for _, credit in credits))
        picked: list[int] = []
        skipped: list[int] = []
        index = start
        while index < stop and len(picked) < count:
            if batch.names[batch.destination_ids[index]] == self.name:
                picked.append(index)
            else:
                skipped.append(batch.offsets[index])
            index += 1
        source.next_offset = batch.offsets[index - 1] + 1
        if skipped:
            source.skip(skipped)
        if picked:
            self._spread(source, batch, picked, credits)
        return max(1, len(picked))

    def _spread(
        self,
        source: QueueSource,
        batch: RecordBatch,
        indexes: range | list[int],
        credits: list[tuple[Subscription, int]],
    ) -> None:
        """Deal fresh messages out, one to each consumer in turn while it has credit."""
        source.cursor.delivered = source.next_offset
        if len(credits) == 1:
            self._send(source, batch, credits[0][0], indexes)
            return
        shares: list[list[int]] = [[] for _ in credits]
        ring = deque((share, credit) for share, (_, credit) in zip(shares, credits, strict=True))
        for index in indexes:
            share, credit = ring.popleft()
            share.append(index)
            if credit > 1:
                ring.append((share, credit - 1))
        for (consumer, _), share in zip(credits, shares, strict=True):
            if share:
                self._send(source, batch, consumer, share)
        served = [(share[-1], consumer) for (consumer, _), share in zip(credits, shares, strict=True) if share]
        for _, consumer in sorted(served, key=lambda pair: pair[0]):
            self.served(consumer)

    def _send(
        self, source: QueueSource, batch: RecordBatch, consumer: Subscription, indexes: range | list[int]
    ) -> None:
        tails = source.feed.wire.tails(batch, consumer.session.version)
        if isinstance(indexes, range):
            run = slice(indexes.start, indexes.stop)
            consumer.deliver(source.feed, source, batch.offsets[run], tails[run])  # type: ignore[arg-type]
        else:
            offsets = [batch.offsets[index] for index in indexes]
            consumer.deliver(source.feed, source, offsets, [tails[index] for index in indexes])
        consumer.session.served(consumer, self)

    def _hand_out_returned(self, source: QueueSource, consumer: Subscription) -> int:
        offset = source.returned[0]
        if source.cursor.is_acked(offset):
            heappop(source.returned)
            return 1
        batch = source.batch_at(offset)
        if batch is None:
            return 0 if source.loading else 1
        index = batch.index_at(offset)
        heappop(source.returned)
        if batch.names[batch.destination_ids[index]] != self.name:
            source.skip([offset])
            return 1
        count = source.cursor.counts.get(offset, 1) + 1
        source.cursor.set_count(offset, count)
        tail = source.feed.wire.tails(batch, consumer.session.version)[index]
        extra = b"redelivered:true\ndelivery-count:%d\n" % count
        consumer.deliver(source.feed, source, [offset], [tail], extra)
        consumer.session.served(consumer, self)
        self.served(consumer)
        return 1

    def served(self, consumer: Subscription) -> None:
        """Least recently served first: move to the end."""
        if len(self.consumers) > 1 and self.consumers[-1] is not consumer:
            try:
                self.consumers.remove(consumer)
            except ValueError:
                return
            self.consumers.append(consumer)


def _credits(consumers: Iterable[Subscription]) -> list[tuple[Subscription, int]]:
    """The consumers that may be sent something, and how much; what subscriptions of one session share is given once."""
    credits: list[tuple[Subscription, int]] = []
    given: dict[Session, int] = {}
    for consumer in consumers:
        credit = consumer.queue_credit()
        if credit > 0 and consumer.shares_window:
            session = consumer.session
            credit = min(credit, session.window - session.held - given.get(session, 0))
            given[session] = given.get(session, 0) + credit
        if credit > 0:
            credits.append((consumer, credit))
    return credits
