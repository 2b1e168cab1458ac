"""Walking a segment file: from batch to batch, across damage, to an offset or a time.

Whoever opened the file walks it: recovery on the hub before anything runs, cold reads on the read thread, ``reader`` in
another process. The writer need not stop: walkers end at the high watermark (or ``head``); below, nothing changes.

Knows: positions and batches. Must not know: partitions, jobs, who is asking.
Invariants: what is returned has a correct crc; a batch counts as the next one only if its magic, lengths, crc and
base offset all hold; behind damage, where anything may stand, it must have the partition's salt as well (``salt``),
and so it must where an index points: a segment may have been rewritten since, then offsets are what they were, and
positions are not. Offsets rise: a whole batch that stands where it does not belong (a page written to the wrong place)
hides none of those that follow it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from radiator import limits
from radiator.storage import index, layout, salt
from radiator.storage.batch import RecordBatch
from radiator.storage.files import FileSystem, read_file, read_fully
from radiator.storage.format import (
    COPIED_BYTES_MAX,
    CRC_FROM,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    PARTIAL_CRCS,
    PLAIN,
    SPARSE,
    BatchHeader,
    DamagedBatch,
    StoredBatch,
    UnknownVersion,
    check,
    decode_columns,
    decode_header,
    find_magic,
    next_offset,
)
from radiator.storage.header import newer_len, places_of
from radiator.storage.index import IndexEntry
from radiator.storage.merge import Merger, merge_single_records

_PLAIN_HEADER = Struct("<8sIIQ16xIH2xI12x")  # of a header: magic, total_len, crc, base offset, count, flags, names_len
SEARCH_BYTES_MIN = 8 * 1024  # read at first in a search, and ever more: the next batch is often near
SEARCH_BYTES_MAX = 1024 * 1024
MISPLACED_BYTES_MAX = 128 * 1024  # as much as this is looked at to tell a gap from pages of another place


class SegmentInfo:
    """One segment, as the hub knows it. ``commits``: since this run of the broker has had it. ``sparse``: records have
    been removed from it, so it holds fewer than offsets; its first batch has the flag."""

    __slots__ = ("base_offset", "commits", "first_receive_ns", "last_receive_ns", "size_bytes", "sparse")

    def __init__(
        self, base_offset: int, first_receive_ns: int, last_receive_ns: int, size_bytes: int, sparse: bool = False
    ) -> None:
        self.base_offset = base_offset
        self.first_receive_ns = first_receive_ns
        self.last_receive_ns = last_receive_ns
        self.size_bytes = size_bytes
        self.commits = 0
        self.sparse = sparse

    def begin(self, first_receive_ns: int, last_receive_ns: int | None = None) -> None:
        """Note when the first record came, and the last one if that is known."""
        self.first_receive_ns = first_receive_ns
        if last_receive_ns is not None:
            self.last_receive_ns = last_receive_ns

    def rewritten(self, size_bytes: int, sparse: bool) -> None:
        """Note what the file is after it was rewritten."""
        self.size_bytes, self.sparse = size_bytes, sparse

    def grow(self, size_bytes: int, last_receive_ns: int) -> None:
        """By a commit, to this size."""
        self.size_bytes = size_bytes
        self.last_receive_ns = last_receive_ns
        self.commits += 1

    def __repr__(self) -> str:
        return f"<SegmentInfo {self.base_offset} {self.size_bytes} B>"


class Window:
    """A file seen through a sliding chunk: small steps forward cost no system call. ``path`` says whose it is."""

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
        """Where ``position`` is in ``data``, with ``size`` bytes behind it unless the file ends before."""
        place = position - self.position
        if place < 0 or place + size > len(self.data):
            if size > self.chunk_bytes:  # maybe a damaged length: never ask for more memory than the file has bytes
                size = min(size, max(self.fs.size(self.fd) - position, 0))
            self.position = position
            self.data = read_fully(self.fs, self.fd, max(size, self.chunk_bytes), position)
            return 0
        return place

    def forget(self) -> None:
        """The file has changed."""
        self.data = b""
        self.vetted = frozenset()

    @property
    def salts(self) -> frozenset[int]:
        """Only these may stand in a header of this segment; empty: it cannot be told."""
        if self._salts is None:
            self._salts = salt.of_segment(self.fs, self.path)
        return self._salts


def header_at(window: Window, position: int) -> BatchHeader:
    """The header at ``position``, crc not looked at. Raises DamagedBatch, or UnknownVersion if a newer radiator wrote
    what stands there."""
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
    """The whole, checked batch at ``position``; its bytes are then in ``window``. Raises DamagedBatch."""
    header = header_at(window, position)
    place = window.at(position, header.total_len)
    check(window.data, place, header)
    return header


def whole_batches(window: Window, position: int, end: int, expected: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of the whole batches that begin below ``end``, across damage; the first should begin with the
    offset ``expected``. Offsets rise. The bytes of each are in ``window`` until the next is asked for."""
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
    """Over whole batches that follow one another without a gap from ``at`` on, up to the one that ends behind ``stop``.

    The quick way of recovery; it stops at everything that is not plain, and ``batch_at`` judges that. Returns the place
    and the offset behind, and the last receive time; adds their dictionaries of names, as they lie, to ``names``.
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
    """The way on behind damage: the first whole batch at or after ``position`` that begins below ``end`` with an offset
    of ``min_offset`` or more. If that leaves offsets out, it may be one that does not belong there: then what stands
    close behind it decides, by the largest row of rising offsets."""
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
    window.vetted = frozenset([rows[place][0] for place in chosen])  # so that each stretch is looked at once
    return rows[chosen[0]]


def _largest_run(rows: list[tuple[int, int]]) -> list[int]:
    """The places in ``rows``, of (offset, bytes), of the row of rising offsets with the most bytes: all, as a rule."""
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
    """Wherever it may begin. The salt comes before the crc: what a client made up costs no more than a look."""
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
    """Whether what stands there has the partition's salt. At the start of a segment there is no doubt."""
    return not position or not window.salts or salt_at(window, position) in window.salts


