"""Restore the message ids of partitions at a start: from their ``dedup`` files, and from the logs behind those.

A file says up to which offset it has all ids. The log is read from there on, and a function of the caller returns the
id of each message, because the meaning of a header block is not known here. The amount of reading is bounded; ids that
it cannot cover are forgotten, and that is reported. Ids of offsets that are gone are removed durably before those
offsets can be given again.

A partition without the file never had an id: nothing of it is read.

It runs on the event loop, after partitions are recovered and the journal is redone, before any other thread exists.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from radiator import limits
from radiator.storage import layout, reader
from radiator.storage.batch import RecordBatch
from radiator.storage.dedup import Columns
from radiator.storage.dedup_file import HEADER, DedupFile, columns_of, decode, encode_block, replace, rows_of
from radiator.storage.file_partition import FilePartition
from radiator.storage.files import NO_ROOM, FileSystem, read_file
from radiator.storage.log import Log
from radiator.storage.partition import Partition
from radiator.storage.recovery import RecoveryNote
from radiator.storage.segment import SegmentInfo, load_index

OFFSET_MAX = (1 << 63) - 1

Identify = Callable[[str, bytes], bytes | None]  # destination, header block


def recover_all(
    partitions: Iterable[Partition], own_ends: Mapping[str, int], notes: list[RecoveryNote], identify: Identify
) -> None:
    """Restore the ids of all partitions.

    Args:
        partitions: The partitions.
        own_ends: Where the logs ended before this start appended anything.
        notes: The findings of the start, which name lost offsets; new findings are added.
        identify: Returns the id of a message.

    Raises:
        OSError: A file cannot be read or written.
    """
    lost: dict[str, list[tuple[int, int]]] = {}  # by directory
    for note in notes:
        if note.first_offset is not None and note.last_offset is not None:
            segment = note.path.endswith(layout.SEGMENT_SUFFIX)
            directory = os.path.dirname(note.path) if segment else note.path
            lost.setdefault(directory, []).append((note.first_offset, note.last_offset))
    for partition in partitions:
        if isinstance(partition, FilePartition):
            log, end, own_end = partition.log, partition.written_to, own_ends.get(partition.name, 0)
            gone = lost.get(partition.directory, [])
            found = recover(log, partition.segments, end, own_end, gone, identify, partition.postponed)
            if found is not None:
                partition.adopt_file(found.file)
                if found.note:
                    notes.append(RecoveryNote(layout.dedup_path(partition.directory), found.note, "ids"))


class RecoveredIds(NamedTuple):
    """The ids of a partition. ``note``: which ids are not known any more, as a text."""

    file: DedupFile
    note: str


def recover(
    log: Log,
    segments: list[SegmentInfo],
    end: int,
    own_end: int,
    lost: Iterable[tuple[int, int]],
    identify: Identify,
    postponed: Sequence[RecordBatch] = (),
) -> RecoveredIds | None:
    """Restore the ids of a partition.

    Args:
        log: Its log.
        segments: Its segments.
        end: Where the log ends.
        own_end: This start appended what follows this offset (a transaction), maybe before the file existed.
        lost: (first, last) of lost offsets: the ids of these messages are dropped, so that they can be sent again.
        identify: Returns the id of a message.
        postponed: Batches that are decided and not written yet.

    Returns:
        The ids; None if the file does not exist and is not needed.

    Raises:
        OSError: A file cannot be read or written.
    """
    fs, directory = log.fs, log.directory
    path = layout.dedup_path(directory)
    data = read_file(fs, path) if log.remembers else None
    exists = data is not None
    if data is None:
        if own_end == end and not postponed:
            return None
        data = encode_block(own_end, own_end, b"")
    else:
        fs.sync_dir(directory)  # an earlier run may have failed to: without its name, nothing of the log is searched
    found = decode(data)
    start = segments[0].base_offset if segments else end
    covered = start if found.covered is None else found.covered
    columns = columns_of(found.rows)
    gone = [*lost, (own_end, OFFSET_MAX)]
    kept = _without(columns, gone)
    from_offset = _affordable(fs, log, segments, end, min(covered, own_end))
    _scan(fs, directory, segments, end, from_offset, identify, kept)
    for batch in postponed:
        _add(batch, batch.base_offset, identify, kept)
    file = DedupFile.recovered(exists, kept, covered, found.end, len(columns[2]))
    damaged = found.covered is None or found.end < len(data)
    if damaged or covered > end or own_end < end or file.entries > len(kept[2]):
        rows = rows_of(_without(kept, [(end, OFFSET_MAX)]))
        try:
            replace(fs, directory, end, rows, True)
            file.replaced(end, HEADER.size + len(rows), len(kept[2]))
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            file.not_replaced()
    if from_offset <= min(covered, own_end):
        return RecoveredIds(file, "")
    return RecoveredIds(
        file,
        f"has the ids of messages below offset {covered}, and those from {from_offset} on were found in the log; "
        f"messages in between are stored again if they are sent again",
    )


def _without(columns: Columns, gone: list[tuple[int, int]]) -> Columns:
    first, second, offsets, receive_ns = (column[:] for column in columns)
    for low, high in gone:
        part = slice(bisect_left(offsets, low), bisect_right(offsets, high))
        for column in (first, second, offsets, receive_ns):
            del column[part]
    return first, second, offsets, receive_ns


def _affordable(fs: FileSystem, log: Log, segments: list[SegmentInfo], end: int, covered: int) -> int:
    """Return where the search of the log begins: at ``covered``, or later if that is more than the limit."""
    start, budget = end, limits.DEDUP_SCAN_BYTES_MAX
    for segment in reversed(segments):
        if start <= covered:
            break
        if segment.size_bytes > budget:
            entries = load_index(fs, log.directory, segment.base_offset)
            if segment.base_offset == log.base_offset:
                entries = [*entries, *log.entries]
            if entries:
                ahead = (entry.base_offset for entry in entries if entry.position >= segment.size_bytes - budget)
                return max(covered, next(ahead, start))
        budget = max(budget - segment.size_bytes, 0)
        start = segment.base_offset
    return max(covered, start)


def _scan(
    fs: FileSystem,
    directory: str,
    segments: list[SegmentInfo],
    end: int,
    from_offset: int,
    identify: Identify,
    columns: Columns,
) -> None:
    """Add the ids of the messages from ``from_offset`` on to the columns."""
    if from_offset >= end:
        return
    ends = [*(segment.base_offset for segment in segments[1:]), end]
    stored = tuple(
        reader.StoredSegment(
            layout.segment_path(directory, each.base_offset), each.base_offset, stop, each.size_bytes, None
        )
        for each, stop in zip(segments, ends, strict=True)
    )
    partition = reader.StoredPartition("", directory, stored, from_offset, end)
    for batch in reader.batches(partition, from_offset, fs=fs):
        _add(batch, from_offset, identify, columns)


def _add(batch: RecordBatch, from_offset: int, identify: Identify, columns: Columns) -> None:
    first, second, offsets, receive_ns = columns
    for index in range(batch.index_at(from_offset), len(batch)):
        identity = identify(batch.names[batch.destination_ids[index]], batch.blocks[index])
        if identity is not None:
            first.append(int.from_bytes(identity[:8], "little"))
            second.append(int.from_bytes(identity[8:], "little"))
            offsets.append(batch.offsets[index])
            receive_ns.append(batch.receive_ns[index])
