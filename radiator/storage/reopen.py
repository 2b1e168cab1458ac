"""Continue a log in a new segment, in the same run, after a file has failed.

A failed sync is reported once; afterwards the kernel treats what it should have written as clean, or forgets it. So
nothing behind the last successful sync counts as stored, whatever a later sync returns. What was *promised* of that
(receipted, seen by readers) is read back by crc, or taken from the tail in memory or from the journal, and written to a
new file. The rest is left out: the journal refused it, and its offsets are given again, or has it, and then it is
appended again.

    <first doubtful offset>.rlog.new     written, synced     a crash here: the old file is still in use
    renamed to .rlog, directory synced                       from here on the old file is not read at or behind this
                                                             base offset, because segments end where the next one
                                                             begins
    head moves                                               external readers follow
    the old file is truncated (``cut``, later)               to free space only

If any step fails the next attempt repeats all of them. What can neither be read back nor is in memory or in the journal
is lost: its offsets are reported and not given again.

This module knows bytes of segments and batches. It does not know receipts or time. The disk thread runs it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from radiator import limits
from radiator.storage import layout
from radiator.storage.batch import RecordBatch
from radiator.storage.files import close_quietly, opened, storage_error, write_all
from radiator.storage.format import decode
from radiator.storage.header import UnknownVersion
from radiator.storage.index import IndexEntry
from radiator.storage.log import PROBE, Log
from radiator.storage.segment import Window, last_offset, whole_batches

COPY_BYTES = 1024 * 1024
READ_ATTEMPTS_MAX = 10  # of an unreadable file, before its messages are given up


class Piece(NamedTuple):
    """A whole batch, as it is stored."""

    base_offset: int
    next_offset: int
    min_receive_ns: int
    max_receive_ns: int
    data: bytes


@dataclass
class Reopened:
    """Where the log continues, and what became of the doubtful records."""

    failed_base: int  # of the file that failed
    kept_bytes: int  # of it
    base_offset: int = 0
    size_bytes: int = 0
    first_receive_ns: int | None = None
    last_receive_ns: int = 0
    saved: int = 0  # records that are in the new file
    lost: list[tuple[int, int]] = field(default_factory=list)  # offsets, first and last
    unreadable: OSError | None = None  # the failed file or the journal could not be read: maybe they can the next time


JournalBatches = Callable[[str, int, int], Iterator[bytes]]  # partition, first offset, end; raises OSError


def reopen(log: Log, end_offset: int, recent: Sequence[RecordBatch], stored: JournalBatches) -> Reopened:
    """Continue the log in a new segment with everything below ``end_offset`` that is still available.

    Args:
        log: The log whose file has failed.
        end_offset: The end of what was promised.
        recent: Its batches in memory, in order.
        stored: Returns the batches that the journal has.

    Raises:
        StorageError: The log is unchanged.
    """
    fs, doubtful = log.fs, log.synced_offset
    found = Reopened(log.base_offset, log.synced)
    path = layout.segment_path(log.directory, doubtful) + layout.NEW_SUFFIX
    fd = -1
    try:
        log.make_directory()
        with contextlib.suppress(FileNotFoundError):
            fs.remove(path)
        fd = fs.open(path, create=True)
        entries, position = _write(log, fd, end_offset, recent, stored, found)
        if found.lost and found.unreadable is not None:
            attempts = log.count_unreadable()
            if attempts < READ_ATTEMPTS_MAX:
                raise found.unreadable
        write_all(fs, fd, [PROBE], position)  # this reads the disk in any case
        fs.truncate(fd, position)
        fs.fdatasync(fd)
        log.open_logs.synced()
        log.map_head()
        found.base_offset = doubtful if position else end_offset
        with contextlib.suppress(FileNotFoundError):
            fs.remove(layout.index_path(log.directory, found.base_offset))
        log.sync_names()  # a start that finds this segment must find the one before
        fs.rename(path, layout.segment_path(log.directory, found.base_offset))
        log.count_new_name()
        log.sync_names()
    except OSError as error:
        close_quietly(fs, fd)
        with contextlib.suppress(OSError):
            fs.remove(path)
        raise log.fail("continue in a new segment after a failure", error) from error
    found.size_bytes = position
    log.continue_in_file(fd, found.base_offset, position, end_offset, entries)
    return found


def cut(log: Log, base_offset: int, size_bytes: int) -> None:
    """Truncate a failed file behind its last sync, which is no longer read."""
    assert base_offset != log.base_offset
    path = layout.segment_path(log.directory, base_offset)
    try:
        with opened(log.fs, log.fs.open(path)) as fd:
            log.fs.truncate(fd, size_bytes)
            log.fs.fdatasync(fd)
    except OSError as error:
        raise storage_error(path, "cut off what is no longer used", error) from error


def _write(
    log: Log, fd: int, end_offset: int, recent: Sequence[RecordBatch], stored: JournalBatches, found: Reopened
) -> tuple[list[IndexEntry], int]:
    """Copy what is available; return index entries and the end."""
    entries: list[IndexEntry] = []
    expected, position, written = log.synced_offset, 0, 0
    waiting: list[bytes] = []
    for piece in _pieces(log, end_offset, recent, stored, found):
        if piece.base_offset > expected:
            found.lost.append((expected, piece.base_offset - 1))
        expected = piece.next_offset
        found.saved += piece.next_offset - piece.base_offset
        if found.first_receive_ns is None:
            found.first_receive_ns = piece.min_receive_ns
        found.last_receive_ns = piece.max_receive_ns
        if not entries or position >= entries[-1].position + limits.INDEX_INTERVAL_BYTES:
            entries.append(IndexEntry(piece.base_offset, position, piece.min_receive_ns))
        waiting.append(piece.data)
        position += len(piece.data)
        if position - written >= COPY_BYTES:
            written += write_all(log.fs, fd, [b"".join(waiting)], written)
            waiting = []
    if waiting:
        write_all(log.fs, fd, [b"".join(waiting)], written)
    if expected < end_offset:
        found.lost.append((expected, end_offset - 1))
    return entries, position


def _pieces(
    log: Log, end_offset: int, recent: Sequence[RecordBatch], stored: JournalBatches, found: Reopened
) -> Iterator[Piece]:
    """Yield the doubtful records in order: from the failed file, else from memory, else from the journal."""
    if log.synced_offset == end_offset:
        return

    def from_journal(start: int, end: int) -> Iterator[Piece]:
        try:
            for data in stored(log.names.own_name, start, end):
                yield from _from_memory(log, [RecordBatch(*decode(data)[1])], start, end)
        except OSError as error:
            found.unreadable = error

    from_file = _from_file(log, log.synced_offset, end_offset, found)
    pieces = _filled(from_file, log.synced_offset, end_offset, lambda *gap: _from_memory(log, recent, *gap))
    yield from _filled(pieces, log.synced_offset, end_offset, from_journal)


def _filled(
    pieces: Iterator[Piece], start: int, end: int, others: Callable[[int, int], Iterator[Piece]]
) -> Iterator[Piece]:
    """Yield the pieces, and those of ``others`` for the offsets between them."""
    for piece in pieces:
        if piece.base_offset > start:
            yield from others(start, piece.base_offset)
        yield piece
        start = piece.next_offset
    if start < end:
        yield from others(start, end)


def _from_file(log: Log, expected: int, end_offset: int, found: Reopened) -> Iterator[Piece]:
    """Yield whole batches behind the last sync, as far as the file can be read."""
    fs, path = log.fs, layout.segment_path(log.directory, log.base_offset)
    try:
        with opened(fs, fs.open_read(path)) as fd:
            window = Window(fs, fd, path=path)
            for position, header in whole_batches(window, log.synced, fs.size(fd), expected):
                following = last_offset(window, position, header) + 1
                if following > end_offset:
                    return
                place = window.at(position, header.total_len)
                data = bytes(window.data[place : place + header.total_len])
                yield Piece(header.base_offset, following, header.min_receive_ns, header.max_receive_ns, data)
    except (FileNotFoundError, UnknownVersion):
        return
    except OSError as error:
        found.unreadable = error


def _from_memory(log: Log, recent: Sequence[RecordBatch], start: int, end: int) -> Iterator[Piece]:
    """Yield the records from ``start`` up to ``end`` that are in memory, as batches without gaps."""
    for batch in recent:
        first, stop = batch.index_at(start), batch.index_at(end)
        while first < stop:
            last = first + 1
            while last < stop and batch.offsets[last] == batch.offsets[last - 1] + 1:
                last += 1
            yield _encoded(log, batch, first, last)
            first = last


def _encoded(log: Log, batch: RecordBatch, first: int, last: int) -> Piece:
    part = batch.part(first, last, batch.offsets[first])
    times = part.receive_ns
    return Piece(part.base_offset, part.next_offset, times[0], times[-1], b"".join(part.encode(log.salt)))
