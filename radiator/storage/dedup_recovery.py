"""What a start knows of the ids that partitions remember: from their ``dedup`` files, and from the logs behind those.

A file says up to which offset it has everything; from there on the log is read, and asked for ids with a function that
is given: what a header block means is not known here. How much is read is bounded; what the file should have had and
nobody can tell in time is forgotten, and told. Ids of offsets that are gone are taken out, durably, before those
offsets can be given again.

A partition without the file has never had an id: nothing of it is read.

Runs on the hub, when partitions are recovered and the redo log is done, before any other thread exists.
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
    """``own_ends``: where the logs ended before this start appended anything. Raises OSError."""
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
    """What a start knows of a partition's ids. ``note``: what is not known any more, in words."""

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
    """The ids of a partition whose log ends at ``end``; None if it has no such file. ``lost``: (first, last) of offsets
    that are gone: whoever sends those messages again must not be told that they are there. What stands from ``own_end``
    on was appended by this start (a transaction), maybe before there was a file; ``postponed``: or will be. Raises
    OSError."""
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
        f"has the ids of messages below offset {covered}, and those from {from_offset} on were found in the log; what "
        "stands between, sent again, is stored again",
    )


def _without(columns: Columns, gone: list[tuple[int, int]]) -> Columns:
    first, second, offsets, receive_ns = (column[:] for column in columns)
    for low, high in gone:
        part = slice(bisect_left(offsets, low), bisect_right(offsets, high))
        for column in (first, second, offsets, receive_ns):
            del column[part]
    return first, second, offsets, receive_ns


def _affordable(fs: FileSystem, log: Log, segments: list[SegmentInfo], end: int, covered: int) -> int:
    """Where the search of the log begins: at ``covered``, or so far behind that it is not more than the limit."""
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
    """Adds the ids of the messages from there on to the columns."""
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
