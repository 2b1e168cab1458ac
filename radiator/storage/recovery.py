"""Open a partition that an earlier run left: from files to the facts that a partition starts with. It never guesses.

The active segment is walked from the last correct index entry; every batch must have its magic, lengths, crc and base
offset. Where the walk stops:

    nothing but zeros behind     a clean end (zeros written ahead), or nothing at all
    no whole batch behind        a torn tail: cut off, and its length is reported
    a whole batch behind         damage in the middle: left as it is (it is not written, cut or given to readers),
                                 its offsets are reported, and the walk continues behind it

What the head covers was committed and may have been read: damage to it is damage in the middle too, and its offsets are
not given again. If the journal has a part of it, that part is appended to the segment, behind the damage.

Of older segments only the first header is read, unless the list of destinations may be incomplete (``names_recovery``).
No data is deleted because an index, a head or a list of destinations is missing or wrong: those are rewritten. The only
bytes that are ever cut off are those behind the last whole batch.

It runs on the event loop before any other thread exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from radiator import limits
from radiator.storage import archived, layout, names_recovery, salt
from radiator.storage.files import (
    FileSystem,
    opened,
    read_file,
    read_fully,
    storage_error,
    suppress_no_room,
    write_again,
    write_all,
)
from radiator.storage.header import HEADER_BYTES, SPARSE, BatchHeader, DamagedBatch, decode_header
from radiator.storage.index import ENTRY_BYTES, IndexEntry, up_to_offset
from radiator.storage.log import Log
from radiator.storage.names_recovery import Allowance, names_in, names_of
from radiator.storage.segment import (
    SegmentInfo,
    Window,
    batch_at,
    entry_matches,
    find_batch,
    header_at,
    last_offset,
    load_index,
    scan_plain_batches,
    whole_batches,
)
from radiator.storage.segment_states import State

SCAN_BYTES = 1024 * 1024


@dataclass(frozen=True)
class RecoveryNote:
    """Something that a clean stop would not leave. ``str()`` is a line for the operator's log."""

    path: str
    text: str
    kind: str  # "torn", "damage", "foreign", "cursors", "ids", "names", "missing", "archived"
    first_offset: int | None = None  # the lost offsets, if known
    last_offset: int | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass
class Recovered:
    """The facts that a partition starts with."""

    segments: list[SegmentInfo]
    next_offset: int
    last_receive_ns: int
    destinations: set[str]
    whole: bool = True  # the list has every destination with messages here


class Journal(Protocol):
    """The batches that the journal has."""

    def next_batch(self, partition: str, start: int, end: int) -> bytes | None:
        """Return the first batch of a log between two offsets, as it is in a segment, or None."""

    def has(self, partition: str, offset: int, end: int) -> bool:
        """Return whether the journal has everything of a log from ``offset`` up to ``end``."""

    def batches(self, partition: str, start: int, end: int) -> Iterator[bytes]:
        """Yield the batches of a log with offsets from ``start`` to ``end``, in order."""


def recover(log: Log, notes: list[RecoveryNote], allowance: Allowance, journal: Journal) -> Recovered:
    """Bring one partition's files in order, and ``log`` to the place where it continues.

    Args:
        log: The log.
        notes: Receives what is reported.
        allowance: How much may be read to find out which destinations are stored here.
        journal: A segment need not have what the journal has.

    Raises:
        StorageError: A file cannot be read or written.
    """
    fs, directory = log.fs, log.directory
    try:
        files = fs.listdir(directory)
        recovered = _recover(fs, log, files, notes, allowance, journal)
        if layout.ARCHIVED in files and archived.lower(fs, directory, recovered.next_offset):
            text = f"an archive has more than this log, which lost its end and continues at {recovered.next_offset}"
            notes.append(RecoveryNote(layout.archived_path(directory), text, "archived"))
        return recovered
    except OSError as error:
        raise storage_error(directory, "recover", error) from error


