"""A queue: its consumers, and its cursors over logs, one for each partition.

The log is the queue: a queue stores nothing but offsets. *Fresh* messages come in the order of the log. Before them
come messages that *returned* (NACK, lost consumer, restart), the lowest offset first, so each takes its original place
again. A message that is not due yet is *deferred* until it is due, and then returned. A message that no consumer with
credit wants is *skipped*.

A filter (``logs.destination_filter``) says which records of a log belong to the queue, so a queue that clients send to,
a queue of a ``fan_out`` and a durable subscription are the same here. ``QueueSource`` says which messages are ready;
``delivery.dispatch`` hands them to consumers.

Invariants of a source: every offset below ``next_offset`` is settled, in flight to exactly one subscription, in
``returned``, in ``deferred`` or in ``skipped`` (or in ``early``, on its way to be settled). An offset that was handed
out is below ``cursor.delivered`` or has a delivery count before its bytes leave. Offsets whose messages were removed
from the log on purpose (gaps that a batch covers) are settled when they are passed; offsets that the log has lost are
settled and counted.

Invariants of a queue: a loss is reported by the header ``gap`` of the next message that goes out, to whichever
consumer, and of no other message; if that message comes again, then again.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zlib import crc32

from radiator import limits
from radiator.broker.logs.moments import EXPIRED, EXPIRES, NOW, expiry, first_expiry, judge, marks
from radiator.broker.queues import end_reasons as ended
from radiator.broker.queues.ack_timeouts import Timeouts
from radiator.broker.queues.assignment import Assignment
from radiator.broker.queues.deferred import Deferred
from radiator.broker.queues.fair_dispatch import CONSUMERS_MAX, FairDispatch
from radiator.broker.queues.scheduled import ScheduledAhead
from radiator.broker.queues.selectors import Selectors
from radiator.broker.queues.skipped import Scan, Skipped
from radiator.clock import NS_PER_MS, NS_PER_SECOND, MonoNs, Now, WallNs
from radiator.timers import NEVER_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from radiator.broker.logs.destination_filter import DestinationFilter
    from radiator.broker.logs.feed import Feed
    from radiator.broker.logs.selection import Selection
    from radiator.broker.queues.consumer import Consumer, Number
    from radiator.broker.queues.policy import QueuePolicy
    from radiator.broker.timers.timing import Timing
    from radiator.config import Settings
    from radiator.storage.batch import RecordBatch
    from radiator.storage.partition import Partition

RUN_BYTES = 256 * limits.KIB  # one turn's share of one queue
REPORTED_MAX = 100  # messages that told of a loss and may have to tell it again
FIRST_TIME = b"delivery-count:1\n"  # of a message that was not delivered before

# Expiry of the first message of a source.
READ_NS = NS_PER_SECOND  # how soon it looks again when the head has to be read from the disk
CROWDED_NS = 10 * NS_PER_MS  # ... when there are enough dead letters for now
RUN = 4_000  # looked at in one visit: 4 ms
SKIPPED_NS = NS_PER_SECOND  # at most so late one goes that was skipped, where 10,000 are; later where more are
SKIPPED_RUN = 1_000  # of them are looked at in one visit
SKIPPED_PAUSE_NS = 10 * NS_PER_MS  # between two visits
LIVING_NS = 60 * NS_PER_SECOND  # ... when the head does not expire
SPREAD_NS, SPREAD_UNSURE_NS = 60 * NS_PER_SECOND, 600 * NS_PER_SECOND  # after a start: not all heads are read at once


class QueueSource:
    """A queue's cursor over one partition."""

    __slots__ = (
        "_dirty",
        "ahead",
        "batch",
        "begins_at",
        "burying",
        "counted_to",
        "closed",
        "cursor",
        "deferred",
        "early",
        "expiry",
        "from_parent",
        "feed",
        "first",
        "forced_to",
        "orphaned",
        "known_to",
        "idle",
        "priority",
        "left_to",
        "loading",
        "mine_at",
        "next_offset",
        "owed",
        "policy",
        "queue",
        "returned",
        "rewound",
        "settings",
        "settled",
        "skipped",
        "stuck",
        "timeouts",
        "waiting",
    )

    def __init__(
        self,
        queue: Queue,
        feed: Feed,
        cursor: Any,
        dirty: dict[QueueSource, None],
        policy: QueuePolicy | None = None,
        *,
        from_parent: bool = False,
        orphaned: bool = False,
        first: bool = False,
        priority: int = 0,
    ) -> None:
        self.queue = queue
        self.policy = queue.policy if policy is None else policy  # the topics of a durable subscription differ
        self.settings: Settings = self.policy.settings
        self.closed = False
        self.feed = feed
        self.cursor = cursor
        self.from_parent = (
            from_parent  # the messages were sent to another destination: they count against no limit of ours
        )
        self.orphaned = (
            orphaned  # the rule does not name this log any more: nothing comes, and what is here is handed out
        )
        self.first = first  # nothing is taken from those behind it while it has something
        self.rewound: dict[int, int] = {}  # fresh to this cursor, but not to consumers
        self.priority = priority  # the priority of what is here, where there are such
        self._dirty = dirty
        self.settled: list[int] = []
        self.early: list[int] = []  # dropped before they were stored
        self.owed = 0  # dropped, in a log of many: so many of ours are to be passed over when they are found
        end: int = feed.partition.high_watermark  # what is above, if anything, is others'
        unsettled: int = end - cursor.floor - cursor.settled_above
        self.waiting = max(0, unsettled)
        # Below this offset other destinations' records may be among those that are counted as waiting.
        self.counted_to = 0 if queue.filter.all_of(feed.partition.destinations) else end
        self.mine_at = -1  # a message of ours that nobody has come for is known to be here
        self.forced_to = 0  # what lies below was taken, whether it was settled or not
        self.batch: RecordBatch | None = None
        self.loading = False
        self.deferred = Deferred(queue.timing, self._due)
        self.ahead: ScheduledAhead | None = None  # once something behind us is known not to be due
        self.left_to: int = end  # what lies below was there before us
        self.burying = 0  # on their way to the dead letters, or waiting for room there
        self.skipped: Skipped | None = None  # while there is something in it
        self.stuck = False  # there is no room to defer the next message
        reached = max(cursor.delivered, cursor.ceiling, cursor.floor, ended.reach(cursor))
        self.next_offset: int = min(reached, max(end, cursor.floor))
        self.begins_at: int = 0  # nothing below is wanted, though it may not be stored yet
        self.known_to: int = 0  # from next_offset up to here there is nothing of ours
        self.idle = False  # nor up to the end
        self._note_passed()
        covered = min(cursor.delivered, self.next_offset)  # what lies behind was handed out if it has a count
        self.returned = list(cursor.unacked(covered)) if cursor.floor < covered else []
        if cursor.counts:
            self.returned += sorted(offset for offset in cursor.counts if covered <= offset < self.next_offset)
        if covered < self.next_offset:
            skipped = self._make_skipped()
            for start, stop in cursor.unsettled_in(covered, self.next_offset):
                skipped.add(start, stop)
            for counted in cursor.counts:
                skipped.remove(counted, counted + 1)
            self.unskip()
        self.timeouts: Timeouts | None = None
        self._set_timeouts()
        self.expiry = Expiry(self, queue.timing)
        if self.returned or self.skipped is not None or self.next_offset < end:
            self.expiry.revive()
        if self.returned:
            self._resume()

    @property
    def why_stopped(self) -> str:
        """What keeps consumers with selectors from the messages behind those that were skipped, in words."""
        return "" if self.skipped is None else self.skipped.why_stopped

    @property
    def queue_name(self) -> str:
        """The name of the queue, for people."""
        return self.queue.name

    def agree(self, policy: QueuePolicy) -> None:
        """Apply another policy from now on, also to messages in flight."""
        self.policy, self.settings = policy, policy.settings
        self._set_timeouts()

    def _set_timeouts(self) -> None:
        old, timeout_ns = self.timeouts, self.settings.ack_timeout_ns
        if old is not None and old.timeout_ns == timeout_ns:
            return
        timing = self.queue.timing
        if old is not None:
            timing.forget(old)
        self.timeouts = None if timeout_ns is None else Timeouts(timing, timeout_ns, self._overdue, old)

    def _overdue(self, consumer: Consumer, numbers: list[Number]) -> None:
        self.queue.timing.outcomes.timed_out(self, consumer, numbers)

    def _due(self, offsets: list[int]) -> None:
        self.queue.timing.outcomes.due(self, offsets)

    def feed_from_parent(self) -> None:
        """Get the messages of a parent from this log as well, which may be one that the rule had stopped to name."""
        self.from_parent = True
        if self.orphaned:
            self.queue.ready_list.drop(self)
            self.orphaned = self.first = False
            self.queue.ready_list.rouse(self)

    def count_dead_letters(self, number: int) -> None:
        """Count ``number`` more messages that wait for their dead-letter destination; fewer if it is negative."""
        self.burying += number

    def drop_batch(self) -> None:
        """Let go of the batch in memory; it is found again when a message of it is needed."""
        self.batch = None

    @property
    def backlog(self) -> int:
        """Messages not settled, as far as they are known to be ours."""
        return self.waiting - max(0, self.counted_to - self.next_offset)

    @property
    def fresh(self) -> int:
        """How many of these were never handed out."""
        if not self.shared:
            end: int = self.feed.partition.next_offset
            return end - self.next_offset
        settled: int = self.cursor.settled_above + self.cursor.floor
        return self.backlog - (self.next_offset - settled - len(self.settled) - len(self.early))

    @property
    def shared(self) -> bool:
        """True if other destinations store in the same log."""
        return self.feed.destinations > 1 or not self.queue.filter.all_of(self.feed.partition.destinations)

    @property
    def ready(self) -> bool:
        """True if a message could be handed out now."""
        if self.loading:
            return False
        if self.returned:
            return True
        full = self.stuck or (self.skipped is not None and self.skipped.full)
        return not full and bool(self.next_offset < self.feed.partition.high_watermark)

    def _make_skipped(self) -> Skipped:
        if self.skipped is None:
            self.skipped = Skipped(self, self.queue.timing.skipped)
        return self.skipped

    def skip_over(self, offset: int) -> Skipped:
        """No consumer that could be sent this message wants it. Returns what was skipped until now, this included."""
        skipped = self._make_skipped()
        skipped.add(offset, offset + 1)
        return skipped

    def unskip(self) -> None:
        """Forget that messages were skipped, if none is any more."""
        if self.skipped is not None and not len(self.skipped):
            self.skipped.close()
            self.skipped = None

    def removed_skipped(self, start: int, stop: int) -> None:
        """Skipped messages that were taken out of the log on purpose."""
        if self.skipped is not None:
            gone = [each for run in self.skipped.runs.within(start, stop) for each in range(*run)]
            self.skipped.remove(start, stop)
            self.settle(gone)

    def mark_delivered(self) -> None:
        """Everything below the next offset was handed out, before its bytes leave."""
        self.cursor.mark_delivered(self.next_offset)

    def handed_out(self, offsets: list[int]) -> None:
        """These fresh messages are about to be sent: note it, so that each comes again marked, and no other."""
        cursor = self.cursor
        first = None if self.skipped is None else self.skipped.runs.first(cursor.delivered)
        if first is None:
            cursor.mark_delivered(self.next_offset)
            return
        cursor.mark_delivered(first)
        if first not in cursor.counts:
            cursor.set_count(first, 0)  # the mark of a start: behind it only counts tell what was handed out
        for offset in offsets:
            if offset > first:
                cursor.set_count(offset, 1)

    def rest(self) -> None:
        """An idle queue does not hold on to a batch."""
        if not self.ready:
            self.batch = None
            self._note_passed()

    def settle(self, offsets: list[int]) -> None:
        """These messages are done with, for ever; the cursor learns of it once per turn."""
        if self.forced_to and min(offsets, default=self.forced_to) < self.forced_to:
            offsets = [offset for offset in offsets if offset >= self.forced_to]
        self.waiting -= len(offsets)
        if self.timeouts is not None:
            self.timeouts.forget(offsets)
        self.settled += offsets  # ``_settle``, for each ACK
        self._dirty[self] = None

    def skip(self, offsets: list[int]) -> None:
        """These records of a shared partition are other destinations'."""
        if offsets[0] < self.counted_to:
            self.waiting -= sum(offset < self.counted_to for offset in offsets)
        self._settle(offsets)

    def _settle(self, offsets: list[int]) -> None:
        self.settled += offsets
        self._dirty[self] = None

    def drop_next(self) -> None:
        """Settle the next fresh message undelivered. One that is not stored yet is settled when it is; where others'
        records are in between, once it is found."""
        if self.shared:
            self.waiting -= 1
            self.owed += 1
            return
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
            owed = min(self.owed, max(0, self.fresh + self.owed - lost))
            self.waiting -= lost - sum(offset >= high_watermark for offset in self.early) - (self.owed - owed)
            self.owed = owed
            self.early = [offset for offset in self.early if offset < high_watermark]
            self.next_offset = min(self.next_offset, high_watermark)
            self.known_to = min(self.known_to, high_watermark)
            if self.ahead is not None:
                self.ahead.take_back(high_watermark)
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
        gone = []
        self.queue.ready_list.rouse(self)
        for offset in offsets:
            if offset < self.forced_to:
                gone.append(offset)
            else:
                heappush(self.returned, offset)
        if gone:
            self.queue.lost(self, len(gone), min(gone), max(gone))

    def close(self) -> None:
        """Nobody reads here any more: what waits for a moment need not, and what consumers hold is nobody's."""
        self.closed = True
        if self.skipped is not None:
            self.skipped.close()
            self.skipped = None
        self.deferred.close()
        if self.ahead is not None:
            self.ahead.close()
            self.ahead = None
        self.expiry.close()
        if self.timeouts is not None:
            self.queue.timing.forget(self.timeouts)
            self.timeouts = None

    def deliveries(self, offset: int) -> int:
        """How often this one, which was looked at, has been delivered."""
        cursor = self.cursor
        count: int = cursor.counts.get(offset, offset < cursor.delivered)
        return count % ended.NOTED

    def released(self, offsets: list[int]) -> None:
        """No consumer holds these any more."""
        if self.timeouts is not None:
            self.timeouts.forget(offsets)

    def timed(self, batch: RecordBatch, index: int) -> bool:
        """True if time has a say in whether the records from ``index`` on may be delivered."""
        ttl_ns = self.settings.message_ttl_ns
        return marks(batch) != 0 or (
            ttl_ns is not None and batch.receive_ns[index] + ttl_ns <= self.queue.timing.now.wall
        )

    def may_go(self, batch: RecordBatch, index: int) -> bool:
        """Whether this record may be delivered now. If not, it is settled, as its time is over, or deferred."""
        verdict = judge(batch, index, self.settings.message_ttl_ns, self.queue.timing)
        if verdict != NOW:
            self._put_off(batch.offsets[index], verdict, self.deliveries(batch.offsets[index]))
        return verdict == NOW

    def _put_off(self, offset: int, verdict: WallNs, deliveries: int) -> None:
        if verdict == EXPIRED:
            self.queue.timing.outcomes.expired(self, offset, deliveries)
            return
        if offset not in self.cursor.counts:
            self.cursor.set_count(offset, 0)  # nobody has had it, though others behind it may be delivered before it
        self.deferred.delay(verdict, offset)

    @property
    def waits(self) -> bool:
        """False if the answer of a cold read is not needed any more (``Waiter``)."""
        return bool(self.queue.consumers)

    def pass_by(self, batch: RecordBatch) -> None:
        """A batch was stored. What came before it since we had read everything is others', and need not be read."""
        if batch.base_offset < self.begins_at:
            self._skip_to_begin()
        if any(map(self.queue.filter.has, batch.names)):
            self._jump()
            self.known_to, self.idle = self.next_offset, self.next_offset >= batch.next_offset
        self.expiry.stored(batch)

    def pass_over(self, batch: RecordBatch, firsts: list[int], index: int, stop: int) -> int:
        """Settle, from ``index`` on, the records of other destinations and those that nobody wants, what was dropped
        and what has expired, and defer what is not due; ``firsts`` is what our claim says of the batch. Returns the
        index of the first message to be delivered, or ``stop``; or, if the source is ``stuck`` then, of the first for
        which there was no room."""
        ids, offsets = batch.destination_ids, batch.offsets
        timing, selection = self.queue.timing, self.queue.selection
        timed = index < stop and self.timed(batch, index)
        verdicts = None if selection is None else selection.verdicts(self.feed.wire, batch, index, stop)
        rewound = self.rewound
        unwanted: list[int] = []
        others: list[int] = []
        dropped: list[int] = []
        while index < stop:
            if offsets[index] < firsts[ids[index]]:
                others.append(offsets[index])
            elif self.owed:
                self.owed -= 1
                dropped.append(offsets[index])
            elif verdicts is not None and not verdicts[index]:
                unwanted.append(offsets[index])
            elif rewound and offsets[index] in rewound:
                self.cursor.set_count(offsets[index], rewound.pop(offsets[index]))
                heappush(self.returned, offsets[index])
            elif not timed or (verdict := judge(batch, index, self.settings.message_ttl_ns, timing)) == NOW:
                break
            elif self.deferred.full if verdict != EXPIRED else timing.full and self.policy.buries_expired:
                self.stuck = True
                timing.await_room(self._unstick)
                break
            else:
                self._put_off(offsets[index], verdict, 0)
            index += 1
        if others:
            self.skip(others)
        if unwanted:
            self.settle(unwanted)
        if dropped:
            self._settle(dropped)
        return index

    def move(self, batch: RecordBatch, start: int, stop: int) -> None:
        """The fresh records with these indexes have been dealt with, and so are the holes between them."""
        offsets = batch.offsets
        if offsets[stop - 1] - offsets[start] != stop - 1 - start:
            for before, offset in pairwise(offsets[start:stop]):
                if offset > before + 1:
                    self._removed(before + 1, offset)
        self.next_offset = offsets[stop - 1] + 1

    def _removed(self, start: int, stop: int) -> None:
        """Fresh offsets whose messages were taken out of the log on purpose: nothing is delivered, and nothing lost.
        In a log of many they count as others': a message of ours is not taken out before it is settled."""
        self.waiting -= stop - start if not self.shared else max(0, min(stop, self.counted_to) - start)
        self.cursor.ack_range(start, stop)
        self._dirty[self] = None

    def loaded(self, offset: int, batch: RecordBatch | None, skip_to: int | None) -> None:
        """A cold read has ended (``Waiter``)."""
        self.loading = False
        if batch is not None and len(batch) and batch.next_offset > offset:
            self.batch = batch
            self.expiry.loaded()
            if not self.queue.consumers:
                self._pass_over_unwanted()
        elif skip_to is not None and skip_to > offset:
            self.lose(offset, skip_to)

    def lose(self, start: int, stop: int) -> None:
        """Offsets that the log no longer has: retention or damage took them. They cannot be delivered; counted."""
        settled = sum(to - since for since, to in self.cursor.settled_in(start, stop))
        settled += sum(start <= offset < stop for offset in self.settled)
        count = stop - start - settled
        if count > 0:
            self.queue.lost(self, count, start, stop - 1)
        self.waiting -= count
        self.cursor.ack_range(start, stop)
        if self.next_offset >= start:
            self.next_offset = max(self.next_offset, stop)
        self.returned = [offset for offset in self.returned if not start <= offset < stop]
        heapify(self.returned)
        self.deferred.remove(start, stop)
        if self.skipped is not None:
            self.skipped.remove(start, stop)

    def take_lowest(self) -> int | None:
        """Take the oldest message that was looked at and that no consumer holds, due or not, for good.

        Returns:
            Its offset; None if there is none.
        """
        skipped = None if self.skipped is None else self.skipped.runs.first(0)
        deferred = self.deferred.lowest()
        lowest: int | None = min(
            [*self.returned[:1], *(each for each in (skipped, deferred) if each is not None)], default=None
        )
        if lowest is None:
            return None
        if lowest == deferred:
            self.deferred.take(lowest)
        elif lowest == skipped and self.skipped is not None:
            self.skipped.remove(lowest, lowest + 1)
        else:
            heappop(self.returned)
        return lowest

    @property
    def available(self) -> int:
        """How many messages were looked at, are due, and no consumer holds."""
        return len(self.returned) + (0 if self.skipped is None else len(self.skipped))

    def _unstick(self) -> None:
        self.stuck = False
        self.queue.timing.wake(self.queue)

    # --- positions ----------------------------------------------------------------------------------------------------

    def _note_passed(self) -> None:
        """Everything below the next offset is dealt with, and nothing is known of what lies behind."""
        self.known_to = self.next_offset
        self.idle = self.known_to >= self.feed.committed_to

    def wait_for_place(self) -> None:
        """Hand nothing out until ``begin_at`` says where the cursor begins."""
        self.loading = True

    def begin_at(self, offset: int) -> None:
        """Begin at ``offset``, or later; nothing was handed out before."""
        self.cursor.ack_range(self.cursor.floor, offset)
        self.next_offset = max(self.next_offset, offset)
        self.cursor.mark_delivered(self.next_offset)
        self._note_passed()
        self.loading = False
        self._dirty[self] = None

    def want_from(self, offset: int) -> None:
        """Want nothing below ``offset``, though it may not be stored yet."""
        self.begins_at = offset

    def take_back(self, high_watermark: int) -> None:
        """Offsets from ``high_watermark`` on were assigned, but never stored: they will be given out again."""
        self.begins_at = min(self.begins_at, high_watermark)

    def _skip_to_begin(self) -> None:
        """What was under way when the source was made, and is not wanted, is stored now: settle it."""
        stop = min(self.begins_at, self.feed.partition.high_watermark)
        if stop > self.next_offset and not self.loading:
            self.skip(list(range(self.next_offset, stop)))
            self.next_offset = stop

    def advance_idle(self) -> None:
        """Do not hold back the retention of what other destinations store in the same log: pass over their records, and
        what nobody consumes but would not be delivered anyway."""
        self._jump()
        if not self.queue.consumers:
            self._pass_over_unwanted()

    def _jump(self) -> None:
        """Be done with what is others', unread."""
        start, stop = self.next_offset, self.feed.committed_to if self.idle else self.known_to
        if stop > start and not self.loading:
            self.waiting -= max(0, min(stop, self.counted_to) - start)
            self.cursor.ack_range(start, stop)
            self.next_offset = stop

    def _pass_over_unwanted(self) -> None:
        """Pass over what need not be delivered, up to the first message that a consumer must get. A selector is not
        evaluated: a log of any length would have to be read for nobody."""
        if self.queue.selection is not None:
            return
        partition = self.feed.partition
        while self.ready and not self.returned and (self.owed or self.next_offset != self.mine_at):
            batch = self.batch_at(self.next_offset)
            if batch is None:
                continue  # it is being read, and ``loaded`` goes on, or it is gone
            start, end = batch.index_at(self.next_offset), partition.high_watermark
            stop = len(batch) if batch.next_offset <= end else batch.index_at(end)
            index = self.pass_over(batch, self.queue.filter.firsts(partition.name, batch), start, stop)
            if index > start:
                self.move(batch, start, index)
            if index < stop and not self.stuck:
                self.move(batch, start, index + 1)
                self.next_offset = self.mine_at = batch.offsets[index]
                break
        self.batch = None
        self.rest()

    def forced(self, start: int) -> None:
        """Retention took what lies below ``start`` although some of it was not settled (``retention.force``).

        Messages that no consumer holds are lost now; a message that a consumer holds is lost if it comes back. Each is
        counted as lost once. In a shared log others' records that were not passed over yet are counted as well.
        """
        if start <= self.cursor.floor:
            return
        settled, self.settled = self.settled, []
        self.cursor.ack(settled)
        unsettled = start - self.cursor.floor
        unsettled -= sum(max(0, min(stop, start) - first) for first, stop in self.cursor.intervals)
        fresh = max(0, start - max(self.next_offset, self.cursor.floor))
        returned = sum(offset < start for offset in self.returned) + len(self.deferred.remove(0, start))
        returned += 0 if self.skipped is None else self.skipped.remove(0, start)
        self.waiting -= max(0, unsettled)
        floor = self.cursor.floor
        self.cursor.ack_range(floor, start)
        self.returned = [offset for offset in self.returned if offset >= start]
        heapify(self.returned)
        self.next_offset = max(self.next_offset, start)
        self._note_passed()
        self.forced_to = start
        if fresh + returned:
            self.queue.lost(self, fresh + returned, floor, start - 1)

    # --- a cursor that takes the place of another ---------------------------------------------------------------------

    def unsettled_deliveries(self) -> dict[int, int]:
        """Return what was handed out here and is not settled: how often each message was delivered, by offset.

        When a cursor is set back, the new one meets these among its fresh messages. They are delivered as messages that
        come again, with their count (``expect_again``). This is kept in memory: a restart before they are delivered
        again forgets it.
        """
        cursor, settled = self.cursor, set(self.settled)
        covered = min(cursor.delivered, self.next_offset)
        unsettled = [offset for offset in cursor.unacked(covered) if offset not in settled]
        unsettled += sorted(offset for offset in cursor.counts if offset >= covered and offset not in settled)
        handed = {offset: count for offset in unsettled if (count := self.deliveries(offset))}
        return handed | {offset: count for offset, count in self.rewound.items() if offset >= self.next_offset}

    def expect_again(self, handed: dict[int, int]) -> None:
        """Take over what ``unsettled_deliveries`` of the cursor before said."""
        end = self.feed.partition.next_offset
        self.rewound = {offset: count for offset, count in handed.items() if self.next_offset <= offset < end}

    def bound(self, batch: RecordBatch, start: int, stop: int) -> int:
        """Return how far a run of fresh records from ``start`` may go: up to the first that was handed out before."""
        rewound = self.rewound
        while rewound:
            offset = next(iter(rewound))
            if offset >= batch.offsets[start]:
                return min(stop, batch.index_at(offset) + 1) if offset < batch.next_offset else stop
            del rewound[offset]  # passed: it was removed, or is others'
        return stop

    # --- messages that are not delivered any more ---------------------------------------------------------------------

    def note_end(self, offset: int, reason: str, deliveries: int) -> bool:
        """Note with the cursor why a message, which waits for its dead-letter destination, is delivered no more.

        Returns:
            True if that has to be stored.
        """
        bits = ended.NOTES.get(reason)
        if bits is None or self.cursor.counts.get(offset, 0) >= ended.NOTED:
            return False
        self.cursor.set_count(offset, bits | min(deliveries, ended.NOTED - 1))
        self.settle([])  # nothing: but the cursor is to be written in this turn
        return True

    def spare(self, offsets: list[int]) -> None:
        """Note that messages were handed out and never written to a socket, which ends nothing: else a start would end
        those that were delivered as often as their rule allows."""
        most = self.settings.redeliver_max
        if most is None:
            return
        for offset in offsets:
            deliveries = self.deliveries(offset)
            if deliveries >= most:
                self.cursor.set_count(offset, ended.UNWRITTEN | min(deliveries, ended.NOTED - 1))

    def _resume(self) -> None:
        """After a start: do not hand out messages that came to their end before it. A broker or a consumer that dies of
        a message gets it as often as the rule says, and no more."""
        counts, most = self.cursor.counts, self.settings.redeliver_max
        for reason, bits in ended.NOTES.items():
            noted = [each for each in self.returned if counts.get(each, 0) // ended.NOTED == bits // ended.NOTED]
            self._end(noted, reason)
        if most is not None:
            spent = [
                each
                for each in self.returned
                if most <= self.deliveries(each) and counts.get(each, 0) < ended.UNWRITTEN
            ]
            self._end(spent, ended.MAX_DELIVERIES)

    def _end(self, offsets: list[int], reason: str) -> None:
        if offsets:
            self.returned = sorted(set(self.returned).difference(offsets))  # which is a heap
            self.queue.timing.outcomes.ended(self, offsets, reason)

    # --- messages that are not due ------------------------------------------------------------------------------------

    def note_delays(self, offsets: Sequence[int], dues: Sequence[int]) -> None:
        """Note that messages were appended that are not due before these moments."""
        self._known_ahead().note(offsets, dues)

    def _known_ahead(self) -> ScheduledAhead:
        if self.ahead is None:
            self.ahead = ScheduledAhead(self, self.queue.timing)
        return self.ahead

    @property
    def unlooked(self) -> int:
        """How many messages an earlier run has left that nobody has looked at."""
        looked_to = 0 if self.ahead is None else self.ahead.looked_to
        return max(0, self.left_to - max(looked_to, self.next_offset))

    def delayed(self, now_ns: WallNs) -> int:
        """Return how many messages are known to wait for their moment; ``unlooked`` may be among the rest."""
        return len(self.deferred) + (0 if self.ahead is None else self.ahead.count(now_ns))

    def look_ahead(self, reads: int) -> int:
        """Look further through what an earlier run has left, with up to ``reads`` reads. Returns how many it takes."""
        left = 0 if self.shared else self.unlooked
        if not (left and reads):
            return 0
        partition = self.feed.partition
        stored = max(1, partition.next_offset - partition.log_start_offset)
        needed: int = min(reads, 2 + partition.size_bytes * left // stored // limits.READ_CHUNK_BYTES)
        self._known_ahead().look(needed)
        return needed

    # --- the log ------------------------------------------------------------------------------------------------------

    def batch_at(self, offset: int) -> RecordBatch | None:
        """The batch that holds ``offset``, or None: then a cold read is under way, or the offset is gone."""
        start = self.feed.partition.log_start_offset
        if offset < start:
            self.lose(offset, start)
            return None
        batch = self.batch
        if batch is None or not batch.base_offset <= offset < batch.next_offset:
            batch = self.batch = self.feed.partition.read(offset)
            if batch is None:
                self.loading = True
                self.feed.load(offset, self)
                return None
        index = batch.index_at(offset)
        found = batch.offsets[index]
        if found == offset:
            return batch
        if offset == self.next_offset:
            self._removed(offset, found)
            self.next_offset = found
        else:
            gone = []
            while self.returned and self.returned[0] < found:
                gone.append(heappop(self.returned))
            self.settle(gone)
        return None


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
        if source.policy.buries_expired and self._timing.outcomes.crowded:
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
            elif source.queue.filter.takes(source.feed.partition.name, batch, batch.index_at(first)):
                skipped.remove(first, first + 1)
                self._timing.outcomes.expired(source, first, source.deliveries(first))
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
            ours = source.queue.filter.takes(source.feed.partition.name, batch, index)
            end_ns = expiry(batch, index, source.settings.message_ttl_ns)
            if ours and end_ns > now_ns:
                return self._looking_again(offset, end_ns, now_ns)
            heappop(source.returned)
            if ours:
                self._timing.outcomes.expired(source, offset, source.deliveries(offset))
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
            index = source.pass_over(batch, source.queue.filter.firsts(partition.name, batch), start, stop)
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


class ReadyList:
    """See the top of the file."""

    __slots__ = ("_first", "_ring")

    def __init__(self) -> None:
        self._ring: OrderedDict[QueueSource, None] = OrderedDict()
        self._first: dict[QueueSource, None] = {}

    def __len__(self) -> int:
        return len(self._ring) + len(self._first)

    def __contains__(self, source: object) -> bool:
        return source in self._ring or source in self._first

    def left(self, enough: int) -> int:
        """How many messages nobody has been given yet, about; ``enough`` or more are not counted."""
        left = 0
        for source in self._ring:
            left += source.fresh + len(source.returned)
            if left >= enough:
                break
        return left

    def rouse(self, source: QueueSource) -> None:
        """It may have something."""
        if source.first:
            self._first[source] = None
        else:
            self._ring[source] = None

    def drop(self, source: QueueSource) -> None:
        """The queue reads it no more."""
        self._ring.pop(source, None)
        self._first.pop(source, None)

    def turns(self) -> Iterator[QueueSource]:
        """Each at most once: those that go first, then the one whose turn was longest ago."""
        if self._first:
            for source in [each for each in self._first if spent(each)]:
                del self._first[source]
            yield from sorted(
                self._first, key=_log_of_priority, reverse=True
            )  # which keeps the order of those that are alike
        ring = self._ring
        for _ in range(len(ring)):
            source = next(iter(ring))
            if spent(source):
                del ring[source]
            else:
                ring.move_to_end(source)
                yield source


def _log_of_priority(source: QueueSource) -> int:
    return source.priority


def spent(source: QueueSource) -> bool:
    """True if there is nothing to be looked at until something is stored or comes back."""
    if source.returned or source.loading or source.skipped is not None:
        return False
    return bool(source.next_offset >= source.feed.partition.high_watermark)


class Queue:
    """The consumers and sources of one queue. ``name`` is for people. ``on_lost`` is told what was lost, in words, and
    how many."""

    __slots__ = (
        "_on_lost",
        "filter",
        "consumers",
        "gap",
        "name",
        "note",
        "ordered",
        "policy",
        "selection",
        "selectors",
        "assignment",
        "ready_list",
        "settings",
        "shares",
        "sources",
        "timing",
        "reported",
    )

    def __init__(
        self,
        name: str,
        filter: DestinationFilter,
        on_lost: Callable[[str, int], None],
        timing: Timing,
        policy: QueuePolicy,
    ) -> None:
        self.name = name
        self.filter = filter
        self.timing = timing
        self.policy, self.settings = policy, policy.settings
        self.sources: list[QueueSource] = []
        self.ready_list = ReadyList()  # those of them that have something
        self.consumers: OrderedDict[Consumer, None] = OrderedDict()  # the one that was served longest ago first
        self.selectors: Selectors | None = None  # while a consumer has one, or messages were skipped
        self.assignment: Assignment | None = None  # where not everybody may take from every source
        self.ordered = False  # its sources are looked at in their order: priorities
        self.selection: Selection | None = None  # what it does not take is settled: a named subscription's selector
        self.shares: FairDispatch | None = None  # once there were several consumers
        self.gap = 0  # messages that were lost, and no consumer has been told yet
        self.note = b""  # header lines that go out with the next message
        self.reported: dict[
            tuple[QueueSource, int], tuple[int, bytes]
        ] = {}  # gap and note, by the message that had them
        self._on_lost = on_lost

    def join(self, consumer: Consumer, alone: bool, wake: Callable[[], None]) -> None:
        """One more consumer; ``alone``: an exclusive one. ``wake`` is called when somebody's turn comes by that."""
        self.consumers[consumer] = None
        for source in self.sources:  # what was others' may be its own now
            self.ready_list.rouse(source)
        if self.selectors is not None:
            new = self.selectors.join(consumer)
            for source in self.sources:
                if new is not None and source.skipped is not None:
                    source.skipped.begin(new)
            self.credited(consumer)
        elif consumer.selection is not None:
            self.select()
        if self.shares is not None:
            self.shares.joined(consumer)
            if len(self.consumers) > CONSUMERS_MAX:
                self.timing.forget(self.shares)
                self.shares = None
        if alone:
            self._own(wake)
        if self.assignment is not None:
            self.assignment.joined(consumer, alone)

    def assign(self, source: QueueSource, wake: Callable[[], None]) -> None:
        """This source is for one consumer at a time, so that the order of its messages is kept. ``wake``: as above."""
        self._own(wake).add(source)

    def _own(self, wake: Callable[[], None]) -> Assignment:
        if self.assignment is None:
            self.assignment = Assignment(wake)
            for each in self.consumers:
                self.assignment.joined(each, False)
        return self.assignment

    def leave(self, consumer: Consumer) -> None:
        """A consumer is gone."""
        del self.consumers[consumer]
        if self.selectors is not None:
            gone = self.selectors.leave(consumer)
            for source in self.sources:
                if gone is not None and source.skipped is not None:
                    source.skipped.forget(gone)
            self.unselect()
        if self.shares is not None:
            self.shares.left(consumer)
        if self.assignment is not None:
            self.assignment.left(consumer)

    def check(self, selection: Selection | None) -> None:
        """Raises ProtocolError (too-many) unless one more consumer may have this selector."""
        if self.selectors is not None:
            self.selectors.check(selection, self.name)

    def select(self) -> Selectors:
        """The selectors of its consumers: from now on messages are handed out by these."""
        if self.selectors is None:
            self.selectors = Selectors(self.consumers)
            for source in self.sources:
                if source.skipped is not None:
                    source.skipped.joined(self.selectors)
        return self.selectors

    def unselect(self) -> None:
        """Hand messages out without asking who wants which, if all want all and none was skipped."""
        if self.selectors is None or not self.selectors.plain:
            return
        if not self.consumers or all(source.skipped is None for source in self.sources):
            self.selectors = None

    def credited(self, consumer: Consumer) -> None:
        """What held this consumer back is gone."""
        if self.selectors is not None:
            group = self.selectors.credited(consumer)
            for source in self.sources:
                if source.skipped is not None:
                    source.skipped.wake(group)

    def add(self, source: QueueSource) -> None:
        """One more."""
        self.sources.append(source)
        self.ready_list.rouse(source)

    def drop(self, sources: Collection[QueueSource]) -> None:
        """It reads these no more."""
        self.sources = [source for source in self.sources if source not in sources]
        for source in sources:
            self.release(source)

    def release(self, source: QueueSource) -> None:
        """Nothing more is handed out of this one, which is about to be dropped."""
        self.ready_list.drop(source)
        if self.assignment is not None:
            self.assignment.remove(source)

    def replaced(self, old: QueueSource, new: QueueSource) -> None:
        """Another cursor takes the place of this one."""
        self.sources[self.sources.index(old)] = new
        self.ready_list.drop(old)
        self.ready_list.rouse(new)
        if self.assignment is not None:
            self.assignment.replaced(old, new)

    def lost(self, source: QueueSource, count: int, first: int, last: int) -> None:
        """``count`` messages of this queue were gone from the log before they could be delivered."""
        self.gap += count
        where = f"offsets {first} to {last} of {source.feed.partition.name}"
        self._on_lost(
            f"{self.name}: {count} messages were gone from the log before they were settled, among {where}", count
        )

    def appended(self, partition: Any, messages: int) -> None:
        """So many more messages wait. Called only where a rule limits that: nobody else asks for ``backlog``."""
        for source in self.sources:
            if source.feed.partition is partition:
                source.waiting += messages

    @property
    def fresh(self) -> int:
        """How many messages were never handed out."""
        return sum(source.fresh for source in self.sources if not source.from_parent)

    @property
    def backlog(self) -> int:
        """Messages not settled: waiting or in flight. In a partition that several destinations share, after a restart,
        a lower bound until the queue has been read once: nothing is refused for the sake of others."""
        return sum(source.backlog for source in self.sources if not source.from_parent)

    @property
    def backlog_bytes(self) -> int:
        """About what these messages take in the log."""
        size = 0
        for source in [each for each in self.sources if not each.from_parent]:
            partition = source.feed.partition
            stored = partition.next_offset - partition.log_start_offset
            size += partition.size_bytes * source.backlog // max(1, stored)
        return size

    def note_delays(self, partition: Partition, offsets: Sequence[int], dues: Sequence[int]) -> None:
        """Note that messages were appended to ``partition`` that are not due before these moments."""
        for source in self.sources:
            if source.feed.partition is partition:
                source.note_delays(offsets, dues)

    def order_by_priority(self) -> None:
        """Serve the sources in the order of their priority from now on."""
        self.ordered = True
        self.sort()

    def sort(self) -> None:
        """Sort the sources: by priority, the highest first, if that orders them; orphaned logs before others."""
        by_priority = self.ordered
        self.sources = sorted(
            self.sources,
            key=lambda each: (
                (-each.priority, not each.orphaned) if by_priority else (not each.orphaned, -each.priority)
            ),
        )

    def select_by(self, selection: Selection | None) -> None:
        """Settle what this selector does not take: the selector of a durable subscription."""
        self.selection = selection

    def send_next(self, lines: bytes) -> None:
        """Send these header lines with the next message."""
        self.note = lines

    def drop_closed(self) -> None:
        """Drop the sources that were closed."""
        self.sources = [source for source in self.sources if not source.closed]

    def fair_dispatch(self) -> FairDispatch:
        """The shares of the consumers, from now on."""
        if self.shares is None:
            self.shares = FairDispatch(self.consumers, self.ready_list.left, self.timing, self._wake)
        return self.shares

    def _wake(self) -> None:
        self.timing.wake(self)

    def _given_up(self) -> Collection[QueueSource]:
        """In which order the sources give up a message to make room: the oldest, of the lowest priority."""
        if not self.ordered:
            return [each for each in self.sources if not each.from_parent]
        return sorted(self.sources, key=lambda each: (each.priority, not each.orphaned))

    def drop_oldest(self, newest_in: Partition | None = None) -> bool:
        """Settle the oldest message that no consumer holds, to make room, but not the last one in ``newest_in`` if it
        was never handed out; False if there is none."""
        for source in self._given_up():
            lowest = source.take_lowest()
            if lowest is not None:
                source.settle([lowest])
                return True
            if source.fresh > (source.feed.partition is newest_in):
                source.drop_next()
                return True
        return False

    def takers(self, source: QueueSource) -> Collection[Consumer]:
        """Which consumers may take from this source, the one that was served longest ago first."""
        if self.assignment is None:
            return self.consumers
        takers = self.assignment.takers(source, self.consumers)
        if not takers and (holder := self.assignment.holder(source)) is not None:
            holder.await_turn(self)
        return takers

    def send(self, source: QueueSource, batch: RecordBatch, consumer: Consumer, indexes: range | list[int]) -> None:
        """Fresh messages for one consumer, whose credit was asked for."""
        tails = source.feed.wire.tails(batch, consumer.session.version)
        count = len(indexes)
        if self.gap or self.note:
            first, indexes = indexes[0], indexes[1:]
            lines = self._report(source, batch.offsets[first])
            consumer.deliver(source.feed, source, [batch.offsets[first]], [tails[first]], FIRST_TIME + lines)
        if not indexes:
            pass
        elif isinstance(indexes, range):
            run = slice(indexes.start, indexes.stop)
            consumer.deliver(source.feed, source, batch.offsets[run], tails[run], FIRST_TIME)  # type: ignore[arg-type]
        else:
            offsets = [batch.offsets[index] for index in indexes]
            consumer.deliver(source.feed, source, offsets, [tails[index] for index in indexes], FIRST_TIME)
        consumer.session.queue_ring.served(consumer, self)
        if self.shares is not None:
            self.shares.served(consumer, count)

    def _report(self, source: QueueSource, offset: int) -> bytes:
        """The header lines by which this message tells what was lost, if anything was. Whoever gets it may die before
        it has read them, so they are the message's until that is settled."""
        if not (self.gap or self.note or self.reported):
            return b""
        gap, note = self.reported.pop((source, offset), (0, b""))
        gap, note, self.gap, self.note = gap + self.gap, note or self.note, 0, b""
        if gap or note:
            self.reported[source, offset] = gap, note
            if len(self.reported) > REPORTED_MAX:  # nearly all of them are settled by then
                del self.reported[next(iter(self.reported))]
        return b"%bgap:%d\n" % (note, gap) if gap else note

    def passes(self, source: QueueSource, batch: RecordBatch, index: int) -> bool:
        """Whether a message that came back may be delivered now; if not, it has been dealt with."""
        if not self.filter.takes(source.feed.partition.name, batch, index):
            source.skip([batch.offsets[index]])
            return False
        if self.selection is not None and not self.selection.takes(source.feed.wire, batch, index):
            source.settle([batch.offsets[index]])
            return False
        return not source.timed(batch, index) or source.may_go(batch, index)

    def send_again(self, source: QueueSource, batch: RecordBatch, index: int, consumer: Consumer) -> None:
        """One message that came back."""
        offset = batch.offsets[index]
        count = source.deliveries(offset) + 1
        source.cursor.set_count(offset, count)
        tail = source.feed.wire.tails(batch, consumer.session.version)[index]
        extra = b"delivery-count:%d\n%b" % (count, self._report(source, offset))
        if count > 1:
            extra = b"redelivered:true\n" + extra
        consumer.deliver(source.feed, source, [offset], [tail], extra)
        consumer.session.queue_ring.served(consumer, self)
        self.served(consumer)
        if self.shares is not None:
            self.shares.served(consumer, 1)

    def served(self, consumer: Consumer) -> None:
        """Least recently served first: move to the end."""
        if consumer in self.consumers:
            self.consumers.move_to_end(consumer)
