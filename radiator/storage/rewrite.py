"""Rewrite a sealed segment: without unwanted records, with small batches merged, or compressed.

    steps()   reads the segment batch by batch, and writes the remaining records to <base>.rlog.new; a step is short,
              and the caller may pause or give up between any two
    swap()    renames it over <base>.rlog, and rewrites its index
    discard() removes the new file

The new file is synced before it is renamed, whatever the rule's policy is: stored records must not become less safe. It
is written and synced in pieces, so that a sync of the log never waits behind much of it. Offsets, times and bytes of
remaining records do not change. The last record always stays: it marks the segment's end.

This module knows one segment's files. It does not know why records are unwanted, threads or time. The maintenance
thread runs it. Invariant: a segment that is damaged or incomplete is not changed (DamagedBatch).
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import pairwise
from typing import Any

from radiator import limits
from radiator.storage import index, layout
from radiator.storage.batch import RecordBatch
from radiator.storage.files import FileSystem, close_quietly, opened, write_all
from radiator.storage.format import Columns
from radiator.storage.header import COMPRESSED, HEADER_BYTES, SPARSE, DamagedBatch
from radiator.storage.index import IndexEntry
from radiator.storage.merge import Merger
from radiator.storage.segment import Window, header_at, last_offset, load_index, read_run, read_runs, salt_at

Keep = Callable[[RecordBatch], Sequence[int] | None]  # the places that stay, in order; None: all
RECORD_BYTES = 36  # of columns, for each record
READ_BYTES = 64 * 1024  # a step's worth: about a millisecond if the batches in it are small
LOOK_BYTES = 4 * 1024  # read at a time to see how large batches are


def runs(fs: FileSystem, directory: str, base_offset: int, end_offset: int) -> Iterator[RecordBatch]:
    """Yield the records of a segment below ``end_offset``, across damage, a bounded run at a time. Raises OSError."""
    path = layout.segment_path(directory, base_offset)
    with opened(fs, fs.open_read(path)) as fd:
        entries = load_index(fs, directory, base_offset)
        yield from read_runs(Window(fs, fd, READ_BYTES, path), entries, base_offset, end_offset, READ_BYTES)


def split(batch: RecordBatch) -> Iterator[RecordBatch]:
    """Yield the records of a batch a few at a time."""
    step = limits.REWRITE_STEP_RECORDS
    if len(batch) <= step:
        yield batch
        return
    base = batch.base_offset
    for start in range(0, len(batch), step):
        few = batch.part(start, start + step, base)
        yield few
        base = few.next_offset


def _selected(batch: RecordBatch, places: Sequence[int] | None, base_offset: int) -> Columns:
    """Return the records at these places (None: all) from ``base_offset`` on, with no more names than they use."""

    def column(values: Sequence[Any]) -> Any:
        return values if places is None else [values[place] for place in places]

    names, ids = batch.names, column(batch.destination_ids)
    if len(names) > 1:
        used = sorted(set(ids))
        numbers = {number: new for new, number in enumerate(used)}
        names, ids = [names[number] for number in used], [numbers[number] for number in ids]
    blocks, bodies = column(batch.blocks), column(batch.bodies)
    return Columns(
        column(batch.offsets),
        column(batch.receive_ns),
        None if batch.event_ns is None else column(batch.event_ns),
        None if batch.transmit_ns is None else column(batch.transmit_ns),
        ids,
        names,
        blocks,
        bodies,
        sum(map(len, blocks)) + sum(map(len, bodies)),
        base_offset,
    )


def compressed(fs: FileSystem, path: str) -> bool:
    """Return whether the first batch of a segment is compressed."""
    with opened(fs, fs.open_read(path)) as fd:
        return bool(header_at(Window(fs, fd, HEADER_BYTES, path), 0).flags & COMPRESSED)


def small_commits(fs: FileSystem, path: str, end_offset: int) -> bool:
    """Return whether a segment's first batches are so small that they are worth merging.

    It is False for a rewritten segment: its batches are large, or there is only one, or they are compressed.

    Raises:
        OSError: The file cannot be read.
        DamagedBatch: It is damaged.
    """
    with opened(fs, fs.open_read(path)) as fd:
        window = Window(fs, fd, LOOK_BYTES, path)
        position = batches = offset = 0
        while offset < end_offset and batches < limits.MERGED_COMMITS_LOOKED_AT:
            header = header_at(window, position)
            if header.flags & COMPRESSED:
                return False
            offset = last_offset(window, position, header) + 1
            position += header.total_len
            batches += 1
            if position >= limits.MERGED_COMMITS_BYTES * limits.MERGED_COMMITS_LOOKED_AT:
                return False
        return batches > 1 and position < limits.MERGED_COMMITS_BYTES * batches


def worth_rewriting(
    fs: FileSystem, directory: str, base_offset: int, end_offset: int, keep: Keep
) -> Generator[None, None, bool]:
    """Return whether at least half of a segment's bytes would be removed. It yields after each step."""
    whole = gone = 0
    for batch in runs(fs, directory, base_offset, end_offset):
        yield
        for few in split(batch):
            places = keep(few)
            size = few.size_bytes + len(few) * RECORD_BYTES
            whole += size
            if places is not None:
                stays = sum(len(few.blocks[place]) + len(few.bodies[place]) + RECORD_BYTES for place in places)
                gone += size - stays
            yield
    return gone * 2 >= whole > 0


