"""How a queue is handed out while some of its consumers have selectors.

Each record goes to the consumer that wants it and was served longest ago, among those with credit. What none of these
wants is parked (``queues.parked``), and looked at again when somebody comes who may. So nobody's messages wait
for somebody else's, and each consumer is given its own in their order.

    hand_out = what was returned or parked, lowest first; then fresh records, as long as anybody has credit

Knows: verdicts, credit, order. Must not know: how a message is sent (``Queue``), what a verdict is made of.
Invariants: a record is given to a consumer only after every lower one that it wants was settled, is in somebody's
hands, or is not due; one call looks at a bounded number of records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from radiator import limits
from radiator.broker.queues.parked import Parked
from radiator.broker.queues.rewound import bound
from radiator.broker.queues.selection import YES, text_of
from radiator.broker.wire import run_length

if TYPE_CHECKING:
    from radiator.broker.queues.queue import Queue
    from radiator.broker.queues.selection import Selection
    from radiator.broker.queues.source import QueueSource
    from radiator.broker.session import Session
    from radiator.broker.subscriptions.subscription import Subscription
    from radiator.storage.batch import RecordBatch

Verdicts = dict[str, bytearray | None]

AGAIN_MAX = 256  # messages that come back, one by one, in one call


class Taker:
    """A consumer with credit. ``turn`` orders them: the lowest was served longest ago."""

    __slots__ = ("consumer", "credit", "turn")

    def __init__(self, consumer: Subscription, credit: int, turn: int) -> None:
        self.consumer = consumer
        self.credit = credit
        self.turn = turn


class Takers:
    """Consumers with credit, by selector. What subscriptions of one session share is given once."""

    __slots__ = ("_groups", "_left", "_turn", "present")

    def __init__(self, present: Iterable[Subscription], allowed: Iterable[Subscription]) -> None:
        self.present: dict[str, Selection | None] = {text_of(each.selection): each.selection for each in present}
        self._groups: dict[str, deque[Taker]] = {}
        self._left: dict[Session, int] = {}
        self._turn = 0
        for consumer in allowed:
            credit = consumer.queue_credit()
            if credit > 0:
                self._turn += 1
                group = self._groups.setdefault(text_of(consumer.selection), deque())
                group.append(Taker(consumer, credit, self._turn))
                if consumer.shares_window:
                    session = consumer.session
                    self._left[session] = session.window - session.held

    @property
    def texts(self) -> list[str]:
        """The selectors of those who still have credit."""
        return [text for text in tuple(self._groups) if self._head(text) is not None]

    @property
    def spent(self) -> bool:
        """True if nobody has credit any more."""
        return all(self._head(text) is None for text in tuple(self._groups))

    def verdicts(self, source: QueueSource, batch: RecordBatch, start: int, stop: int) -> Verdicts:
        """What each selector says of these records; None: all are wanted."""
        wire = source.feed.wire
        return {
            text: None if selection is None else selection.verdicts(wire, batch, start, stop)
            for text, selection in self.present.items()
        }

    def run(self, source: QueueSource, batch: RecordBatch, start: int, stop: int) -> int:
        """How many records may be looked at in one call."""
        most, wire = limits.SELECTOR_RUN_CHARS, source.feed.wire
        selections = [each for each in self.present.values() if each is not None]
        count = min(stop - start, max(1, most // max(1, sum(each.per_record for each in selections))))
        if sum(each.work(wire, batch, start, start + count) for each in selections) > most:
            count = min(count, max(1, most // max(1, sum(map(len, self.present)))))
        return count

    def choose(self, verdicts: Verdicts, index: int) -> Subscription | None:
        """Who gets this record; its credit is taken."""
        best: Taker | None = None
        for text in tuple(self._groups):
            wanted = verdicts[text]
            if wanted is None or wanted[index] == YES:
                head = self._head(text)
                if head is not None and (best is None or head.turn < best.turn):
                    best = head
        if best is None:
            return None
        group = self._groups[text_of(best.consumer.selection)]
        group.popleft()
        self._turn += 1
        best.turn = self._turn
        best.credit -= 1
        if best.consumer.shares_window:
            self._left[best.consumer.session] -= 1
        group.append(best)
        return best.consumer

    def _head(self, text: str) -> Taker | None:
        group = self._groups[text]
        while group:
            head = group[0]
            if head.credit > 0 and (not head.consumer.shares_window or self._left[head.consumer.session] > 0):
                return head
            group.popleft()
        del self._groups[text]
        return None


def hand_out(queue: Queue, source: QueueSource, allowed: Iterable[Subscription], count_max: int) -> int:
    """One bounded run. Returns how many messages went out, or 1 for progress of another kind."""
    takers = Takers(queue.takers(source), allowed)
    parked = source.parked
    if parked is None:
        parked = source.parked = Parked()
    for offset in parked.serve(takers.present):
        heappush(source.returned, offset)
    handed = _again(queue, source, parked, takers, count_max)
    if not source.loading and not source.returned and handed < count_max and not takers.spent:
        handed += _fresh(queue, source, parked, takers, count_max - handed)
    if len(parked) == 0:
        source.parked = None
    return handed


def _again(queue: Queue, source: QueueSource, parked: Parked, takers: Takers, count_max: int) -> int:
    """What was returned, and what was parked and is wanted by somebody who has credit now."""
    handed = 0
    for _ in range(min(AGAIN_MAX, count_max)):
        _unpark(source, parked, takers)
        if not source.returned or takers.spent:
            break
        offset = source.returned[0]
        batch = source.batch_at(offset)
        if batch is None:
            return handed if source.loading else max(1, handed)
        index = batch.index_at(offset)
        heappop(source.returned)
        if queue.passes(source, batch, index):
            verdicts = takers.verdicts(source, batch, index, index + 1)
            consumer = takers.choose(verdicts, index)
            if consumer is None:
                _park(source, parked, verdicts, batch, index)
            else:
                queue.send_again(source, batch, index, consumer)
                handed += 1
                continue
        handed = max(1, handed)
    return handed


def _unpark(source: QueueSource, parked: Parked, takers: Takers) -> None:
    """Put the lowest parked offset that somebody wants among those that were returned, if it comes before these."""
    if len(parked) == 0:
        return
    found = min((first for text in takers.texts if (first := parked.first(text)) is not None), default=None)
    if found is not None and (not source.returned or found < source.returned[0]):
        parked.take(found)
        heappush(source.returned, found)


def _fresh(queue: Queue, source: QueueSource, parked: Parked, takers: Takers, count_max: int) -> int:
    """Records that were not looked at before."""
    if not source.ready:
        return 0
    batch = source.batch_at(source.next_offset)
    if batch is None:
        return 0 if source.loading else 1
    partition = source.feed.partition
    start = batch.index_at(source.next_offset)
    stop = len(batch) if batch.next_offset <= partition.high_watermark else batch.index_at(partition.high_watermark)
    stop = start + takers.run(source, batch, start, start + run_length(batch, start, stop, limits.SELECTOR_RUN_BYTES))
    stop = bound(source, batch, start, stop)
    firsts = queue.claim.firsts(partition.name, batch)
    verdicts = takers.verdicts(source, batch, start, stop)
    shares: dict[Subscription, list[int]] = {}
    handed, index = 0, start
    while handed < count_max and not parked.full and not takers.spent:
        index = source.pass_over(batch, firsts, index, stop)
        if index == stop or source.stuck:
            break
        consumer = takers.choose(verdicts, index)
        if consumer is None:
            _park(source, parked, verdicts, batch, index)
        else:
            shares.setdefault(consumer, []).append(index)
            handed += 1
        index += 1
    if index == start:
        return 0
    source.move(batch, start, index)
    source.cursor.delivered = source.next_offset
    for consumer, share in shares.items():
        queue.send(source, batch, consumer, share)
    for consumer in sorted(shares, key=lambda each: shares[each][-1]):
        queue.served(consumer)
    return max(1, handed)


def _park(source: QueueSource, parked: Parked, verdicts: Verdicts, batch: RecordBatch, index: int) -> None:
    offset = batch.offsets[index]
    if offset >= source.next_offset and offset not in source.cursor.counts:
        source.cursor.set_count(offset, 0)  # nobody has had it, though others behind it may be delivered before it
    parked.add(offset, [text for text, wanted in verdicts.items() if wanted is None or wanted[index] == YES])
    source.expiry.parked(batch, index)
