"""Plan a read: convert options to tasks, and read as few files as possible.

For each matching partition the end is ``head`` as of now, and the segments are those with offsets below the end. A
partition is left out if its list of names says that it has no matching destination. A segment is left out, or cut at
entries of its index, if offsets or receive times (which never decrease within a partition) put it outside the
selection. The rest is cut into equal parts, one for each core as long as that is not too much for one task. A Spark
task costs as much as reading 20 MiB, so ten thousand small partitions do not become ten thousand tasks.

The index is a cache, and an entry is used only if the batch at its position confirms it. Without an index there is less
cutting and the same result.

Uses directories, ``head``, indexes and the first header of a segment. Must not import pyspark.
Invariant: every committed record that the selection matches is in exactly one range.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from radiator.columns.files import Place, open_store, shown, together
from radiator.columns.heads import End, Holdings, absent, ends, stored
from radiator.columns.log import entry_matches, index_of, look
from radiator.columns.near import instead
from radiator.columns.options import SPLIT_BYTES_MAX, SPLIT_BYTES_MIN, ReadOptions
from radiator.columns.scan import LostRecords, SegmentRange
from radiator.columns.selection import HIGH, Selection
from radiator.columns.times import offset_at
from radiator.columns.warn import warn
from radiator.errors import StorageError
from radiator.limits import KIB
from radiator.storage import layout
from radiator.storage.files import FileSystem
from radiator.storage.index import IndexEntry
from radiator.storage.reader import StoredPartition, StoredSegment
from radiator.storage.time_window import before, since

FILE_COST_BYTES = 64 * KIB  # opening a file costs as much as reading this many bytes
RECORD_COST_BYTES = 512  # a record costs as much as reading this many bytes; it dominates in compressed logs
RECORD_BYTES_MIN = 20  # the uncompressed columns of a record: they limit the records in a range
RAGGED = 8  # a cut leaves at least 1/8 of a task on either side
NOWHERE = (-1, 0)

Spots = Mapping[tuple[str, int], tuple[int, int]]  # (partition, offset) -> (segment base, position), from a head file


def plan(options: ReadOptions) -> list[tuple[SegmentRange, ...]]:
    """Plan a read of the store as of now.

    Args:
        options: The options of the read, after ``resolved``.

    Returns:
        The ranges of each task.

    Raises:
        NoStore: There is no store at ``options.path``.
        StorageError: The store cannot be read, or does not have an offset or a partition that the options name.
        LostRecords: Retention has removed offsets that the options name.
    """
    return plan_until(options, None)[0]


def plan_until(
    options: ReadOptions, until: Mapping[str, int] | None
) -> tuple[list[tuple[SegmentRange, ...]], Mapping[str, int]]:
    """Plan a read of the store up to the ends of an earlier plan.

    Args:
        options: The options of the read, after ``resolved``.
        until: The first offset that is not read, by partition. None plans as of now.

    Returns:
        The ranges of each task, and the end of each partition for a later plan.

    Raises:
        NoStore: There is no store at ``options.path``.
        StorageError: The store cannot be read, or does not have an offset or a partition that the options name.
        LostRecords: Retention has removed offsets that the options name.
    """
    place = open_store(options.path, options.storage)
    fs = look(place)
    found = ends(Place(fs, place.root))
    _check_bounds(options, found)
    if until is not None:
        options = replace(options, selection=options.selection.until(until))
    tasks = _plan(fs, found, options)
    return tasks, {name: end.next_offset for name, end in found.items()} if until is None else until


def _plan(fs: FileSystem, found: Mapping[str, End], options: ReadOptions) -> list[tuple[SegmentRange, ...]]:
    selection, holdings = options.selection, Holdings(fs)
    matching = {
        name
        for name, end in found.items()
        if selection.wants_partition(name)
        if not selection.destinations or holdings.may_hold(name, end, selection.wants_destination)
    }
    # A list of names may have been rebuilt after retention, so it does not have the destinations of removed records.
    named = {name for name in found if selection.wants_partition(name) and name in selection.starts}
    names = [name for name in found if name in matching or name in named]
    logs = together(fs, lambda name: stored(fs, name, found[name]), names)
    missing = [(piece,) for log in logs for piece in removed(log, options)]
    return [*missing, *plan_logs(fs, [log for log in logs if log.name in matching], options)]


def resolved(options: ReadOptions) -> ReadOptions:
    """Return the options with the times of single partitions converted to offsets.

    Args:
        options: The options of the read.

    Raises:
        NoStore: There is no store at ``options.path``.
        StorageError: The store cannot be read, or does not have a partition that the options name.
    """
    if not options.start_times_ns and not options.end_times_ns:
        return options
    place, selection = open_store(options.path, options.storage), options.selection
    fs, found = place.fs, ends(place)
    starts = {**selection.starts}
    for name, time_ns in options.start_times_ns.items():
        log = stored(fs, name, _known("startingOffsetsByTimestamp", name, options, found))
        starts[name] = max(starts.get(name, log.log_start_offset), offset_at(fs, log, time_ns))
    bounds = {} if selection.ends is None else {**selection.ends}
    for name, time_ns in options.end_times_ns.items():
        log = stored(fs, name, _known("endingOffsetsByTimestamp", name, options, found))
        bounds[name] = min(bounds.get(name, log.next_offset), offset_at(fs, log, time_ns))
    only = None if selection.ends is None and not options.end_times_ns else bounds
    selection = replace(selection, starts=starts, ends=only)
    return replace(options, selection=selection, start_times_ns={}, end_times_ns={})


def plan_logs(fs: FileSystem, logs: Iterable[StoredPartition], options: ReadOptions) -> list[tuple[SegmentRange, ...]]:
    """Plan a read of the given partitions.

    Args:
        fs: The file system of the store.
        logs: The partitions with their segments.
        options: The options of the read.

    Returns:
        The ranges of each task.
    """
    uncut = 0 if options.tasks_min > 1 else (options.split_bytes or SPLIT_BYTES_MIN) // RAGGED
    logs = list(logs)
    found = together(fs, lambda log: _segments(fs, log, options.selection), logs)
    wanted = [(log.name, segment) for log, segments in zip(logs, found, strict=True) for segment in segments]
    cuts = together(fs, lambda each: _cut(fs, *each, options.selection, {}, uncut), wanted)
    line = _Line(cuts, options)
    return list(_tasks(fs, together(fs, lambda at: line.cuttable(fs, at), range(len(cuts))), line))


def plan_pieces(
    fs: FileSystem, pieces: Iterable[tuple[StoredPartition, Selection]], spots: Spots
) -> list[list[SegmentRange]]:
    """Find the ranges of segments for pieces of partitions.

    The ranges may contain more records than the pieces; the selection excludes those when the ranges are read.

    Args:
        fs: The file system of the store.
        pieces: Partitions with their segments, each with a selection.
        spots: Known positions of offsets, which save the use of an index.

    Returns:
        The ranges of each piece.
    """
    pieces = list(pieces)
    segments = together(fs, lambda piece: _segments(fs, *piece), pieces)
    wanted = [
        (number, log.name, segment, selection)
        for number, (log, selection) in enumerate(pieces)
        for segment in segments[number]
    ]
    cuts = together(fs, lambda each: _cut(fs, *each[1:], spots, HIGH).range, wanted)
    found: list[list[SegmentRange]] = [[] for _ in pieces]
    for (number, *_), each in zip(wanted, cuts, strict=True):
        found[number].append(each)
    return found


def snapshot(path: str, storage: Mapping[str, str] | None = None) -> dict[str, int]:
    """Return the end offset of every partition as of now.

    Pass it as the option ``ending_offsets`` to several reads, so that all of them see the same records.

    Args:
        path: The path or the URI of the store.
        storage: The arguments of the file system of a URI.

    Raises:
        NoStore: There is no store at ``path``.
        ConfigError: ``storage`` was given for a local path.
        StorageError: The store cannot be read.

    Example:
        With a store in ``data``::

            ends = snapshot("data")  # {"/topic/orders": 1200, ...}
    """
    return {name: end.next_offset for name, end in ends(open_store(path, storage)).items()}


def _check_bounds(options: ReadOptions, found: dict[str, End]) -> None:
    selection = options.selection
    for option, bounds in (("startingOffsets", selection.starts), ("endingOffsets", selection.ends or {})):
        for name, offset in bounds.items():
            end = _known(option, name, options, found)
            if end.next_offset < offset and (bounds is selection.starts or offset < HIGH):  # HIGH is no limit
                raise StorageError(
                    f"option {option}: partition {name!r} ends at offset {end.next_offset}, got {offset}: "
                    "this is another store, or an older copy of it"
                )


def removed(log: StoredPartition, options: ReadOptions) -> Iterator[SegmentRange]:
    """Check that the offsets which the user named for a partition still exist.

    With an archive the missing offsets are planned as ranges, and the reader takes them from the archive.

    Args:
        log: The partition with its segments.
        options: The options of the read.

    Yields:
        A range without a segment for each gap, if the options name an archive.

    Raises:
        LostRecords: Offsets are missing, ``fail_on_data_loss`` is set and there is no archive.
    """
    selection = options.selection
    low, high = selection.offsets_of(log.name)
    if log.name not in selection.starts:
        low = max(low, log.log_start_offset)
    if high == HIGH or log.name not in (selection.ends or ()):
        high = min(high, max(log.next_offset, log.log_start_offset))
    for first, following in absent(log, low, high):
        if options.archive is not None:
            yield gone(log.name, log.directory, first, following)
            continue
        loss = f"partition {log.name!r}: offsets {first} to {following - 1} have been removed by retention"
        if options.fail_on_data_loss:
            raise LostRecords(f'{loss}; to start with what is left: option("failOnDataLoss", "false")')
        warn(f"skipped: {loss}", options.warn_once)


def gone(partition: str, directory: str, first: int, following: int) -> SegmentRange:
    """Return a range whose segment does not exist, so that the reader asks the archive for it.

    Args:
        partition: The name of the partition.
        directory: The directory of the partition.
        first: The first offset.
        following: The offset after the last one.
    """
    return SegmentRange(partition, layout.segment_path(directory, first), 0, 0, first, following)


def _known(option: str, name: str, options: ReadOptions, found: dict[str, End]) -> End:
    end = found.get(name)
    if end is None:
        raise StorageError(f"option {option}: {shown(options.path)} has no partition {name!r}; {instead(name, found)}")
    return end


def _segments(fs: FileSystem, log: StoredPartition, selection: Selection) -> Sequence[StoredSegment]:
    """Return the segments that can contain a matching record."""
    low, high = selection.offsets_of(log.name)
    if low >= high or selection.receive_low_ns >= selection.receive_high_ns:
        return ()
    segments = [
        segment
        for segment in log.segments
        if segment.end_offset > max(low, segment.base_offset) and segment.base_offset < high
    ]
    return before(fs, since(fs, segments, selection.receive_low_ns), selection.receive_high_ns)


class _Cut(NamedTuple):
    segment: StoredSegment
    range: SegmentRange
    inside: list[IndexEntry] | None  # entries at which it can be cut further; None: the index is not loaded yet


def _cut(
    fs: FileSystem, partition: str, segment: StoredSegment, selection: Selection, spots: Spots, uncut: int
) -> _Cut:
    """Cut off the parts of a segment that its index shows to be outside the selection.

    The index is not loaded for a segment that is read whole. A range of fewer than ``uncut`` bytes is not cut further.
    """
    low, high = selection.offsets_of(partition)
    if not segment.size_bytes:  # removed after the listing
        low, high = max(low, segment.base_offset), min(high, segment.end_offset)
        return _Cut(segment, SegmentRange(partition, segment.path, 0, 0, low, high), [])
    whole = SegmentRange(partition, segment.path, 0, segment.size_bytes, segment.base_offset, segment.end_offset)
    located = whole
    if (place := spots.get((partition, low), NOWHERE))[0] == segment.base_offset:
        located = replace(located, start=place[1], first_offset=low)
    if (place := spots.get((partition, high), NOWHERE))[0] == segment.base_offset:
        located = replace(located, end=place[1], next_offset=high)
    exact = located.first_offset >= low and located.next_offset <= high and not selection.by_time
    if exact:  # the index could cut off nothing
        return _Cut(segment, located, [] if located.end - located.start < uncut else None)
    entries = index_of(fs, segment)
    start, end = _selected(entries, low, high, selection)
    wanted = located
    if located.first_offset == whole.first_offset:
        first = next((entry for entry in reversed(entries[:start]) if entry_matches(fs, segment, entry)), None)
        if first:
            wanted = replace(wanted, start=first.position, first_offset=first.base_offset)
    if located.next_offset == whole.next_offset:
        last = next((entry for entry in entries[end:] if entry_matches(fs, segment, entry)), None)
        if last:
            wanted = replace(wanted, end=last.position, next_offset=last.base_offset)
    return _Cut(segment, wanted, entries[start:end])


def _selected(entries: Sequence[IndexEntry], low: int, high: int, selection: Selection) -> tuple[int, int]:
    """Return the range of the entries inside the selection.

    Offsets and times both increase. So the entries before the selection are a prefix, and those after it a suffix. The
    first matching record comes after the last entry of the prefix, the last one before the suffix.
    """
    start, end = 0, len(entries)
    while start < end and (
        entries[start].base_offset <= low or entries[start].min_receive_ns < selection.receive_low_ns
    ):
        start += 1
    while end > start and (
        entries[end - 1].base_offset >= high or entries[end - 1].min_receive_ns >= selection.receive_high_ns
    ):
        end -= 1
    return start, end


def _count(total: int, options: ReadOptions) -> int:
    """Return the number of tasks."""
    if options.split_bytes is not None:
        count = -(-total // options.split_bytes)
    else:
        count = max(-(-total // SPLIT_BYTES_MAX), min(os.cpu_count() or 1, total // SPLIT_BYTES_MIN))
    return max(count, options.tasks_min)


def _record_cost(wanted: SegmentRange) -> int:
    """Return the cost of an offset in bytes; less if most of the offsets of the range cannot exist any more."""
    offsets, size = wanted.next_offset - wanted.first_offset, wanted.end - wanted.start
    return min(RECORD_COST_BYTES, RECORD_COST_BYTES * size // (RECORD_BYTES_MIN * offsets)) if offsets else 0


class _Line:
    """All ranges, concatenated and measured by their cost in bytes, to be cut into equal parts.

    With the option ``split_bytes`` records cost nothing, so that a task gets the bytes that the user asked for.
    """

    def __init__(self, cuts: Sequence[_Cut], options: ReadOptions) -> None:
        self._cuts = cuts
        self.record_costs = [0 if options.split_bytes else _record_cost(cut.range) for cut in cuts]
        sizes = [cut.range.end - cut.range.start + FILE_COST_BYTES for cut in cuts]
        self.costs = [
            size + (cut.range.next_offset - cut.range.first_offset) * each
            for cut, size, each in zip(cuts, sizes, self.record_costs, strict=True)
        ]
        self.begins = list(accumulate(self.costs, initial=0))
        self.total = self.begins[-1]
        self.count = _count(sum(sizes), options)
        self.ragged = 0 if options.tasks_min > 1 else self.total // self.count // RAGGED

    def split_at(self, number: int) -> int:
        """Return the position at which task ``number``, counted from 1, should end."""
        return self.total * number // self.count

    def passed(self, place: int) -> int:
        """Return the number of tasks that should end before ``place``; the last task ends at the end."""
        return min(place * self.count // self.total, self.count - 1)

    def cuttable(self, fs: FileSystem, at: int) -> _Cut:
        """Return the cut with this number; load its index if a task should end inside it.

        A store of terabytes has many more indexes than tasks.
        """
        cut = self._cuts[at]
        if cut.inside is not None:
            return cut
        if self.passed(self.begins[at]) == self.passed(self.begins[at + 1]):
            return cut._replace(inside=[])
        low, high = cut.range.first_offset, cut.range.next_offset
        return cut._replace(inside=[entry for entry in index_of(fs, cut.segment) if low < entry.base_offset < high])


def _tasks(fs: FileSystem, cuts: Iterable[_Cut], line: _Line) -> Iterator[tuple[SegmentRange, ...]]:
    """Yield the tasks.

    A task ends at the first index entry after its border, or between two ranges if the range that crosses the border
    has no entries, or would be cut near one of its ends.
    """
    task: list[SegmentRange] = []
    number = 1  # of the current task
    for cut, begin, cost, each in zip(cuts, line.begins, line.costs, line.record_costs, strict=False):
        inside = cut.inside or []
        if task and begin + (min(line.ragged, cost // 2) if inside else cost // 2) >= line.split_at(number):
            yield tuple(task)
            task, number = [], max(number, line.passed(begin)) + 1
        rest, shift = cut.range, begin + FILE_COST_BYTES - cut.range.start - cut.range.first_offset * each
        for entry in inside:
            at = shift + entry.position + entry.base_offset * each
            if at < max(line.split_at(number), begin + line.ragged):
                continue
            if begin + cost - at < line.ragged:
                break
            if entry_matches(fs, cut.segment, entry):
                task.append(replace(rest, end=entry.position, next_offset=entry.base_offset))
                yield tuple(task)
                task, number = [], max(number, line.passed(at)) + 1
                rest = replace(rest, start=entry.position, first_offset=entry.base_offset)
        task.append(rest)
    if task:
        yield tuple(task)