def _recover(
    fs: FileSystem,
    log: Log,
    files: list[str],
    notes: list[RecoveryNote],
    allowance: Allowance,
    journal: Journal,
) -> Recovered:
    """Recover the partition; ``files``: the names of its files."""
    directory = log.directory
    bases = sorted(base for base in map(layout.segment_base, files) if base is not None)
    for base in [each for each in map(layout.index_base, files) if each is not None and each not in bases]:
        fs.remove(layout.index_path(directory, base))  # its segment was taken by retention
    for name in [each for each in files if each.endswith(layout.NEW_SUFFIX)]:
        fs.remove(f"{directory}/{name}")  # never renamed: the original still exists
    remembers = layout.DEDUP in files
    raw = read_file(fs, layout.head_path(directory)) or b""
    head = layout.decode_head(raw) or layout.Head(0, 0, 0)
    listed = names_recovery.load(log, raw, layout.NAMES in files)
    destinations = set(listed.names)
    if not bases and not journal.has(log.names.own_name, 0, head.next_offset):
        bases = _begin_again(fs, log, head, notes, journal)
    if not bases:
        end = 0 if journal.has(log.names.own_name, 0, head.next_offset) else head.next_offset
        log.set_recovered(remembers, end)
        if end:
            notes.append(_without_segments_note(directory, head, end))
        return Recovered([], end, 0, destinations)
    log.set_recovered(remembers, 0)
    segments = _sealed_segments(fs, directory, bases)
    active, last_receive_ns, start = _walk_active(fs, log, bases[-1], head, destinations, notes, journal)
    if not active.size_bytes and segments:
        last_receive_ns = _last_receive_ns(fs, directory, segments[-1])
        active.begin(last_receive_ns, last_receive_ns)
    _fix_receive_times(fs, directory, segments, active)
    segments.append(active)
    scan_segments = names_recovery.to_scan(listed, segments, head, start)
    if reason := names_recovery.complete(log, listed, scan_segments, destinations, allowance):
        notes.append(RecoveryNote(layout.names_path(directory), reason, "names"))
    _sync_and_write_head(fs, log, layout.segment_path(directory, bases[-1]), head, raw)
    return Recovered(segments, log.next_offset, last_receive_ns, destinations, log.names.whole)


def _begin_again(fs: FileSystem, log: Log, head: layout.Head, notes: list[RecoveryNote], journal: Journal) -> list[int]:
    """Make a segment in place of lost ones, if the journal has batches below the head. Return the bases of segments."""
    data = journal.next_batch(log.names.own_name, 0, head.next_offset)
    if data is None:
        return []
    base = decode_header(data).base_offset
    with opened(fs, fs.open(layout.segment_path(log.directory, base), create=True)):
        pass
    if base:
        notes.append(_without_segments_note(log.directory, head, base))
    return [base]


def _sealed_segments(fs: FileSystem, directory: str, bases: list[int]) -> list[SegmentInfo]:
    """Return all segments but the last, by their first header or that of the next segment."""
    segments: list[SegmentInfo] = []
    for base in bases[:-1]:
        with opened(fs, fs.open_read(layout.segment_path(directory, base))) as fd:
            size = fs.size(fd)
            window = Window(fs, fd, HEADER_BYTES, layout.segment_path(directory, base))
            before = segments[-1].first_receive_ns if segments else None
            header = _first_header(window, size, base, before)
        first = max(header.min_receive_ns if header is not None else 0, before or 0)
        sparse = header is not None and bool(header.flags & SPARSE)
        segments.append(SegmentInfo(base, first, first, size, sparse, State.SEALED))
    return segments


def _first_header(window: Window, size: int, base: int, before: int | None) -> BatchHeader | None:
    """Return the first header of a segment, which has the time when it began.

    If the header fits its place, its crc is not checked: that might read 16 MiB. A damaged header must neither make
    retention delete too early nor hide records from a search by time.
    """
    try:
        header = header_at(window, 0)
        if header.base_offset == base and (before is None or header.min_receive_ns >= before):
            return header
    except DamagedBatch:
        pass
    return _first_whole(window, size, base)


def _first_whole(window: Window, size: int, base: int) -> BatchHeader | None:
    return next((header for _, header in whole_batches(window, 0, size, base)), None)


