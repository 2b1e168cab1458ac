"""Read a store from outside: beside a running broker or without one, without a lock, and without writing.

A reader sees records up to ``head``, which is exactly what the broker has committed; behind it the broker may write. If
the head is missing or damaged, the last segment is walked by its crcs instead. If the segment of the head is gone, the
offsets up to head were stored all the same: they are missing, and readers get a report. The broker may rewrite a sealed
segment between a listing and a read: offsets stay valid, positions do not, so records are read by their offsets.

This module knows files. It does not know partitions, jobs or threads. ``ls`` and ``dump`` use it; ``radiator.spark``
has a reader of its own, which decodes columns instead of records. It has no state: any thread and any process may use
it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from radiator import limits
from radiator.errors import StorageError
from radiator.storage import cursor_files, layout
from radiator.storage.batch import RecordBatch
from radiator.storage.cursor import Cursor
from radiator.storage.files import FileSystem, opened, read_file, storage_error
from radiator.storage.format import decode_columns
from radiator.storage.header import SPARSE, BatchHeader, DamagedBatch
from radiator.storage.segment import (
    Window,
    base_of,
    batch_at,
    header_at,
    last_offset,
    load_index,
    read_runs,
    start_from_index,
    whole_batches,
)

HEAD_TRIES = 16  # a torn head is a race with a store of 40 bytes; losing it this often is damage
UNREADABLE = b"unreadable"


@dataclass(frozen=True)
class StoredSegment:
    """A segment, as listed."""

    path: str
    base_offset: int
    end_offset: int  # exclusive
    size_bytes: int  # committed
    first_receive_ns: int | None  # None: nothing in it, or its first header is damaged
    sparse: bool = False  # records were removed from it: it holds fewer than offsets


@dataclass(frozen=True)
class StoredPartition:
    """A partition, as listed."""

    name: str
    directory: str
    segments: tuple[StoredSegment, ...]
    log_start_offset: int
    next_offset: int

    @property
    def size_bytes(self) -> int:
        """The committed bytes of its segments."""
        return sum(segment.size_bytes for segment in self.segments)


@dataclass(frozen=True)
class StoredCursor:
    """A cursor, as stored in the files."""

    name: str
    partition: str
    floor: int
    intervals: list[tuple[int, int]]
    counts: dict[int, int]


@dataclass(frozen=True)
class Damage:
    """A stretch of a file without a whole batch."""

    position: int
    end: int
    reason: str


def list_partitions(root: str, fs: FileSystem | None = None) -> list[StoredPartition]:
    """Return all partitions by name. Raises StorageError if ``root`` is not a data directory."""
    fs = fs or FileSystem()
    names = fs.listdir(layout.partitions_path(root))
    if not names and layout.PARTITIONS not in fs.listdir(root):
        raise StorageError(f"{root}: no radiator store here; expected the data_dir of a broker")
    found = []
    for encoded in names:
        try:
            name = layout.decode_name(encoded)
        except ValueError:
            continue  # not ours: lost+found and the like
        try:
            found.append(stored_partition(fs, name, f"{layout.partitions_path(root)}/{encoded}"))
        except NotADirectoryError:
            continue  # a file of the user
        except OSError as error:
            raise storage_error(f"{layout.partitions_path(root)}/{encoded}", "read", error) from error
    return found


def stored_partition(fs: FileSystem, name: str, directory: str) -> StoredPartition:
    """Return one partition as it is at this moment. Raises OSError."""
    head, raw = read_head(fs, directory)  # before the directory, so that its segment is listed
    bases = sorted(base for base in map(layout.segment_base, fs.listdir(directory)) if base is not None)
    if not bases and head is not None:  # retention keeps the last one: the segment of head is lost
        return StoredPartition(name, directory, (), head.segment_base, head.next_offset)
    if not bases or (raw is not None and layout.nothing_committed(raw)):
        return StoredPartition(name, directory, (), bases[0] if bases else 0, bases[0] if bases else 0)
    if head is None or head.segment_base not in bases:
        stored_up_to = 0 if head is None else head.next_offset
        head = _walk(fs, directory, bases[-1])
        head = head._replace(next_offset=max(head.next_offset, stored_up_to))
    bases = [base for base in bases if base <= head.segment_base]
    segments: list[StoredSegment] = []
    for base, end in zip(bases, [*bases[1:], head.next_offset], strict=True):
        path = layout.segment_path(directory, base)
        try:
            fd = fs.open_read(path)
        except FileNotFoundError:
            segments.clear()  # just deleted by retention, and so were all before
            continue
        with opened(fs, fd):
            size = head.position if base == head.segment_base else fs.size(fd)
            first, sparse = _first_header(Window(fs, fd, 4096)) if size else (None, False)
            segments.append(StoredSegment(path, base, end, size, first, sparse))
    start = segments[0].base_offset if segments else head.next_offset
    return StoredPartition(name, directory, tuple(segments), start, head.next_offset)


def removed_on_purpose(fs: FileSystem, path: str) -> bool:
    """Return whether the broker has removed the segment file ``path``, which is gone.

    Retention and reclaiming delete the oldest segments first and never the last one. So a segment older than all that
    are left was removed by them; one between others, or the last, was lost.

    Raises:
        OSError: The directory cannot be read.
    """
    directory, _, name = path.rpartition("/")
    bases = [base for base in map(layout.segment_base, fs.listdir(directory)) if base is not None]
    base = layout.segment_base(name)
    return base is not None and bool(bases) and base < min(bases)


def _first_header(window: Window) -> tuple[int | None, bool]:
    """Return the first receive time of a segment, and whether records were removed from it.

    A disk that cannot read it is damage too: the other segments and partitions are still listed.
    """
    try:
        header = header_at(window, 0)
    except DamagedBatch:
        return None, False
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None, False
    return header.min_receive_ns, bool(header.flags & SPARSE)


def read_head(fs: FileSystem, directory: str) -> tuple[layout.Head | None, bytes | None]:
    """Return the head, and the bytes of its file (None: no file; only zeros: nothing was ever committed).

    A head that the disk cannot read is a damaged one, with UNREADABLE as its bytes.
    """
    for _ in range(HEAD_TRIES):
        try:
            data = read_file(fs, layout.head_path(directory))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return None, UNREADABLE
        if data is None:
            return None, None
        head = layout.decode_head(data)
        if head is not None:
            break
    return head, data


def _walk(fs: FileSystem, directory: str, base: int) -> layout.Head:
    """Return where the last segment ends by its crcs."""
    position, following = 0, base
    for window, place, batch in _walked(fs, layout.segment_path(directory, base), None):
        if isinstance(batch, BatchHeader):
            position, following = place + batch.total_len, last_offset(window, place, batch) + 1
    return layout.Head(base, position, following)


def segment_batches(
    path: str, fs: FileSystem | None = None, end: int | None = None
) -> Iterator[tuple[int, BatchHeader | Damage]]:
    """Yield (position, header) of every whole batch of a segment file, and the damage between them.

    A tail of zeros is the end, and so is ``end``.
    """
    for _, position, found in _walked(fs or FileSystem(), path, end):
        yield position, found


def segment_records(
    path: str, fs: FileSystem | None = None, end: int | None = None
) -> Iterator[tuple[int, RecordBatch | Damage]]:
    """Yield the same as ``segment_batches``, with the records.

    A region that cannot be unpacked is damage, even if its crc is right.
    """
    for window, position, found in _walked(fs or FileSystem(), path, end):
        if isinstance(found, Damage):
            yield position, found
            continue
        try:
            yield position, _records(window, position, found)
        except DamagedBatch as damage:
            yield position, Damage(position, position + found.total_len, str(damage))


def segment_spans(
    path: str, fs: FileSystem | None = None, end: int | None = None
) -> Iterator[tuple[int, BatchHeader | Damage, int]]:
    """Yield the same as ``segment_batches``, with the offset behind those that the batch covers; 0 for damage."""
    for window, position, found in _walked(fs or FileSystem(), path, end):
        yield position, found, 0 if isinstance(found, Damage) else last_offset(window, position, found) + 1


def _walked(fs: FileSystem, path: str, end: int | None) -> Iterator[tuple[Window, int, BatchHeader | Damage]]:
    with opened(fs, fs.open_read(path)) as fd:
        window = Window(fs, fd, path=path)
        size = fs.size(fd) if end is None else min(end, fs.size(fd))
        behind, expected = 0, base_of(path)
        for position, header in whole_batches(window, 0, size, expected):
            if position > behind:
                yield window, behind, Damage(behind, position, _reason(window, behind, expected))
                batch_at(window, position)  # its bytes are in the window again
            yield window, position, header
            behind, expected = position + header.total_len, last_offset(window, position, header) + 1
        if behind < size and not _only_zeros(window, behind, size):
            yield window, behind, Damage(behind, size, _reason(window, behind, expected))


def _reason(window: Window, position: int, expected: int) -> str:
    """Return why the batch at ``position`` is not the next one."""
    try:
        header = batch_at(window, position)
    except DamagedBatch as damage:
        return str(damage)
    return f"base offset {header.base_offset}, expected {expected}"


def _records(window: Window, position: int, header: BatchHeader) -> RecordBatch:
    place = window.at(position, header.total_len)
    return RecordBatch(*decode_columns(window.data, place, header))


def _only_zeros(window: Window, position: int, size: int) -> bool:
    while position < size:
        place = window.at(position, min(window.chunk_bytes, size - position))
        data = window.data[place:]
        if data.strip(b"\0"):
            return False
        if not data:
            return True
        position += len(data)
    return True


def batches(
    partition: StoredPartition,
    start_offset: int = 0,
    on_gap: Callable[[int, int, bool], None] | None = None,
    fs: FileSystem | None = None,
    bytes_max: int = limits.READ_CHUNK_BYTES,
) -> Iterator[RecordBatch]:
    """Yield the committed records from ``start_offset`` on, with small batches merged.

    The first batch may begin before it, and the last one may end behind ``partition.next_offset`` if its segment was
    rewritten since the listing.

    Args:
        partition: The partition.
        start_offset: Where to begin.
        on_gap: Called as ``on_gap(first, last, removed)`` for offsets that cannot be read: those that are lost, and
            with ``removed`` those of segments that the broker has removed since the listing. It is not called for
            records removed before, or inside a segment.
        fs: The file system.
        bytes_max: How much to read and merge at a time.

    Raises:
        OSError: A file cannot be read.
    """
    fs = fs or FileSystem()
    expected = max(start_offset, partition.log_start_offset)
    for segment in partition.segments:
        if segment.end_offset <= expected:
            continue
        try:
            fd = fs.open_read(segment.path)
        except FileNotFoundError:
            if on_gap is not None:
                on_gap(expected, segment.end_offset - 1, removed_on_purpose(fs, segment.path))
            expected = segment.end_offset
            continue
        with opened(fs, fd):
            window, entries = (
                Window(fs, fd, bytes_max, segment.path),
                load_index(fs, partition.directory, segment.base_offset),
            )
            for batch in read_runs(window, entries, expected, segment.end_offset, bytes_max):
                if batch.base_offset > expected and on_gap is not None:
                    on_gap(expected, batch.base_offset - 1, False)
                expected = batch.next_offset
                yield batch
        if expected < segment.end_offset:
            if on_gap is not None:
                on_gap(expected, segment.end_offset - 1, False)
            expected = segment.end_offset
    if expected < partition.next_offset and on_gap is not None:  # no segment is left of it
        on_gap(expected, partition.next_offset - 1, False)


def newest_receive_ns(segment: StoredSegment, fs: FileSystem | None = None) -> int | None:
    """Return the last receive time of a segment, by the headers behind its last index entry, or None."""
    return max((header.max_receive_ns for header in _headers(fs or FileSystem(), segment, indexed=True)), default=None)


def count_records(segment: StoredSegment, fs: FileSystem | None = None) -> int:
    """Return the number of records of a segment; its headers are read if some records were removed."""
    if not segment.sparse:
        return segment.end_offset - segment.base_offset
    return sum(header.records for header in _headers(fs or FileSystem(), segment, indexed=False))


def _headers(fs: FileSystem, segment: StoredSegment, indexed: bool) -> Iterator[BatchHeader]:
    """Yield the headers of a segment, or those behind its last index entry; none if retention removed it.

    Crcs are only checked behind damage.
    """
    try:
        entries = load_index(fs, segment.path.rpartition("/")[0], segment.base_offset) if indexed else []
        fd = fs.open_read(segment.path)
    except OSError:
        return
    with opened(fs, fd):
        window, size, end = Window(fs, fd, 4096, segment.path), fs.size(fd), segment.end_offset
        position, expected = start_from_index(window, [entry for entry in entries if entry.base_offset < end])
        while position < size and expected < end:
            try:
                header = header_at(window, position)
            except DamagedBatch:
                break
            if header.base_offset != expected:
                break
            yield header
            expected = last_offset(window, position, header) + 1
            position += header.total_len
        if expected < end:
            for _, header in whole_batches(window, position, size, expected):
                if header.base_offset >= end:
                    return
                yield header


def list_cursors(root: str, fs: FileSystem | None = None) -> list[StoredCursor]:
    """Return all cursors, as stored in the files at this moment."""
    found = []
    for state in cursor_files.read_live(fs or FileSystem(), root).states.values():
        cursor = Cursor(state.floor)
        for start, stop in state.changes:
            cursor.ack_range(start, stop)
        counts = {offset: count for offset, count in state.counts.items() if not cursor.is_acked(offset)}
        found.append(StoredCursor(state.name, state.partition, cursor.floor, cursor.intervals, counts))
    return sorted(found, key=lambda each: (each.name, each.partition))
