"""A reader: the cursor of one subscription over one partition of a topic, from history into live without a seam.

A live subscriber is a reader that starts at the end, a replay is the same reader started earlier, and a slow consumer
is a reader that lags: it holds an offset, not messages. It goes forward one bounded run per ``pump``, stops at the high
watermark, and is pumped again when the partition commits, when the client's outbox has room, when credit comes back
or when a cold read is done.

Invariants: ``next_offset`` only grows, and every offset below it was delivered, did not match, was told as ``gap``, or
lies in a hole that a batch covers, where a message was removed on purpose: that is passed over in silence. ``batch`` is
only a shortcut and may be dropped at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from radiator import limits
from radiator.broker.queues.selection import YES
from radiator.broker.wire import fits, run_length

if TYPE_CHECKING:
    from radiator.broker.destinations.feed import Feed
    from radiator.broker.queues.queue import Queue
    from radiator.broker.queues.selection import Selection
    from radiator.broker.queues.source import QueueSource
    from radiator.broker.subscriptions.subscription import Subscription
    from radiator.storage.batch import RecordBatch

RUN_BYTES = 256 * limits.KIB  # one turn's share of one reader


class Reader:
    """One subscription's cursor over one partition.

    ``stop_offset`` is exclusive. ``starts`` gives, per destination, the first offset wanted, and ``stops`` the first
    that is not (``last:N`` in a partition that several destinations share). Nothing received before ``since_ns`` is
    wanted (a start in the future). Offsets below ``live_from`` are history and marked ``replayed``.
    """

    __slots__ = (
        "_extra",
        "_liked",
        "_liked_by",
        "batch",
        "done",
        "feed",
        "gap",
        "live_from",
        "loading",
        "next_offset",
        "queue",
        "removed",
        "resolving",
        "since_ns",
        "skip_settled",
        "starts",
        "stop_offset",
        "stops",
        "subscription",
    )

    def __init__(self, subscription: Subscription, feed: Feed, start: int, live_from: int) -> None:
        self.subscription = subscription
        self.feed = feed
        self.next_offset = start
        self.live_from = live_from
        self.stop_offset: int | None = None
        self.starts: dict[str, int] | None = None
        self.stops: dict[str, int] | None = None
        self.queue: Queue | None = None  # in a log of a parent that feeds it: what of it is to be seen
        self.skip_settled = False  # a browser sees what waits in the queue, not what was acknowledged
        self.batch: RecordBatch | None = None
        self.loading = False
        self.resolving = 0  # positions that are still being looked up
        self.since_ns = subscription.since_ns
        self.done = False
        self.gap = 0
        self.removed = 0  # of the offsets in ``gap``: those that the log no longer has on purpose
        self._extra = b""
        self._liked: list[str] | None = None  # the names of a batch of which all was wanted, and by which patterns
        self._liked_by: object = None

    def adjust(self, offset: int) -> None:
        """The position asked for is gone: start at ``offset`` and say so on the first message."""
        self.next_offset = offset
        self._extra = b"start-adjusted:true\n"

    @property
    def waits(self) -> bool:
        """False if the answer of a cold read is not needed any more (``Waiter``)."""
        return not self.subscription.closed

    def loaded(self, offset: int, batch: RecordBatch | None, skip_to: int | None) -> None:
        """A cold read has ended (``Waiter``)."""
        self.loading = False
        if offset != self.next_offset:
            return
        if batch is not None and len(batch) and batch.next_offset > offset:
            self.batch = batch
        elif skip_to is not None and skip_to > offset:
            self._skip(skip_to)

    def _skip(self, offset: int) -> None:
        self.gap += offset - self.next_offset
        self.removed += max(0, min(offset, self.feed.partition.log_start_offset) - self.next_offset)
        self.subscription.session.missed(self, offset - self.next_offset)
        self.next_offset = offset

    def take_back(self, high_watermark: int) -> None:
        """Offsets from ``high_watermark`` on were assigned, but never stored: they will be given out again."""
        if self.next_offset > high_watermark and self.next_offset <= self.live_from:
            self.next_offset = high_watermark
        if self.stop_offset is not None and high_watermark < self.stop_offset <= self.live_from:
            self.stop_offset = high_watermark
        self.live_from = min(self.live_from, high_watermark)

    def pump(self) -> bool:
        """Deliver at most one run. True if more could follow at once."""
        subscription = self.subscription
        if subscription.closed or self.loading or self.resolving or self.done or subscription.joining:
            return False
        partition = self.feed.partition
        if self.next_offset < partition.log_start_offset:
            self._skip(partition.log_start_offset)
        offset = self.next_offset
        end = partition.high_watermark
        stop = self.stop_offset
        if stop is not None and stop <= end:
            end = stop
            if offset >= end:
                self.done = True
                return False
        if offset >= end:
            self.batch = None
            return False
        session = subscription.session
        if session.closing:
            return False
        room = session.room()
        if room <= 0:
            session.waiting[subscription] = None
            self.batch = None
            return False
        credit = subscription.topic_credit()
        if credit <= 0:
            self.batch = None
            return False
        batch = self.batch
        if batch is None or not batch.base_offset <= offset < batch.next_offset:
            batch = self.batch = partition.read(offset)
            if batch is None:
                self.loading = True
                self.feed.load(offset, self)
                return False
        self._deliver(batch, end, min(room, RUN_BYTES), credit)
        return self.next_offset < end or self.next_offset == stop

    def _deliver(self, batch: RecordBatch, end: int, room: int, credit: int) -> None:
        subscription = self.subscription
        if (
            batch.base_offset == self.next_offset >= self.live_from
            and batch.next_offset <= end
            and len(batch.blocks) <= credit
            and fits(batch, room)
            and self._likes(batch)
            and not (self.gap or self._extra)
        ):  # how it nearly always is: a commit goes out as a whole to those who have read everything before it
            self.next_offset = batch.next_offset
            tails = self.feed.wire.tails(batch, subscription.session.version)
            if subscription.ack == "auto":
                subscription.session.send(self.feed.wire.whole.frames(subscription.prefix(), tails))
            else:
                subscription.deliver(self.feed, None, batch.offsets, tails)  # type: ignore[arg-type]
            return
        start = batch.index_at(self.next_offset)
        if batch.offsets[start] > self.next_offset:
            self.next_offset = min(batch.offsets[start], end)
            if self.next_offset == end:
                return
        boundary = self.live_from if self.next_offset < self.live_from < end else end
        stop = len(batch) if boundary >= batch.next_offset else batch.index_at(boundary)
        selection = subscription.selection
        if selection is None:
            stop = start + min(run_length(batch, start, stop, room), credit)
        else:
            stop = start + min(run_length(batch, start, stop, min(room, limits.SELECTOR_RUN_BYTES)), selection.run)
            stop = selection.cut(self.feed.wire, batch, start, stop, credit)
        picked = self._pick(batch, start, stop)
        replayed = self.next_offset < self.live_from
        # Past the hole that follows, if one does: a bounded replay that ends in it needs no more credit to end.
        self.next_offset = min(batch.offsets[stop], end) if stop < len(batch) else batch.next_offset
        if picked is not None and not picked:
            return
        offsets: Sequence[int] = batch.offsets[start:stop]
        tails = self.feed.wire.tails(batch, subscription.session.version)[start:stop]
        if picked is not None:
            offsets = [batch.offsets[index] for index in picked]
            tails = [tails[index - start] for index in picked]
        extra = b"replayed:true\n" if replayed else b""
        if self.gap or self._extra:
            first = extra + self._extra + (b"gap:%d\n" % self.gap if self.gap else b"")
            first += b"gap-removed:%d\n" % self.removed if self.removed else b""
            self.gap = self.removed = 0
            self._extra = b""
            subscription.deliver(self.feed, None, [offsets[0]], tails[:1], first)
            offsets, tails = offsets[1:], tails[1:]
            if not tails:
                return
        subscription.deliver(self.feed, None, offsets, tails, extra)  # type: ignore[arg-type]

    def browsed(self) -> list[QueueSource]:
        """Whose cursors say what waits here: all queues' that read the log, or that of the one that is looked at."""
        own = self.queue
        return [each for each in self.feed.sources if each.queue.claim.owned and (own is None or each.queue is own)]

    def _likes(self, batch: RecordBatch) -> bool:
        """Whether this reader wants all of the batch, as far as it knows without asking. False says nothing."""
        subscription = self.subscription
        return (
            batch.names == self._liked
            and subscription.patterns is self._liked_by
            and subscription.selection is None
            and self.queue is None
            and self.starts is self.stops is None
            and not (subscription.queues or self.since_ns or self.skip_settled)
        )

    def _pick(self, batch: RecordBatch, start: int, stop: int) -> list[int] | None:
        """The indexes that this reader wants, or None for all of them."""
        patterns = self.subscription.patterns
        matches = patterns.matches
        consumed = [queue.name for queue in self.subscription.queues]  # in the same log, and under the same pattern
        wanted = [matches(name) and name not in consumed for name in batch.names]
        if self.queue is not None:
            wanted = [self.queue.claim.has(name) for name in batch.names]
        selection = self.subscription.selection
        if all(wanted) and self.starts is self.stops is None and not self.skip_settled and not self.since_ns:
            self._liked, self._liked_by = batch.names, patterns
            return None if selection is None else self._selected(selection, batch, start, stop)
        ids = batch.destination_ids
        picked = [index for index in range(start, stop) if wanted[ids[index]]]
        if self.starts is not None:
            starts = [self.starts.get(name, 0) for name in batch.names]
            picked = [index for index in picked if batch.offsets[index] >= starts[ids[index]]]
            if batch.offsets[stop - 1] >= max(self.starts.values(), default=0):
                self.starts = None
        if self.stops is not None:
            stops = [self.stops.get(name, 0) for name in batch.names]
            picked = [index for index in picked if batch.offsets[index] < stops[ids[index]]]
        if self.since_ns:
            picked = [index for index in picked if batch.receive_ns[index] >= self.since_ns]
            if batch.receive_ns[stop - 1] >= self.since_ns:
                self.since_ns = 0
        if self.skip_settled:
            settled = [source.cursor for source in self.browsed()]
            picked = [i for i in picked if not all(cursor.is_acked(batch.offsets[i]) for cursor in settled)]
        if selection is not None:
            verdicts = selection.verdicts(self.feed.wire, batch, start, stop)
            picked = [index for index in picked if verdicts[index] == YES]
        return picked

    def _selected(self, selection: Selection, batch: RecordBatch, start: int, stop: int) -> list[int] | None:
        """As above, where nothing but the selector has a say."""
        verdicts = selection.verdicts(self.feed.wire, batch, start, stop)
        count = verdicts.count(YES, start, stop)
        if count == stop - start:
            return None
        return [index for index in range(start, stop) if verdicts[index] == YES] if count else []
