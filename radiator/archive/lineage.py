"""Check whether a log is the one that an archive has the beginning of, or another one of the same name.

A data directory that was restored from an older copy and has gone on, or a recreated partition, has other records at
offsets that the archive has already. So commits contain the last record of each partition, its *anchor*. Before log and
archive are used together, that record is looked up in the log: an index, and one batch. If the record is gone
(retention, compaction, damage), the records around it must have come before it and after it.

This module knows anchors and segments. It does not know Parquet, or what is done with the result. Invariant: a log that
was only appended to is never refused, whatever was removed from it, rewritten or damaged.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

from radiator.archive.files import Files
from radiator.archive.manifest import Anchor, DataFile, State, check_source
from radiator.archive.uncommitted import check_commits
from radiator.clock import rfc3339
from radiator.columns.files import Place, together
from radiator.errors import StorageError
from radiator.limits import KIB
from radiator.storage import layout
from radiator.storage.files import FileSystem, opened, read_file, storage_error
from radiator.storage.format import Columns, decode_columns
from radiator.storage.header import MISSING, BatchHeader, DamagedBatch, decode_header
from radiator.storage.index import up_to_offset
from radiator.storage.reader import StoredPartition, StoredSegment, newest_receive_ns, stored_partition
from radiator.storage.salt import decode_key
from radiator.storage.segment import Window, last_offset, load_index, start_from_index, whole_batches
from radiator.storage.time_window import first_ns
from radiator.words import counted

RETENTION = "retention"  # why offsets are lost that were gone from the beginning of the log when it was archived
TRIES_MAX = 5  # at a partition from which segments go meanwhile
WINDOW_BYTES = 128 * KIB  # batches between two entries of an index, as a rule

_WHY = (
    "the data directory was restored from an older copy, or lost its end in a power failure and was used since, or "
    "the partition was created again"
)

_FIELDS = struct.Struct("<QqqqIII")


class OtherLog(StorageError):
    """The log is not the one that the archive has. ``str()`` says what was expected and what came."""


class Lookup(NamedTuple):
    """The contents of a log at an offset: the record, or the receive times of the ones before and behind it.

    A time is None if there is no record, or it is unknown.
    """

    record: Anchor | None
    before_ns: int | None = None
    after_ns: int | None = None


def anchor_at(batch: bytes, first: int, following: int) -> Anchor | None:
    """Return the anchor of the last record of the first batch in ``batch``, if its offset is in this range."""
    columns = decode_columns(batch, 0, decode_header(batch))
    return _anchor(columns, len(columns.bodies) - 1) if first <= columns.offsets[-1] < following else None


def _anchor(columns: Columns, place: int) -> Anchor:
    offset, receive_ns = columns.offsets[place], columns.receive_ns[place]
    event_ns = MISSING if columns.event_ns is None else columns.event_ns[place]
    transmit_ns = MISSING if columns.transmit_ns is None else columns.transmit_ns[place]
    name = columns.names[columns.destination_ids[place]].encode()
    block, body = bytes(columns.blocks[place]), bytes(columns.bodies[place])
    fields = _FIELDS.pack(offset, receive_ns, event_ns, transmit_ns, len(name), len(block), len(body))
    return Anchor(offset, receive_ns, blake2b(b"".join((fields, name, block, body)), digest_size=16).hexdigest())


class LineageCheck:
    """Compares one state of an archive with the log in ``fs``."""

    def __init__(self, fs: FileSystem, state: State) -> None:
        self._fs, self._state = fs, state
        self._last: dict[str, DataFile] | None = None
        self._archive_starts: dict[
            str, int
        ] = {}  # where a log began when it was archived, if records before it had gone
        self._lost_last: set[str] = set()  # partitions of which the last record is lost
        for lost in state.lost:
            if lost.why == RETENTION:
                self._archive_starts[lost.partition] = max(
                    lost.next_offset, self._archive_starts.get(lost.partition, 0)
                )
            if lost.next_offset == state.ends.get(lost.partition):
                self._lost_last.add(lost.partition)

    def check(self, partition: StoredPartition) -> None:
        """Check a log, which may have been listed before the state was read.

        Raises:
            OtherLog: The log is another one.
            StorageError: The log cannot be read.
        """
        for _ in range(TRIES_MAX):
            try:
                if self._checked(partition):
                    return
                partition = stored_partition(self._fs, partition.name, partition.directory)
            except FileNotFoundError:
                return  # the whole of it went, just now
            except OSError as error:
                raise storage_error(partition.directory, "read", error) from error
        raise StorageError(
            f"{partition.directory}: segments are removed faster than they can be read, {TRIES_MAX} times over"
        )

    def _checked(self, partition: StoredPartition) -> bool:
        """Check a listed log. Return False if it must be listed again."""
        name, end = partition.name, self._state.ends.get(partition.name)
        if end is None or not (partition.segments or partition.next_offset):  # nothing here, so nothing of another one
            return True
        log_end = max(partition.next_offset, partition.log_start_offset)
        if end > log_end:
            now = stored_partition(self._fs, name, partition.directory)
            log_end = max(now.next_offset, now.log_start_offset)
            if end > log_end:
                raise OtherLog(
                    f"partition {name!r} ends at offset {log_end}, and the archive has it up to {end}: this is an "
                    f"older copy of the store, or it lost its end in a power failure, or the partition was created "
                    f"again"
                )
            partition = now
        anchor = self.anchor(name)
        if anchor is None:
            return True
        if anchor.offset < partition.log_start_offset:
            self._check_start(partition, anchor)
            return True
        found = look_up(self._fs, partition, anchor.offset)
        if found is not None:
            _compare(name, anchor, found)
        return found is not None

    def anchor(self, name: str) -> Anchor | None:
        """Return the anchor of a partition, or None.

        Commits older than anchors have none. Then it is the last offset and its time, by the files: the last record of
        a segment is never removed.
        """
        anchor, end = self._state.anchors.get(name), self._state.ends.get(name)
        if anchor is not None or end is None or name in self._lost_last:
            return anchor
        if self._last is None:
            self._last = {}
            for each in self._state.files.values():
                (name_of, _, following, *_), *others = each.spans
                if not others and following == self._state.ends.get(name_of):
                    known = self._last.get(name_of, each)
                    self._last[name_of] = max(known, each, key=lambda one: one.max_receive_ns)
        last = self._last.get(name)
        return None if last is None else Anchor(end - 1, last.max_receive_ns, "")

    def _check_start(self, partition: StoredPartition, anchor: Anchor) -> None:
        """Check a log whose beginning is gone, with the anchor. Raises OtherLog."""
        start = self._archive_starts.get(partition.name, 0)
        if partition.log_start_offset < start:
            raise OtherLog(
                f"partition {partition.name!r} begins at offset {partition.log_start_offset}, and began at {start} "
                f"when it was archived: {_WHY}"
            )
        _compare(partition.name, anchor, Lookup(None, None, first_ns(self._fs, partition.segments)))


def _compare(name: str, anchor: Anchor, found: Lookup) -> None:
    """Raise OtherLog if the record is not the anchor."""
    record, before_ns, after_ns = found
    if record is not None:
        if record.receive_ns != anchor.receive_ns:
            came = f"the log's one at {rfc3339(record.receive_ns)}"
        elif anchor.digest not in ("", record.digest):
            came = f"the log's one too, but its digest is {record.digest}, not {anchor.digest}"
        else:
            return
    elif before_ns is not None and before_ns > anchor.receive_ns:
        came = f"the log has one before it of {rfc3339(before_ns)}"
    elif after_ns is not None and after_ns < anchor.receive_ns:
        came = f"the log has one after it of {rfc3339(after_ns)}"
    else:
        return
    raise OtherLog(
        f"partition {name!r} is not the one that the archive has: that one's record at offset {anchor.offset} was "
        f"received at {rfc3339(anchor.receive_ns)}, {came}: {_WHY}"
    )


def check(place: Place, files: Files, state: State, logs: Iterable[StoredPartition]) -> None:
    """Check that the archive has the beginnings of these logs, and of no others of their names.

    The source of a copy without a key is not checked.

    Raises:
        StorageError: It has not, or something cannot be read.
    """
    check_commits(files, state)
    key = decode_key(read_file(place.fs, layout.salt_path(place.root)))
    if key is not None:
        check_source(files, state, blake2b(key, digest_size=16).hexdigest())
    lineage = LineageCheck(place.fs, state)
    others = [text for text in together(place.fs, partial(_other, lineage), logs) if text]
    if others:
        more = f"; and {counted(len(others) - 1, 'more partition')}" if len(others) > 1 else ""
        raise OtherLog(
            f"{others[0]}{more}. {files.uri} and {place.root} cannot be combined: use one of them, or choose other "
            f"partitions"
        )


def _other(lineage: LineageCheck, log: StoredPartition) -> str | None:
    try:
        lineage.check(log)
    except OtherLog as error:
        return str(error)
    return None


def look_up(fs: FileSystem, partition: StoredPartition, offset: int) -> Lookup | None:
    """Return the contents of the log at ``offset``; None: a segment was deleted since the listing.

    Raises:
        OSError: A segment cannot be read.
        StorageError: A segment cannot be decoded.
    """
    at = bisect_left(partition.segments, offset + 1, key=lambda segment: segment.base_offset) - 1
    try:
        found = _in_segment(fs, partition.segments[at], offset)
    except FileNotFoundError:
        return None
    if found.record is not None:
        return found
    before, after = found.before_ns, found.after_ns
    if before is None and at > 0:
        before = newest_receive_ns(partition.segments[at - 1], fs)
    if after is None:
        after = first_ns(fs, partition.segments[at + 1 :])
    return Lookup(None, before, after)


def _in_segment(fs: FileSystem, segment: StoredSegment, offset: int) -> Lookup:
    with opened(fs, fs.open_read(segment.path)) as fd:
        window = Window(fs, fd, WINDOW_BYTES, segment.path)
        entries = up_to_offset(load_index(fs, segment.path.rpartition("/")[0], segment.base_offset), offset)
        start = start_from_index(window, entries)
        found = _walk(window, start, offset)
        if found.record is None and found.before_ns is None and start[0]:
            earlier = [entry for entry in entries if entry.position < start[0]]
            found = _walk(window, start_from_index(window, earlier), offset)
        return found


def _walk(window: Window, start: tuple[int, int], offset: int) -> Lookup:
    before: int | None = None
    for position, header in whole_batches(window, start[0], window.fs.size(window.fd), start[1]):
        if last_offset(window, position, header) < offset:
            before = header.max_receive_ns
            continue
        columns = _columns(window, position, header)
        if columns is None:
            continue
        place = bisect_left(columns.offsets, offset)
        if columns.offsets[place] == offset:
            return Lookup(_anchor(columns, place))
        return Lookup(None, columns.receive_ns[place - 1] if place else before, columns.receive_ns[place])
    return Lookup(None, before, None)


def _columns(window: Window, position: int, header: BatchHeader) -> Columns | None:
    """Return the columns of a batch; None: its crc is right, and yet it cannot be unpacked."""
    try:
        return decode_columns(window.data, window.at(position, header.total_len), header)
    except DamagedBatch:
        return None
