"""A queue: its consumers, and its cursors over logs, one for each partition.

A queue stores offsets only; the messages are in the log. *Fresh* messages have the order of the log. Before them come
messages that were *returned* (NACK, lost consumer, restart), the lowest offset first, so each takes its original place.
A message that is not due is *deferred* and then returned. A message that matches no consumer with credit is *skipped*.
``messages`` has the messages by state, and ``message_states`` the table of states and events.

A filter (``logs.destination_filter``) selects the records of a log that belong to the queue, so a queue that clients
send to, a bound queue of a ``fan_out`` and a durable subscription are the same here. ``QueueSource`` finds the
ready messages; ``delivery.dispatch`` delivers them to consumers.

Invariants of a source: a delivered offset is below ``cursor.delivered`` or has a delivery count before its bytes leave.
Offsets whose messages were removed from the log on purpose (gaps within a batch) are settled when they are passed.
Offsets that the log has lost are settled and counted.

Invariants of a queue: a loss is reported by the header ``gap`` of the next message, to any consumer, and of no other
message. If that message is redelivered, the header is repeated.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zlib import crc32

from radiator import limits
from radiator.broker.logs import cursor_names
from radiator.broker.logs.delivery_times import EXPIRED, EXPIRES, NOW, expiry, first_expiry, judge, marks
from radiator.broker.queues import end_reasons
from radiator.broker.queues.ack_timeouts import Timeouts
from radiator.broker.queues.assignment import Assignment
from radiator.broker.queues.fair_dispatch import CONSUMERS_MAX, FairDispatch
from radiator.broker.queues.messages import QueueMessages
from radiator.broker.queues.recorder import DROPPED, PURGED, SourceRecord
from radiator.broker.queues.scheduled import ScheduledAhead
from radiator.broker.queues.selectors import Selectors
from radiator.broker.queues.skipped import Scan
from radiator.clock import NS_PER_MS, NS_PER_SECOND, MonoNs, Now, WallNs
from radiator.timers import NEVER_NS
from radiator.words import counted

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

RUN_BYTES = 256 * limits.KIB  # the most that one queue delivers in one turn
REPORTED_MAX = 100  # messages with a gap header that may be redelivered
PURGED_TOGETHER = 500  # messages, each with a row in the record of deliveries
FIRST_TIME = b"delivery-count:1\n"  # of a fresh message

# Class Expiry.
READ_NS = NS_PER_SECOND  # the next check when the head has to be read from the disk
CROWDED_NS = 10 * NS_PER_MS  # the next check when enough dead letters wait
HELD_NS = NS_PER_SECOND  # ... when enough rows about deliveries wait
RUN = 4_000  # records examined per call of due(): 4 ms
SKIPPED_NS = NS_PER_SECOND  # the longest delay of a skipped message's expiry with 10,000 of them; longer with more
SKIPPED_RUN = 1_000  # skipped messages examined per call of due()
SKIPPED_PAUSE_NS = 10 * NS_PER_MS  # between two such calls
LIVING_NS = 60 * NS_PER_SECOND  # the next check when the head does not expire
SPREAD_NS, SPREAD_UNSURE_NS = 60 * NS_PER_SECOND, 600 * NS_PER_SECOND  # the first checks are spread over this time


class QueueSource(QueueMessages):
    """A queue's cursor over one partition: it reads the log, and passes over what its consumers do not get.

    Args:
        queue: The queue.
        feed: The feed of the partition.
        cursor: The stored cursor.
        dirty: The sources with settled offsets for their cursors, shared by all queues.
        policy: The policy; by default that of the queue. The topics of a durable subscription have different ones.
        from_fan_out: True if the messages were sent to a fan-out source: they count against no limit of this queue.
        orphaned: True if the rule does not name the log any more: it is drained.
        first: True if later sources are not served while this one has messages.
        priority: The priority level of the log.

    Attributes:
        rewound: Delivery counts, by offset, of messages that were delivered before the cursor was set back.
        to_drop: The number of messages to drop in a shared log, where their offsets are not known yet.
        counted_to: Below this offset ``waiting`` may include other destinations' records.
        next_own: The offset of the next message of the queue, if it is known and the queue has no consumers; or -1.
        ahead: Scheduled messages beyond ``next_offset``, once one is known.
        earlier_to: The end of the log when the source was created.
        stuck: True if the next message cannot be deferred for want of memory.
        traffic: The counters of the rule.
        begins_at: Messages below are not wanted. They may not be stored yet.
        known_to: From ``next_offset`` to this offset no record belongs to the queue.
        idle: True if no record up to the end of the log belongs to the queue.
    """

    __slots__ = (
        "ahead",
        "batch",
        "begins_at",
        "counted_to",
        "expiry",
        "from_fan_out",
        "first",
        "orphaned",
        "known_to",
        "idle",
        "priority",
        "earlier_to",
        "loading",
        "next_own",
        "to_drop",
        "policy",
        "queue",
        "rewound",
        "settings",
        "stuck",
        "traffic",
    )

    def __init__(
        self,
        queue: Queue,
        feed: Feed,
        cursor: Any,
        dirty: dict[QueueSource, None],
        policy: QueuePolicy | None = None,
        *,
        from_fan_out: bool = False,
        orphaned: bool = False,
        first: bool = False,
        priority: int = 0,
    ) -> None:
        super().__init__(queue.name, feed, cursor, dirty, queue.timing, self._due)
        self.queue = queue
        self.policy = queue.policy if policy is None else policy
        self.settings: Settings = self.policy.settings
        self.traffic = queue.timing.traffic.of(self.policy.rule)
        self.from_fan_out = from_fan_out
        self.orphaned = orphaned
        self.first = first
        self.rewound: dict[int, int] = {}
        self.priority = priority
        self.to_drop = 0
        end: int = feed.partition.high_watermark
        self.counted_to = 0 if queue.filter.all_of(feed.partition.destinations) else end
        self.next_own = -1
        self.batch: RecordBatch | None = None
        self.loading = False
        self.ahead: ScheduledAhead | None = None
        self.earlier_to: int = end
        self.stuck = False
        self.begins_at: int = 0
        self.known_to: int = 0
        self.idle = False
        self._note_passed()
        self._set_timeouts()
        self._set_record()
        self.expiry = Expiry(self, queue.timing)
        if self.returned or self.skipped is not None or self.next_offset < end:
            self.expiry.revive()
        if self.returned:
            self._resume()

    @property
    def why_stopped(self) -> str:
        """A description of the limit that keeps consumers with selectors from further messages; may be empty."""
        return "" if self.skipped is None else self.skipped.why_stopped

    def has_returned(self) -> None:
        """Note that a message was returned, so one may be delivered."""
        self.queue.ready_list.wake(self)

    def has_lost(self, count: int, first: int, last: int) -> None:
        """Report messages that were removed from the log before their delivery."""
        self.queue.lost(self, count, first, last)

    def agree(self, policy: QueuePolicy) -> None:
        """Apply another policy from now on, also to messages in flight."""
        before, self.policy, self.settings = self.settings, policy, policy.settings
        self.traffic = self.queue.timing.traffic.of(policy.rule)
        self._set_timeouts()
        self._set_record()
        if self.timeouts is not None and before.ack_timeout_ns is None:
            for consumer in self.queue.consumers:
                held = [(each[1], number) for number, each in consumer.in_flight.items() if each[0] is self]
                if held:
                    self.timeouts.start(consumer, *zip(*held, strict=True))
        if before.message_ttl_ns != self.settings.message_ttl_ns:
            self.expiry.begin_again()

    def _set_timeouts(self) -> None:
        old, timeout_ns = self.timeouts, self.settings.ack_timeout_ns
        if (None if old is None else old.timeout_ns) == timeout_ns:
            return
        timing = self.queue.timing
        if old is not None:
            timing.forget(old)
        self.timeouts = None if timeout_ns is None else Timeouts(timing, timeout_ns, self._overdue, old)

    def _set_record(self) -> None:
        """Begin or end the record of deliveries, as the rule says now."""
        wanted = self.settings.record_deliveries and self.cursor.stored  # offsets in memory begin again with each start
        if wanted == (self.record is not None):
            return
        if not wanted:
            self.use_record(None)
            self.queue.timing.wake(self.queue)
            return
        timing, partition = self.queue.timing, self.feed.partition
        record = SourceRecord(timing.recorder, timing, self, cursor_names.shown(self.queue.name), partition.name)
        for consumer in self.queue.consumers:
            record.adopt(consumer, [each[1] for each in consumer.in_flight.values() if each[0] is self])
        self.use_record(record)

    @property
    def newest_ns(self) -> WallNs:
        """The receive time of the newest message of the log."""
        newest_ns: WallNs = self.feed.partition.last_receive_ns
        return newest_ns

    def destination_of(self, offset: int) -> str:
        """Return the destination of a message; empty if it is not in memory, and several share the log."""
        names: dict[str, None] = self.feed.partition.destinations
        if len(names) == 1:
            return next(iter(names))
        batch = self.batch
        if batch is None or not batch.base_offset <= offset < batch.next_offset:
            batch = self.feed.partition.read(offset)
        if batch is not None and (index := batch.index_at(offset)) < len(batch) and batch.offsets[index] == offset:
            name: str = batch.names[batch.destination_ids[index]]
            return name
        return self.queue.name if self.queue.name in names else ""

    def count_again(self) -> None:
        """Count the unsettled messages: a rule limits them from now on."""
        end: int = self.feed.partition.next_offset
        self.counted_to = 0 if self.queue.filter.all_of(self.feed.partition.destinations) else end
        self.to_drop = 0
        self.count_unsettled()

    def _overdue(self, consumer: Consumer, numbers: list[Number]) -> None:
        self.queue.timing.outcomes.timed_out(self, consumer, numbers)

    def _due(self, offsets: list[int]) -> None:
        self.queue.timing.outcomes.due(self, offsets)

    def bind_to_fan_out(self) -> None:
        """Receive messages of a fan-out source from this log too. The log may be orphaned until now."""
        self.from_fan_out = True
        if self.orphaned:
            self.queue.ready_list.drop(self)
            self.orphaned = self.first = False
            self.queue.ready_list.wake(self)

    def drop_batch(self) -> None:
        """Drop the batch in memory; it is read again when needed."""
        self.batch = None

    @property
    def backlog(self) -> int:
        """The number of unsettled messages that are known to belong to the queue."""
        return self.waiting - max(0, self.counted_to - self.next_offset)

    @property
    def fresh(self) -> int:
        """The number of these that were never delivered."""
        if not self.shared:
            end: int = self.feed.partition.next_offset
            return end - self.next_offset
        settled: int = self.cursor.settled_above + self.cursor.floor
        return self.backlog - (self.next_offset - settled - self.unflushed - len(self.dropped))

    @property
    def fresh_alone(self) -> int | None:
        """The number of messages that were never delivered, if all others are in flight; None if it is not that simple.

        It is not if other destinations may store in the log, or if messages were returned, deferred, skipped or
        scheduled. The sums of metrics ask every queue, so this is quick.
        """
        partition = self.feed.partition
        if self._states or self.skipped is not None or self.ahead is not None or self.feed.destinations > 1:
            return None
        if len(partition.destinations) > 1 or self.from_fan_out or self.orphaned:
            return None
        end: int = partition.next_offset
        return end - self.next_offset

    @property
    def shared(self) -> bool:
        """True if other destinations store in the same log."""
        return self.feed.destinations > 1 or not self.queue.filter.all_of(self.feed.partition.destinations)

    @property
    def ready(self) -> bool:
        """True if a message may be delivered now."""
        if self.loading:
            return False
        if self.returned:
            return True
        full = self.stuck or (self.skipped is not None and self.skipped.full)
        return not full and bool(self.next_offset < self.feed.partition.high_watermark)

    @property
    def held_by_record(self) -> bool:
        """True if no row about a delivery may be added: too many wait to be stored (``Recorder.full``)."""
        return self.record is not None and bool(self.queue.timing.recorder.full)

    def mark_delivered(self) -> None:
        """Mark everything below the next offset as delivered, before the bytes leave."""
        self.cursor.mark_delivered(self.next_offset)

    def mark_sent(self, offsets: list[int]) -> None:
        """Mark fresh messages that are about to be sent as delivered, so that exactly these are redelivered as such."""
        cursor = self.cursor
        first = None if self.skipped is None else self.skipped.runs.first(cursor.delivered)
        if first is None:
            cursor.mark_delivered(self.next_offset)
            return
        cursor.mark_delivered(first)
        if first not in cursor.counts:
            cursor.set_count(first, 0)  # from here on only counts say what was delivered
        for offset in offsets:
            if offset > first:
                cursor.set_count(offset, 1)

    def rest(self) -> None:
        """Drop the batch if no message is ready."""
        if not self.ready:
            self.batch = None
            self._note_passed()

    def purge_fresh(self, stop: int) -> int:
        """Settle fresh messages below ``stop`` without delivery: all of them, or those of one batch of a shared log.

        Returns:
            Their number. It may be 0 while a batch has to be read (``loading``).
        """
        start, stop = self.next_offset, min(stop, self.feed.partition.high_watermark)
        if not self.shared:
            if self.record is None:
                self.settle_range(start, stop)
                self.waiting -= stop - start
            else:
                stop = min(stop, start + PURGED_TOGETHER)
                self.settle(list(range(start, stop)), PURGED)
            self.advance(stop)
            self._note_passed()
            self._dirty[self] = None
            self.batch = None
            return stop - start
        batch = self.batch_at(start)
        if batch is None:
            return 0
        first = batch.index_at(start)
        end = len(batch) if batch.next_offset <= stop else batch.index_at(stop)
        firsts = self.queue.filter.firsts(self.feed.partition.name, batch)
        ids, offsets = batch.destination_ids, batch.offsets
        own = [offsets[each] for each in range(first, end) if offsets[each] >= firsts[ids[each]]]
        self.settle_foreign([offsets[each] for each in range(first, end) if offsets[each] < firsts[ids[each]]])
        dropped = min(self.to_drop, len(own))  # they were counted as settled when they were dropped
        self.to_drop -= dropped
        self.waiting += dropped
        self.settle(own, PURGED)
        self.move(batch, first, end)
        self.rest()
        return len(own) - dropped

    def settle_foreign(self, offsets: list[int]) -> None:
        """Settle records of other destinations."""
        waiting = self.waiting
        self.settle(offsets, None)
        self.waiting = waiting - sum(offset < self.counted_to for offset in offsets)

    def drop_next(self) -> None:
        """Settle the next fresh message without delivery.

        A message that is not stored yet is settled when it is stored. In a shared log, its offset is found later.
        """
        if self.shared:
            self.waiting -= 1
            self.to_drop += 1
        elif self.next_offset < self.feed.partition.high_watermark:
            self.settle([self.next_offset], DROPPED)
            self.advance(self.next_offset + 1)
        else:
            self.drop()

    def failed_write(self, high_watermark: int, lost: int) -> None:
        """Handle a failed write: offsets from ``high_watermark`` on will be assigned again.

        Args:
            high_watermark: The end of what is stored.
            lost: The number of this queue's messages in the batch that could not be stored.
        """
        to_drop = min(self.to_drop, max(0, self.fresh + self.to_drop - lost)) if lost else self.to_drop
        self.waiting -= lost - self.take_back(high_watermark) - (self.to_drop - to_drop)
        self.to_drop = to_drop
        self.begins_at = min(self.begins_at, high_watermark)
        self.known_to = min(self.known_to, high_watermark)
        if self.ahead is not None:
            self.ahead.take_back(high_watermark)
        self.stored(high_watermark)

    def close(self) -> None:
        """Stop reading: cancel the timers and drop the states of messages."""
        super().close()
        if self.ahead is not None:
            self.ahead.close()
            self.ahead = None
        self.expiry.close()

    def timed(self, batch: RecordBatch, index: int) -> bool:
        """Return True if records from ``index`` on may be expired or scheduled."""
        ttl_ns = self.settings.message_ttl_ns
        return marks(batch) != 0 or (
            ttl_ns is not None and batch.receive_ns[index] + ttl_ns <= self.queue.timing.now.wall
        )

    def may_go(self, batch: RecordBatch, index: int) -> bool:
        """Return True if a record may be delivered now. If not, it is settled as expired, or deferred."""
        verdict = judge(batch, index, self.settings.message_ttl_ns, self.queue.timing)
        if verdict != NOW:
            self._defer(batch.offsets[index], verdict, self.deliveries(batch.offsets[index]))
        return verdict == NOW

    def _defer(self, offset: int, verdict: WallNs, deliveries: int) -> None:
        if verdict == EXPIRED:
            self.queue.timing.outcomes.expired(self, offset, deliveries)
        else:
            self.defer(offset, verdict)

    @property
    def waits(self) -> bool:
        """False if the result of a cold read is not needed any more (``Waiter``)."""
        return bool(self.queue.consumers)

    def pass_by(self, batch: RecordBatch) -> None:
        """Note a stored batch. Earlier records since the queue was idle belong to others and need not be read."""
        if batch.base_offset < self.begins_at:
            self._skip_to_begin()
        if self.queue.filter.any_of(batch.names):
            self._jump()
            self.known_to, self.idle = self.next_offset, self.next_offset >= batch.next_offset
        self.expiry.stored(batch)

    def pass_over(self, batch: RecordBatch, firsts: list[int], index: int, stop: int) -> int:
        """Pass over the records that are not to be delivered, up to the first one that is.

        Records of other destinations and records that the selector excludes are settled, as are dropped and expired
        messages. Messages that are not due are deferred.

        Args:
            batch: The batch.
            firsts: The first offset of the queue by destination (``DestinationFilter.firsts``).
            index: The first index.
            stop: The exclusive last index.

        Returns:
            The index of the first message to deliver, or ``stop``. If the source is ``stuck`` then, the index of the
            message that could not be deferred.
        """
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
            elif self.to_drop:
                self.to_drop -= 1
                dropped.append(offsets[index])
            elif verdicts is not None and not verdicts[index]:
                unwanted.append(offsets[index])
            elif rewound and offsets[index] in rewound:
                self.cursor.set_count(offsets[index], rewound.pop(offsets[index]))
                self.give_back([offsets[index]])
            elif not timed or (verdict := judge(batch, index, self.settings.message_ttl_ns, timing)) == NOW:
                break
            elif self.deferred.full if verdict != EXPIRED else timing.full and self.policy.buries_expired:
                self.stuck = True
                timing.await_room(self._unstick)
                break
            else:
                self._defer(offsets[index], verdict, 0)
            index += 1
        if others:
            self.settle_foreign(others)
        if unwanted or dropped:
            self.waiting += len(dropped)  # they were counted as settled when they were dropped
            self.settle(dropped, DROPPED)
            self.settle(unwanted, None)
        return index

    def move(self, batch: RecordBatch, start: int, stop: int) -> None:
        """Advance past fresh records with these indexes, and the offset gaps between them."""
        self._settle_gaps(batch, start, stop)
        self.advance(batch.offsets[stop - 1] + 1)

    def _settle_gaps(self, batch: RecordBatch, start: int, stop: int) -> None:
        offsets = batch.offsets
        if offsets[stop - 1] - offsets[start] != stop - 1 - start:
            for before, offset in pairwise(offsets[start:stop]):
                if offset > before + 1:
                    self._removed(before + 1, offset)

    def _removed(self, start: int, stop: int) -> None:
        """Settle fresh offsets whose messages were removed from the log on purpose.

        In a shared log they count as other destinations': a message of this queue is not removed before it is settled.
        """
        self.waiting -= stop - start if not self.shared else max(0, min(stop, self.counted_to) - start)
        self.settle_range(start, stop)
        self._dirty[self] = None

    def loaded(self, offset: int, batch: RecordBatch | None, skip_to: int | None) -> None:
        """Handle the end of a cold read (``Waiter``)."""
        self.loading = False
        if batch is not None and len(batch) and batch.next_offset > offset:
            self.batch = batch
            self.expiry.loaded()
            if not self.queue.consumers:
                self._pass_over_unwanted()
        elif skip_to is not None and skip_to > offset:
            self.lose(offset, skip_to)

    def _unstick(self) -> None:
        self.stuck = False
        self.queue.timing.wake(self.queue)

    # --- positions ----------------------------------------------------------------------------------------------------

    def _note_passed(self) -> None:
        """Note that nothing is known about the records from the next offset on."""
        self.known_to = self.next_offset
        self.idle = self.known_to >= self.feed.committed_to

    def wait_for_place(self) -> None:
        """Deliver nothing until ``begin_at`` sets the start of the cursor."""
        self.loading = True

    def begin_at(self, offset: int) -> None:
        """Start at ``offset`` or later; nothing was delivered before."""
        self.settle_range(self.cursor.floor, offset)
        self.advance(max(self.next_offset, offset))
        self.cursor.mark_delivered(self.next_offset)
        self._note_passed()
        self.loading = False
        self._dirty[self] = None

    def want_from(self, offset: int) -> None:
        """Ignore messages below ``offset``, which may not be stored yet."""
        self.begins_at = offset

    def _skip_to_begin(self) -> None:
        """Settle unwanted messages that were not stored when the source was created."""
        stop = min(self.begins_at, self.feed.partition.high_watermark)
        if stop > self.next_offset and not self.loading:
            self.settle_foreign(list(range(self.next_offset, stop)))
            self.advance(stop)

    def advance_idle(self) -> None:
        """Advance past other destinations' records, for the retention of a shared log.

        Without consumers, messages that would not be delivered anyway are passed too.
        """
        self._jump()
        if not self.queue.consumers and not self.held_by_record:
            self._pass_over_unwanted()

    def _jump(self) -> None:
        """Pass over records that are known to belong to others, without reading them."""
        start, stop = self.next_offset, self.feed.committed_to if self.idle else self.known_to
        if stop > start and not self.loading:
            self.waiting -= max(0, min(stop, self.counted_to) - start)
            self.settle_range(start, stop)
            self.advance(stop)

    def _pass_over_unwanted(self) -> None:
        """Pass over records up to the first message that a consumer must get.

        A selector is not evaluated: that could read a log of any length without a consumer.
        """
        if self.queue.selection is not None:
            return
        partition = self.feed.partition
        while self.ready and not self.returned and (self.to_drop or self.next_offset != self.next_own):
            batch = self.batch_at(self.next_offset)
            if batch is None:
                continue  # it is being read, and loaded() continues; or it is gone
            start, end = batch.index_at(self.next_offset), partition.high_watermark
            stop = len(batch) if batch.next_offset <= end else batch.index_at(end)
            index = self.pass_over(batch, self.queue.filter.firsts(partition.name, batch), start, stop)
            if index < stop and not self.stuck:
                self._settle_gaps(batch, start, index + 1)
                self.next_own = batch.offsets[index]
                self.advance(self.next_own)
                break
            if index > start:
                self.move(batch, start, index)
        self.batch = None
        self.rest()

    def forced(self, start: int) -> None:
        """Handle forced retention (``retention.force``), which removed unsettled messages below ``start``.

        Messages that are not in flight are lost now. A message in flight is lost if it is returned. Each loss is
        counted once. In a shared log, other destinations' records that were not passed yet are counted too.
        """
        if start > self.cursor.floor:
            self.lose(self.cursor.floor, start)
            self._note_passed()

    # --- setting a cursor back ----------------------------------------------------------------------------------------

    def unsettled_deliveries(self) -> dict[int, int]:
        """Return the number of deliveries of each delivered and unsettled message, by offset.

        A cursor that is set back gets these messages as fresh ones. ``expect_again`` lets the new cursor deliver them
        as redelivered, with their count. The counts are in memory only: a restart forgets them.
        """
        cursor, settled = self.cursor, {*self.settled, *self.storing}
        covered = min(cursor.delivered, self.next_offset)
        unsettled = [offset for offset in cursor.unacked(covered) if offset not in settled]
        unsettled += sorted(offset for offset in cursor.counts if offset >= covered and offset not in settled)
        handed = {offset: count for offset in unsettled if (count := self.deliveries(offset))}
        return handed | {offset: count for offset, count in self.rewound.items() if offset >= self.next_offset}

    def expect_again(self, handed: dict[int, int]) -> None:
        """Set the result of ``unsettled_deliveries`` of the cursor that this one replaces."""
        end = self.feed.partition.next_offset
        self.rewound = {offset: count for offset, count in handed.items() if self.next_offset <= offset < end}

    def bound(self, batch: RecordBatch, start: int, stop: int) -> int:
        """Return the end of a run of fresh records from ``start``: at the first record that was delivered before."""
        rewound = self.rewound
        while rewound:
            offset = next(iter(rewound))
            if offset >= batch.offsets[start]:
                return min(stop, batch.index_at(offset) + 1) if offset < batch.next_offset else stop
            del rewound[offset]  # it was removed, or belongs to others
        return stop

    # --- ended messages -----------------------------------------------------------------------------------------------

    def note_end(self, offset: int, reason: str, deliveries: int) -> bool:
        """Store with the cursor why a message that waits for its dead-letter queue has ended.

        Returns:
            True if the note has to be stored.
        """
        bits = end_reasons.NOTES.get(reason)
        if bits is None or self.cursor.counts.get(offset, 0) >= end_reasons.NOTED:
            return False
        self.cursor.set_count(offset, bits | min(deliveries, end_reasons.NOTED - 1))
        self.settle([])  # the cursor has to be written in this turn
        return True

    def note_unwritten(self, offsets: list[int]) -> None:
        """Store that messages were never written to a socket.

        Otherwise a start would end those that were delivered as often as their rule allows.
        """
        most = self.settings.redeliver_max
        if most is None:
            return
        for offset in offsets:
            deliveries = self.deliveries(offset)
            if deliveries >= most:
                self.cursor.set_count(offset, end_reasons.UNWRITTEN | min(deliveries, end_reasons.NOTED - 1))

    def _resume(self) -> None:
        """End messages, after a start, that had ended before it or were delivered as often as their rule allows."""
        counts, most = self.cursor.counts, self.settings.redeliver_max
        for reason, bits in end_reasons.NOTES.items():
            noted = [
                each for each in self.returned if counts.get(each, 0) // end_reasons.NOTED == bits // end_reasons.NOTED
            ]
            self._end(noted, reason)
        if most is not None:
            exhausted = [
                each
                for each in self.returned
                if most <= self.deliveries(each) and counts.get(each, 0) < end_reasons.UNWRITTEN
            ]
            self._end(exhausted, end_reasons.MAX_DELIVERIES)

    def _end(self, offsets: list[int], reason: str) -> None:
        if offsets:
            self.queue.timing.outcomes.ended(self, offsets, reason)

    # --- scheduled messages -------------------------------------------------------------------------------------------

    def note_delays(self, offsets: Sequence[int], dues: Sequence[int]) -> None:
        """Note that messages were appended that are not due before these times."""
        self._known_ahead().note(offsets, dues)

    def _known_ahead(self) -> ScheduledAhead:
        if self.ahead is None:
            self.ahead = ScheduledAhead(self, self.queue.timing)
        return self.ahead

    @property
    def unlooked(self) -> int:
        """The number of an earlier run's messages that were not examined."""
        searched_to = 0 if self.ahead is None else self.ahead.searched_to
        return max(0, self.earlier_to - max(searched_to, self.next_offset))

    def delayed(self, now_ns: WallNs) -> int:
        """Return the number of messages known to be scheduled. ``unlooked`` messages may be scheduled too."""
        return len(self.deferred) + (0 if self.ahead is None else self.ahead.count(now_ns))

    def look_ahead(self, reads: int) -> int:
        """Search messages of an earlier run for scheduled ones, with up to ``reads`` reads.

        Returns:
            The number of reads.
        """
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
        """Return the batch with ``offset``; None while a cold read is under way, or if the offset is gone."""
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
            self.advance(found)
        else:
            while self.returned and self.returned[0] < found:
                self.settle(self.returned[:1], None)
        return None