def _fix_receive_times(fs: FileSystem, directory: str, segments: list[SegmentInfo], active: SegmentInfo) -> None:
    """Set when each segment ended.

    Receive times never fall; if they seem to, a first header is damaged, and only headers with a correct crc are used.
    """
    every = [*segments, active]
    if any(each.first_receive_ns > following.first_receive_ns for each, following in pairwise(every)):
        latest = 0
        for segment in segments:
            path = layout.segment_path(directory, segment.base_offset)
            with opened(fs, fs.open_read(path)) as fd:
                window = Window(fs, fd, HEADER_BYTES, path)
                header = _first_whole(window, segment.size_bytes, segment.base_offset)
            latest = max(header.min_receive_ns if header is not None else 0, latest)
            segment.begin(latest)
    for each, following in pairwise(every):
        each.set_end(each.size_bytes, max(each.first_receive_ns, following.first_receive_ns))


def _last_receive_ns(fs: FileSystem, directory: str, segment: SegmentInfo) -> int:
    """Return the last receive time of a sealed segment: times must not fall over a restart."""
    path = layout.segment_path(directory, segment.base_offset)
    with opened(fs, fs.open_read(path)) as fd:
        window = Window(fs, fd, SCAN_BYTES, path)
        entries = _valid_entries(window, load_index(fs, directory, segment.base_offset), segment.size_bytes)
        start = entries[-1] if entries else IndexEntry(segment.base_offset, 0, 0)
        found = whole_batches(window, start.position, segment.size_bytes, start.base_offset)
        return max([segment.first_receive_ns, *[header.max_receive_ns for _, header in found]])


def _walk_active(
    fs: FileSystem,
    log: Log,
    base: int,
    head: layout.Head,
    destinations: set[str],
    notes: list[RecoveryNote],
    journal: Journal,
) -> tuple[SegmentInfo, int, int]:
    """Walk the active segment to its end, cut off a torn tail, and set ``log`` there.

    Returns:
        The segment's facts, the latest receive time, and where the walk began.
    """
    directory = log.directory
    path = layout.segment_path(directory, base)
    with opened(fs, fs.open(path)) as fd:
        size = fs.size(fd)
        window = Window(fs, fd, SCAN_BYTES, path)
        opened_segment = _OpenedSegment(fs, fd, path, base, size, window, head, log.names.own_name, journal, notes)
        entries = load_index(fs, directory, base)
        entries = _valid_entries(window, entries, size)
        position, expected, latest = 0, base, 0
        if entries:
            position, expected = entries[-1].position, entries[-1].base_offset
        more: list[IndexEntry] = []
        begun_at = position
        indexed = position if entries else -limits.INDEX_INTERVAL_BYTES
        dictionaries: set[bytes] = set()
        while position < size or opened_segment.append(position, expected):
            size = opened_segment.size
            place = window.at(position, HEADER_BYTES)
            stop = place + indexed + limits.INDEX_INTERVAL_BYTES - position
            scanned, expected, high = scan_plain_batches(window.data, place, stop, expected, dictionaries)
            position += scanned - place
            latest = max(latest, high)
            if position >= size:
                continue
            try:
                header, search, reason = batch_at(window, position), position, ""
            except DamagedBatch as damage:
                header, search, reason = None, position + 8, str(damage)
            if header is None or header.base_offset != expected:
                following = opened_segment.behind_damage(position, expected, search, reason)
                if following is None:
                    size = position
                else:
                    position, expected = following
                continue
            destinations.update(names_of(window, position, header))
            if position >= indexed + limits.INDEX_INTERVAL_BYTES:
                more.append(IndexEntry(header.base_offset, position, header.min_receive_ns))
                indexed = position
            expected = last_offset(window, position, header) + 1
            latest = max(latest, header.max_receive_ns)
            position += header.total_len
        destinations.update(names_in(dictionaries))
        begun = _first_whole(window, position, base)
        first = min(begun.min_receive_ns, latest) if begun is not None else latest
        sparse = begun is not None and bool(begun.flags & SPARSE)
    if head.next_offset > expected and not journal.has(log.names.own_name, expected, head.next_offset):
        notes.append(_lost_note(path, expected, head.next_offset))
        expected = head.next_offset
    own_salt = log.salt
    if position:  # as it was begun, should the key have been lost since
        own_salt = salt.first_of(fs, path) or log.salt
    log.set_active_segment(base, position, expected, own_salt, more, len(entries), indexed)
    _cut_index(fs, directory, base, len(entries))
    return SegmentInfo(base, first, latest, position, sparse), latest, begun_at


