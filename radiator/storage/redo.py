"""What a start makes of the redo log: transactions that were decided, and maybe not written everywhere.

An entry's batches are looked for in their partitions, at their offsets. What the log does not have is appended; the
acks go to the cursors. It may be done again, however often a start is interrupted: a batch that is there is known by
its offset and its messages, and acks may be applied twice.

If the machine has lost what stood before a batch, under a weaker rule or before anything was promised, those offsets
are given up: the batch begins a segment, and is sparse. If another batch stands at its offset, as it was written, the
entry is not the last word: it could not be taken back when it should have been. Then nothing is done. What was removed
or rewritten since was there.

Where there is no room, or a file that fails, a batch is *postponed* as it is at run time.

Runs on the hub, when partitions are recovered. Raises OSError, StorageError.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from enum import Enum

from radiator.errors import StorageError
from radiator.storage import index, layout
from radiator.storage.batch import RecordBatch
from radiator.storage.file_partition import FilePartition
from radiator.storage.format import (
    HEADER_BYTES,
    PARTIAL_CRCS,
    PLAIN,
    BatchHeader,
    Columns,
    DamagedBatch,
    decode,
    decode_columns,
    decode_header,
)
from radiator.storage.jobs import AppendJob
from radiator.storage.recovery import RecoveryNote
from radiator.storage.segment import Window, header_at, last_offset, load_index, start_of, whole_batches
from radiator.storage.transaction_log import Found

PartitionOf = Callable[[str], FilePartition | None]


class _State(Enum):
    THERE = "there"
    MISSING = "missing"
    OTHER = "another batch stands there"


class _Part:
    """A batch of an entry, and whether its partition has it. It is decoded when it is needed, and not kept."""

    def __init__(self, partition: FilePartition, data: memoryview) -> None:
        self.partition = partition
        self.data = data
        self.header = decode_header(bytes(data[:HEADER_BYTES]))
        self.state = self._look()

    def _columns(self) -> Columns:
        return decode(bytes(self.data))[1]

    def _look(self) -> _State:
        partition, base = self.partition, self.header.base_offset
        if partition.next_offset <= base:
            return _State.MISSING
        segments = partition.segments
        place = bisect_right(segments, base, key=lambda segment: segment.base_offset) - 1
        if place < 0:
            return _State.THERE  # retention has taken it
        info = segments[place]
        fd = partition.fs.open_read(path := layout.segment_path(partition.directory, info.base_offset))
        try:
            window = Window(partition.fs, fd, path=path)
            entries = index.up_to_offset(load_index(partition.fs, partition.directory, info.base_offset), base)
            position, expected = start_of(window, entries)
            for at, header in whole_batches(window, position, info.size_bytes, expected):
                if last_offset(window, at, header) >= base:
                    same = header.base_offset > base or self._is(window, at, header) or _is_rewritten(window)
                    return _State.THERE if same else _State.OTHER
        finally:
            partition.fs.close(fd)
        return _State.THERE

    def _is(self, window: Window, at: int, header: BatchHeader) -> bool:
        """A log that went on in a new file may have it in a batch with its neighbours (``reopen``)."""
        found, wanted = decode_columns(window.data, window.at(at, header.total_len), header), self._columns()
        places = {offset: place for place, offset in enumerate(found.offsets)}
        both = [(places[offset], place) for place, offset in enumerate(wanted.offsets) if offset in places]
        return bool(both) and all(
            found.receive_ns[one] == wanted.receive_ns[other]
            and found.blocks[one] == wanted.blocks[other]
            and found.bodies[one] == wanted.bodies[other]
            for one, other in both
        )

    def end(self) -> int:
        """The offset behind it."""
        return self._columns().offsets[-1] + 1

    def append(self, now_ns: int) -> bool:
        """False if it has to wait."""
        partition, columns = self.partition, self._columns()
        start = partition.next_offset
        batch = RecordBatch(*columns._replace(base_offset=start))
        partition.next_offset = batch.next_offset
        partition.last_receive_ns = max(partition.last_receive_ns, batch.receive_ns[-1])
        job = AppendJob(partition, batch, [], True, roll=start != columns.base_offset)
        job.decided = True
        if partition.failed is None:
            job.write()
            job.sync()
        else:
            job.error = StorageError(str(partition.failed))
        job.done(now_ns)
        return not job.postponed


class Redo:
    """What the entries ask for: ``acks`` (of each entry) first, then ``append``."""

    def __init__(self, partition_of: PartitionOf, found: Found) -> None:
        self.acks: list[bytes] = []
        self._missing: list[_Part] = []
        for entry in found.entries:
            parts = [_part(partition_of, name, data) for name, data in entry.batches]
            if not any(part.state is _State.OTHER for part in parts):
                self._missing += [part for part in parts if part.state is _State.MISSING]
                self.acks.append(entry.acks)

    def ends(self) -> dict[str, int]:
        """Where the logs will end to which something is appended. Cursors may be that far: if the sync of a batch was
        left for later, it has been delivered, and maybe settled, and then a power cut has taken it."""
        return {part.partition.name: part.end() for part in self._missing}

    def append(self, notes: list[RecoveryNote], now_ns: int) -> None:
        """Writes and syncs the batches that are not there. Before that, cursors must have been set back to these
        ends."""
        for part in self._missing:
            count, directory = part.header.records, part.partition.directory
            text = f"{count} messages of a transaction that was decided were not there yet: "
            written = part.append(now_ns)
            text += "appended" if written else f"they wait until they can be written ({part.partition.failed})"
            notes.append(RecoveryNote(directory, text, "transaction"))


def _is_rewritten(window: Window) -> bool:
    try:
        return bool(header_at(window, 0).flags & ~(PLAIN | PARTIAL_CRCS))
    except DamagedBatch:
        return True


def _part(partition_of: PartitionOf, name: str, data: memoryview) -> _Part:
    partition = partition_of(name)
    if partition is None:
        raise StorageError(f"partition {name}: a transaction was decided over it, and it has no files")
    return _Part(partition, data)
