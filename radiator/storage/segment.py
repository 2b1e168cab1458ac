"""Walk a segment file: from batch to batch, across damage, to an offset or a time.

The opener of the file walks it: recovery on the event loop before anything runs, cold reads on the read thread,
``reader`` in another process. The writer need not stop: walks end at the high watermark (or ``head``), and nothing
changes below it.

This module knows positions and batches. It does not know partitions, jobs or callers. Invariants: returned batches have
a correct crc; a batch counts as the next one only if its magic, lengths, crc and base offset are right; behind damage
it must have the partition's salt as well (``salt``), and so it must where an index points: a rewritten segment has the
same offsets and other positions. Offsets rise: a whole batch at a wrong place (a page written to the wrong position)
hides none of those that follow it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from radiator import limits
from radiator.checksum import crc32
from radiator.storage import index, layout, salt
from radiator.storage.batch import RecordBatch
from radiator.storage.files import FileSystem, read_file, read_fully
from radiator.storage.format import COPIED_BYTES_MAX, StoredBatch, decode_columns
from radiator.storage.header import (
    CRC_FROM,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    PARTIAL_CRCS,
    PLAIN,
    SPARSE,
    BatchHeader,
    DamagedBatch,
    UnknownVersion,
    check,
    decode_header,
    find_magic,
    newer_len,
    next_offset,
    places_of,
)
from radiator.storage.index import IndexEntry
from radiator.storage.merge import Merger, merge_single_records
from radiator.storage.segment_states import TRANSITIONS, Event, State

_PLAIN_HEADER = Struct("<8sIIQ16xIH2xI12x")  # of a header: magic, total_len, crc, base offset, count, flags, names_len
SEARCH_BYTES_MIN = 8 * 1024  # read at first in a search, and ever more: the next batch is often near
SEARCH_BYTES_MAX = 1024 * 1024
ACTIVE = State.ACTIVE  # an attribute of an Enum takes as long as a call
MISPLACED_BYTES_MAX = 128 * 1024  # as much as this is looked at to tell a gap from pages of another place


class SegmentInfo:
    """One segment, for the event loop.

    Args:
        base_offset: Its first offset.
        first_receive_ns: When its first record was received.
        last_receive_ns: When its last record was received.
        size_bytes: Its size.
        sparse: Records have been removed from it, so it has fewer records than offsets; its first batch has the flag.
        state: Where its life begins: active, or sealed by an earlier run.
    """

    __slots__ = (
        "base_offset",
        "commits",
        "first_receive_ns",
        "last_receive_ns",
        "remaining",
        "size_bytes",
        "sparse",
        "state",
    )

    def __init__(
        self,
        base_offset: int,
        first_receive_ns: int,
        last_receive_ns: int,
        size_bytes: int,
        sparse: bool = False,
        state: State = State.ACTIVE,
    ) -> None:
        self.base_offset = base_offset
        self.first_receive_ns = first_receive_ns
        self.last_receive_ns = last_receive_ns
        self.size_bytes = size_bytes
        self.commits = 0
        self.sparse = sparse
        self.state = state
        self.remaining: int | None = None  # about how many records the last rewrite has left; None: all

    def on(self, event: Event) -> None:
        """Set the state that follows ``event``. Raises RuntimeError if the event cannot happen now."""
        self.state = TRANSITIONS.after(self.state, event)

    def can(self, event: Event) -> bool:
        """Return whether ``event`` may happen now."""
        return event in TRANSITIONS[self.state]

    def begin(self, first_receive_ns: int, last_receive_ns: int | None = None) -> None:
        """Set when the first record came, and the last one if that is known."""
        self.first_receive_ns = first_receive_ns
        if last_receive_ns is not None:
            self.last_receive_ns = last_receive_ns

    def set_end(self, size_bytes: int, last_receive_ns: int) -> None:
        """Set where the file ends, and when its last record was received."""
        self.size_bytes, self.last_receive_ns = size_bytes, last_receive_ns

    def rewritten(self, size_bytes: int, sparse: bool) -> None:
        """Set the facts of the rewritten file."""
        self.size_bytes, self.sparse = size_bytes, sparse

    def leave(self, remaining: int) -> None:
        """Note about how many records are left when those that queues have settled are removed."""
        self.remaining = remaining

    def grow(self, size_bytes: int, last_receive_ns: int) -> None:
        """Count a commit, which grows the segment to this size."""
        if self.state is not ACTIVE:
            self.on(Event.APPEND)
        self.size_bytes = size_bytes
        self.last_receive_ns = last_receive_ns
        self.commits += 1

    def __repr__(self) -> str:
        return f"<SegmentInfo {self.base_offset} {self.size_bytes} B>"


class Window:
    """A file read through a sliding chunk: small steps forward cost no system call. ``path`` is the file's."""

    __slots__ = ("_salts", "chunk_bytes", "data", "fd", "fs", "path", "position", "vetted")

    def __init__(self, fs: FileSystem, fd: int, chunk_bytes: int = limits.READ_CHUNK_BYTES, path: str = "") -> None:
        self.fs = fs
        self.fd = fd
        self.chunk_bytes = chunk_bytes
        self.path = path
        self._salts: frozenset[int] | None = None
        self.vetted: frozenset[int] = frozenset()  # positions of batches that are where they belong: ``find_batch``
        self.position = 0  # of data[0]; always a multiple of 8
        self.data = b""

    def at(self, position: int, size: int) -> int:
        """Return the place of ``position`` in ``data``, with ``size`` bytes behind it unless the file ends before."""
        place = position - self.position
        if place < 0 or place + size > len(self.data):
            if size > self.chunk_bytes:  # maybe a damaged length: never ask for more memory than the file has bytes
                size = min(size, max(self.fs.size(self.fd) - position, 0))
            self.position = position
            self.data = read_fully(self.fs, self.fd, max(size, self.chunk_bytes), position)
            return 0
        return place

    def forget(self) -> None:
        """Drop the chunk, because the file has changed."""
        self.data = b""
        self.vetted = frozenset()

    @property
    def salts(self) -> frozenset[int]:
        """The salts that headers of this segment may have; empty if that is unknown."""
        if self._salts is None:
            self._salts = salt.of_segment(self.fs, self.path)
        return self._salts


