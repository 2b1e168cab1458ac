"""What to read: from options to tasks, touching as little of the files as possible.

For every wanted partition: the end is ``head`` as it is now, the segments are those that hold offsets below it. A
partition is left out where its list of names says that it holds no wanted destination. A segment is left out, or cut
at entries of its index, where offsets or receive times (which never fall within a partition) put it outside the
selection. What remains is cut into equal shares, one for each core as long as that is not too much for one task: a
task of Spark's costs as much as reading 20 MiB, and ten thousand small partitions are not ten thousand tasks.

The index is a cache and is believed only where the batch that it points to says the same. Without an index there is
less cutting and the same result.

Knows: directories, ``head``, indexes, the first header of a segment. Must not know: columns, pyspark.
Invariant: every committed record that the selection wants lies in exactly one range.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from radiator.columns.files import Place, open_store, shown, together
from radiator.columns.heads import End, Holdings, absent, ends, stored
from radiator.columns.log import confirms, index_of, look
from radiator.columns.moments import offset_at
from radiator.columns.near import instead
from radiator.columns.options import SPLIT_BYTES_MAX, SPLIT_BYTES_MIN, ReadOptions
from radiator.columns.scan import LostRecords, SegmentRange
from radiator.columns.selection import HIGH, Selection
from radiator.columns.warn import warn
from radiator.errors import StorageError
from radiator.limits import KIB
from radiator.storage import layout
from radiator.storage.files import FileSystem
from radiator.storage.index import IndexEntry
from radiator.storage.reader import StoredPartition, StoredSegment
from radiator.storage.received import before, since

FILE_COST_BYTES = 64 * KIB  # opening a file is as dear as reading this much
RECORD_COST_BYTES = 512  # and handing over a record as reading this much: of a compressed log, records are the work
RECORD_BYTES_MIN = 20  # of columns, which are never compressed: no range has more records than its bytes allow
RAGGED = 8  # a cut leaves at least this part of a task's share on either side
NOWHERE = (-1, 0)

Spots = Mapping[tuple[str, int], tuple[int, int]]  # (partition, offset) -> (segment base, position), as a head said


def plan(options: ReadOptions) -> list[tuple[SegmentRange, ...]]:
    """One tuple of ranges per task, of a read as of now. ``options`` are resolved. Raises StorageError if the store is
    missing or cannot hold what is asked for."""
    place = open_store(options.path, options.storage)
    fs = look(place)
    found = ends(Place(fs, place.root))
    _check_bounds(options, found)
    selection, holdings = options.selection, Holdings(fs)
    held = {
        name
        for name, end in found.items()
        if selection.wants_partition(name)
        if not selection.destinations or holdings.may_hold(name, end, selection.wants_destination)
    }
    # A list of names may have been made anew of what was left: of what is gone it says nothing.
    names = [name for name in found if name in held or (selection.wants_partition(name) and name in selection.starts)]
    logs = together(fs, lambda name: stored(fs, name, found[name]), names)
    missing = [(piece,) for log in logs for piece in removed(log, options)]
    return [*missing, *plan_logs(fs, [log for log in logs if log.name in held], options)]


def resolved(options: ReadOptions) -> ReadOptions:
    """With offsets for what was said as moments of single partitions. Raises StorageError."""
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
    """As ``plan``, of these partitions."""
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
    """Where each of these is found: the ranges may hold more, which the selection leaves out when they are read.
    ``spots`` saves the look at an index."""
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
    """The end of every partition as of now: what ``ending_offsets`` takes, so that several reads see the same."""
    return {name: end.next_offset for name, end in ends(open_store(path, storage)).items()}


def _check_bounds(options: ReadOptions, found: dict[str, End]) -> None:
    selection = options.selection
    for option, bounds in (("startingOffsets", selection.starts), ("endingOffsets", selection.ends or {})):
        for name, offset in bounds.items():
            end = _known(option, name, options, found)
            if end.next_offset < offset and (bounds is selection.starts or offset < HIGH):  # an end may be open
                raise StorageError(
                    f"option {option}: partition {name!r} ends at offset {end.next_offset}, got {offset}: "
                    "this is another store, or an older copy of it"
                )


def removed(log: StoredPartition, options: ReadOptions) -> Iterator[SegmentRange]:
    """Offsets that the user named for a partition must be there, or records would be left out in silence. With an
    archive they are a range like others: that its segment is gone is found by who reads it."""
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
        told = f"partition {log.name!r}: offsets {first} to {following - 1} have been removed by retention"
        if options.fail_on_data_loss:
            raise LostRecords(f'{told}; to start with what is left: option("failOnDataLoss", "false")')
        warn(f"skipped: {told}", options.warn_once)


def gone(partition: str, directory: str, first: int, following: int) -> SegmentRange:
    """A range of which no segment is there: who reads it finds that, and asks the archive."""
    return SegmentRange(partition, layout.segment_path(directory, first), 0, 0, first, following)


def _known(option: str, name: str, options: ReadOptions, found: dict[str, End]) -> End:
    end = found.get(name)
    if end is None:
        raise StorageError(f"option {option}: {shown(options.path)} has no partition {name!r}; {instead(name, found)}")
    return end


def _segments(fs: FileSystem, log: StoredPartition, selection: Selection) -> Sequence[StoredSegment]:
    """Those that can hold a wanted record."""
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
    inside: list[IndexEntry] | None  # where it can be cut further; None: its index has not been asked yet


def _cut(
    fs: FileSystem, partition: str, segment: StoredSegment, selection: Selection, spots: Spots, uncut: int
) -> _Cut:
    """The segment without what its index shows to lie outside the selection; one that is wanted as it is may leave its
    index alone. Fewer than ``uncut`` bytes will not be cut any further."""
    low, high = selection.offsets_of(partition)
    if not segment.size_bytes:  # gone since it was listed
        low, high = max(low, segment.base_offset), min(high, segment.end_offset)
        return _Cut(segment, SegmentRange(partition, segment.path, 0, 0, low, high), [])
    whole = SegmentRange(partition, segment.path, 0, segment.size_bytes, segment.base_offset, segment.end_offset)
    told = whole
    if (place := spots.get((partition, low), NOWHERE))[0] == segment.base_offset:
        told = replace(told, start=place[1], first_offset=low)
    if (place := spots.get((partition, high), NOWHERE))[0] == segment.base_offset:
        told = replace(told, end=place[1], next_offset=high)
    exact = told.first_offset >= low and told.next_offset <= high and not selection.by_time
    if exact:  # nothing that the index could cut off
        return _Cut(segment, told, [] if told.end - told.start < uncut else None)
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
    wanted = told
    if told.first_offset == whole.first_offset:
        first = next((entry for entry in reversed(entries[:start]) if confirms(fs, segment, entry)), None)
        if first:
            wanted = replace(wanted, start=first.position, first_offset=first.base_offset)
    if told.next_offset == whole.next_offset:
        last = next((entry for entry in entries[end:] if confirms(fs, segment, entry)), None)
        if last:
            wanted = replace(wanted, end=last.position, next_offset=last.base_offset)
    return _Cut(segment, wanted, entries[start:end])


def _count(total: int, options: ReadOptions) -> int:
    """How many tasks."""
    if options.split_bytes is not None:
        count = -(-total // options.split_bytes)
    else:
        count = max(-(-total // SPLIT_BYTES_MAX), min(os.cpu_count() or 1, total // SPLIT_BYTES_MIN))
    return max(count, options.tasks_min)


def _record_cost(wanted: SegmentRange) -> int:
    """Of an offset, in bytes; less where most of its offsets cannot be there any more."""
    offsets, size = wanted.next_offset - wanted.first_offset, wanted.end - wanted.start
    return min(RECORD_COST_BYTES, RECORD_COST_BYTES * size // (RECORD_BYTES_MIN * offsets)) if offsets else 0


class _Line:
    """All ranges, one behind the other by what they cost, in bytes; it is cut into equal parts. Who says how many bytes
    a task shall have is taken at the word: there records cost nothing."""

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

    def border(self, number: int) -> int:
        """Where task ``number``, counted from 1, should end."""
        return self.total * number // self.count

    def passed(self, place: int) -> int:
        """How many tasks should have ended before ``place``; the last one ends nowhere before the end."""
        return min(place * self.count // self.total, self.count - 1)

    def cuttable(self, fs: FileSystem, at: int) -> _Cut:
        """The cut of this number, with its index if a border falls into it: a store of terabytes has many more indexes
        than borders."""
        cut = self._cuts[at]
        if cut.inside is not None:
            return cut
        if self.passed(self.begins[at]) == self.passed(self.begins[at + 1]):
            return cut._replace(inside=[])
        low, high = cut.range.first_offset, cut.range.next_offset
        return cut._replace(inside=[entry for entry in index_of(fs, cut.segment) if low < entry.base_offset < high])


def _tasks(fs: FileSystem, cuts: Iterable[_Cut], line: _Line) -> Iterator[tuple[SegmentRange, ...]]:
    """The parts of the line: cut at the entry of an index behind each border, or between two ranges where a range that
    crosses the border has no entries, or would be cut near one of its ends."""
    task: list[SegmentRange] = []
    number = 1  # of the task that is being filled
    for cut, begin, cost, each in zip(cuts, line.begins, line.costs, line.record_costs, strict=False):
        inside = cut.inside or []
        if task and begin + (min(line.ragged, cost // 2) if inside else cost // 2) >= line.border(number):
            yield tuple(task)
            task, number = [], max(number, line.passed(begin)) + 1
        rest, shift = cut.range, begin + FILE_COST_BYTES - cut.range.start - cut.range.first_offset * each
        for entry in inside:
            at = shift + entry.position + entry.base_offset * each
            if at < max(line.border(number), begin + line.ragged):
                continue
            if begin + cost - at < line.ragged:
                break
            if confirms(fs, cut.segment, entry):
                task.append(replace(rest, end=entry.position, next_offset=entry.base_offset))
                yield tuple(task)
                task, number = [], max(number, line.passed(at)) + 1
                rest = replace(rest, start=entry.position, first_offset=entry.base_offset)
        task.append(rest)
    if task:
        yield tuple(task)