class Expiry:
    """Expires the waiting messages of one source, also without consumers.

    Messages that were returned and fresh messages are examined at their head, because the others are behind it. Skipped
    messages are scanned when the first of them expires.

    Args:
        source: The source.
        timing: The present time and the timers.
    """

    __slots__ = (
        "_heads",
        "_lowest_ns",
        "_pause_until_ns",
        "_position",
        "_reading",
        "_revived",
        "_scan",
        "_skipped_ns",
        "_may_expire",
        "_source",
        "_timing",
    )

    def __init__(self, source: QueueSource, timing: Timing) -> None:
        self._source = source
        self._timing = timing
        self._revived = False
        self._may_expire = False  # expiring messages were stored since the source was last empty
        self._heads: dict[int, WallNs] = {}  # the expiry time of the messages that were at the head in the last call
        self._reading = False  # a head is being read from the disk
        self._skipped_ns = WallNs(NEVER_NS if source.skipped is None else 0)  # the earliest expiry of a skipped message
        self._pause_until_ns = MonoNs(0)  # skipped messages are not scanned before
        self._scan: Scan | None = None  # the scan of skipped messages, if any
        self._position = -1  # the next offset of the scan; -1: no scan is under way
        self._lowest_ns = WallNs(NEVER_NS)  # the earliest expiry that the scan has found

    def revive(self) -> None:
        """Schedule a first check of messages of an earlier run."""
        self._revived = True
        self._timing.after(0, self)

    def begin_again(self) -> None:
        """Examine all messages again: their time to live has changed."""
        source = self._source
        self._heads.clear()
        self._may_expire = True
        if source.skipped is not None:
            self._skipped_ns, self._position, self._pause_until_ns = WallNs(0), -1, MonoNs(0)
        head = source.returned[0] if source.returned else source.next_offset
        if source.feed.partition.read(head) is not None or source.skipped is not None:
            self._timing.after(0, self)
        elif source.returned or head < source.feed.partition.high_watermark:
            self.revive()

    def stored(self, batch: RecordBatch) -> None:
        """Set a timer for the first expiry of a stored batch."""
        ttl_ns = self._source.settings.message_ttl_ns
        if ttl_ns is None and not marks(batch) & EXPIRES:
            return
        first_ns = first_expiry(batch, ttl_ns)
        if first_ns < NEVER_NS:
            self._may_expire = True
            self._timing.at_wall(first_ns, self)

    def loaded(self) -> None:
        """Continue after a cold read."""
        if self._reading:
            self.due(self._timing.now)

    def close(self) -> None:
        """Cancel the timers: the source is gone."""
        self._reading = False
        self._timing.forget(self)
        del self._source, self._scan  # no reference circle is left, as in Deferred

    def due(self, now: Now) -> None:
        """Expire messages at the heads, and set the next timer."""
        source, now_ns = self._source, now.wall
        if self._revived:
            self._revived = False
            spread_ns = SPREAD_UNSURE_NS if source.settings.message_ttl_ns is None else SPREAD_NS
            seed = f"{source.queue.name} {source.feed.partition.name}".encode()
            self._timing.after(crc32(seed) * spread_ns // (1 << 32), self)
            return
        if source.held_by_record:
            self._timing.after(HELD_NS, self)
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
            self._may_expire = False
        if next_ns < NEVER_NS:
            next_ns = max(next_ns, now_ns + 1)
            self._timing.at_wall(WallNs(next_ns), self)
            if next_ns - now_ns <= LIVING_NS:  # also by the monotonic clock, in case the wall clock steps back
                self._timing.after(next_ns - now_ns, self)
        if next_ns > now_ns and (source.queue.paused or not source.queue.consumers):
            source.batch = None
        source.rest()

    def skipped(self, batch: RecordBatch, index: int) -> None:
        """Note that a record was skipped, for its expiry."""
        ttl_ns = self._source.settings.message_ttl_ns
        if ttl_ns is not None or marks(batch) & EXPIRES:
            end_ns = expiry(batch, index, ttl_ns)
            if end_ns < self._skipped_ns:
                self._skipped_ns = end_ns
                self._timing.at_wall(end_ns, self)

    def _scanned(self) -> None:
        """Continue after a cold read of the scan."""
        self.due(self._timing.now)

    def _skipped(self, now: Now) -> int:
        """Scan some of the skipped messages if it is time, and return the next time by the wall clock."""
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
                scan.drop_batch()
                self._position = -1
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
                self._timing.outcomes.expired(source, first, source.deliveries(first))
                gone = True
        if gone:
            source.unskip()
            self._timing.wake(source.queue)
        if self._position < 0:
            return self._next_look(now)
        return NEVER_NS if scan.loading else now_ns + SKIPPED_PAUSE_NS

    def _next_look(self, now: Now) -> int:
        """Return the wall time of the next scan of skipped messages; NEVER_NS if none of them expires."""
        if self._skipped_ns == NEVER_NS:
            return NEVER_NS
        return max(self._skipped_ns, now.wall + self._pause_until_ns - now.mono)

    def _returned(self, now_ns: WallNs, heads: dict[int, WallNs]) -> int:
        """Expire returned messages at the head, and return the expiry time of the next one."""
        source = self._source
        looked = 0
        while source.returned and not source.loading:
            offset = source.returned[0]
            if heads.get(offset, now_ns) > now_ns:
                return self._check_again(offset, heads[offset], now_ns)
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
                return self._check_again(offset, end_ns, now_ns)
            if ours:
                self._timing.outcomes.expired(source, offset, source.deliveries(offset))
            else:
                source.settle_foreign([offset])
        return NEVER_NS

    def _fresh(self, now_ns: WallNs, heads: dict[int, WallNs]) -> int:
        """Expire fresh messages at the head, and return the expiry time of the next one."""
        source = self._source
        partition, selection = source.feed.partition, source.queue.selection
        left = RUN if selection is None else min(RUN, selection.run)
        while not source.loading and not source.stuck and source.next_offset < partition.high_watermark:
            if heads.get(source.next_offset, now_ns) > now_ns:
                return self._check_again(source.next_offset, heads[source.next_offset], now_ns)
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
                return self._check_again(
                    batch.offsets[index], expiry(batch, index, source.settings.message_ttl_ns), now_ns
                )
        return NEVER_NS

    def _check_again(self, offset: int, end_ns: WallNs, now_ns: WallNs) -> int:
        """Note the head and return the time of the next check.

        Messages behind the head may expire earlier and be at the head by then.
        """
        self._heads[offset] = end_ns
        return min(end_ns, now_ns + LIVING_NS) if self._may_expire or end_ns < NEVER_NS else NEVER_NS


class ReadyList:
    """The sources of one queue that may have messages, in the order in which they are served."""

    __slots__ = ("_first", "_ring")

    def __init__(self) -> None:
        self._ring: OrderedDict[QueueSource, None] = OrderedDict()
        self._first: dict[QueueSource, None] = {}

    def __len__(self) -> int:
        return len(self._ring) + len(self._first)

    def __contains__(self, source: object) -> bool:
        return source in self._ring or source in self._first

    def left(self, enough: int) -> int:
        """Return the approximate number of undelivered messages; counting stops at ``enough``."""
        left = 0
        for source in self._ring:
            left += source.fresh + len(source.returned)
            if left >= enough:
                break
        return left

    def wake(self, source: QueueSource) -> None:
        """Add a source that may have messages."""
        if source.first:
            self._first[source] = None
        else:
            self._ring[source] = None

    def drop(self, source: QueueSource) -> None:
        """Remove a source that the queue does not read any more."""
        self._ring.pop(source, None)
        self._first.pop(source, None)

    def turns(self) -> Iterator[QueueSource]:
        """Yield each source at most once: sources that go first by priority, then the least recently served one."""
        if self._first:
            for source in [each for each in self._first if is_exhausted(each)]:
                del self._first[source]
            yield from sorted(self._first, key=_log_of_priority, reverse=True)  # stable for equal priorities
        ring = self._ring
        for _ in range(len(ring)):
            source = next(iter(ring))
            if is_exhausted(source):
                del ring[source]
            else:
                ring.move_to_end(source)
                yield source


def is_limited(settings: Settings) -> bool:
    """Return True if a rule limits the messages or bytes of a queue, so that they are counted."""
    return settings.max_messages is not None or settings.max_bytes is not None


def _log_of_priority(source: QueueSource) -> int:
    return source.priority


def is_exhausted(source: QueueSource) -> bool:
    """Return True if a source has nothing to do until a message is stored or returned."""
    if source.returned or source.loading or source.skipped is not None:
        return False
    return bool(source.next_offset >= source.feed.partition.high_watermark)


class Queue:
    """The consumers and sources of one queue.

    Args:
        name: The name, for log lines and errors.
        filter: The records of a log that belong to the queue.
        on_lost: Called with a description of lost messages and their number.
        timing: The present time and the timers.
        policy: The policy.

    Attributes:
        sources: The sources in the order in which they are served.
        ready_list: The sources that may have messages.
        consumers: The consumers, the least recently served one first.
        selectors: The selectors of the consumers, while a consumer has one or messages are skipped.
        assignment: The partition assignment, if sources are assigned to single consumers.
        ordered: True if the sources are served by priority.
        selection: The selector of a durable subscription. Messages that it excludes are settled.
        shares: Fair dispatch, once there have been several consumers.
        gap: The number of lost messages that were not reported to a consumer.
        note: Header lines to send with the next message.
        reported: The gap and note that a message was sent with, by source and offset.
        paused: True if nothing is delivered until ``resume``.
    """

    __slots__ = (
        "_on_lost",
        "filter",
        "consumers",
        "gap",
        "name",
        "note",
        "ordered",
        "paused",
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
        self.ready_list = ReadyList()
        self.consumers: OrderedDict[Consumer, None] = OrderedDict()
        self.selectors: Selectors | None = None
        self.assignment: Assignment | None = None
        self.ordered = False
        self.paused = False
        self.selection: Selection | None = None
        self.shares: FairDispatch | None = None
        self.gap = 0
        self.note = b""
        self.reported: dict[tuple[QueueSource, int], tuple[int, bytes]] = {}
        self._on_lost = on_lost

    def pause(self) -> None:
        """Deliver nothing until ``resume``. Messages in flight stay with their consumers."""
        self.paused = True
        for source in self.sources:
            source.drop_batch()

    def resume(self) -> None:
        """Deliver again. The caller adds the queue to the ready list of the broker."""
        self.paused = False

    @property
    def held_by_record(self) -> bool:
        """True if nothing is delivered because too many rows about deliveries wait to be stored."""
        return any(source.held_by_record for source in self.sources)

    def agree(self, policy: QueuePolicy) -> None:
        """Apply another policy from now on, also to messages in flight."""
        limited = is_limited(self.settings)
        self.policy, self.settings = policy, policy.settings
        for source in self.sources:
            source.agree(policy)
            if is_limited(policy.settings) and not limited:
                source.count_again()

    def join(self, consumer: Consumer, alone: bool, wake: Callable[[], None]) -> None:
        """Add a consumer.

        Args:
            consumer: The consumer.
            alone: True for an exclusive consumer.
            wake: Called when an assignment changes.
        """
        self.consumers[consumer] = None
        for source in self.sources:  # the filter may have been extended
            self.ready_list.wake(source)
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
            self._make_assignment(wake)
        if self.assignment is not None:
            self.assignment.joined(consumer, alone)

    def assign(self, source: QueueSource, wake: Callable[[], None]) -> None:
        """Assign a source to one consumer at a time, to preserve the order of messages. ``wake`` is as in ``join``."""
        self._make_assignment(wake).add(source)

    def _make_assignment(self, wake: Callable[[], None]) -> Assignment:
        if self.assignment is None:
            self.assignment = Assignment(wake)
            for each in self.consumers:
                self.assignment.joined(each, False)
        return self.assignment

    def leave(self, consumer: Consumer) -> None:
        """Remove a consumer."""
        del self.consumers[consumer]
        if not self.consumers:
            self.timing.recorder.held.pop(self, None)
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
        """Check that another consumer may have this selector.

        Raises:
            ProtocolError: There are too many selectors (too-many).
        """
        if self.selectors is not None:
            self.selectors.check(selection, self.name)

    def select(self) -> Selectors:
        """Return the selectors of the consumers, which decide about deliveries from now on."""
        if self.selectors is None:
            self.selectors = Selectors(self.consumers)
            for source in self.sources:
                if source.skipped is not None:
                    source.skipped.joined(self.selectors)
        return self.selectors

    def unselect(self) -> None:
        """Stop to evaluate selectors if no consumer has one and no message is skipped."""
        if self.selectors is None or not self.selectors.plain:
            return
        if not self.consumers or all(source.skipped is None for source in self.sources):
            self.selectors = None

    def credited(self, consumer: Consumer) -> None:
        """Note that a consumer may have credit again."""
        if self.selectors is not None:
            group = self.selectors.credited(consumer)
            for source in self.sources:
                if source.skipped is not None:
                    source.skipped.wake(group)

    def add(self, source: QueueSource) -> None:
        """Add a source."""
        self.sources.append(source)
        self.ready_list.wake(source)

    def drop(self, sources: Collection[QueueSource]) -> None:
        """Remove sources."""
        self.sources = [source for source in self.sources if source not in sources]
        for source in sources:
            self.release(source)

    def release(self, source: QueueSource) -> None:
        """Deliver nothing from a source that is about to be removed."""
        self.ready_list.drop(source)
        if self.assignment is not None:
            self.assignment.remove(source)

    def replaced(self, old: QueueSource, new: QueueSource) -> None:
        """Replace a source by another cursor."""
        self.sources[self.sources.index(old)] = new
        self.ready_list.drop(old)
        self.ready_list.wake(new)
        if self.assignment is not None:
            self.assignment.replaced(old, new)

    def lost(self, source: QueueSource, count: int, first: int, last: int) -> None:
        """Count messages that were removed from the log before their delivery.

        Args:
            source: The source.
            count: The number of messages.
            first: The first offset of the range.
            last: The last offset of the range.
        """
        self.gap += count
        where = f"offsets {first} to {last} of {source.feed.partition.name}"
        self._on_lost(
            f"{self.name}: {counted(count, 'message')} removed from the log before being settled, among them {where}",
            count,
        )

    def appended(self, partition: Any, messages: int) -> None:
        """Count appended messages. Called only where a rule limits the backlog."""
        for source in self.sources:
            if source.feed.partition is partition:
                source.waiting += messages

    @property
    def fresh(self) -> int:
        """The number of messages that were never delivered."""
        return sum(source.fresh for source in self.sources if not source.from_fan_out)

    @property
    def backlog(self) -> int:
        """The number of unsettled messages, waiting or in flight.

        In a shared log it is a lower bound, after a restart, until the queue was read once. So no message is refused
        because of other destinations' records.
        """
        return sum(source.backlog for source in self.sources if not source.from_fan_out)

    @property
    def backlog_bytes(self) -> int:
        """The approximate size of these messages in the log."""
        size = 0
        for source in [each for each in self.sources if not each.from_fan_out]:
            partition = source.feed.partition
            stored = partition.next_offset - partition.log_start_offset
            size += partition.size_bytes * source.backlog // max(1, stored)
        return size

    def note_delays(self, partition: Partition, offsets: Sequence[int], dues: Sequence[int]) -> None:
        """Note that messages were appended to ``partition`` that are not due before these times."""
        for source in self.sources:
            if source.feed.partition is partition:
                source.note_delays(offsets, dues)

    def order_by_priority(self) -> None:
        """Serve the sources in the order of their priority from now on."""
        self.ordered = True
        self.sort()

    def sort(self) -> None:
        """Sort the sources: orphaned ones first; if ``ordered``, by priority before that, the highest first."""
        by_priority = self.ordered
        self.sources = sorted(
            self.sources,
            key=lambda each: (
                (-each.priority, not each.orphaned) if by_priority else (not each.orphaned, -each.priority)
            ),
        )

    def select_by(self, selection: Selection | None) -> None:
        """Settle messages that this selector excludes: the selector of a durable subscription."""
        self.selection = selection

    def send_next(self, lines: bytes) -> None:
        """Send these header lines with the next message."""
        self.note = lines

    def drop_closed(self) -> None:
        """Remove the sources that were closed."""
        self.sources = [source for source in self.sources if not source.closed]

    def fair_dispatch(self) -> FairDispatch:
        """Return the fair dispatch of the queue, created at first use."""
        if self.shares is None:
            self.shares = FairDispatch(self.consumers, self.ready_list.left, self.timing, self._wake)
        return self.shares

    def _wake(self) -> None:
        self.timing.wake(self)

    def _drop_order(self) -> Collection[QueueSource]:
        """Return the sources in the order in which they drop messages: the lowest priority first."""
        if not self.ordered:
            return [each for each in self.sources if not each.from_fan_out]
        return sorted(self.sources, key=lambda each: (each.priority, not each.orphaned))

    def drop_oldest(self, newest_in: Partition | None = None) -> bool:
        """Settle the oldest message that is not in flight, to make room.

        Args:
            newest_in: A partition whose last message is not dropped if it was never delivered.

        Returns:
            False if there is none, or its row could not wait in memory.
        """
        if self.held_by_record:
            return False
        for source in self._drop_order():
            lowest = source.lowest()
            if lowest is not None:
                source.settle([lowest], DROPPED)
                return True
            if source.fresh > (source.feed.partition is newest_in):
                source.drop_next()
                return True
        return False

    def takers(self, source: QueueSource) -> Collection[Consumer]:
        """Return the consumers that may take from a source, the least recently served one first."""
        if self.assignment is None:
            return self.consumers
        takers = self.assignment.takers(source, self.consumers)
        if not takers and (holder := self.assignment.holder(source)) is not None:
            holder.await_turn(self)
        return takers

    def send(self, source: QueueSource, batch: RecordBatch, consumer: Consumer, indexes: range | list[int]) -> None:
        """Send fresh messages to one consumer with enough credit."""
        tails = source.feed.wire.tails(batch, consumer.session.version)
        count = len(indexes)
        source.traffic.sent(count)
        if isinstance(indexes, range):
            run = slice(indexes.start, indexes.stop)
            offsets, tails = batch.offsets[run], tails[run]
        else:
            offsets, tails = [batch.offsets[index] for index in indexes], [tails[index] for index in indexes]
        if source.record is not None:
            source.record.delivered(batch, indexes, offsets, consumer, 1)
        if self.gap or self.note:
            lines = self._report(source, offsets[0])
            consumer.deliver(source.feed, source, [offsets[0]], [tails[0]], FIRST_TIME + lines)
            offsets, tails = offsets[1:], tails[1:]
        if offsets:
            consumer.deliver(source.feed, source, offsets, tails, FIRST_TIME)  # type: ignore[arg-type]
        consumer.session.window.queues.served(consumer, self)
        if self.shares is not None:
            self.shares.served(consumer, count)

    def _report(self, source: QueueSource, offset: int) -> bytes:
        """Return the header lines that report a loss with a message; empty if there is none.

        A consumer may die before it has read the message, so the lines stay with the message until it is settled.
        """
        if not (self.gap or self.note or self.reported):
            return b""
        gap, note = self.reported.pop((source, offset), (0, b""))
        gap, note, self.gap, self.note = gap + self.gap, note or self.note, 0, b""
        if gap or note:
            self.reported[source, offset] = gap, note
            if len(self.reported) > REPORTED_MAX:  # nearly all of them are settled
                del self.reported[next(iter(self.reported))]
        return b"%bgap:%d\n" % (note, gap) if gap else note

    def passes(self, source: QueueSource, batch: RecordBatch, index: int) -> bool:
        """Return True if a returned or skipped message may be delivered now. If not, it is in another state."""
        if not self.filter.takes(source.feed.partition.name, batch, index):
            source.settle_foreign([batch.offsets[index]])
            return False
        if self.selection is not None and not self.selection.takes(source.feed.wire, batch, index):
            source.settle([batch.offsets[index]], None)
            return False
        return not source.timed(batch, index) or source.may_go(batch, index)

    def send_again(self, source: QueueSource, batch: RecordBatch, index: int, consumer: Consumer) -> None:
        """Send a message that was returned or skipped."""
        offset = batch.offsets[index]
        count = source.redeliver(offset)
        tail = source.feed.wire.tails(batch, consumer.session.version)[index]
        extra = b"delivery-count:%d\n%b" % (count, self._report(source, offset))
        if count > 1:
            extra = b"redelivered:true\n" + extra
            source.traffic.sent_again()
        else:
            source.traffic.sent(1)
        if source.record is not None:
            source.record.delivered(batch, [index], [offset], consumer, count)
        consumer.deliver(source.feed, source, [offset], [tail], extra)
        consumer.session.window.queues.served(consumer, self)
        self.served(consumer)
        if self.shares is not None:
            self.shares.served(consumer, 1)

    def served(self, consumer: Consumer) -> None:
        """Move a consumer to the end of the order."""
        if consumer in self.consumers:
            self.consumers.move_to_end(consumer)
