"""The first message of a source may expire while nobody comes for it: then it goes, so that its space comes back.

When a batch with messages that expire is stored, the source plans to look at its head when the first of them does. It
settles what has expired there, up to the first message that has not, and plans anew. What was skipped, as no consumer
wanted it, goes when it expires, wherever it stands: all of it is looked through when the first of it expires, again and
again, the more there is the more seldom. What else lies behind a message that lives is judged when it is handed out, or
when it comes to the head.

Invariants: nothing is planned for a source without such messages; no more is read than the head, and that once; one
visit looks at a bounded number of messages.
"""

from __future__ import annotations

from heapq import heappop
from typing import TYPE_CHECKING
from zlib import crc32

from radiator.broker.due.moments import EXPIRES, expiry, first_expiry, marks
from radiator.broker.due.timing import Timing
from radiator.broker.queues.skipped import Scan
from radiator.clock import NS_PER_MS, NS_PER_SECOND, MonoNs, Now, WallNs
from radiator.timers import NEVER_NS

if TYPE_CHECKING:
    from radiator.broker.queues.source import QueueSource
    from radiator.storage.batch import RecordBatch

READ_NS = NS_PER_SECOND  # how soon it looks again when the head has to be read from the disk
CROWDED_NS = 10 * NS_PER_MS  # ... when there are enough dead letters for now
RUN = 4_000  # looked at in one visit: 4 ms
SKIPPED_NS = NS_PER_SECOND  # at most so late one goes that was skipped, where 10,000 are; later where more are
SKIPPED_RUN = 1_000  # of them are looked at in one visit
SKIPPED_PAUSE_NS = 10 * NS_PER_MS  # between two visits
LIVING_NS = 60 * NS_PER_SECOND  # ... when the head does not expire
SPREAD_NS, SPREAD_UNSURE_NS = 60 * NS_PER_SECOND, 600 * NS_PER_SECOND  # after a start: not all heads are read at once


