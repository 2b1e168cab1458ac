"""Choose the exported records, and read them: partition by partition, in order, in batches of bounded size.

Compressed and sparse segments are read like any other (``radiator.storage.reader``). Records removed on purpose are not
missing, even if that was after the listing; lost ones are reported with their offsets.

This module knows names, offsets and times. It does not know formats or files. It has no state: one thread, any process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from radiator.routing.pattern import parse_list
from radiator.storage.batch import RecordBatch
from radiator.storage.files import FileSystem
from radiator.storage.reader import StoredPartition, batches
from radiator.storage.time_window import since

OnLoss = Callable[[StoredPartition, int, int, bool], None]  # partition, first and last offset, removed on purpose


@dataclass(frozen=True)
class Bounds:
    """Limits of a choice; None: no limit. A record must be within all of them. Stops are exclusive."""

    start_offset: int | None = None
    stop_offset: int | None = None
    start_ns: int | None = None
    stop_ns: int | None = None


@dataclass(frozen=True)
class Chosen:
    """A batch, and the indexes of the wanted records in it."""

    partition: StoredPartition
    batch: RecordBatch
    indexes: range | list[int]


class Choice:
    """``destinations``: patterns as in SUBSCRIBE, with commas; None is all."""

    def __init__(self, destinations: str | None = None, bounds: Bounds | None = None) -> None:
        self._patterns = None if destinations is None else parse_list(destinations)
        self._bounds = bounds or Bounds()
        self._wanted: dict[str, bool] = {}

    def read(self, partition: StoredPartition, on_loss: OnLoss) -> Iterator[Chosen]:
        """Yield the chosen records of a partition. Raises OSError."""
        bounds = self._bounds
        start = max(bounds.start_offset or 0, self._start_by_time(partition))
        stop = partition.next_offset if bounds.stop_offset is None else min(bounds.stop_offset, partition.next_offset)

        def lost(first: int, last: int, removed: bool) -> None:
            if first < stop:
                on_loss(partition, first, min(last, stop - 1), removed)

        for batch in batches(partition, start, lost):
            begin, end = batch.index_at(start), batch.index_at(stop)
            if begin < end:
                indexes = self._indexes(batch, range(begin, end))
                if indexes:
                    yield Chosen(partition, batch, indexes)
            if end < len(batch) or (bounds.stop_ns is not None and batch.receive_ns[-1] >= bounds.stop_ns):
                return

    def _start_by_time(self, partition: StoredPartition) -> int:
        if self._bounds.start_ns is None or not partition.segments:
            return 0
        return since(FileSystem(), partition.segments, self._bounds.start_ns)[0].base_offset

    def _indexes(self, batch: RecordBatch, indexes: range) -> range | list[int]:
        bounds = self._bounds
        low, high = bounds.start_ns, bounds.stop_ns
        times = batch.receive_ns
        chosen: range | list[int] = indexes
        if (low is not None and times[indexes[0]] < low) or (high is not None and times[indexes[-1]] >= high):
            chosen = [i for i in indexes if (low is None or times[i] >= low) and (high is None or times[i] < high)]
        wanted = [self._wants(name) for name in batch.names]
        if not all(wanted):
            chosen = [i for i in chosen if wanted[batch.destination_ids[i]]]
        return chosen

    def _wants(self, name: str) -> bool:
        if self._patterns is None:
            return True
        found = self._wanted.get(name)
        if found is None:
            found = self._wanted[name] = self._patterns.matches(name)
        return found