@dataclass
class _OpenedSegment:
    """The active segment of a log while it is walked, and what else is known of its records.

    Attributes:
        size: The bytes of the file.
        head: Where the log ended at the last sync.
        log_name: The name by which the journal knows the log.
        appended: ``append`` was called, and had something to do.
    """

    fs: FileSystem
    fd: int
    path: str
    base: int
    size: int
    window: Window
    head: layout.Head
    log_name: str
    journal: Journal
    notes: list[RecoveryNote]
    appended: bool = False

    def behind_damage(self, position: int, expected: int, search: int, reason: str) -> tuple[int, int] | None:
        """Return where the walk goes on after a place that does not have the next batch.

        Args:
            position: The place, where the batch with the offset ``expected`` should be.
            expected: The next offset.
            search: Where to look for a later batch.
            reason: What is wrong with the bytes; empty for a whole batch with another offset.

        Returns:
            The position and the next offset, or None if the segment ends at ``position``.
        """
        journal, head = self.journal, self.head
        found = find_batch(self.window, search, self.size, expected)
        if found is not None:
            at, next_offset = found[0], found[1].base_offset
            mended = journal.next_batch(self.log_name, expected, next_offset) or b""
            if 0 < len(mended) <= at - position:  # no sync had covered it, or it was damaged since
                write_all(self.fs, self.fd, [mended], position)
                self.window.forget()
                return position, expected
            if at > position or next_offset > expected:
                self.notes.append(_damage_note(self.path, position, at, expected, next_offset))
            return at, next_offset
        if journal.has(self.log_name, expected, expected + 1):
            self.fs.truncate(self.fd, position)  # journal entries from here on are appended again
            return None
        if head.segment_base == self.base and position < head.position <= self.size:
            partly = journal.next_batch(self.log_name, expected, head.next_offset) is not None
            end = expected if partly else max(expected, head.next_offset)
            self.notes.append(_damage_note(self.path, position, head.position, expected, end))
            return head.position, end
        kept = _end_of_others(self.window, search, self.size, self.base)
        if kept:
            self.notes.append(_damage_note(self.path, position, kept, expected, expected))
            return kept, expected
        _truncate_tail(self.fs, self.fd, self.path, position, self.size, reason, self.notes)
        return None

    def append(self, position: int, expected: int) -> bool:
        """Append to the segment what the journal has of the committed records that the segment lacks.

        If the journal has all of them, they are appended with all other batches of the journal (``journal.redo``).

        Args:
            position: The end of the segment.
            expected: The next offset.

        Returns:
            Whether there was anything.

        Raises:
            OSError: It cannot be written. A start then fails, since it would declare receipted messages lost.
        """
        journal, name, end = self.journal, self.log_name, self.head.next_offset
        if self.appended or expected >= end or journal.has(name, expected, end):
            return False
        self.appended = True
        start = position
        for data in journal.batches(name, expected, end):
            if decode_header(data).base_offset >= expected:
                write_all(self.fs, self.fd, [data], position)
                position += len(data)
        self.size = position
        self.window.forget()
        return position > start


def _end_of_others(window: Window, position: int, size: int, base: int) -> int:
    """Return where the last whole batch ends, though its offsets have been given again; 0 if there is none.

    It is not used, but it is not torn either, so it is not cut off.
    """
    return max([place + header.total_len for place, header in whole_batches(window, position, size, base)], default=0)


def _valid_entries(window: Window, entries: list[IndexEntry], size: int) -> list[IndexEntry]:
    """Return the entries up to the last one whose batch is whole and has the offset of the entry."""
    while entries:
        if entries[-1].position < size and entry_matches(window, entries[-1]):
            return entries
        entries = entries[:-1]
    return []


def _truncate_tail(
    fs: FileSystem, fd: int, path: str, position: int, size: int, damage: str, notes: list[RecoveryNote]
) -> None:
    """Truncate behind the last whole batch. Zeros there are a clean end, anything else is a torn tail."""
    at = position
    while at < size:
        data = read_fully(fs, fd, min(SCAN_BYTES, size - at), at)
        if not data:
            break
        if data.strip(b"\0"):
            lost = size - position
            notes.append(RecoveryNote(path, f"torn tail of {lost} bytes at {position} cut off ({damage})", "torn"))
            break
        at += len(data)
    fs.truncate(fd, position)