class Rewrite:
    """The rewriting of one segment; ``end_offset`` is where the next one begins."""

    def __init__(
        self, fs: FileSystem, directory: str, base_offset: int, end_offset: int, keep: Keep | None, level: int
    ) -> None:
        self.fs = fs
        self.directory = directory
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.keep = keep
        self.level = level
        self.path = layout.segment_path(directory, base_offset)
        self.new_path = self.path + layout.NEW_SUFFIX
        self.old_bytes = self.size_bytes = self.removed = self.kept = 0
        self.sparse = self.swapped = False
        self._fd = -1
        self._salt = 0
        self._synced = 0
        self._covered = base_offset  # up to here the new file covers each offset
        self._merger = Merger()
        self._entries: list[IndexEntry] = []

    def steps(self) -> Iterator[None]:
        """Write the new file in steps. Raises OSError, DamagedBatch."""
        fs = self.fs
        source = fs.open_read(self.path)
        try:
            window = Window(fs, source, READ_BYTES, self.path)
            first = header_at(window, 0)
            self.old_bytes = fs.size(source)
            self.sparse = self.keep is not None or bool(first.flags & SPARSE)
            self._salt = salt_at(window, 0)
            with contextlib.suppress(FileNotFoundError):
                fs.remove(self.new_path)
            self._fd = fs.open(self.new_path, create=True)
            position, expected = 0, self.base_offset
            while expected < self.end_offset:
                batch, after = read_run(window, position, self.end_offset, READ_BYTES)
                if batch is None or batch.base_offset != expected:
                    raise DamagedBatch(f"offset {expected} is not at byte {position}")
                position, expected = after, batch.next_offset
                yield
                for few in split(batch):
                    self._take(few)
                    yield
                    if self._full:
                        self._write()
                        yield
            if self._merger.blocks:
                self._write()
            yield
            fs.fdatasync(self._fd)
        finally:
            close_quietly(fs, self._fd)
            self._fd = -1
            fs.close(source)

    def _take(self, batch: RecordBatch) -> None:
        """Add the remaining records of a batch."""
        places = None if self.keep is None else self.keep(batch)
        last = len(batch) - 1
        if places is not None and batch.next_offset >= self.end_offset and (not places or places[-1] != last):
            places = [*places, last]
        kept = len(batch) if places is None else len(places)
        self.kept += kept
        self.removed += len(batch) - kept
        if kept:
            self._merger.add(_selected(batch, places, self._covered))

    @property
    def _full(self) -> bool:
        merger = self._merger
        return merger.size_bytes >= limits.REWRITE_BATCH_BYTES or len(merger.blocks) >= limits.REWRITE_BATCH_RECORDS

    def _write(self) -> None:
        batch = self._merger.finish()
        self._merger = Merger()
        base, deltas = batch.base_offset, None
        if type(batch.offsets) is not range or (self.sparse and not self.size_bytes):
            deltas = array("I", [offset - base for offset in batch.offsets])
        pieces = batch.encode(self._salt, deltas, self.level)
        position = self.size_bytes
        if not self._entries or position >= self._entries[-1].position + limits.INDEX_INTERVAL_BYTES:
            self._entries.append(IndexEntry(base, position, batch.receive_ns[0]))
        self.size_bytes += write_all(self.fs, self._fd, pieces, position)
        if self.size_bytes - self._synced >= limits.REWRITE_SYNC_BYTES:
            self.fs.fdatasync(self._fd)
            self._synced = self.size_bytes
        self._covered = batch.next_offset

    @property
    def worth_it(self) -> bool:
        """Whether the new file is better: records were removed, or it is smaller.

        It must be a twentieth smaller if readers must unpack it for that.
        """
        if self.level and not self.removed:
            return self.size_bytes * 20 < self.old_bytes * 19
        return self.removed > 0 or self.size_bytes < self.old_bytes

    def swap(self) -> None:
        """Replace the old segment by the new one, durably, after the last step.

        Raises:
            OSError: The segment is the old one or the new one.
        """
        self.fs.rename(self.new_path, self.path)
        self.swapped = True
        self.fs.sync_dir(self.directory)
        path = layout.index_path(self.directory, self.base_offset)
        with contextlib.suppress(OSError), opened(self.fs, self.fs.open(path, create=True)) as fd:  # a cache
            self.fs.truncate(fd, 0)
            write_all(self.fs, fd, [index.encode_head(self.base_offset), index.encode_entries(self._entries)], 0)

    def discard(self) -> None:
        """Remove the new file."""
        with contextlib.suppress(OSError):
            self.fs.remove(self.new_path)


def keep_outside(intervals: Sequence[tuple[int, int]]) -> Keep:
    """Return a function that keeps the records outside of the intervals, which must be sorted and disjoint."""
    starts, stops = [start for start, _ in intervals], [stop for _, stop in intervals]
    assert all(one < two for one, two in pairwise(starts))

    def keep(batch: RecordBatch) -> Sequence[int] | None:
        at, places = 0, []
        for place, offset in enumerate(batch.offsets):
            while at < len(stops) and stops[at] <= offset:
                at += 1
            if at == len(stops) or offset < starts[at]:
                places.append(place)
        return None if len(places) == len(batch) else places

    return keep