class Expiry:
    """See the top of the file."""

    __slots__ = (
        "_heads",
        "_lowest_ns",
        "_pause_until_ns",
        "_position",
        "_reading",
        "_revived",
        "_scan",
        "_skipped_ns",
        "_some",
        "_source",
        "_timing",
    )

    def __init__(self, source: QueueSource, timing: Timing) -> None:
        self._source = source
        self._timing = timing
        self._revived = False
        self._some = False  # messages that expire were stored, and it was not empty since
        self._heads: dict[int, WallNs] = {}  # what was at the head at the last visit, and when it expires
        self._reading = False  # a head is read from the disk
        self._skipped_ns = WallNs(
            NEVER_NS if source.skipped is None else 0
        )  # the first skipped message may expire then
        self._pause_until_ns = MonoNs(0)  # what was skipped is not looked through again before that
        self._scan: Scan | None = None  # of what was skipped, once there is something
        self._position = -1  # how far that has come; -1: it is not under way
        self._lowest_ns = WallNs(NEVER_NS)  # when the first of these expires

    def revive(self) -> None:
        """The source has messages of an earlier run; whether they expire is not known."""
        self._revived = True
        self._timing.after(0, self)

    def stored(self, batch: RecordBatch) -> None:
        """One more batch is in the log."""
        ttl_ns = self._source.settings.message_ttl_ns
        if ttl_ns is None and not marks(batch) & EXPIRES:
            return
        first_ns = first_expiry(batch, ttl_ns)
        if first_ns < NEVER_NS:
            self._some = True
            self._timing.at_wall(first_ns, self)

    def loaded(self) -> None:
        """What was to be read is there."""
        if self._reading:
            self.due(self._timing.now)

    def close(self) -> None:
        """The source is gone."""
        self._reading = False
        self._timing.forget(self)
        del self._source, self._scan  # as in Deferred

    def due(self, now: Now) -> None:
        """Something at the head may have expired."""
        source, now_ns = self._source, now.wall
        if self._revived:
            self._revived = False
            spread_ns = SPREAD_UNSURE_NS if source.settings.message_ttl_ns is None else SPREAD_NS
            seed = f"{source.queue.name} {source.feed.partition.name}".encode()
            self._timing.after(crc32(seed) * spread_ns // (1 << 32), self)
            return
        if source.policy.buries_expired and self._timing.returns.dead_letters.crowded:
            self._timing.after(CROWDED_NS, self)
            return
        heads, self._heads = self._heads, {}
        next_ns = min(self._skipped(now), self._returned(now_ns, heads), self._fresh(now_ns, heads))
        self._reading = source.loading
        if source.loading:
            self._heads = heads | self._heads
            next_ns = min(next_ns, now_ns + READ_NS)
        elif not self._heads and next_ns > now_ns:
            self._some = False
        if next_ns < NEVER_NS:
            next_ns = max(next_ns, now_ns + 1)
            self._timing.at_wall(WallNs(next_ns), self)
            if next_ns - now_ns <= LIVING_NS:  # a pause must not grow where the clock steps back
                self._timing.after(next_ns - now_ns, self)
        if next_ns > now_ns and not source.queue.consumers:
            source.batch = None
        source.rest()

    def skipped(self, batch: RecordBatch, index: int) -> None:
        """This record was skipped."""
        ttl_ns = self._source.settings.message_ttl_ns
        if ttl_ns is not None or marks(batch) & EXPIRES:
            end_ns = expiry(batch, index, ttl_ns)
            if end_ns < self._skipped_ns:
                self._skipped_ns = end_ns
                self._timing.at_wall(end_ns, self)

    def _scanned(self) -> None:
        """What was to be read of the skipped messages is there."""
        self.due(self._timing.now)

    def _skipped(self, now: Now) -> int:
        """Look through some of what was skipped, if it is time; when to go on, by the wall clock."""
        source, skipped, now_ns = self._source, self._source.skipped, now.wall
        if skipped is None:
            self._skipped_ns, self._position = WallNs(NEVER_NS), -1
            return NEVER_NS
        if self._position < 0:
            if self._skipped_ns > now_ns or self._pause_until_ns > now.mono:
                return self._next_look(now)
            self._position, self._lowest_ns, self._skipped_ns = 0, WallNs(NEVER_NS), WallNs(NEVER_NS)
        scan = self._scan = self._scan or Scan(source, self._scanned)
        gone = False
        for _ in range(SKIPPED_RUN):
            first = skipped.runs.first(self._position)
            if first is None:
                scan.batch, self._position = None, -1
                pause_ns = SKIPPED_NS * max(1, len(skipped) // 10_000)
                self._skipped_ns = min(self._skipped_ns, self._lowest_ns)
                self._pause_until_ns = MonoNs(now.mono + pause_ns)
                break
            batch = scan.batch_at(first)
            if batch is None:
                if scan.loading:
                    break
                continue
            self._position = first + 1
            end_ns = expiry(batch, batch.index_at(first), source.settings.message_ttl_ns)
            if end_ns > now_ns:
                self._lowest_ns = min(self._lowest_ns, end_ns)
            elif source.queue.claim.takes(source.feed.partition.name, batch, batch.index_at(first)):
                skipped.remove(first, first + 1)
                self._timing.returns.expired(source, first, source.deliveries(first))
                gone = True
        if gone:
            source.unskip()
            self._timing.wake(source.queue)
        if self._position < 0:
            return self._next_look(now)
        return NEVER_NS if scan.loading else now_ns + SKIPPED_PAUSE_NS

    def _next_look(self, now: Now) -> int:
        """When to look through what was skipped, by the wall clock: NEVER_NS if none of it expires."""
        if self._skipped_ns == NEVER_NS:
            return NEVER_NS
        return max(self._skipped_ns, now.wall + self._pause_until_ns - now.mono)

    def _returned(self, now_ns: WallNs, heads: dict[int, WallNs]) -> int:
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
            end_ns = expiry(batch, index, source.settings.message_ttl_ns)
            if ours and end_ns > now_ns:
                return self._looking_again(offset, end_ns, now_ns)
            heappop(source.returned)
            if ours:
                self._timing.returns.expired(source, offset, source.deliveries(offset))
            else:
                source.skip([offset])
        return NEVER_NS

    def _fresh(self, now_ns: WallNs, heads: dict[int, WallNs]) -> int:
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
                return self._looking_again(
                    batch.offsets[index], expiry(batch, index, source.settings.message_ttl_ns), now_ns
                )
        return NEVER_NS

    def _looking_again(self, offset: int, end_ns: WallNs, now_ns: WallNs) -> int:
        """A head that lives. Others behind it, which expire before, may have come to the head by then."""
        self._heads[offset] = end_ns
        return min(end_ns, now_ns + LIVING_NS) if self._some or end_ns < NEVER_NS else NEVER_NS
