"""Rows about deliveries (``record: deliveries``), as they are in their log, and what must be true of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from radiator.broker.logs import cursor_names
from radiator.broker.queues.recorder import FINAL
from radiator.routing.pattern import DELIVERIES
from radiator.routing.rules import DELIVERIES_PARTITION
from radiator.stomp.headers import split_block
from radiator.storage.batch import RecordBatch
from radiator.storage.partition import Partition
from tests.broker.harness import World

Row = dict[str, str]
FINAL_OUTCOMES = {outcome.decode() for outcome in FINAL}


def batches(partition: Partition) -> Iterator[RecordBatch]:
    """The batches of a log, from memory or from its files."""
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        batch = partition.read(offset)
        if batch is None:
            job = partition.fetch(offset)
            if not job.finished:
                job.run()
            job.done()
            assert job.error is None, job.error
            if job.result is None:
                assert job.skip_to is not None
                offset = job.skip_to
                continue
            batch = job.result
        yield batch
        offset = batch.next_offset


def rows(world: World) -> list[Row]:
    """All rows, in the order of their log."""
    destination = world.broker.destinations.get(DELIVERIES)
    if destination is None:
        return []
    return [
        dict(split_block(block))
        for feed in destination.feeds
        for batch in batches(feed.partition)
        for block, name in zip(batch.blocks, batch.destination_ids, strict=True)
        if batch.names[name] == DELIVERIES
    ]


def outcomes(world: World) -> list[tuple[str, str]]:
    """The offset and the outcome of each row."""
    return [(row["message-offset"], row["outcome"]) for row in rows(world)]


def rows_of_log(store: Any) -> list[Row]:
    """All rows of a store without a broker, in which the log has its usual name."""
    log = store.partitions.get(DELIVERIES_PARTITION)
    return [] if log is None else [dict(split_block(block)) for batch in batches(log) for block in batch.blocks]


def of_queue(subscription: str) -> bool:
    """Whether the rows with this ``message-subscription`` are those of a queue."""
    return subscription.startswith("/queue/")


def disagreement(store: Any, checked: Callable[[str], bool] = bool, compared: Callable[[str], bool] = of_queue) -> str:
    """Return the differences between rows and cursors, just after a start; empty if they agree.

    Args:
        store: The store, in which the deliveries of all queues are recorded from their first message on.
        checked: Whether a log is to be compared.
        compared: Whether the rows of a queue, durable subscription or group are compared: it was not deleted or set.
            What one over topics has settled may have no row, because a selector excludes it, or it began behind it.
    """
    final = Counter(
        (row["message-subscription"], row["message-partition"], int(row["message-offset"]))
        for row in rows_of_log(store)
        if row["outcome"] in FINAL_OUTCOMES and checked(row["message-partition"])
        if compared(row["message-subscription"])
    )
    for key, count in final.items():
        if count > 1:
            return f"{key} has {count} final rows"
    for cursor, name in store.cursors.names():
        partition = store.partitions.get(name)
        subscription = cursor_names.shown(cursor.removeprefix(cursor_names.QUEUE))
        if partition is None or not checked(name) or not compared(subscription):
            continue
        at = store.cursors.get(cursor, name)
        for offset in range(partition.next_offset):
            settled, row = at.is_acked(offset), (subscription, name, offset) in final
            if settled != row and (row or of_queue(subscription)):
                return f"{cursor} {name}@{offset} is settled: {settled}, and has a final row: {row}"
    return ""


def check_exact(world: World) -> None:
    """Check the final rows of queues with recorded deliveries: one for each settled message, and none for any other.

    It holds while nothing is under way, for queues whose deliveries are recorded from their first message on.
    """
    queues = [each.queue for each in world.broker.destinations.values() if each.queue is not None]
    queues += [each.queue for each in world.broker.durable.by_key.values()]
    settled: Counter[tuple[str, str, str]] = Counter()
    for queue in queues:
        for source in queue.sources:
            if source.record is None:
                continue
            assert not source.storing and not source.settled
            name, partition = cursor_names.shown(queue.name), source.feed.partition
            offsets = [each for each in range(partition.next_offset) if source.cursor.is_acked(each)]
            settled.update((name, partition.name, str(offset)) for offset in offsets)
    found = Counter(
        (row["message-subscription"], row["message-partition"], row["message-offset"])
        for row in rows(world)
        if row["outcome"] in FINAL_OUTCOMES
    )
    assert found == settled, (found - settled, settled - found)
