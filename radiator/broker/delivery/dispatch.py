"""Deliver the messages of a queue to its consumers.

Among consumers with credit, the least recently served one is served first. ``QueueRing`` orders the queues of one
session.

Invariants: no consumer gets more messages than it has credit; credit that subscriptions share is spent once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator import limits
from radiator.broker.delivery import selective
from radiator.broker.logs.wire import run_length
from radiator.broker.queues.fair_dispatch import CONSUMERS_MAX, in_turn
from radiator.broker.queues.queue import RUN_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection

    from radiator.broker.queues.consumer import Consumer, ConsumerSession
    from radiator.broker.queues.queue import Queue, QueueSource
    from radiator.storage.batch import RecordBatch


def pump(
    queue: Queue,
    among: Collection[Consumer] | None = None,
    count_max: int = limits.BATCH_RECORDS_MAX,
    but: ConsumerSession | None = None,
) -> int:
    """Deliver one run of messages from each source of a queue.

    Args:
        queue: The queue.
        among: The consumers to serve; None to serve all.
        count_max: The maximum number of messages.
        but: The session whose consumers are not served; None to serve all.

    Returns:
        The number of delivered messages, or 1 for other progress, such as skipped messages. 0 means that there is
        nothing to do until the next event.
    """
    if queue.selectors is not None:
        for consumer in among or ():
            queue.credited(consumer)  # its credit counts for later messages, even if none is ready now
    if queue.paused:
        return 0
    recorder = queue.timing.recorder
    if recorder.full and queue.held_by_record:
        recorder.held[queue] = None
        return 0
    delivered = 0
    for source in tuple(queue.sources) if queue.ordered else queue.ready_list.turns():
        first = source.first
        if source.loading or not (source.ready or source.skipped is not None):
            if first and source.loading:
                break
            continue
        consumers = _consumers(queue, source, among)
        one = None
        if queue.selectors is not None or source.skipped is not None:
            if consumers is not queue.consumers:
                one = next(iter(consumers), None)
                if one is None:
                    continue
            delivered += selective.deliver(queue, source, one, but, count_max - delivered)
            if source.skipped is not None and (among is not None or but is not None):
                queue.timing.wake(queue)  # the other consumers may match the messages that were skipped here
        else:
            credits = _credits(consumers, but)
            if queue.assignment is None and 1 < len(queue.consumers) <= CONSUMERS_MAX and credits:
                credits = queue.fair_dispatch().limit(credits, among is None and but is None, but)
            if not credits:
                if queue.assignment is None or first:
                    break
                continue
            delivered += _deliver(queue, source, credits, count_max - delivered)
        source.rest()
        if delivered >= count_max or (first and _blocks_lower_priority(source, one)):
            break
    return delivered


def _consumers(queue: Queue, source: QueueSource, among: Collection[Consumer] | None) -> Collection[Consumer]:
    """Return the consumers that may get messages of a source: ``queue.consumers`` itself if all may."""
    if queue.assignment is None:
        return queue.consumers if among is None else among
    takers = queue.takers(source)
    return takers if among is None else [each for each in among if each in takers]


def _deliver(queue: Queue, source: QueueSource, credits: list[tuple[Consumer, int]], count_max: int) -> int:
    if source.returned:
        return _deliver_returned(queue, source, credits[0][0])
    offset = source.next_offset
    batch = source.batch_at(offset)
    if batch is None:
        return 0 if source.loading else 1
    high_watermark = source.feed.partition.high_watermark
    start = batch.index_at(offset)
    stop = len(batch.blocks) if batch.next_offset <= high_watermark else batch.index_at(high_watermark)
    alone, credit = credits[0]
    room = alone.session.outbox.room()
    if len(credits) > 1:
        room = min([consumer.session.outbox.room() for consumer, _ in credits])
        credit = sum([credit for _, credit in credits])
    room = min(RUN_BYTES, room)
    chosen = queue.selection is not None
    whole = not source.rewound and queue.filter.whole(source.feed.partition.name, batch)
    if chosen or not whole or source.timed(batch, start):
        stop = source.bound(batch, start, start + run_length(batch, start, stop, room))
        if queue.selection is not None:
            stop = min(stop, start + queue.selection.run)
        return _deliver_checked(queue, source, batch, start, stop, credits, count_max)
    count = run_length(batch, start, min(stop, start + count_max, start + credit), room)
    indexes = range(start, start + count)
    source.move(batch, start, start + count)
    _distribute(queue, source, batch, indexes, credits)
    return count


def _deliver_checked(
    queue: Queue,
    source: QueueSource,
    batch: RecordBatch,
    start: int,
    stop: int,
    credits: list[tuple[Consumer, int]],
    count_max: int,
) -> int:
    """Deliver a run whose records have to be checked one by one.

    Records of other destinations and expired records are settled, scheduled records are put off.
    """
    count = min(count_max, sum(credit for _, credit in credits))
    picked: list[int] = []
    firsts = queue.filter.firsts(source.feed.partition.name, batch)
    index = start
    while len(picked) < count:
        index = source.pass_over(batch, firsts, index, stop)
        if index == stop or source.stuck:
            break
        picked.append(index)
        index += 1
    if index == start:
        return 0
    source.move(batch, start, index)
    if picked:
        _distribute(queue, source, batch, picked, credits)
    return max(1, len(picked))


def _distribute(
    queue: Queue,
    source: QueueSource,
    batch: RecordBatch,
    indexes: range | list[int],
    credits: list[tuple[Consumer, int]],
) -> None:
    """Distribute fresh messages among consumers with credit, by round robin or by fair dispatch."""
    source.mark_delivered()
    if len(credits) == 1:
        queue.send(source, batch, credits[0][0], indexes)
        return
    shares: list[list[int]] = [[] for _ in credits]
    turns = in_turn(credits) if queue.shares is None else queue.shares.turns(credits)
    for index, place in zip(indexes, turns, strict=False):
        shares[place].append(index)
    for (consumer, _), share in zip(credits, shares, strict=True):
        if share:
            queue.send(source, batch, consumer, share)
    served = [(share[-1], consumer) for (consumer, _), share in zip(credits, shares, strict=True) if share]
    for _, consumer in sorted(served, key=lambda pair: pair[0]):
        queue.served(consumer)


def _deliver_returned(queue: Queue, source: QueueSource, consumer: Consumer) -> int:
    offset = source.returned[0]
    batch = source.batch_at(offset)
    if batch is None:
        return 0 if source.loading else 1
    index = batch.index_at(offset)
    if queue.passes(source, batch, index):
        queue.send_again(source, batch, index, consumer)
    return 1


def _blocks_lower_priority(source: QueueSource, consumer: Consumer | None) -> bool:
    """Return True if sources of lower priority have to wait for this source.

    That is so if the source has ready messages, or may have some once a read has ended.

    Args:
        source: The source.
        consumer: The only consumer that is served; None if all are.
    """
    if source.loading or source.ready:
        return True
    selectors, skipped = source.queue.selectors, source.skipped
    if skipped is None or selectors is None:
        return False
    return skipped.pending(None if consumer is None else selectors.group_of(consumer))


def _credits(consumers: Collection[Consumer], but: ConsumerSession | None) -> list[tuple[Consumer, int]]:
    """Return the consumers with credit and the credit of each, without the consumers of the session ``but``.

    Credit that subscriptions of one session share is counted once.
    """
    credits: list[tuple[Consumer, int]] = []
    given: dict[ConsumerSession, int] = {}
    if but is not None:
        consumers = [consumer for consumer in consumers if consumer.session is not but]
    for consumer in consumers:
        credit = consumer.queue_credit()
        if credit > 0 and len(consumers) > 1 and consumer.shares_window:
            session, window = consumer.session, consumer.session.window
            credit = min(credit, window.size - window.held - given.get(session, 0))
            given[session] = given.get(session, 0) + credit
        if credit > 0:
            credits.append((consumer, credit))
    return credits
