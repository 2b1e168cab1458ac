"""Check the rows of an archive against its commits.

    check_file       one file: order, partition, destinations, times, day, counts and bytes are those of its commit; the
                     anchor of its partition, if it is in the file, has the receive time of the commits
    check_partition  one partition: each offset from its start to its end is in one file, or reported as lost, or in
                     none since it was removed from the log before; no other offset is in a file, and the last one is
                     the anchor's

The digest of an anchor covers what the log stores, which is more than the columns have: it is not compared. Bodies are
only read if no digest covers them. A file of many partitions is read once, where each of them has all its offsets.

This module knows the manifest and Parquet. It does not know stores. It needs the memory of some batches, and 64 MiB for
the file of each offset.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from radiator.archive.files import Files
from radiator.archive.lookup import overlaps
from radiator.archive.manifest import Anchor, DataFile, Span
from radiator.archive.parquet import SCHEMA, reader
from radiator.archive.paths import DATE_PREFIX, MANY, encode
from radiator.archive.sorting import DAY_NS
from radiator.archive.split import date_of
from radiator.columns.batches import Ints
from radiator.words import counted

BATCH_ROWS = 65_536
BODY_ROWS = 256  # likewise, with bodies
WINDOW_OFFSETS = 16 * 1024 * 1024  # offsets checked at a time, 4 bytes each
_COLUMNS = ["destination", "partition", "offset", "receive_ns", "size"]


class PartitionState(NamedTuple):
    """The commits' facts about a partition. ``anchor`` None: there is none."""

    name: str
    files: Sequence[DataFile]
    lost: Sequence[tuple[int, int]]
    start: int
    end: int
    anchor: Anchor | None


def check_file(files: Files, each: DataFile, anchors: Mapping[str, Anchor]) -> Generator[str, None, frozenset[str]]:
    """Yield what is wrong, as texts. Raises pyarrow's errors, OSError if the file cannot be read.

    Returns the partitions of which it has each offset of their spans once, and no other, if it has several.
    """
    address = files.named(each.path)
    with files.open(each.path) as file:
        source = reader(file, read_dictionary=["destination", "partition"])
        odd = [text for name in SCHEMA.names if (text := _column(name, source.schema_arrow))]
        if odd:
            yield f"{address}: {odd[0]}"
            return frozenset()
        seen = _FileCheck(each, anchors)
        columns = _COLUMNS if each.digest else [*_COLUMNS, "body"]
        for batch in source.iter_batches(BATCH_ROWS if each.digest else BODY_ROWS, columns=columns):
            seen.add(batch)
    for text in seen.faults():
        yield f"{address}: {text}"
    return seen.whole()


def _column(name: str, schema: pa.Schema) -> str | None:
    """Return what is wrong with a column, or None."""
    if name not in schema.names:
        return f"has no column {name}"
    if schema.field(name).nullable and not SCHEMA.field(name).nullable:
        return f"has a column {name} that may be null"
    return None


