"""What a start makes of the redo log: transactions that were decided, and maybe not written everywhere.

An entry's batches are looked for in their partitions. What the log does not have is appended; the acks go to the
cursors. It may be done again, however often a start is interrupted: a batch is known by its bytes (but for its offset,
which moves if the machine lost what stood before it), and acks may be applied twice.

If another batch stands at the offset of one of them, as it was written, the entry is not the last word: it could not be
taken back when it should have been. Then nothing is done. What was removed or rewritten since was there.

Runs on the hub, when partitions are recovered and before cursors are loaded. Raises OSError, StorageError.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from zlib import crc32

from radiator.errors import StorageError
from radiator.storage import index, layout
from radiator.storage.batch import RecordBatch
from radiator.storage.file_partition import FilePartition
from radiator.storage.format import HEADER_BYTES, PLAIN, check, decode_columns, decode_header
from radiator.storage.jobs import AppendJob
from radiator.storage.recovery import RecoveryNote
from radiator.storage.segment import SegmentInfo, Window, base_of, last_offset, load_index, start_of, whole_batches
from radiator.storage.transaction_log import Entry

PartitionOf = Callable[[str], FilePartition | None]


class _State(Enum):
    THERE = "there"
    MISSING = "missing"
    OTHER = "another batch stands there"


class _Part:
    """A batch of an entry, and whether its partition has it."""

    def __init__(self, partition: FilePartition, data: bytes, wanted: int) -> None:
        self.partition = partition
        self.data = data
        self.header = decode_header(data)
        check(data, 0, self.header)
        self.state = self._look(wanted)

    def _look(self, wanted: int) -> _State:
        """``wanted``: records that the redo log has for this partition, in all."""
        partition, base = self.partition, self.header.base_offset
        low = min(base, partition.next_offset - wanted)
        for info, path, end in _segments_from(partition, low):
            fd = partition.fs.open_read(path)
            try:
                window = Window(partition.fs, fd, path=path)
                state = self._look_in(window, low, end, info.size_bytes)
                if state is not None:
                    return state
            finally:
                partition.fs.close(fd)
        # What retention has removed, or the caretaker rewritten, was there.
        return _State.THERE if partition.next_offset > base else _State.MISSING

    def _look_in(self, window: Window, low: int, end: int, size: int) -> _State | None:
        wanted, base = self.header, self.header.base_offset
        content = crc32(memoryview(self.data)[HEADER_BYTES : wanted.total_len])
        directory, segment_base = self.partition.directory, base_of(window.path)
        entries = index.up_to_offset(load_index(self.partition.fs, directory, segment_base), low)
        position, expected = start_of(window, entries)
        rewritten = other = False
        for place, header in whole_batches(window, position, size, expected):
            if header.base_offset >= end:  # the log went on in another file
                break
            at = window.at(place, header.total_len)
            if (
                header.total_len == wanted.total_len
                and header.min_receive_ns == wanted.min_receive_ns
                and crc32(memoryview(window.data)[at + HEADER_BYTES : at + header.total_len]) == content
            ):
                return _State.THERE
            rewritten |= bool(header.flags & ~PLAIN)
            other |= header.base_offset <= base <= last_offset(window, place, header)
        return _State.OTHER if other and not rewritten else None

    def append(self, now_ns: int) -> None:
        partition, count = self.partition, self.header.records
        columns = decode_columns(self.data, 0, self.header)
        base = partition.next_offset
        batch = RecordBatch(*columns._replace(offsets=range(base, base + count), base_offset=base))
        partition.next_offset = batch.next_offset
        partition.last_receive_ns = max(partition.last_receive_ns, batch.receive_ns[-1])
        job = AppendJob(partition, batch, [], True, False)
        job.write()
        job.sync()
        job.done(now_ns)
        if job.error is not None:
            raise job.error


class Redo:
    """What the entries ask for: ``acks`` (of each entry) first, then ``append``."""

    def __init__(self, partition_of: PartitionOf, entries: Iterable[Entry]) -> None:
        self.acks: list[bytes] = []
        self._missing: list[_Part] = []
        entries = list(entries)
        wanted: dict[str, int] = {}
        for entry in entries:
            for name, data in entry.batches:
                wanted[name] = wanted.get(name, 0) + decode_header(data).records
        for entry in entries:
            parts = [_part(partition_of, name, data, wanted[name]) for name, data in entry.batches]
            if not any(part.state is _State.OTHER for part in parts):
                self._missing += [part for part in parts if part.state is _State.MISSING]
                self.acks.append(entry.acks)

    def append(self, notes: list[RecoveryNote]) -> None:
        """Writes and syncs the batches that are not there. Before that, cursors must have been set back to where their
        logs end: what is appended has not been delivered to anybody."""
        for part in self._missing:
            part.append(part.header.max_receive_ns)
            text = f"{part.header.records} messages of a transaction that was decided were not there yet: appended"
            notes.append(RecoveryNote(part.partition.directory, text, "transaction"))


def _part(partition_of: PartitionOf, name: str, data: bytes, wanted: int) -> _Part:
    partition = partition_of(name)
    if partition is None:
        raise StorageError(f"partition {name}: a transaction was decided over it, and it has no files")
    return _Part(partition, data, wanted)


def _segments_from(partition: FilePartition, low: int) -> Iterator[tuple[SegmentInfo, str, int]]:
    """(facts, path, end of its offsets) of the segments that can hold ``low`` or what follows."""
    segments = partition.segments
    first = max(bisect_right(segments, low, key=lambda segment: segment.base_offset) - 1, 0)
    ends = [*(segment.base_offset for segment in segments[first + 1 :]), partition.next_offset]
    for info, end in zip(segments[first:], ends, strict=False):
        yield info, layout.segment_path(partition.directory, info.base_offset), end