def salt_at(window: Window, position: int) -> int:
    """Where the salt stands in a header of any version."""
    place = window.at(position, HEADER_BYTES)
    return int.from_bytes(window.data[place + HEADER_BYTES - 4 : place + HEADER_BYTES], "little")


def load_index(fs: FileSystem, directory: str, base_offset: int) -> list[IndexEntry]:
    return index.decode(read_file(fs, layout.index_path(directory, base_offset)), base_offset)


class Location(NamedTuple):
    """Where an offset was looked for."""

    position: int | None  # of the batch that holds it, or of the first behind it; None if there is neither
    before: int  # where the whole batches in front of that end, if they were walked over
    expected: int  # the offset that should be there


def locate(window: Window, entries: list[IndexEntry], offset: int, size: int) -> int | None:
    """The position of the batch that holds ``offset``, or of the first behind it; None if there is neither."""
    return find_place(window, entries, offset, size).position


def find_place(window: Window, entries: list[IndexEntry], offset: int, size: int) -> Location:
    start, expected = start_from_index(window, index.up_to_offset(entries, offset))
    before = start
    for position, header in whole_batches(window, start, size, expected):
        last = last_offset(window, position, header)
        if last >= offset:
            return Location(position, before, expected)
        before, expected = position + header.total_len, last + 1
    return Location(None, before, expected)


def locate_time(window: Window, entries: list[IndexEntry], receive_ns: int, end_offset: int) -> int | None:
    """The offset of the first record below ``end_offset`` received at ``receive_ns`` or later; None if none is."""
    start, expected = start_from_index(window, index.up_to_time(entries, receive_ns))
    for position, header in whole_batches(window, start, window.fs.size(window.fd), expected):
        if header.base_offset >= end_offset:
            return None
        if header.max_receive_ns >= receive_ns:
            batch = StoredBatch(window.data, window.at(position, header.total_len), header)
            return batch.offsets()[bisect_left(batch.receive_ns(), receive_ns)]
    return None


def start_from_index(window: Window, entries: list[IndexEntry]) -> tuple[int, int]:
    """Position and offset of the last entry that keeps what it promises, or of the segment's beginning; an index that
    lies costs time, nothing else."""
    for entry in reversed(entries):
        if entry_matches(window, entry):
            return entry.position, entry.base_offset
    return 0, base_of(window.path)


def entry_matches(window: Window, entry: IndexEntry) -> bool:
    """Whether the batch that ``entry`` names stands where it says, whole: the index may be older than the file."""
    try:
        return batch_at(window, entry.position).base_offset == entry.base_offset and has_own_salt(
            window, entry.position
        )
    except DamagedBatch:
        return False


def base_of(path: str) -> int:
    """The base offset of a segment's file; 0 for another name."""
    return layout.segment_base(path.rpartition("/")[2]) or 0


def last_offset(window: Window, position: int, header: BatchHeader) -> int:
    """Return the last offset that the batch at ``position`` covers."""
    place = window.at(position, header.columns.names) if header.flags & SPARSE else 0  # this may replace window.data
    return next_offset(window.data, place, header) - 1


def read_run(window: Window, position: int, end_offset: int, bytes_max: int) -> tuple[RecordBatch | None, int]:
    """The batch at ``position`` and those that follow it without a gap, below ``end_offset``, as one, as far as
    ``bytes_max`` reaches (on disk and unpacked); and the position behind. None if the first is damaged or not below
    ``end_offset``."""
    place = position - window.position
    if place < 0 or not window.data or (place and 2 * (len(window.data) - place) < bytes_max):
        window.at(position, max(bytes_max, HEADER_BYTES))  # what is compressed may fill many runs from one chunk
    try:
        header = batch_at(window, position)
    except DamagedBatch:
        return None, position
    merger, at = merge_run(window.data, position - window.position, header, end_offset, bytes_max)
    return (merger.finish() if merger.blocks else None), window.position + at


def merge_run(data: bytes, at: int, header: BatchHeader, end_offset: int, bytes_max: int) -> tuple[Merger, int]:
    """Merge the batch at ``at``, whose header this is, and those behind it as long as they hold, have no gap between
    them and begin below ``end_offset``, until they have ``bytes_max`` unpacked. Returns them and the place behind."""
    merger = Merger()
    if header.base_offset >= end_offset:
        return merger, at
    try:
        merger.add(*decode_columns(data, at, header))
        at += header.total_len
        while merger.size_bytes < bytes_max:
            header = decode_header(data, at)
            if header.base_offset != merger.next_offset or header.base_offset >= end_offset:
                break
            after = merge_single_records(merger, data, at, end_offset) if header.records == 1 else at
            if after == at:
                check(data, at, header)
                merger.add(*decode_columns(data, at, header))
                after += header.total_len
            at = after
    except DamagedBatch:  # or only cut off by the end of the data; the next run finds out
        pass
    return merger, at