def _damage_note(path: str, position: int, end: int, expected: int, found: int) -> RecoveryNote:
    where = f"bytes {position} to {end - 1}" if end > position else f"before byte {position}"
    lost = f"offsets {expected} to {found - 1} are lost" if found > expected else "no offset is missing"
    text = f"damage in the middle, {where}: {lost}; everything after it is kept"
    return RecoveryNote(path, text, "damage", expected, found - 1)


def _lost_note(path: str, expected: int, end: int) -> RecoveryNote:
    text = f"offsets {expected} to {end - 1} were stored and are lost; they are not used again"
    return RecoveryNote(path, text, "damage", expected, end - 1)


def _without_segments_note(directory: str, head: layout.Head, end: int) -> RecoveryNote:
    """Report what is lost below ``end`` if no segment is left: nobody knows where the log began."""
    known_from = min(head.segment_base, end)
    if not known_from:
        return _lost_note(directory, 0, end)
    text = (
        f"all segments are missing; offsets below {end} are lost, apart from those below {known_from} that retention "
        "had removed; they are not used again"
    )
    return RecoveryNote(directory, text, "damage", 0, end - 1)


def _cut_index(fs: FileSystem, directory: str, base: int, count: int) -> None:
    """Truncate the index behind its valid entries; the others are written again."""
    path = layout.index_path(directory, base)
    facts, size = fs.stat(path), ENTRY_BYTES * (1 + count) if count else 0
    if facts is None or facts.size == size:
        return
    with opened(fs, fs.open(path)) as fd:
        fs.truncate(fd, size)


def _sync_and_write_head(fs: FileSystem, log: Log, path: str, head: layout.Head, raw: bytes) -> None:
    """Make sure that everything found is on disk, and write the head.

    Bytes behind the old head were never covered by a successful sync. If one failed, the kernel may have them as clean
    pages that are not on disk: a sync alone would succeed and write nothing. So they are written once more, and so is
    everything if the head is marked. Under ``never`` the head covers more; that is synced when a receipt needs it
    (``Log.inherited``), and here with the rest, so that the head is marked until the sync has succeeded.
    """
    wanted = layout.Head(log.base_offset, log.position, log.next_offset)
    failed = layout.sync_failed(raw)
    if head != wanted or failed:
        with opened(fs, fs.open(path)) as fd:
            known = head.segment_base == log.base_offset and not failed
            position = min(head.position, log.position) if known else 0
            if known:
                _write_head(fs, log.directory, layout.SYNC_FAILED, layout.SYNC_FAILED_AT)
            write_again(fs, fd, position, log.position)
            fs.fdatasync(fd)
        fs.sync_dir(log.directory)
    data = (layout.encode_head(*wanted) + log.names.vouched).ljust(layout.HEAD_FILE_BYTES, b"\0")
    if raw[: layout.HEAD_BYTES] != data[: layout.HEAD_BYTES]:
        with suppress_no_room():  # then readers walk
            _write_head(fs, log.directory, data)
    log.inherit()


def write_records_again(log: Log, offset: int) -> None:
    """Write what the active segment has from ``offset`` on once more, so that the next checkpoint syncs it.

    Raises:
        OSError: The segment cannot be read or written.
    """
    if not log.position:
        return
    fs, path = log.fs, layout.segment_path(log.directory, log.base_offset)
    entries = up_to_offset([*load_index(fs, log.directory, log.base_offset), *log.entries], offset)
    with opened(fs, fs.open(path)) as fd:
        write_again(fs, fd, entries[-1].position if entries else 0, log.position)


def _write_head(fs: FileSystem, directory: str, data: bytes, position: int = 0) -> None:
    with opened(fs, fs.open(layout.head_path(directory), create=True)) as fd:
        write_all(fs, fd, [data], position)


def partition_names(fs: FileSystem, root: str, notes: list[RecoveryNote]) -> Iterable[str]:
    """Yield the partitions under ``root``. Anything else is reported and not changed."""
    directory = layout.partitions_path(root)
    for encoded in fs.listdir(directory):
        try:
            name = layout.decode_name(encoded)
            facts = fs.stat(f"{directory}/{encoded}")
            if facts is not None and not facts.is_dir:
                fs.listdir(f"{directory}/{encoded}")  # a link to one is as good
            yield name
        except (ValueError, NotADirectoryError):
            notes.append(RecoveryNote(f"{directory}/{encoded}", "not a partition; ignored", "foreign"))
