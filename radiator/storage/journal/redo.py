"""What a start makes of the journal: batches that were decided, and are maybe not in their segments.

Each batch is looked for in its log by its offset: what ends at or below the end of the log is there. What is not is
appended, and the acks of transactions go to the cursors. It may be done again, however often a start is interrupted.

If the machine has lost what stood before a batch, under a weaker rule or by damage, those offsets are given up: the
batch begins a segment, and is sparse. Where there is no room, or a file fails, a batch is *postponed* as it is at run
time. All logs that the journal speaks of are synced by the next checkpoint.

Runs on the hub, when partitions are recovered. Raises OSError, StorageError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import NamedTuple

from radiator.clock import Now, WallNs
from radiator.errors import StorageError
from radiator.storage.batch import RecordBatch
from radiator.storage.file_partition import FilePartition
from radiator.storage.format import decode
from radiator.storage.jobs import AppendJob
from radiator.storage.journal.format import Entry, Part
from radiator.storage.journal.reading import end_of
from radiator.storage.recovery import RecoveryNote

PartitionOf = Callable[[str], FilePartition | None]


class _Missing(NamedTuple):
    partition: FilePartition
    data: bytes
    from_offset: int  # what is below is there


class Redo:
    """What the entries ask for: ``acks`` (of each entry) first, then ``append``."""

    def __init__(self, partition_of: PartitionOf, *entries: Iterable[Entry]) -> None:
        self.acks: list[tuple[int, bytes]] = []  # with the numbers of their entries
        self.ends: dict[str, int] = {}  # where the logs will end that are spoken of
        self.partitions: dict[str, FilePartition] = {}
        self.appended = 0  # messages that were in no segment yet
        self._missing: list[_Missing] = []
        for entry in chain(*entries):
            for part in entry.parts:
                self._look(part, partition_of)
            if entry.acks:
                self.acks.append((entry.number, entry.acks))

    def _look(self, part: Part, partition_of: PartitionOf) -> None:
        name, end = part.partition, end_of(part)
        known = self.ends.get(name)
        if known is None:
            partition = partition_of(name)
            if partition is None:
                raise StorageError(f"partition {name}: it is in memory, and the journal has messages of it")
            self.partitions[name] = partition
            known = self.ends[name] = partition.next_offset
        if end > known:
            self._missing.append(_Missing(self.partitions[name], bytes(part.data), known))
            self.ends[name] = end

    def append(self, notes: list[RecoveryNote], now: Now) -> None:
        """Writes the batches that are not there. Before that, cursors must have been set back to these ends."""
        for missing in self._missing:
            self.appended += _append(missing, notes, now)
        for partition in dict.fromkeys(missing.partition for missing in self._missing):
            if partition.postponed:
                count = sum(map(len, partition.postponed))
                text = f"{count} messages are in the journal, and wait until they can be written ({partition.failed})"
                notes.append(RecoveryNote(partition.directory, text, "journal"))
        for partition in self.partitions.values():
            partition.log.owes_sync = True
            partition.log.names_made += 1
            partition.checkpoints.written(partition)


def _append(missing: _Missing, notes: list[RecoveryNote], now: Now) -> int:
    """Returns how many messages."""
    partition, columns = missing.partition, decode(missing.data)[1]
    start = partition.next_offset
    batch = RecordBatch(*columns._replace(base_offset=start))
    if columns.base_offset < start:
        batch = batch.part(batch.index_at(start), len(batch), start)
    elif columns.base_offset > start:
        text = f"offsets {start} to {columns.base_offset - 1} are neither in a segment nor in the journal"
        notes.append(RecoveryNote(partition.directory, text, "damage", start, columns.base_offset - 1))
    partition.next_offset = batch.next_offset
    partition.last_receive_ns = WallNs(max(partition.last_receive_ns, batch.receive_ns[-1]))
    job = AppendJob(partition, batch, [], True, roll=start < columns.base_offset)
    job.decided = True
    job.write()
    job.done(now)
    return len(batch)
