"""The messages of a queue in one partition, by state (``message_states`` has the table).

    settled     in the cursor, or in ``settled`` until the end of the turn
    fresh       at or above ``next_offset``
    skipped     in ``skipped``, as runs of offsets
    in flight   below ``next_offset``, and in none of the other states. A consumer has it (``Subscription.in_flight``),
                or its answer is under way: in a COMMIT that is not decided, or in a consumer that leaves
    returned, deferred, buried, dropped
                in ``_states``, by offset; ``returned`` and ``deferred`` have their order

So a message that is delivered and acknowledged costs no entry here. All other events look their message up and follow
the table.

This module knows offsets and times. It does not know consumers, logs or rules.
Invariants: a message is in exactly one state (``check_states``); ``Timing.deferred`` counts the deferred messages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from radiator.broker.queues import end_reasons
from radiator.broker.queues.deferred import Deferred
from radiator.broker.queues.message_states import TRANSITIONS, Event, State
from radiator.broker.queues.recorder import ACKED, DROPPED, PURGED, SourceRecord
from radiator.broker.queues.skipped import Skipped

if TYPE_CHECKING:
    from radiator.broker.logs.feed import Feed
    from radiator.broker.queues.ack_timeouts import Timeouts
    from radiator.broker.queues.recorder import Settled, Span
    from radiator.broker.timers.timing import Timing
    from radiator.clock import WallNs

NONE: set[int] = set()  # shared by all cursors without a record; it stays empty
MARKED = frozenset([State.RETURNED, State.DEFERRED, State.BURIED, State.DROPPED])  # the states in ``_states``


class QueueMessages(ABC):
    """The messages of a queue in one partition.

    Args:
        queue_name: The name of the queue, for log lines and errors.
        feed: The feed of the partition.
        cursor: The stored cursor.
        dirty: The sources with settled offsets for their cursors, shared by all queues.
        timing: The present time and the timers.
        on_due: Called with the offsets of deferred messages whose time has come. It reports ``come_due``.

    Attributes:
        closed: True if the queue reads the partition no more.
        next_offset: The first offset that was not examined.
        returned: A heap of offsets to deliver again.
        deferred: Messages that are not due.
        skipped: Messages skipped by selector, if any.
        dropped: Offsets that were dropped before they were stored.
        burying: The number of messages that wait for their dead-letter queue.
        settled: Offsets that the cursor does not have yet.
        record: The record of deliveries, if the rule has ``record: deliveries``.
        storing: Settled offsets that the cursor gets when the journal has their rows (``recorder``).
        waiting: The number of unsettled messages.
        lost_to: Messages in flight below may be lost: the log has removed them.
        timeouts: The ack timeouts of the deliveries, if the rule has one.
    """

    __slots__ = (
        "_dirty",
        "_states",
        "_timing",
        "burying",
        "closed",
        "cursor",
        "deferred",
        "dropped",
        "feed",
        "lost_to",
        "next_offset",
        "queue_name",
        "record",
        "returned",
        "settled",
        "skipped",
        "storing",
        "timeouts",
        "waiting",
    )

    def __init__(
        self,
        queue_name: str,
        feed: Feed,
        cursor: Any,
        dirty: dict[Any, None],
        timing: Timing,
        on_due: Callable[[list[int]], None],
    ) -> None:
        self.queue_name = queue_name
        self.feed = feed
        self.cursor = cursor
        self._dirty = dirty
        self._timing = timing
        self.closed = False
        end: int = feed.partition.high_watermark  # records above, if any, belong to others
        unsettled: int = end - cursor.floor - cursor.settled_above
        self.waiting = max(0, unsettled)
        self.settled: list[int] = []
        self.record: SourceRecord | None = None
        self.storing: set[int] = NONE
        self.dropped: list[int] = []
        self.burying = 0
        self.lost_to = 0
        self.timeouts: Timeouts | None = None
        reached = max(cursor.delivered, cursor.ceiling, cursor.floor, end_reasons.reach(cursor))
        self.next_offset: int = min(reached, max(end, cursor.floor))
        covered = min(cursor.delivered, self.next_offset)  # later offsets were delivered if they have a count
        self.returned: list[int] = list(cursor.unacked(covered)) if cursor.floor < covered else []
        if cursor.counts:
            self.returned += sorted(offset for offset in cursor.counts if covered <= offset < self.next_offset)
        self._states = dict.fromkeys(self.returned, State.RETURNED)
        self.deferred = Deferred(timing, self._states, on_due)
        self.skipped: Skipped | None = None
        if covered < self.next_offset:
            skipped = self._make_skipped()
            for start, stop in cursor.unsettled_in(covered, self.next_offset):
                skipped.add(start, stop)
            for counted in cursor.counts:
                skipped.remove(counted, counted + 1)
            self.unskip()

    @abstractmethod
    def has_returned(self) -> None:
        """Note that a message was returned, so one may be delivered."""

    @abstractmethod
    def has_lost(self, count: int, first: int, last: int) -> None:
        """Report ``count`` messages between these offsets that were removed from the log before their delivery."""

    # --- states -------------------------------------------------------------------------------------------------------

    def state_of(self, offset: int) -> State:
        """Return the state of a message."""
        state = self._states.get(offset)
        if state is not None:
            return state
        if self.skipped is not None and offset in self.skipped.runs:
            return State.SKIPPED
        if offset in self.settled or offset in self.storing or self.cursor.is_acked(offset):
            return State.SETTLED
        return State.FRESH if offset >= self.next_offset else State.IN_FLIGHT

    def check_states(self, held: Iterable[int]) -> int:
        """Check that every message is in exactly one state. It is for tests: it looks at all unsettled messages.

        Args:
            held: The messages that consumers have in flight.

        Returns:
            The number of messages in flight that no consumer has.
        """
        skipped = [] if self.skipped is None else self.skipped.runs.within(0, self.next_offset)
        buried = [offset for offset, state in self._states.items() if state is State.BURIED]
        deferred = self.deferred.offsets() if self._states else []
        places = (
            (State.RETURNED, self.returned),
            (State.DEFERRED, deferred),
            (State.BURIED, buried),
            (State.DROPPED, self.dropped),
            (State.SKIPPED, [offset for run in skipped for offset in range(*run)]),
            (State.IN_FLIGHT, [each for each in held if each >= self.lost_to or not self.cursor.is_acked(each)]),
        )
        for state, offsets in places:
            if not offsets:
                continue
            for offset in offsets:
                assert self.state_of(offset) is state, (offset, state, self.state_of(offset))
                assert self.cursor.floor <= offset < self.next_offset, (offset, state)
                assert not self.cursor.is_acked(offset) and offset not in self.settled, (offset, state)
                assert offset not in self.storing, (offset, state)
            assert len(set(offsets)) == len(offsets), (state, sorted(offsets))
        assert len(self._states) == len(self.returned) + len(deferred) + len(buried) + len(self.dropped)
        assert self.burying == len(buried) and len(self.deferred) == len(deferred)
        assert not any(map(self.cursor.is_acked, self.settled))
        unsettled = sum(stop - start for start, stop in self.cursor.unsettled_in(self.cursor.floor, self.next_offset))
        storing = len(self.settled) + sum(not self.cursor.is_acked(each) for each in self.storing)
        others: int = unsettled - storing - sum([len(offsets) for _, offsets in places])
        assert others >= 0
        return others

    def _move(self, event: Event, offsets: Iterable[int]) -> list[int]:
        """Move messages to the state that follows.

        Returns:
            The messages that have moved. The others were settled before.

        Raises:
            RuntimeError: The event cannot happen in the state of a message.
        """
        if self.settled:
            self._flush()  # a look-up in the list could take long
        states, skipped = self._states, self.skipped
        before = following = None
        marked = marks = False
        moved: list[int] = []
        gone: list[int] = []
        returned: list[int] = []
        deferred = 0
        for offset in offsets:
            state = self.state_of(offset)
            if state is not before:
                before, following = state, TRANSITIONS.after(state, event)
                marked, marks = before in MARKED, following in MARKED
            if before is State.SETTLED:
                gone.append(offset)
                continue
            if marked:
                del states[offset]
                if before is State.RETURNED:
                    returned.append(offset)
                elif before is State.DEFERRED:
                    deferred += 1
                elif before is State.BURIED:
                    self.burying -= 1
            elif before is State.SKIPPED and skipped is not None:
                skipped.remove(offset, offset + 1)
            if marks and following is not None:
                states[offset] = following
            moved.append(offset)
        if self.timeouts is not None:
            self.timeouts.forget(moved)
        if returned:
            self._remove_returned(returned)
        if deferred:
            self.deferred.take(deferred)
        if gone and event is not Event.SETTLE:
            self.has_lost(len(gone), min(gone), max(gone))
        return moved

    def _remove_returned(self, offsets: list[int]) -> None:
        if len(offsets) == 1 and offsets[0] == self.returned[0]:
            heappop(self.returned)
            return
        gone = set(offsets)
        self.returned = [offset for offset in self.returned if offset not in gone]
        heapify(self.returned)

    def _make_skipped(self) -> Skipped:
        if self.skipped is None:
            self.skipped = Skipped(self, self._timing.skipped)
        return self.skipped

    def unskip(self) -> None:
        """Drop the set of skipped messages if it is empty."""
        if self.skipped is not None and not len(self.skipped):
            self.skipped.close()
            self.skipped = None

    # --- events -------------------------------------------------------------------------------------------------------

    def advance(self, stop: int) -> None:
        """Move to the offset ``stop``. The fresh messages below it are in flight, unless another event moved them."""
        assert stop >= self.next_offset
        self.next_offset = stop

    def redeliver(self, offset: int) -> int:
        """Note that a consumer gets a message that was returned or skipped.

        Returns:
            Its delivery count, which is stored with the cursor before the message is sent.
        """
        if self.returned and offset == self.returned[0]:  # as usual; the table allows it
            del self._states[heappop(self.returned)]
        else:
            self._move(Event.REDELIVER, (offset,))
        count = self.deliveries(offset) + 1
        self.cursor.set_count(offset, count)
        return count

    def give_back(self, offsets: Iterable[int]) -> None:
        """Return messages to their places in the queue. Those that the log has lost meanwhile are reported."""
        for offset in self._move(Event.GIVE_BACK, offsets):
            heappush(self.returned, offset)
        self.has_returned()

    def defer(self, offset: int, due_ns: WallNs) -> None:
        """Keep a message until the wall clock shows ``due_ns``."""
        self._move(Event.DEFER, (offset,))
        if offset not in self.cursor.counts:
            self.cursor.set_count(offset, 0)  # not delivered, though later messages may be delivered before it
        self.deferred.delay(due_ns, offset)

    def pause(self, offset: int, pause_ns: int) -> None:
        """Keep a message that was in flight for ``pause_ns`` nanoseconds."""
        if self._move(Event.PAUSE, (offset,)):
            self.deferred.pause(pause_ns, offset)

    def come_due(self, offsets: Iterable[int]) -> None:
        """Return deferred messages to their places in the queue: their time has come."""
        for offset in self._move(Event.COME_DUE, offsets):
            heappush(self.returned, offset)
        self.has_returned()

    def skip_over(self, offset: int) -> Skipped:
        """Skip a message that matches no consumer with credit.

        Returns:
            All skipped messages, including this one.
        """
        self._move(Event.SKIP_OVER, (offset,))
        skipped = self._make_skipped()
        skipped.add(offset, offset + 1)
        return skipped

    def bury(self, offsets: Iterable[int]) -> list[int]:
        """Offer messages to consumers no more: they move to a dead-letter destination, and are settled there.

        Returns:
            The messages without those that the log has lost, which are reported.
        """
        buried = self._move(Event.BURY, offsets)
        self.burying += len(buried)
        return buried

    def count_unsettled(self) -> None:
        """Count the unsettled messages up to the end of the log, stored or not."""
        end: int = self.feed.partition.next_offset
        settled: int = self.cursor.floor + self.cursor.settled_above
        self.waiting = max(0, end - settled - self.unflushed - len(self.dropped))

    @property
    def unflushed(self) -> int:
        """The number of settled messages that the cursor does not have yet."""
        return len(self.settled) + len(self.storing)

    def settle(self, offsets: list[int], outcome: bytes | None = ACKED, transaction: str = "") -> None:
        """Settle messages for ever. The cursor gets them once per turn.

        Args:
            offsets: The offsets.
            outcome: The outcome of their last delivery, for the record of deliveries (``recorder``); None: they have no
                row, because they are none of the queue's, or do not exist any more.
            transaction: The id of the transaction that acknowledges or refuses them; empty outside of one.
        """
        if (self._states or self.skipped is not None or self.lost_to) and not self._all_in_flight(offsets):
            offsets = self._move(Event.SETTLE, offsets)
        elif self.timeouts is not None:
            self.timeouts.forget(offsets)
        if self.record is None or (outcome is ACKED and not transaction):
            self.settled += offsets
        elif outcome is None:
            self.record.forget(offsets)
            self.cursor.ack(offsets)
        else:
            self.record.settled(offsets, outcome, transaction)
        self.waiting -= len(offsets)
        self._dirty[self] = None

    def _all_in_flight(self, offsets: list[int]) -> bool:
        """Return True if all messages are in flight, or fresh: then no look-up is necessary to settle them."""
        if not self._states.keys().isdisjoint(offsets):
            return False
        if self.skipped is not None and any(offset in self.skipped.runs for offset in offsets):
            return False
        return not self.lost_to or min(offsets, default=self.lost_to) >= self.lost_to

    def examined_below(self, stop: int) -> list[int]:
        """Return the returned and deferred messages below ``stop``."""
        return [offset for offset in (*self.returned, *self.deferred.offsets()) if offset < stop]

    def purge_examined(self, offsets: Iterable[int]) -> int:
        """Settle those of these messages that are returned or deferred, and return their number."""
        waiting = [offset for offset in offsets if self._states.get(offset) in (State.RETURNED, State.DEFERRED)]
        self.settle(waiting, PURGED)
        return len(waiting)

    def purge_skipped(self, stop: int, most: int) -> int:
        """Settle up to ``most`` skipped messages below ``stop``, and return their number; 0 if there are none."""
        runs = [] if self.skipped is None else self.skipped.runs.within(0, stop)[:1]
        offsets = [offset for start, end in runs for offset in range(start, min(end, start + most))]
        if offsets:
            self.settle(offsets, PURGED)
        return len(offsets)

    def settle_range(self, start: int, stop: int) -> None:
        """Settle the fresh offsets in [start, stop) in the cursor at once: records of others, or removed messages."""
        self.cursor.ack_range(start, stop)

    def removed_skipped(self, start: int, stop: int) -> None:
        """Settle skipped messages that were removed from the log on purpose."""
        if self.skipped is not None:
            self.settle([each for run in self.skipped.runs.within(start, stop) for each in range(*run)], None)

    def lose(self, start: int, stop: int) -> None:
        """Settle messages in [start, stop) that retention or damage has removed from the log.

        Those that consumers could still get are reported now, those in flight when they come back, and dead letters
        when they are to be moved. Each is reported once.
        """
        self._flush()
        start = max(start, self.cursor.floor)
        if start >= stop:
            return
        unsettled = stop - start - sum(to - since for since, to in self.cursor.settled_in(start, stop))
        unsettled -= sum(start <= offset < stop and not self.cursor.is_acked(offset) for offset in self.storing)
        fresh = max(0, stop - max(start, self.next_offset))
        marked = [offset for offset in self._states if start <= offset < stop]
        lost = fresh + sum(self._states[offset] is not State.BURIED for offset in marked)
        if self.record is not None:
            self.record.forget_range(start, stop)
        self._move(Event.LOSE, marked)
        if self.skipped is not None:
            lost += self.skipped.remove(start, stop)
        self.waiting -= unsettled
        self.cursor.ack_range(start, stop)
        if self.next_offset >= start:
            self.next_offset = max(self.next_offset, stop)
        self.lost_to = max(self.lost_to, stop)
        if lost:
            self.has_lost(lost, start, stop - 1)

    def drop(self) -> None:
        """Drop the next fresh message, which is not stored yet."""
        self._move(Event.DROP, (self.next_offset,))
        self.waiting -= 1
        self.dropped.append(self.next_offset)
        self.next_offset += 1

    def stored(self, high_watermark: int) -> None:
        """Settle dropped messages that are stored now."""
        settled = self._move(Event.STORED, [offset for offset in self.dropped if offset < high_watermark])
        if settled:
            self.dropped = self.dropped[len(settled) :]
            if self.record is None:
                self.settled += settled
            else:
                self.record.settled(settled, DROPPED)
            self._dirty[self] = None

    def take_back(self, high_watermark: int) -> int:
        """Handle a failed write: offsets from ``high_watermark`` on will be assigned again.

        Returns:
            The number of dropped messages among them.
        """
        taken = self._move(Event.TAKE_BACK, [offset for offset in self.dropped if offset >= high_watermark])
        self.dropped = self.dropped[: len(self.dropped) - len(taken)]
        self.next_offset = min(self.next_offset, high_watermark)
        return len(taken)

    # --- the record of deliveries -------------------------------------------------------------------------------------

    def use_record(self, record: SourceRecord | None) -> None:
        """Record deliveries from now on; None: record them no more."""
        self._flush()
        self.record = record
        if self.storing is NONE:
            self.storing = set()

    @property
    @abstractmethod
    def newest_ns(self) -> WallNs:
        """The receive time of the newest message of the log."""

    @abstractmethod
    def destination_of(self, offset: int) -> str:
        """Return the destination of a message; empty if it is not known."""

    def ended(self, offsets: list[int], outcome: bytes, transaction: str = "") -> None:
        """Record deliveries that end although their messages are not settled, if the rule says so."""
        if self.record is not None and self.lost_to:
            offsets = [offset for offset in offsets if not self.cursor.is_acked(offset)]
        if self.record is not None and offsets:
            self.record.ended(offsets, outcome, transaction)
            self._dirty[self] = None

    def settled_in_journal(self, offsets: list[int]) -> None:
        """Settle messages whose settlement the journal has: the row, where there is one, was stored with it."""
        if self.record is None:
            self.settle(offsets)
            self.flush()  # a snapshot of the cursors may replace the journal's entries, so it needs this
            return
        self.settle(offsets, None)
        self.feed.pin()

    def rows_stored(self, settled: Settled, apply: Callable[[Any, list[Span]], None]) -> None:
        """Take note that the journal has settled offsets and their rows.

        Args:
            settled: The offsets, which are in ``storing``.
            apply: Called with the cursor and the offsets: the journal has them.
        """
        offsets, spans = settled
        self.storing.difference_update(offsets)
        if self.closed:
            return
        apply(self.cursor, spans)
        self.feed.pin()

    # --- the rest -----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Report the settled offsets of this turn to the cursor, and the lowest needed offset to the partition."""
        self._flush()
        self.feed.pin()

    def _flush(self) -> None:
        settled, self.settled = self.settled, []
        if self.record is None:
            self.cursor.ack(settled)
        elif settled:
            self.record.settled(settled, ACKED)

    def deliveries(self, offset: int) -> int:
        """Return how often a message below ``next_offset`` was delivered."""
        cursor = self.cursor
        count: int = cursor.counts.get(offset, offset < cursor.delivered)
        return count % end_reasons.NOTED

    def lowest(self) -> int | None:
        """Return the oldest examined message that is not in flight, due or not; None if there is none."""
        skipped = None if self.skipped is None else self.skipped.runs.first(0)
        lowest = [*self.returned[:1], *(each for each in (skipped, self.deferred.lowest()) if each is not None)]
        return min(lowest, default=None)

    @property
    def available(self) -> int:
        """The number of examined messages that are due and not in flight."""
        return len(self.returned) + (0 if self.skipped is None else len(self.skipped))

    def close(self) -> None:
        """Drop the states of messages: the queue reads the partition no more."""
        if self.record is not None:
            self._flush()  # what was acknowledged in this turn has rows, whether or not the cursor stays
        self.closed = True
        self.record = None
        if self.skipped is not None:
            self.skipped.close()
            self.skipped = None
        self.deferred.close()
        self._states.clear()
        if self.timeouts is not None:
            self._timing.forget(self.timeouts)
            self.timeouts = None
