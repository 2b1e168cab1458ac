"""Choose the exported records, and read them: partition by partition, in order, in batches of bounded size.

Compressed and sparse segments are read like any other (``radiator.storage.reader``). Records removed on purpose are not
missing, even if that was after the listing; lost ones are reported with their offsets.

This module knows names, offsets and times. It does not know formats or files. It has no state: one thread, any process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from radiator.columns.selection import LOW, Selection
from radiator.storage.batch import RecordBatch
from radiator.storage.files import FileSystem
from radiator.storage.reader import StoredPartition, batches
from radiator.storage.time_window import since

OnLoss = Callable[[StoredPartition, int, int, bool], None]  # partition, first and last offset, removed on purpose


@dataclass(frozen=True)
class Chosen:
    """A batch, and the indexes of the wanted records in it."""

    partition: StoredPartition
    batch: RecordBatch
    indexes: range | list[int]


def choose(selection: Selection, partition: StoredPartition, on_loss: OnLoss) -> Iterator[Chosen]:
    """Yield the selected records of a partition. Raises OSError.

    Args:
        selection: The records to read.
        partition: The partition.
        on_loss: Called for selected offsets that cannot be read.
    """
    low, high = selection.offsets_of(partition.name)
    stop = min(high, partition.next_offset)
    start = max(low, 0)
    if selection.receive_low_ns > LOW and partition.segments:
        start = max(start, since(FileSystem(), partition.segments, selection.receive_low_ns)[0].base_offset)

    def lost(first: int, last: int, removed: bool) -> None:
        if first < stop:
            on_loss(partition, first, min(last, stop - 1), removed)

    for batch in batches(partition, start, lost):
        begin, end = batch.index_at(start), batch.index_at(stop)
        if begin < end:
            indexes = _indexes(selection, batch, range(begin, end))
            if indexes:
                yield Chosen(partition, batch, indexes)
        if end < len(batch) or batch.receive_ns[-1] >= selection.receive_high_ns:
            return


def _indexes(selection: Selection, batch: RecordBatch, indexes: range) -> range | list[int]:
    low, high, times = selection.receive_low_ns, selection.receive_high_ns, batch.receive_ns
    chosen: range | list[int] = indexes
    if times[indexes[0]] < low or times[indexes[-1]] >= high:
        chosen = [i for i in indexes if low <= times[i] < high]
    wanted = list(map(selection.wants_destination, batch.names))
    return chosen if all(wanted) else [i for i in chosen if wanted[batch.destination_ids[i]]]