def header_at(window: Window, position: int) -> BatchHeader:
    """Return the header at ``position``, without checking its crc.

    Raises:
        DamagedBatch: There is no header.
        UnknownVersion: A newer radiator wrote the batch there.
    """
    place = window.at(position, HEADER_BYTES)  # first: this may replace window.data
    try:
        return decode_header(window.data, place)
    except DamagedBatch:
        header = window.data[place : place + HEADER_BYTES]
        if len(header) == HEADER_BYTES and (length := newer_len(header)):
            place = window.at(position, length)
            decode_header(window.data, place)
        raise


def batch_at(window: Window, position: int) -> BatchHeader:
    """Return the header of the checked batch at ``position``.

    The bytes of the batch are in ``window`` afterwards.

    Raises:
        DamagedBatch: There is no whole, correct batch.
    """
    header = header_at(window, position)
    place = window.at(position, header.total_len)
    check(window.data, place, header)
    return header


def whole_batches(window: Window, position: int, end: int, expected: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the whole batches that begin below ``end``, across damage.

    Offsets rise. The bytes of each batch are in ``window`` until the next one is requested.

    Args:
        window: The file.
        position: Where to begin.
        end: Where to stop.
        expected: The offset that the first batch should have.
    """
    while position < end:
        try:
            header = batch_at(window, position)
            follows, search = header.base_offset == expected, position
        except DamagedBatch:
            follows, search = False, position + 8
        if not follows:
            found = find_batch(window, search, end, expected)
            if found is None:
                return
            position = found[0]
            header = batch_at(window, position)
        yield position, header
        expected = last_offset(window, position, header) + 1
        position += header.total_len


def scan_plain_batches(data: bytes, at: int, stop: int, expected: int, names: set[bytes]) -> tuple[int, int, int]:
    """Walk over whole, plain batches that follow one another without a gap, quickly.

    It stops at the first batch that is not plain or not correct (``batch_at`` checks that one), or that ends behind
    ``stop``.

    Args:
        data: Bytes of a segment.
        at: Where the first batch begins.
        stop: Where to stop.
        expected: The offset of the first batch.
        names: Receives the dictionaries of names, as stored.

    Returns:
        The place and the offset behind the last batch, and its last receive time.
    """
    unpack, size, view, last, known, known_len = _PLAIN_HEADER.unpack_from, len(data), memoryview(data), -1, b"", -1
    while at < stop and at + HEADER_BYTES <= size:
        magic, total, crc, base, count, flags, names_len = unpack(data, at)
        end = at + total
        if (
            magic != MAGIC
            or base != expected
            or flags & ~(PLAIN | PARTIAL_CRCS)
            or end > size
            or total < HEADER_BYTES  # torn: the crc of nothing is 0
            or crc32(data[at + CRC_FROM : end] if total < COPIED_BYTES_MAX else view[at + CRC_FROM : end]) != crc
        ):
            break
        start = at + places_of(count, flags).names
        if names_len != known_len or not data.startswith(known, start):
            known, known_len = data[start : start + names_len], names_len
            names.add(known)
        expected += count
        last, at = at, end
    return at, expected, HEADER.unpack_from(data, last)[5] if last >= 0 else 0


def find_batch(window: Window, position: int, end: int, min_offset: int) -> tuple[int, BatchHeader] | None:
    """Return the next batch behind damage: position and header.

    It is the first whole batch at or after ``position`` that begins below ``end`` with an offset of ``min_offset`` or
    more. If that skips offsets, it may be misplaced: then the batches close behind it decide, by the largest run of
    rising offsets.
    """
    found = _search(window, position, end, min_offset)
    if found is None or found[1].base_offset == min_offset or found[0] in window.vetted:
        return found
    rows, close = [found], min(end, found[0] + MISPLACED_BYTES_MAX)
    at = found[0] + found[1].total_len
    while at < close:
        try:
            found = at, batch_at(window, at)
        except DamagedBatch:
            found = _search(window, at + 8, close, min_offset)
            if found is None:
                break
        if found[1].base_offset >= min_offset:
            rows.append(found)
        at = found[0] + found[1].total_len
    chosen = _largest_run([(header.base_offset, header.total_len) for _, header in rows])
    window.vetted = frozenset([rows[place][0] for place in chosen])  # so that each range is read once
    return rows[chosen[0]]


def _largest_run(rows: list[tuple[int, int]]) -> list[int]:
    """Return the places in ``rows``, of (offset, bytes), of the run of rising offsets with the most bytes."""
    if all(one[0] < other[0] for one, other in pairwise(rows)):
        return list(range(len(rows)))
    best: list[tuple[int, int]] = []  # (bytes, the one before) of the best row that ends here
    for offset, size in rows:
        below = [(best[before][0], before) for before in range(len(best)) if rows[before][0] < offset]
        weight, before = max(below, default=(0, -1))
        best.append((weight + size, before))
    chosen = [max(range(len(rows)), key=lambda place: best[place][0])]
    while (before := best[chosen[-1]][1]) >= 0:
        chosen.append(before)
    return chosen[::-1]


def _search(window: Window, position: int, end: int, min_offset: int) -> tuple[int, BatchHeader] | None:
    """Search for a batch at every aligned place. The salt is checked before the crc, which is slow."""
    fs, fd, salts = window.fs, window.fd, window.salts
    position, step = (position + 7) & ~7, SEARCH_BYTES_MIN
    while position < end:
        wanted = min(step, end - position)
        data = read_fully(fs, fd, wanted, position)
        at = find_magic(data, 0)
        while at >= 0:
            try:
                if has_own_salt(window, position + at):
                    header = header_at(window, position + at)
                    if header.base_offset >= min_offset:
                        return position + at, batch_at(window, position + at)
            except DamagedBatch:
                pass
            except UnknownVersion:
                if salts:  # it is one of ours
                    raise
            at = find_magic(data, at + 8)
        if len(data) < wanted or position + wanted >= end:
            return None
        position += wanted - 8  # a magic never straddles an aligned step of 8; be safe all the same
        step = min(2 * step, SEARCH_BYTES_MAX)
    return None


def has_own_salt(window: Window, position: int) -> bool:
    """Return whether the header at ``position`` has the partition's salt, or begins the segment."""
    return not position or not window.salts or salt_at(window, position) in window.salts


def salt_at(window: Window, position: int) -> int:
    """Return the salt of the header at ``position``, of any version."""
    place = window.at(position, HEADER_BYTES)
    return int.from_bytes(window.data[place + HEADER_BYTES - 4 : place + HEADER_BYTES], "little")


def load_index(fs: FileSystem, directory: str, base_offset: int) -> list[IndexEntry]:
    """Return the index entries of a segment; none if the index is missing or damaged."""
    return index.decode(read_file(fs, layout.index_path(directory, base_offset)), base_offset)


class Location(NamedTuple):
    """The result of a search for an offset."""

    position: int | None  # of the batch that holds it, or of the first behind it; None if there is neither
    before: int  # where the whole batches in front of that end, if they were walked over
    expected: int  # the offset that should be there


def locate(window: Window, entries: list[IndexEntry], offset: int, size: int) -> int | None:
    """Return the position of the batch that contains ``offset``, or of the first behind it, or None."""
    return find_place(window, entries, offset, size).position


def find_place(window: Window, entries: list[IndexEntry], offset: int, size: int) -> Location:
    """Return the same as ``locate``, with the end of the batches before it."""
    start, expected = start_from_index(window, index.up_to_offset(entries, offset))
    before = start
    for position, header in whole_batches(window, start, size, expected):
        last = last_offset(window, position, header)
        if last >= offset:
            return Location(position, before, expected)
        before, expected = position + header.total_len, last + 1
    return Location(None, before, expected)


def locate_time(window: Window, entries: list[IndexEntry], receive_ns: int, end_offset: int) -> int | None:
    """Return the first offset below ``end_offset`` received at ``receive_ns`` or later, or None."""
    return find_time(window, entries, receive_ns, end_offset).offset


class TimeLocation(NamedTuple):
    """The result of a search for a time."""

    offset: int | None  # of the first record of that time or later
    missing: int | None  # the first of the offsets before it that no batch has, if they may be of that time, too


def find_time(window: Window, entries: list[IndexEntry], receive_ns: int, end_offset: int) -> TimeLocation:
    """Return the same as ``locate_time``, with the missing offsets before it."""
    start, expected = start_from_index(window, index.up_to_time(entries, receive_ns))
    for position, header in whole_batches(window, start, window.fs.size(window.fd), expected):
        if header.base_offset >= end_offset:
            break
        if header.max_receive_ns >= receive_ns:
            batch = StoredBatch(window.data, window.at(position, header.total_len), header)
            offset = batch.offsets()[bisect_left(batch.receive_ns(), receive_ns)]
            missing = header.base_offset > expected and header.min_receive_ns >= receive_ns
            return TimeLocation(offset, expected if missing else None)
        expected = last_offset(window, position, header) + 1
    return TimeLocation(None, expected if expected < end_offset else None)


def start_from_index(window: Window, entries: list[IndexEntry]) -> tuple[int, int]:
    """Return position and offset of the last correct index entry, or of the segment's beginning."""
    for entry in reversed(entries):
        if entry_matches(window, entry):
            return entry.position, entry.base_offset
    return 0, base_of(window.path)


def entry_matches(window: Window, entry: IndexEntry) -> bool:
    """Return whether the whole batch of an index entry is where the entry says: the index may be outdated."""
    try:
        return batch_at(window, entry.position).base_offset == entry.base_offset and has_own_salt(
            window, entry.position
        )
    except DamagedBatch:
        return False


def base_of(path: str) -> int:
    """Return the base offset in the name of a segment's file; 0 for another name."""
    return layout.segment_base(path.rpartition("/")[2]) or 0


def last_offset(window: Window, position: int, header: BatchHeader) -> int:
    """Return the last offset that the batch at ``position`` covers."""
    place = window.at(position, header.columns.names) if header.flags & SPARSE else 0  # this may replace window.data
    return next_offset(window.data, place, header) - 1


def read_run(window: Window, position: int, end_offset: int, bytes_max: int) -> tuple[RecordBatch | None, int]:
    """Read consecutive batches as one.

    Args:
        window: The file.
        position: Where the first batch begins.
        end_offset: Batches with this offset or a higher one are not read.
        bytes_max: How much to read, on disk and unpacked.

    Returns:
        The records (None if the first batch is damaged or not below ``end_offset``), and the position behind them.
    """
    place = position - window.position
    if place < 0 or not window.data or (place and 2 * (len(window.data) - place) < bytes_max):
        window.at(position, max(bytes_max, HEADER_BYTES))  # a compressed chunk may fill many runs
    try:
        header = batch_at(window, position)
    except DamagedBatch:
        return None, position
    merger, at = merge_run(window.data, position - window.position, header, end_offset, bytes_max)
    return (merger.finish() if merger.blocks else None), window.position + at


def read_runs(
    window: Window, entries: list[IndexEntry], offset: int, end_offset: int, bytes_max: int
) -> Iterator[RecordBatch]:
    """Yield the records from ``offset`` on, across damage, in runs of consecutive batches.

    The first run may begin before ``offset``. A batch that cannot be unpacked is left out.

    Args:
        window: The file.
        entries: Its index.
        offset: Where to begin.
        end_offset: Batches with this offset or a higher one are not read.
        bytes_max: How much to read at a time, on disk and unpacked.
    """
    size = window.fs.size(window.fd)
    position = locate(window, entries, offset, size)
    while position is not None and position < size and offset < end_offset:
        batch, after = read_run(window, position, end_offset, bytes_max)
        if batch is None or batch.base_offset > offset:  # damage: search for the next batch
            found = locate(window, entries, offset, size)
            if found is None or found < position:
                return
            if found > position:
                position = found
                continue
        if batch is None:  # correct crc, but it cannot be unpacked
            header = header_at(window, position)
            offset = last_offset(window, position, header) + 1
            position += header.total_len
            continue
        if batch.next_offset > offset:
            offset = batch.next_offset
            yield batch
        position = after


def merge_run(data: bytes, at: int, header: BatchHeader, end_offset: int, bytes_max: int) -> tuple[Merger, int]:
    """Merge consecutive batches.

    Args:
        data: Bytes of a segment.
        at: Where the first batch begins.
        header: Its header; its crc was checked.
        end_offset: Batches with this offset or a higher one are not merged.
        bytes_max: Stop after this many unpacked bytes.

    Returns:
        The merged batches, and the place behind them.
    """
    merger = Merger()
    if header.base_offset >= end_offset:
        return merger, at
    try:
        merger.add(decode_columns(data, at, header))
        at += header.total_len
        while merger.size_bytes < bytes_max:
            header = decode_header(data, at)
            if header.base_offset != merger.next_offset or header.base_offset >= end_offset:
                break
            after = merge_single_records(merger, data, at, end_offset) if header.records == 1 else at
            if after == at:
                check(data, at, header)
                merger.add(decode_columns(data, at, header))
                after += header.total_len
            at = after
    except DamagedBatch:  # or only cut off by the end of the data; the next run finds out
        pass
    return merger, at
