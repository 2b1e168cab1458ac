"""Append the batches of the journal that are not in their segments, at a start.

Each batch is looked for in its log by its offset: a batch that ends at or below the end of the log is there. The others
are appended in the order of their offsets, and records about cursors go to the cursors. The journal need not have the
batches of a log in that order, and may have one twice: a checkpoint copies those that could not be written to segments.
The work may be repeated, however often a start is interrupted.

Of a log with batches in the journal, everything from the first of them on is written to the active segment once more.
The earlier run may have failed to sync it, and the kernel may consider it written.

If the machine has lost what came before a batch, under a weaker rule or by damage, those offsets are given up: the
batch begins a segment, and is sparse. If there is no room, or a file fails, the batch is *postponed* as it is at run
time. The next checkpoint syncs all logs that the journal mentions.

It runs on the event loop, after partitions are recovered. It raises OSError and StorageError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from radiator import limits
from radiator.clock import Now
from radiator.errors import StorageError
from radiator.storage.batch import RecordBatch
from radiator.storage.file_partition import AppendJob, FilePartition
from radiator.storage.format import decode
from radiator.storage.header import SPARSE, BatchHeader
from radiator.storage.journal.format import Entry, Part
from radiator.storage.journal.reading import end_of
from radiator.storage.recovery import RecoveryNote, write_records_again
from radiator.storage.segment import merge_run

RUN_BYTES_MAX = limits.MIB  # size of consecutive small batches written together

NO_PARTITIONS: Mapping[str, int] = MappingProxyType({})
PartitionOf = Callable[[str], FilePartition | None]


class _Missing(NamedTuple):
    header: BatchHeader
    data: bytes
    end_offset: int


class Redo:
    """The work of a start: apply ``cursors`` and ``names`` first, then call ``append``."""

    def __init__(
        self,
        partition_of: PartitionOf,
        decided: Iterable[Entry],
        entries: Iterable[Entry],
        removed: Mapping[str, int] = NO_PARTITIONS,
    ) -> None:
        """Find the batches that are not in their logs.

        Args:
            partition_of: Returns the partition of a name.
            decided: Transactions of an earlier version.
            entries: Of the journal.
            removed: Partitions whose batches in entries below a number do not count.

        Raises:
            OSError: The journal cannot be read.
            StorageError: Messages are for a partition in memory.
        """
        self.cursors: list[tuple[int, bytes]] = []  # entry numbers and the cursor changes of each
        self.names: list[tuple[int, bytes]] = []  # the same, of durable subscriptions
        self.ends: dict[str, int] = {}  # where the logs will end that are spoken of
        self.partitions: dict[str, FilePartition] = {}
        self.gone: set[str] = set()  # partitions that earlier entries have messages of, and that were removed
        self.appended = 0  # messages that were in no segment yet
        self._missing: dict[FilePartition, dict[int, _Missing]] = {}  # by offset
        self._first: dict[FilePartition, int] = {}  # the first offset of those that have batches in their segments
        for entry in decided:
            for part in entry.parts:
                self._check_part(part, partition_of)
        for entry in entries:
            for name in entry.removed:
                self._forget(name)
            for part in entry.parts:
                if entry.number >= removed.get(part.partition, 0):
                    self._check_part(part, partition_of)
            self.cursors.append((entry.number, entry.cursors))
            self.names.append((entry.number, entry.names))

    def _forget(self, name: str) -> None:
        """Drop what earlier entries have of a partition that was removed."""
        self.ends.pop(name, None)
        partition = self.partitions.pop(name, None)
        if partition is not None:
            self._missing.pop(partition, None)
            self._first.pop(partition, None)
            if not partition.log.exists:
                self.gone.add(name)

    def _check_part(self, part: Part, partition_of: PartitionOf) -> None:
        name, start, end = part.partition, part.header.base_offset, end_of(part)
        partition = self.partitions.get(name) or partition_of(name)
        if partition is None:
            raise StorageError(f"partition {name}: it is stored in memory, but the journal has messages of it")
        if name not in self.partitions:
            self.partitions[name] = partition
            self.gone.discard(name)
            self.ends[name] = partition.next_offset
        if end > partition.next_offset:
            self._missing.setdefault(partition, {})[start] = _Missing(part.header, bytes(part.data), end)
            self.ends[name] = max(self.ends[name], end)
        else:
            self._first[partition] = min(self._first.get(partition, start), start)

    def append(self, notes: list[RecoveryNote], now: Now) -> None:
        """Write the missing batches. Cursors must have been set back to ``ends`` before."""
        for partition, offset in self._first.items():
            write_records_again(partition.log, offset)
        for partition, found in self._missing.items():
            batches = [found[start] for start in sorted(found)]
            place = 0
            while place < len(batches):
                if batches[place].end_offset <= partition.next_offset:
                    place += 1
                    continue
                count = _run_length(batches, place, partition.next_offset)
                if count < 2 or not self._append_run(partition, batches[place : place + count], now):
                    count = 1
                    self.appended += _append(partition, batches[place].data, notes, now)
                place += count
            if partition.postponed:
                messages = sum(map(len, partition.postponed))
                text = (
                    f"{messages} messages are in the journal, and wait until they can be written ({partition.failed})"
                )
                notes.append(RecoveryNote(partition.directory, text, "journal"))
        for partition in self.partitions.values():
            partition.log.require_sync()
            partition.log.count_new_name()
            partition.dirty.written(partition.log)

    def _append_run(self, partition: FilePartition, batches: list[_Missing], now: Now) -> bool:
        """Write the bytes of these batches at once. Return False, with no message appended, if that fails."""
        data = b"".join(batch.data for batch in batches)
        merger, end = merge_run(data, 0, batches[0].header, batches[-1].end_offset, len(data))
        if end < len(data) or len(merger.ids) > limits.BATCH_NAMES_MAX:
            return False
        job = AppendJob(partition, merger.finish(), None, True, roll=False)
        job.set_encoded([data])
        job.write()
        if job.error is not None:
            return False
        job.decide()
        self.appended += _done(job, now)
        return True


def _run_length(batches: list[_Missing], place: int, offset: int) -> int:
    """Return how many batches from ``place`` on may be written at once: they follow ``offset`` without a gap."""
    count = size = records = 0
    for batch in islice(batches, place, None):
        size += len(batch.data)
        records += batch.header.records
        if batch.header.base_offset != offset or batch.header.flags & SPARSE:
            break
        if size > RUN_BYTES_MAX or records > limits.BATCH_RECORDS_MAX:
            break
        offset = batch.end_offset
        count += 1
    return count


def _append(partition: FilePartition, data: bytes, notes: list[RecoveryNote], now: Now) -> int:
    """Write one batch, or the missing part of it. Return the number of messages."""
    columns = decode(data)[1]
    start = partition.next_offset
    batch = RecordBatch(*columns._replace(base_offset=start))
    if columns.base_offset < start:
        batch = batch.part(batch.index_at(start), len(batch), start)
    elif columns.base_offset > start:
        text = f"offsets {start} to {columns.base_offset - 1} are neither in a segment nor in the journal"
        notes.append(RecoveryNote(partition.directory, text, "damage", start, columns.base_offset - 1))
    job = AppendJob(partition, batch, None, True, roll=start < columns.base_offset)
    job.decide()
    job.write()
    return _done(job, now)


def _done(job: AppendJob, now: Now) -> int:
    """Add the batch to its partition, in its segment or postponed. Return the number of messages."""
    partition, batch = job.partition, job.batch
    partition.adopt_batch(batch)
    job.done(now)
    return len(batch)
