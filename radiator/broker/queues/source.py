"""A queue's source: its cursor over one partition, and what it has handed out and got back.

The log is the queue: nothing is kept here but offsets. *Fresh* messages come in the order of the log; before them come
those that were *returned* (nack, lost consumer, restart), lowest offset first, so each takes its original place again.
What is not due yet is *deferred* until it is, and then returned; what no consumer with credit wants is *skipped*.

Invariants: every offset below ``next_offset`` is settled, in flight to exactly one subscription, in ``returned``, in
``deferred`` or in ``skipped`` (or in ``early``, on its way to be settled); what was handed out is below
``cursor.delivered`` or has a delivery count, before its bytes leave. Offsets whose messages were removed from the log
on purpose (holes that a batch covers) are settled as they are passed; those that the log has lost are settled and
counted.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from radiator.broker.due.deferred import Deferred
from radiator.broker.due.expiry import Expiry
from radiator.broker.due.moments import EXPIRED, NOW, judge, marks
from radiator.broker.due.timeouts import timeouts_of
from radiator.broker.queues import ended, idling
from radiator.broker.queues.skipped import Skipped
from radiator.clock import WallNs

if TYPE_CHECKING:
    from radiator.broker.destinations.feed import Feed
    from radiator.broker.due.ahead import Ahead
    from radiator.broker.queues.policy import QueuePolicy
    from radiator.broker.queues.queue import Queue
    from radiator.storage.batch import RecordBatch


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
        "fed",
        "feed",
        "first",
        "forced_to",
        "former",
        "known_to",
        "idle",
        "lane",
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
        self, queue: Queue, feed: Feed, cursor: Any, dirty: dict[QueueSource, None], policy: QueuePolicy | None = None
    ) -> None:
        self.queue = queue
        self.policy = queue.policy if policy is None else policy  # the topics of a durable subscription differ
        self.settings = self.policy.settings
        self.closed = False
        self.feed = feed
        self.cursor = cursor
        self.fed = False  # the messages were sent to another destination: they count against no limit of ours
        self.former = False  # the rule does not name this log any more: nothing comes, and what is here is handed out
        self.first = False  # nothing is taken from those behind it while it has something
        self.rewound: dict[int, int] = {}  # fresh to this cursor, but not to consumers
        self.lane = 0  # the priority of what is here, where there are such
        self._dirty = dirty
        self.settled: list[int] = []
        self.early: list[int] = []  # dropped before they were stored
        self.owed = 0  # dropped, in a log of many: so many of ours are to be passed over when they are found
        end: int = feed.partition.high_watermark  # what is above, if anything, is others'
        unsettled: int = end - cursor.floor - cursor.settled_above
        self.waiting = max(0, unsettled)
        # Below this offset other destinations' records may be among those that are counted as waiting.
        self.counted_to = 0 if queue.claim.all_of(feed.partition.destinations) else end
        self.mine_at = -1  # a message of ours that nobody has come for is known to be here
        self.forced_to = 0  # what lies below was taken, whether it was settled or not
        self.batch: RecordBatch | None = None
        self.loading = False
        self.deferred = Deferred(self, queue.timing)
        self.ahead: Ahead | None = None  # once something behind us is known not to be due
        self.left_to = end  # what lies below was there before us
        self.burying = 0  # on their way to the dead letters, or waiting for room there
        self.skipped: Skipped | None = None  # while there is something in it
        self.stuck = False  # there is no room to defer the next message
        reached = max(cursor.delivered, cursor.ceiling, cursor.floor, ended.reach(cursor))
        self.next_offset: int = min(reached, max(end, cursor.floor))
        self.begins_at: int = 0  # nothing below is wanted, though it may not be stored yet
        self.known_to: int = 0  # from next_offset up to here there is nothing of ours
        self.idle = False  # nor up to the end
        idling.rests(self)
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
        self.timeouts = timeouts_of(self, self.settings.ack_timeout_ns)
        self.expiry = Expiry(self, queue.timing)
        if self.returned or self.skipped is not None or self.next_offset < end:
            self.expiry.revive()
        if self.returned:
            ended.resume(self)

    def agree(self, policy: QueuePolicy) -> None:
        """Apply another policy from now on, also to messages in flight."""
        self.policy, self.settings = policy, policy.settings
        self.timeouts = timeouts_of(self, policy.settings.ack_timeout_ns, self.timeouts)

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
        return self.feed.destinations > 1 or not self.queue.claim.all_of(self.feed.partition.destinations)

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
            self.skipped = Skipped(self, self.queue.timing.skipping)
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

    def handed_out(self, offsets: list[int]) -> None:
        """These fresh messages are about to be sent: note it, so that each comes again marked, and no other."""
        cursor = self.cursor
        first = None if self.skipped is None else self.skipped.runs.first(cursor.delivered)
        if first is None:
            cursor.delivered = self.next_offset
            return
        cursor.delivered = first
        if first not in cursor.counts:
            cursor.set_count(first, 0)  # the mark of a start: behind it only counts tell what was handed out
        for offset in offsets:
            if offset > first:
                cursor.set_count(offset, 1)

    def rest(self) -> None:
        """An idle queue does not hold on to a batch."""
        if not self.ready:
            self.batch = None
            idling.rests(self)

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
        self.queue.rota.rouse(self)
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
            self.queue.timing.returns.expired(self, offset, deliveries)
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
            idling.begin(self)
        if any(map(self.queue.claim.has, batch.names)):
            idling.jump(self)
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
                timing.stuck(self)
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
                idling.look(self)
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
