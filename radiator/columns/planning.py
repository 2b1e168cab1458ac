"""What to read: from options to tasks, touching as little of the files as possible.

For every wanted partition: the end is ``head`` as it is now, the segments are those that hold offsets below it. A
segment is left out, or cut at entries of its index, where offsets or receive times (which never fall within a
partition) put it outside the selection. What remains is cut again at index entries into pieces of about
``split_bytes``, and small pieces are packed together, so that ten thousand small partitions are not ten thousand tasks.

The index is a cache and is believed only where the batch that it points to says the same. Without an index there is
less cutting and the same result.

Knows: directories, ``head``, indexes, the first header of a segment. Must not know: columns, pyspark.
Invariant: every committed record that the selection wants lies in exactly one range.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from radiator.columns.files import open_store, together
from radiator.columns.log import confirms, index_of, look, partitions
from radiator.columns.options import SPLIT_BYTES_MAX, SPLIT_BYTES_MIN, ReadOptions
from radiator.columns.scan import LostRecords, SegmentRange
from radiator.columns.selection import Selection
from radiator.errors import StorageError
from radiator.limits import KIB
from radiator.storage.files import FileSystem
from radiator.storage.index import IndexEntry
from radiator.storage.reader import StoredPartition, StoredSegment

FILE_COST_BYTES = 64 * KIB  # opening a file is as dear as reading this much
TASKS_PER_CPU = 2  # so that a slow task can be made up for


def plan(options: ReadOptions) -> list[tuple[SegmentRange, ...]]:
    """One tuple of ranges per task. Raises StorageError if the store is missing or cannot hold what is asked for."""
    place = open_store(options.path, options.storage)
    logs, fs = look(place)
    _check_bounds(options, {log.name: log for log in logs})
    selection = options.selection
    wanted = [
        (log.name, segment)
        for log in logs
        if selection.wants_partition(log.name)
        for segment in _segments(log, selection)
    ]
    cuts = together(fs, lambda each: _cut(fs, *each, selection), wanted)
    size = options.split_bytes or _split_bytes(sum(cut.range.end - cut.range.start for cut in cuts))
    return list(_pack([piece for cut in cuts for piece in _split(fs, cut, size)], size))


def snapshot(path: str, storage: Mapping[str, str] | None = None) -> dict[str, int]:
    """The end of every partition as of now: what ``ending_offsets`` takes, so that several reads see the same."""
    return {log.name: log.next_offset for log in partitions(open_store(path, storage))}


def _check_bounds(options: ReadOptions, logs: dict[str, StoredPartition]) -> None:
    """Offsets that the user named for a partition must be there, or records would be left out in silence."""
    selection = options.selection
    for option, bounds in (("starting_offsets", selection.starts), ("ending_offsets", selection.ends or {})):
        for name, offset in bounds.items():
            log = logs.get(name)
            if log is None:
                raise StorageError(f"option {option}: {options.path} has no partition {name!r}; it has {_some(logs)}")
            if offset > log.next_offset:
                raise StorageError(
                    f"option {option}: partition {name!r} ends at offset {log.next_offset}, got {offset}: "
                    "this is another store, or an older copy of it"
                )
            if option == "starting_offsets" and offset < log.log_start_offset and options.fail_on_data_loss:
                gone = f"offsets {offset} to {log.log_start_offset - 1}"
                raise LostRecords(
                    f"partition {name!r}: {gone} have been removed by retention; "
                    'to start with what is left: option("fail_on_data_loss", "false")'
                )


def _some(logs: dict[str, StoredPartition]) -> str:
    names = sorted(logs)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return (", ".join(map(repr, names[:5])) + more) or "none"


def _segments(log: StoredPartition, selection: Selection) -> Iterator[StoredSegment]:
    """Those that can hold a wanted record."""
    low, high = selection.offsets_of(log.name)
    if low >= high or selection.receive_low_ns >= selection.receive_high_ns:
        return
    segments = [
        segment
        for segment in log.segments
        if segment.end_offset > max(low, segment.base_offset) and segment.base_offset < high
    ]
    if not selection.by_time:
        yield from segments
        return
    times = [segment.first_receive_ns for segment in segments]  # None: cannot be told, so it may be wanted
    for segment, first, following in zip(segments, times, [*times[1:], None], strict=False):
        if first is not None and first >= selection.receive_high_ns:
            return
        if following is None or following >= selection.receive_low_ns:
            yield segment


class _Cut(NamedTuple):
    segment: StoredSegment
    range: SegmentRange
    inside: list[IndexEntry]  # where it can be cut further


def _cut(fs: FileSystem, partition: str, segment: StoredSegment, selection: Selection) -> _Cut:
    """The segment without what its index shows to lie outside the selection."""
    low, high = selection.offsets_of(partition)
    entries = index_of(fs, segment)
    # Offsets and times both rise, so what lies before the selection is a prefix of the entries, what lies behind it a
    # suffix. The first wanted record stands behind the last entry of the prefix, the last one before the suffix.
    start, end = 0, len(entries)
    while start < end and (
        entries[start].base_offset <= low or entries[start].min_receive_ns < selection.receive_low_ns
    ):
        start += 1
    while end > start and (
        entries[end - 1].base_offset >= high or entries[end - 1].min_receive_ns >= selection.receive_high_ns
    ):
        end -= 1
    first = next((entry for entry in reversed(entries[:start]) if confirms(fs, segment, entry)), None)
    last = next((entry for entry in entries[end:] if confirms(fs, segment, entry)), None)
    wanted = SegmentRange(
        partition,
        segment.path,
        first.position if first else 0,
        last.position if last else segment.size_bytes,
        first.base_offset if first else segment.base_offset,
        last.base_offset if last else segment.end_offset,
    )
    return _Cut(segment, wanted, entries[start:end])


def _split_bytes(total: int) -> int:
    wanted = total // (TASKS_PER_CPU * (os.cpu_count() or 1))
    return min(max(wanted, SPLIT_BYTES_MIN), SPLIT_BYTES_MAX)


def _split(fs: FileSystem, cut: _Cut, size: int) -> Iterator[SegmentRange]:
    rest = cut.range
    for entry in cut.inside:
        large = entry.position - rest.start >= size and rest.end - entry.position >= size // 2
        if large and confirms(fs, cut.segment, entry):
            yield replace(rest, end=entry.position, next_offset=entry.base_offset)
            rest = replace(rest, start=entry.position, first_offset=entry.base_offset)
    yield rest


def _pack(pieces: list[SegmentRange], size: int) -> Iterator[tuple[SegmentRange, ...]]:
    together: list[SegmentRange] = []
    filled = 0
    for piece in pieces:
        cost = piece.end - piece.start + FILE_COST_BYTES
        if together and filled + cost > size + FILE_COST_BYTES:
            yield tuple(together)
            together, filled = [], 0
        together.append(piece)
        filled += cost
    if together:
        yield tuple(together)
