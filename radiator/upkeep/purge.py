"""Empty a destination while no broker runs: a queue's messages are settled, a topic's history is removed.

    queue   its cursors go to the end of their logs; cursors of others over the same log stay where they are
    topic   a new, empty segment is begun at the next offset, then all before it are removed; only if nothing else is
            stored in the same log

No offset is ever given out again. A crash meanwhile leaves a log that a start accepts as it is: with its history, or
part of it, or without.

Knows the store as a broker opens it, but not rules or users. Offline only, one thread.
"""

from __future__ import annotations

from typing import NamedTuple

from radiator.clock import Now
from radiator.errors import StorageError
from radiator.storage import dedup_file, layout
from radiator.storage.cursor import Cursor
from radiator.storage.dedup_recovery import Identify
from radiator.storage.file_partition import FilePartition
from radiator.storage.files import FileSystem, storage_error
from radiator.storage.reader import batches, list_partitions
from radiator.storage.store import Store

REMEDY = "stop it first, or purge a queue through it, with --url"


class NoSuchDestination(StorageError):
    """Nothing is stored for a destination.

    Args:
        root: The data directory.
        destination: The destination.
    """

    def __init__(self, root: str, destination: str) -> None:
        super().__init__(f"{root}: nothing is stored for {destination}; `radiator ls` lists the destinations")


class Purged(NamedTuple):
    """What was done to one partition.

    Attributes:
        partition: Its name.
        records: How many records were settled or removed.
        next_offset: The offset at which the log goes on.
    """

    partition: str
    records: int
    next_offset: int


def purge(
    root: str,
    destination: str,
    cursor_name: str,
    queue: bool,
    now: Now,
    fs: FileSystem | None = None,
    identify: Identify | None = None,
) -> list[Purged]:
    """Empty a queue or a topic. What has a cursor of that name is a queue in any case.

    Args:
        root: The data directory.
        destination: The destination to empty.
        cursor_name: The name of the cursors of that queue.
        queue: Whether the destination is a queue.
        now: The clock.
        fs: The file system.
        identify: Returns the ids of messages, for the list of ids.

    Raises:
        NoSuchDestination: Nothing of the destination is stored here.
        StorageError: A broker is running, the topic shares its log, or a file cannot be read or written.
    """
    store = Store(root, fs or FileSystem(), identify=identify)
    store.acquire(REMEDY)
    try:
        store.open(now)
    except StorageError:
        store.release()
        raise
    try:
        over = {partition for name, partition in store.cursors.names() if name == cursor_name}
        partitions = [
            partition
            for partition in store.partitions.values()
            if isinstance(partition, FilePartition)
            and (partition.name in over or destination in (partition.name, *partition.destinations))
        ]
        if not partitions:
            raise NoSuchDestination(root, destination)
        if queue or over:
            for partition in partitions:
                fan_out = _fan_out_cursors(store, partition, cursor_name.removesuffix(destination)) - {cursor_name}
                if fan_out and destination in partition.destinations:
                    raise StorageError(
                        f"{destination} has fan_out and delivers nothing itself; nothing was settled: purge its bound "
                        f"queues ({', '.join(sorted(fan_out))[:500]})"
                    )
            return [_settle(store, partition, destination, cursor_name) for partition in partitions]
        for partition in partitions:
            if others := sorted(partition.destinations.keys() - {destination}):
                raise StorageError(
                    f"{partition.directory}: {destination} shares this log with {len(others)} others, such as "
                    f"{others[0]}: its messages cannot be removed separately; retention removes the oldest of all"
                )
        return [_remove(partition) for partition in partitions]
    finally:
        store.close()


def _fan_out_cursors(store: Store, partition: FilePartition, prefix: str) -> set[str]:
    """Return the cursors of the children of a ``fan_out`` over a log.

    These are all cursors over it, if no destination that stores in the log has a cursor there itself; else none.
    """
    names = store.cursors.names()
    over = {name for name, where in names if where == partition.name and name.startswith(prefix)}
    return set() if over & {prefix + each for each in partition.destinations} else over


def _settle(store: Store, partition: FilePartition, destination: str, cursor_name: str) -> Purged:
    cursor = store.cursors.get(cursor_name, partition.name)
    if cursor is None:  # these messages never had a consumer
        cursor = store.cursors.open(cursor_name, partition.name, partition.log_start_offset)
    end = partition.next_offset
    waiting = _waiting(store, partition, destination, cursor_name, cursor, end)
    cursor.ack_range(cursor.floor, end)
    return Purged(partition.name, waiting, end)


def _waiting(
    store: Store, partition: FilePartition, destination: str, cursor_name: str, cursor: Cursor, end: int
) -> int:
    floor = max(cursor.floor, partition.log_start_offset)
    fan_out = cursor_name in _fan_out_cursors(store, partition, cursor_name.removesuffix(destination))
    if fan_out or partition.destinations.keys() <= {destination}:
        return max(0, end - floor - sum(stop - max(start, floor) for start, stop in cursor.intervals if stop > floor))
    waiting = 0
    (stored,) = [each for each in list_partitions(store.root, store.fs) if each.name == partition.name]
    for batch in batches(stored, floor, fs=store.fs):
        if destination in batch.names:
            own_id = batch.names.index(destination)
            for offset, number in zip(batch.offsets, batch.destination_ids, strict=True):
                waiting += number == own_id and offset >= floor and not cursor.is_acked(offset)
    return waiting


def _remove(partition: FilePartition) -> Purged:
    log, end, ids = partition.log, partition.next_offset, partition.dedup_file
    if ids is not None and ids.restored is not None:  # some of them may be in the log only
        try:
            dedup_file.replace(log.fs, log.directory, end, dedup_file.rows_of(ids.restored), synced=True)
        except OSError as error:
            raise storage_error(layout.dedup_path(log.directory), "write", error) from error
    records = end - partition.log_start_offset
    bases = [segment.base_offset for segment in partition.segments]
    if log.position:
        log.roll(end)
    else:
        bases = bases[:-1]  # the active segment is empty already
    if bases:
        log.remove(bases)
    return Purged(partition.name, records, end)
