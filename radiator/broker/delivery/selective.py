"""Deliver the messages of a queue some of whose consumers have selectors.

Each message goes to a consumer whose selector matches, the least recently served one among those with credit. A
message that matches none of these is skipped (``queues.skipped``) and blocks no other message.

    deliver = returned messages, lowest offset first
              then skipped messages that groups of consumers with equal selectors have matched
              then one step of a sweep over the skipped messages
              then fresh messages, while a consumer with credit waits for none before them

This module knows order, credit and which selectors match (``queues.selectors``). It knows neither how a message is sent
(``Queue``) nor the contents of a selector.

Invariants: a consumer gets a message only if every lower one that its selector matches is settled, in flight or
scheduled for later. One call looks at a bounded number of messages and evaluates about ``limits.SELECTOR_RUN_CHARS``
characters of selectors; the next call does the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from radiator import limits
from radiator.broker.logs.selection import Selection
from radiator.broker.logs.wire import run_length
from radiator.broker.queues.selectors import Credit, Group, Selectors, Wanted
from radiator.broker.queues.skipped import Skipped, Sweep

if TYPE_CHECKING:
    from radiator.broker.queues.consumer import Consumer, ConsumerSession
    from radiator.broker.queues.queue import Queue, QueueSource
    from radiator.storage.batch import RecordBatch

AGAIN_MAX = 256  # returned or matched skipped messages in one call
GROUPS_MAX = 256  # groups whose matches are delivered in one call
BATCHES_MAX = 64  # batches in one step of a sweep
RECORDS_MAX = 2_000  # records in one step of a sweep


class Call:
    """One call of ``deliver``: its remaining budget and its results."""

    __slots__ = ("_spent_chars_max", "credit", "delivered", "left", "only", "progress", "queue", "selectors", "source")

    def __init__(self, queue: Queue, source: QueueSource, credit: Credit, only: Group | None, count_max: int) -> None:
        selectors = queue.selectors
        assert selectors is not None
        self.queue = queue
        self.source = source
        self.selectors: Selectors = selectors
        self.credit = credit
        self.only = only
        self.left = count_max
        self.delivered = 0
        self.progress = False
        self._spent_chars_max = 0
        self.begin()

    def begin(self) -> None:
        """Start one half of the call (skipped messages, or fresh ones) with a budget of its own."""
        self._spent_chars_max = Selection.spent_chars + limits.SELECTOR_RUN_CHARS // 2

    @property
    def exhausted(self) -> bool:
        """True if this call may start nothing more."""
        return self.left <= 0 or Selection.spent_chars >= self._spent_chars_max

    def choose(self, groups: Iterable[Group], offset: int) -> Consumer | None:
        """Choose the consumer that gets a message, and take its credit.

        Args:
            groups: The groups whose selectors match.
            offset: The offset of the message.

        Returns:
            The consumer; None if no consumer of these groups can get the message now.
        """
        skipped, best, turn = self.source.skipped, None, 0
        for group in groups:
            consumer = self.credit.next(group)
            if consumer is None or (skipped is not None and not skipped.may_take(group, offset)):
                continue
            if best is None or self.selectors.turn(consumer) < turn:
                best, turn = consumer, self.selectors.turn(consumer)
        if best is not None:
            self.credit.take(best)
            self.delivered += 1
            self.left -= 1
        return best

    def skip(self, batch: RecordBatch, index: int, groups: Iterable[Group]) -> None:
        """Mark a message as skipped, and as matched by these groups."""
        offset = batch.offsets[index]
        skipped = self.source.skip_over(offset)
        for group in groups:
            skipped.wanted(group, offset)
        self.source.expiry.skipped(batch, index)


def deliver(
    queue: Queue, source: QueueSource, only: Consumer | None, but: ConsumerSession | None, count_max: int
) -> int:
    """Deliver one bounded run of a source.

    Args:
        queue: The queue; it has selectors.
        source: The source.
        only: The only consumer to serve; None to serve all.
        but: The session whose consumers are not served; None to serve all.
        count_max: The maximum number of messages.

    Returns:
        The number of delivered messages, or 1 for other progress.
    """
    selectors = queue.select()
    credit = Credit(selectors, only, but)
    call = Call(queue, source, credit, None if only is None else selectors.group_of(only), count_max)
    _deal_returned(call)
    if source.skipped is not None:
        _deal_skipped(call, source.skipped)
        if call.delivered:
            source.mark_sent([])
        _sweep(call, source.skipped)
    if not source.loading and not source.returned and call.left > 0:
        _deal_fresh(call)
    credit.close()
    if source.skipped is not None:
        if not call.progress:
            source.skipped.scan.drop_batch()
        source.unskip()
        queue.unselect()
    return call.delivered or int(call.progress)


def _deal_returned(call: Call) -> None:
    """Deliver messages that were returned."""
    source = call.source
    for _ in range(AGAIN_MAX):
        if not source.returned or call.exhausted or not _any_credit(call):
            return
        offset = source.returned[0]
        batch = source.batch_at(offset)
        if batch is None:
            call.progress |= not source.loading
            return
        index = batch.index_at(offset)
        call.progress = True
        if call.queue.passes(source, batch, index):
            groups = Wanted(call.selectors, source.feed.wire, batch, index, index + 1).by(index)
            consumer = call.choose(groups, offset)
            if consumer is None:
                call.skip(batch, index, groups)
            else:
                call.queue.send_again(source, batch, index, consumer)


def _deal_skipped(call: Call, skipped: Skipped) -> None:
    """Deliver skipped messages that groups with credit have matched. Groups without a match continue their sweep."""
    source, most = call.source, AGAIN_MAX
    groups = list(islice(skipped.due, GROUPS_MAX)) if call.only is None else [call.only]
    for group in groups:
        place = skipped.place(group)
        skipped.due.pop(group, None)
        if place is None:
            continue
        while True:
            consumer = call.credit.next(group)
            if consumer is None:
                if not call.credit.everybody:
                    skipped.wake(group)  # another call serves its other consumers
                break
            offset = place.lowest(skipped.runs)
            if offset is None:
                skipped.go_on(group, place)
                break
            first = source.returned[0] if source.returned else offset
            if first < offset or call.exhausted or most <= 0:  # an earlier returned message is delivered first
                skipped.wake(group)
                break
            batch = skipped.scan.batch_at(offset)
            if batch is None and skipped.scan.loading:
                skipped.awaits(group)
                return
            if batch is None:
                skipped.wake(group)
                call.progress = True
                continue
            index = batch.index_at(offset)
            most -= 1
            call.progress = True
            if call.queue.passes(source, batch, index):
                call.credit.take(consumer)
                call.delivered += 1
                call.left -= 1
                call.queue.send_again(source, batch, index, consumer)
    if call.credit.everybody:
        call.progress |= bool(skipped.due)  # the next call serves the remaining groups


def _sweep(call: Call, skipped: Skipped) -> None:
    """Advance one sweep by a step: its groups evaluate their selectors for the next skipped messages."""
    if call.only is not None:
        place = skipped.place(call.only)
        sweep = None if place is None else place.sweep
    else:
        sweep = next(iter(skipped.sweeps.values()), None)
    if sweep is None or skipped.scan.loading or call.exhausted:
        return
    for group in list(sweep.groups):
        if call.credit.next(group) is None and call.credit.everybody:
            skipped.leave(sweep, group, sweep.position)
    position, records = sweep.position, 0
    chars = call.selectors.chars_of(sweep.groups)
    count = max(1, min(RECORDS_MAX, limits.SELECTOR_RUN_CHARS // 2 // chars))
    for _ in range(BATCHES_MAX):
        if not sweep.groups or records >= count or call.exhausted:
            break
        first = skipped.runs.first(position)
        if first is None:
            for group in list(sweep.groups):
                skipped.leave(sweep, group, None)
            break
        batch = skipped.scan.batch_at(first)
        if batch is None:
            break
        start = batch.index_at(first)
        stop = start + run_length(batch, start, min(len(batch), start + count), limits.SELECTOR_RUN_BYTES)
        stop = _evaluate(call, skipped, sweep, batch, start, stop)
        position, records = batch.offsets[stop - 1] + 1, records + stop - start
    call.progress |= not skipped.scan.loading
    skipped.move(sweep, position)


def _evaluate(call: Call, skipped: Skipped, sweep: Sweep, batch: RecordBatch, start: int, stop: int) -> int:
    """Evaluate the selectors of a sweep's groups for the skipped messages in a range of a batch.

    Returns:
        The index up to which the records were evaluated: at least one record, and no more than the budget allows.
    """
    source, offsets = call.source, batch.offsets
    wanted = Wanted(call.selectors, source.feed.wire, batch, start, stop, sweep.groups)
    enough = Selection.spent_chars + limits.SELECTOR_RUN_CHARS // 2  # bounds long selectors, whatever the record count
    for first, end in skipped.runs.within(offsets[start], offsets[stop - 1] + 1):
        at, expected = batch.index_at(first), first
        while at < stop and offsets[at] < end:
            if Selection.spent_chars >= enough or not sweep.groups:
                return at
            offset = offsets[at]
            if offset > expected:
                source.removed_skipped(expected, offset)
            for group in wanted.by(at):
                place = sweep.groups.get(group)
                if place is not None:
                    place.add(offset)
                    skipped.due[group] = None
                    if place.full(skipped.runs):
                        skipped.leave(sweep, group, offset + 1)
            at, expected = at + 1, offset + 1
        if expected < end:
            source.removed_skipped(expected, end)
    return stop


def _groups_with_credit(call: Call) -> Iterable[Group]:
    """Return the groups that may have credit."""
    return call.selectors.able if call.only is None else (call.only,)


def _any_credit(call: Call) -> bool:
    """Return True if a consumer has credit."""
    return any(call.credit.next(group) is not None for group in _groups_with_credit(call))


def _at_front(call: Call, front: Group | None) -> Group | None:
    """Return a group with credit that waits for no message before the fresh ones, ``front`` if it still qualifies."""
    skipped, end = call.source.skipped, call.source.next_offset

    def is_one(group: Group) -> bool:
        return call.credit.next(group) is not None and (skipped is None or skipped.may_take(group, end))

    if front is not None and is_one(front):
        return front
    return next(filter(is_one, _groups_with_credit(call)), None)


def _deal_fresh(call: Call) -> None:
    """Deliver or skip messages that no selector was evaluated for before."""
    source, queue = call.source, call.queue
    front = _at_front(call, None) if source.ready else None
    if front is None:
        return
    batch = source.batch_at(source.next_offset)
    if batch is None:
        call.progress |= not source.loading
        return
    partition = source.feed.partition
    start = batch.index_at(source.next_offset)
    stop = len(batch) if batch.next_offset <= partition.high_watermark else batch.index_at(partition.high_watermark)
    stop = min(stop, start + max(1, limits.SELECTOR_RUN_CHARS // 2 // call.selectors.chars_of(None)))
    stop = source.bound(batch, start, start + run_length(batch, start, stop, limits.SELECTOR_RUN_BYTES))
    firsts = queue.filter.firsts(partition.name, batch)
    wanted = Wanted(call.selectors, source.feed.wire, batch, start, stop)
    shares: dict[Consumer, list[int]] = {}
    index = start
    call.begin()
    while front is not None and not call.exhausted and (source.skipped is None or not source.skipped.full):
        index = source.pass_over(batch, firsts, index, stop)
        if index == stop or source.stuck:
            break
        groups = wanted.by(index)
        consumer = call.choose(groups, batch.offsets[index])
        if consumer is None:
            call.skip(batch, index, groups)
        else:
            shares.setdefault(consumer, []).append(index)
        index += 1
        if groups:
            front = _at_front(call, front)
    if index == start:
        return
    call.progress = True
    source.move(batch, start, index)
    source.mark_sent([batch.offsets[index] for share in shares.values() for index in share])
    for consumer, share in shares.items():
        queue.send(source, batch, consumer, share)
    for consumer in sorted(shares, key=lambda each: shares[each][-1]):
        queue.served(consumer)