class _FileCheck:
    """The facts of the rows of a file."""

    def __init__(self, each: DataFile, anchors: Mapping[str, Anchor]) -> None:
        self._each, self._anchors = each, anchors
        self._of_spans = [0] * len(each.spans)
        self._wrong: dict[str, None] = {}  # in the order in which they were met, each once
        self._names: set[str] = set()
        self._records = self._bytes = 0
        self._low, self._high = (1 << 63) - 1, -(1 << 63)
        self._last: tuple[str, str, int] = "", "", -1
        self._current: str | None = None  # the partition of the last row, if the file has several
        self._offsets: list[Ints] = []  # of it
        self._ended: set[str] = set()
        self._whole: set[str] = set()

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        offsets, times = batch.column("offset").to_numpy(), batch.column("receive_ns").to_numpy()
        sizes = batch.column("size")
        self._records += batch.num_rows
        self._bytes += int(sizes.to_numpy().sum())
        self._low, self._high = min(self._low, int(times.min())), max(self._high, int(times.max()))
        if "body" in batch.schema.names and not pc.all(pc.equal(pc.binary_length(batch.column("body")), sizes)).as_py():
            self._wrong["has bodies whose size is not what the column size says"] = None
        partitions, destinations = batch.column("partition"), batch.column("destination")
        names, ids = partitions.dictionary.to_pylist(), partitions.indices.to_numpy()
        known, numbers = destinations.dictionary.to_pylist(), destinations.indices.to_numpy()
        for start, stop in pairwise([0, *(np.flatnonzero(np.diff(ids)) + 1).tolist(), len(ids)]):
            self._part(names[ids[start]], offsets[start:stop], times[start:stop])
            if len(self._each.partitions) > 1:
                self._collect(names[ids[start]], offsets[start:stop])
            self._order(names[ids[start]], known, numbers[start:stop], offsets[start:stop])

    def _collect(self, partition: str, offsets: Ints) -> None:
        """Add offsets to those of their partition, whose rows follow one another."""
        if partition != self._current:
            self._end()
            self._current = partition
        self._offsets.append(offsets)

    def _end(self) -> None:
        name, found = self._current, self._offsets
        self._current, self._offsets = None, []
        if name is None:
            return
        spans = self._each.spans_of(name)
        offsets = np.sort(np.concatenate(found))
        if len(offsets) == sum(span.next_offset - span.first for span in spans) and name not in self._ended:
            if np.array_equal(offsets, np.concatenate([np.arange(span.first, span.next_offset) for span in spans])):
                self._whole.add(name)
        else:
            self._whole.discard(name)
        self._ended.add(name)

    def whole(self) -> frozenset[str]:
        """Return the partitions that have each offset of their spans once, and no other."""
        self._end()
        return self._each.partitions if self._whole == self._each.partitions else frozenset(self._whole)

    def _part(self, partition: str, offsets: Ints, times: Ints) -> None:
        """Check the offsets and times of rows of one partition."""
        spans = self._each.spans_of(partition)
        if not spans:
            said = ", ".join(map(repr, sorted(self._each.partitions)[:3]))
            self._wrong[f"has records of partition {partition!r}, its commit says {said}"] = None
        place = bisect_left(self._each.spans, partition, key=attrgetter("partition"))
        inside = np.zeros(len(offsets), np.bool_)
        for number, span in enumerate(spans, place):
            of_span = (span.first <= offsets) & (offsets < span.next_offset)
            self._of_spans[number] += int(np.count_nonzero(of_span))
            inside |= of_span
        if spans and not inside.all():
            said = ", ".join(f"{each.first} to {each.next_offset - 1}" for each in spans[:3])
            of = "" if len(self._each.partitions) == 1 else f" of partition {partition!r}"
            self._wrong[f"has offsets{of} outside {said}"] = None
        anchor = self._anchors.get(partition)
        if anchor is not None:
            for ns in times[offsets == anchor.offset].tolist():
                if ns != anchor.receive_ns:
                    self._wrong[
                        f"has a record at offset {anchor.offset} that was received at {ns}, and the commits' "
                        f"anchor there says {anchor.receive_ns}"
                    ] = None

    def _order(self, partition: str, names: list[str], ids: Ints, offsets: Ints) -> None:
        """Check the order of rows of one partition; ``ids``: of their destinations in ``names``."""
        different = np.unique(ids).tolist()
        self._names.update(names[each] for each in different)
        rises = np.diff(offsets) > 0
        first = partition, names[ids[0]], int(offsets[0])
        if len(different) > 1:
            in_order = sorted(different, key=names.__getitem__)
            ranks = np.argsort(in_order)[np.searchsorted(different, ids)]
            rises = (np.diff(ranks) > 0) | ((np.diff(ranks) == 0) & rises)
        if not (first > self._last and rises.all()):
            self._wrong["is not sorted by partition, destination and offset"] = None
        self._last = partition, names[ids[-1]], int(offsets[-1])

    def faults(self) -> Iterator[str]:
        yield from self._wrong
        each = self._each
        pairs: list[tuple[str, Any, Any]] = []
        if self._records:
            pairs += [
                ("bytes of bodies", self._bytes, each.body_bytes),
                ("min_receive_ns", self._low, each.min_receive_ns),
                ("max_receive_ns", self._high, each.max_receive_ns),
                ("as its first day", date_of(self._low // DAY_NS), each.date),
                ("as its last day", date_of(self._high // DAY_NS), each.date),
            ]
        for span, count in zip(each.spans, self._of_spans, strict=True):
            if len(each.spans) > 1 and count != span.records:
                yield (
                    f"has {counted(count, 'record')} of {span.partition!r} from offset {span.first} to "
                    f"{span.next_offset - 1}, its commit says {span.records}"
                )
        for name, found, said in pairs:
            if found != said:
                yield f"has {found} {name}, its commit says {said}"
        if each.destinations is not None and self._names != set(each.destinations):
            other = sorted(self._names ^ set(each.destinations))
            yield f"has other destinations than its commit says: {', '.join(map(repr, other[:3]))}"
        date, *folder, _ = each.path.split("/")
        if date != f"{DATE_PREFIX}{each.date}":
            yield "is in the folder of another day"
        if folder not in ([], [MANY]) and {encode(name) for name in self._names} != set(folder):
            yield "is in the folder of another destination"


def check_partition(
    files: Files, part: PartitionState, whole: Mapping[str, Collection[str]]
) -> Generator[str, None, int]:
    """Yield what is wrong, as texts. Return the number of offsets in no file and not lost.

    Offsets of a file that cannot be read are not counted, because that was reported.

    Args:
        files: The archive.
        part: The partition.
        whole: By path, partitions whose offsets in the file are exactly those of its spans: it is not read again.
    """
    seen = _PartitionCheck(files, part, whole)
    yield from seen.faults()
    return seen.missing


class _PartitionCheck:
    """The facts of the offsets of a partition."""

    def __init__(self, files: Files, part: PartitionState, whole: Mapping[str, Collection[str]]) -> None:
        self._files, self._part, self._whole = files, part, whole
        self._found = [(span, each) for each in part.files for span in each.spans_of(part.name)]
        self._found.sort(key=lambda one: one[0][:3])
        self._low = min([part.start, *(span.first for span, _ in self._found)])
        self._high = max([part.end, *(span.next_offset for span, _ in self._found)])
        self.missing = 0
        self._last = -1  # the highest offset in a file
        self._unread: set[str] = set()  # paths of files that cannot be read

    def faults(self) -> Iterator[str]:
        for first in range(self._low, self._high, WINDOW_OFFSETS):
            yield from self._window(_Window(first, min(first + WINDOW_OFFSETS, self._high)))
        anchor, last = self._part.anchor, self._last
        if anchor is not None and last != anchor.offset and not self._unread:
            yield (
                f"partition {self._part.name!r}: the commits name the record at offset {anchor.offset} as its last "
                "one, and " + (f"that is at {last}" if last >= 0 else "there is none")
            )

    def _window(self, window: _Window) -> Iterator[str]:
        part = self._part
        several = {each.path: each for span, each in self._found if window.overlaps(span)}
        for each in several.values():
            yield from self._twice(window, each)
        for a, b in part.lost:
            if there := window.count(a, b):
                yield f"partition {part.name!r}: {there} offsets of {a} to {b - 1} are recorded as lost, but exist"
        if outside := window.count(self._low, part.start) + window.count(part.end, self._high):
            yield f"partition {part.name!r}: {outside} records are outside its offsets {part.start} to {part.end - 1}"
        unread = [(span.first, span.next_offset) for span, each in self._found if each.path in self._unread]
        self.missing += window.missing(part.start, part.end, [*part.lost, *unread])
        self._last = max(self._last, window.last())

    def _twice(self, window: _Window, each: DataFile) -> Iterator[str]:
        """Add the offsets of a file to a window, and check that no earlier file has them."""
        name = self._part.name
        known = name in self._whole.get(each.path, ())
        offsets = _of_spans(each, name, window) if known else _stored(self._files, each, name, window)
        try:
            for other, twice in window.add(each, offsets):
                yield (
                    f"{len(twice)} offsets of {name!r} exist twice, the first one is {twice[0]}: in "
                    f"{self._files.named(each.path)} and in {self._files.named(other.path)}"
                )
        except (pa.ArrowException, OSError):
            self._unread.add(each.path)


def _of_spans(each: DataFile, partition: str, window: _Window) -> Iterator[Ints]:
    """Yield the offsets that a file has in a window according to its commit."""
    for span in each.spans_of(partition):
        yield np.arange(max(span.first, window.first), min(span.next_offset, window.stop))


def _stored(files: Files, each: DataFile, partition: str, window: _Window) -> Iterator[Ints]:
    """Yield the offsets that a file has in a window.

    Raises:
        OSError: The file cannot be read. pyarrow's errors are raised too.
    """
    with files.open(each.path) as file:
        source = reader(file)
        groups = list(range(source.num_row_groups))
        columns = ["offset"]
        if len(each.partitions) > 1:
            columns.append("partition")
            groups = [group for group in groups if overlaps(source, group, partition, window.first, window.stop)]
        for batch in source.iter_batches(BATCH_ROWS, groups, columns):
            if len(columns) > 1:
                batch = batch.filter(pc.equal(batch.column("partition"), partition))
            offsets = batch.column("offset").to_numpy()
            yield offsets[(offsets >= window.first) & (offsets < window.stop)]


class _Window:
    """The number of the file that has each offset, from 1 on in the order of ``add``; 0: none."""

    def __init__(self, first: int, stop: int) -> None:
        self.first, self.stop = first, stop
        self._of = np.zeros(stop - first, np.int32)
        self._files: list[DataFile] = []

    def overlaps(self, span: Span) -> bool:
        return span.first < self.stop and span.next_offset > self.first

    def add(self, each: DataFile, parts: Iterable[Ints]) -> Iterator[tuple[DataFile, Ints]]:
        """Add the offsets of a file. Yield each file that has some of them already, and these offsets."""
        self._files.append(each)
        number = len(self._files)
        for offsets in parts:
            if not len(offsets):
                continue
            at = np.sort(offsets) - self.first
            before = self._of[at]
            again = np.concatenate([[False], np.diff(at) == 0])
            before[again] = number
            for other in np.unique(before[before > 0]):
                yield self._files[other - 1], at[before == other] + self.first
            self._of[at] = number

    def count(self, first: int, stop: int) -> int:
        return int(np.count_nonzero(self._slice(first, stop)))

    def last(self) -> int:
        """Return the highest offset in a file; -1: there is none."""
        there = np.flatnonzero(self._of)
        return self.first + int(there[-1]) if len(there) else -1

    def missing(self, first: int, stop: int, lost: Sequence[tuple[int, int]]) -> int:
        """Return the number of offsets from ``first`` to ``stop`` that are in no file, and not lost."""
        first, stop = max(first, self.first), min(stop, self.stop)
        there = self._slice(first, stop) > 0
        for a, b in lost:
            there[max(a - first, 0) : max(b - first, 0)] = True
        return int(len(there) - np.count_nonzero(there))

    def _slice(self, first: int, stop: int) -> Any:
        return self._of[max(first - self.first, 0) : max(stop - self.first, 0)]
