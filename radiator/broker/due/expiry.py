"""The first message of a source may expire while nobody comes for it: then it goes, so that its space comes back.

When a batch with messages that expire is stored, the source plans to look at its head when the first of them does. It
settles what has expired there, up to the first message that has not, and plans anew. What was passed over for want of
somebody who wants it (parked) goes when it expires, wherever it stands. What else lies behind a message that lives is
judged when it is handed out, or when it comes to the head.

Invariants: nothing is planned for a source without such messages; no more is read than the head, and that once; one
visit looks at a bounded number of messages.
"""

from __future__ import annotations

from heapq import heappop
from typing import TYPE_CHECKING
from zlib import crc32

from radiator.broker.due.moments import EXPIRES, expiry, first_expiry, marks
from radiator.broker.due.timing import NEVER_NS, Timing
from radiator.clock import NS_PER_MS, NS_PER_SECOND

if TYPE_CHECKING:
    from radiator.broker.queues.source import QueueSource
    from radiator.storage.batch import RecordBatch

READ_NS = NS_PER_SECOND  # how soon it looks again when the head has to be read from the disk
CROWDED_NS = 10 * NS_PER_MS  # ... when there are enough dead letters for now
RUN = 4_000  # looked at in one visit: 4 ms
PARKED_NS = NS_PER_SECOND  # at most so late one goes that was passed over
PARKED_RUN = 1_000  # of them go in one visit
LIVING_NS = 60 * NS_PER_SECOND  # ... when the head does not expire
SPREAD_NS, SPREAD_UNSURE_NS = 60 * NS_PER_SECOND, 600 * NS_PER_SECOND  # after a start: not all heads are read at once


class Expiry:
    """See the top of the file."""

    __slots__ = ("_heads", "_reading", "_revived", "_some", "_source", "_timing", "wake_ns")

    def __init__(self, source: QueueSource, timing: Timing) -> None:
        self._source = source
        self._timing = timing
        self._revived = False
        self._some = False  # messages that expire were stored, and it was not empty since
        self._heads: dict[int, int] = {}  # what was at the head at the last visit, and when it expires
        self._reading = False  # a head is read from the disk
        self.wake_ns = NEVER_NS

    def revive(self) -> None:
        """The source has messages of an earlier run; whether they expire is not known."""
        self._revived = True
        self._timing.at(0, self)

    def stored(self, batch: RecordBatch) -> None:
        """One more batch is in the log."""
        first_ns = first_expiry(batch, self._source.terms.ttl_ns)
        if first_ns < NEVER_NS:
            self._some = True
            self._timing.at(first_ns, self)

    def loaded(self) -> None:
        """What was to be read is there."""
        if self._reading:
            self.due(self._timing.now_ns)

    def close(self) -> None:
        """The source is gone."""
        self._reading = False
        self._timing.forget(self)
        del self._source  # as in Deferred

    def due(self, now_ns: int) -> None:
        """Something at the head may have expired."""
        source = self._source
        if self._revived:
            self._revived = False
            spread_ns = SPREAD_UNSURE_NS if source.terms.ttl_ns is None else SPREAD_NS
            seed = f"{source.queue.name} {source.feed.partition.name}".encode()
            self._timing.at(now_ns + crc32(seed) * spread_ns // (1 << 32), self)
            return
        if source.terms.keeps_expired and self._timing.returns.dead_letters.crowded:
            self._timing.at(now_ns + CROWDED_NS, self)
            return
        heads, self._heads = self._heads, {}
        next_ns = min(self._parked(now_ns), self._returned(now_ns, heads), self._fresh(now_ns, heads))
        self._reading = source.loading
        if source.loading:
            self._heads = heads | self._heads
            next_ns = min(next_ns, now_ns + READ_NS)
        elif not self._heads and next_ns > now_ns:
            self._some = False
        if next_ns < NEVER_NS:
            self._timing.at(max(next_ns, now_ns + 1), self)
        if next_ns > now_ns and not source.queue.consumers:
            source.batch = None
        source.rest()

    def clock_went_back(self, by_ns: int) -> None:
        """Expiry is a moment of the wall clock."""

    def parked(self, batch: RecordBatch, index: int) -> None:
        """This record was passed over."""
        source, ttl_ns = self._source, self._source.terms.ttl_ns
        if source.parked is not None and (ttl_ns is not None or marks(batch) & EXPIRES):
            end_ns = expiry(batch, index, ttl_ns)
            if end_ns < NEVER_NS:
                source.parked.expires(batch.offsets[index], end_ns)
                self._timing.at(end_ns, self)

    def _parked(self, now_ns: int) -> int:
        """What was passed over; when to look for the next of it: in a stream not at each of them."""
        source = self._source
        if source.parked is None:
            return NEVER_NS
        over = source.parked.expired(now_ns, PARKED_RUN)
        for offset in over:
            self._timing.returns.expired(source, offset, source.deliveries(offset))
        if over:
            self._timing.wake(source.queue)
        end_ns = source.parked.next_end_ns
        if end_ns == NEVER_NS:
            return NEVER_NS
        return now_ns + 1 if end_ns <= now_ns else max(end_ns, now_ns + PARKED_NS)

    def _returned(self, now_ns: int, heads: dict[int, int]) -> int:
        """What was given back; when the first of it expires."""
        source = self._source
        looked = 0
        while source.returned and not source.loading:
            offset = source.returned[0]
            if heads.get(offset, now_ns) > now_ns:
                return self._looking_again(offset, heads[offset], now_ns)
            if looked == RUN:
                return now_ns
            looked += 1
            batch = source.batch_at(offset)
            if batch is None:
                continue
            index = batch.index_at(offset)
            ours = source.queue.claim.takes(source.feed.partition.name, batch, index)
            end_ns = expiry(batch, index, source.terms.ttl_ns)
            if ours and end_ns > now_ns:
                return self._looking_again(offset, end_ns, now_ns)
            heappop(source.returned)
            if ours:
                self._timing.returns.expired(source, offset, source.deliveries(offset))
            else:
                source.skip([offset])
        return NEVER_NS

    def _fresh(self, now_ns: int, heads: dict[int, int]) -> int:
        """What nobody has had; when the first of it expires."""
        source = self._source
        partition, selection = source.feed.partition, source.queue.selection
        left = RUN if selection is None else min(RUN, selection.run)
        while not source.loading and not source.stuck and source.next_offset < partition.high_watermark:
            if heads.get(source.next_offset, now_ns) > now_ns:
                return self._looking_again(source.next_offset, heads[source.next_offset], now_ns)
            if left == 0:
                return now_ns
            batch = source.batch_at(source.next_offset)
            if batch is None:
                continue
            start, end = batch.index_at(source.next_offset), partition.high_watermark
            stop = len(batch) if batch.next_offset <= end else batch.index_at(end)
            stop = min(stop, start + left)
            left -= stop - start
            index = source.pass_over(batch, source.queue.claim.firsts(partition.name, batch), start, stop)
            if index > start:
                source.move(batch, start, index)
            if index < stop:
                return self._looking_again(batch.offsets[index], expiry(batch, index, source.terms.ttl_ns), now_ns)
        return NEVER_NS

    def _looking_again(self, offset: int, end_ns: int, now_ns: int) -> int:
        """A head that lives. Others behind it, which expire before, may have come to the head by then."""
        self._heads[offset] = end_ns
        return min(end_ns, now_ns + LIVING_NS) if self._some or end_ns < NEVER_NS else NEVER_NS
