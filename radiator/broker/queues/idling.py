"""What a queue does that nobody consumes from, so that it does not hold back the retention of a log that others share.

Knows: one source. Invariant: what is passed over here would not have been delivered anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from radiator.broker.queues.source import QueueSource


def advance(source: QueueSource) -> None:
    """Let a queue in a shared partition not hold back the retention of what others store there, if it is empty, or
    if nobody comes for what it has."""
    jump(source)
    if not source.queue.consumers:
        look(source)


def rests(source: QueueSource) -> None:
    """Everything below its next offset is dealt with, and nothing is known of what lies behind."""
    source.known_to = source.next_offset
    source.idle = source.known_to >= source.feed.committed_to


def jump(source: QueueSource) -> None:
    """Be done with what is others', unread."""
    start, stop = source.next_offset, source.feed.committed_to if source.idle else source.known_to
    if stop > start and not source.loading:
        source.waiting -= max(0, min(stop, source.counted_to) - start)
        source.cursor.ack_range(start, stop)
        source.next_offset = stop


def begin(source: QueueSource) -> None:
    """What was under way when the source was made, and is not wanted, is stored now: the cursor is to know that too."""
    stop = min(source.begins_at, source.feed.partition.high_watermark)
    if stop > source.next_offset and not source.loading:
        source.skip(list(range(source.next_offset, stop)))
        source.next_offset = stop


def look(source: QueueSource) -> None:
    """Pass over what need not be delivered, up to the first message that somebody must come for. What a selector says
    is not asked: a log of any length would have to be looked through for nobody."""
    if source.queue.selection is not None:
        return
    partition = source.feed.partition
    while source.ready and not source.returned and (source.owed or source.next_offset != source.mine_at):
        batch = source.batch_at(source.next_offset)
        if batch is None:
            continue  # it is being read, and ``loaded`` goes on, or it is gone
        start = batch.index_at(source.next_offset)
        stop = len(batch) if batch.next_offset <= partition.high_watermark else batch.index_at(partition.high_watermark)
        index = source.pass_over(batch, source.queue.claim.firsts(partition.name, batch), start, stop)
        if index > start:
            source.move(batch, start, index)
        if index < stop and not source.stuck:
            source.move(batch, start, index + 1)
            source.next_offset = source.mine_at = batch.offsets[index]
            break
    source.batch = None
    source.rest()
