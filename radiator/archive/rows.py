"""Check the rows of an archive against its commits.

    check_file       one file: order, partition, destinations, times, day, counts and bytes are those of its commit; the
                     anchor of its partition, if it is in the file, has the receive time of the commits
    check_partition  one partition: each offset from its start to its end is in one file, or reported as lost, or in
                     none since it was removed from the log before; no other offset is in a file, and the last one is
                     the anchor's

The digest of an anchor covers what the log stores, which is more than the columns have: it is not compared. Bodies are
only read if no digest covers them.

This module knows the manifest and Parquet. It does not know stores. It needs the memory of some batches, and 64 MiB for
the file of each offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from radiator.archive.files import Files
from radiator.archive.manifest import Anchor, DataFile
from radiator.archive.parquet import SCHEMA, reader
from radiator.archive.paths import DATE_PREFIX, MANY, encode
from radiator.archive.split import DAY_NS, date_of
from radiator.columns.batches import Ints

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


def check_file(files: Files, each: DataFile, anchor: Anchor | None) -> Iterator[str]:
    """Yield what is wrong, as texts. Raises pyarrow's errors, OSError if the file cannot be read."""
    address = files.named(each.path)
    with files.open(each.path) as file:
        source = reader(file, read_dictionary=["destination", "partition"])
        odd = [text for name in SCHEMA.names if (text := _column(name, source.schema_arrow))]
        if odd:
            yield f"{address}: {odd[0]}"
            return
        seen = _FileCheck(each, anchor)
        columns = _COLUMNS if each.digest else [*_COLUMNS, "body"]
        for batch in source.iter_batches(BATCH_ROWS if each.digest else BODY_ROWS, columns=columns):
            seen.add(batch)
    for text in seen.faults():
        yield f"{address}: {text}"


def _column(name: str, schema: pa.Schema) -> str | None:
    """Return what is wrong with a column, or None."""
    if name not in schema.names:
        return f"has no column {name}"
    if schema.field(name).nullable and not SCHEMA.field(name).nullable:
        return f"has a column {name} that may be null"
    return None


class _FileCheck:
    """The facts of the rows of a file."""

    def __init__(self, each: DataFile, anchor: Anchor | None) -> None:
        self._each, self._anchor = each, anchor
        self._wrong: dict[str, None] = {}  # in the order in which they were met, each once
        self._names: set[str] = set()
        self._records = self._bytes = 0
        self._low, self._high = (1 << 63) - 1, -(1 << 63)
        self._last: tuple[str, int] = "", -1

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        offsets, times = batch.column("offset").to_numpy(), batch.column("receive_ns").to_numpy()
        sizes = batch.column("size")
        self._records += batch.num_rows
        self._bytes += int(sizes.to_numpy().sum())
        self._low, self._high = min(self._low, int(times.min())), max(self._high, int(times.max()))
        for name in batch.column("partition").unique().to_pylist():
            if name != self._each.partition:
                self._wrong[f"has records of partition {name!r}, its commit says {self._each.partition!r}"] = None
        if not (self._each.first_offset <= offsets.min() and offsets.max() < self._each.next_offset):
            self._wrong[f"has offsets outside {self._each.first_offset} to {self._each.next_offset - 1}"] = None
        if "body" in batch.schema.names and not pc.all(pc.equal(pc.binary_length(batch.column("body")), sizes)).as_py():
            self._wrong["has bodies whose size is not what the column size says"] = None
        self._order(batch.column("destination"), offsets)
        if self._anchor is not None:
            for ns in times[offsets == self._anchor.offset].tolist():
                if ns != self._anchor.receive_ns:
                    self._wrong[
                        f"has a record at offset {self._anchor.offset} that was received at {ns}, and the commits' "
                        f"anchor there says {self._anchor.receive_ns}"
                    ] = None

    def _order(self, destinations: pa.DictionaryArray, offsets: Ints) -> None:
        names, ids = destinations.dictionary.to_pylist(), destinations.indices.to_numpy()
        self._names |= {names[each] for each in np.unique(ids)}
        rises = np.diff(offsets) > 0
        first, last = (names[ids[0]], int(offsets[0])), (names[ids[-1]], int(offsets[-1]))
        ranks = np.argsort(np.argsort(np.array(names, object)))[ids]
        rises = (np.diff(ranks) > 0) | ((np.diff(ranks) == 0) & rises)
        if not (first > self._last and rises.all()):
            self._wrong["is not sorted by destination and offset"] = None
        self._last = last

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


def check_partition(files: Files, part: PartitionState, on_missing: Callable[[int], None]) -> Iterator[str]:
    """Yield what is wrong, as texts.

    Args:
        files: The archive.
        part: The partition.
        on_missing: Called with the number of offsets in no file and not lost. Offsets of a file that cannot be read are
            not counted, because that was reported.
    """
    found = sorted(part.files, key=_range)
    low = min([part.start, *(each.first_offset for each in found)])
    high = max([part.end, *(each.next_offset for each in found)])
    missing, last, unread = 0, -1, set[str]()
    for first in range(low, high, WINDOW_OFFSETS):
        window = _Window(first, min(first + WINDOW_OFFSETS, high))
        several = [each for each in found if each.first_offset < window.stop and each.next_offset > first]
        for place, each in enumerate(several):
            try:
                for other, twice in window.take(files, each, place):
                    yield (
                        f"{len(twice)} offsets of {part.name!r} exist twice, the first one is {twice[0]}: in "
                        f"{files.named(each.path)} and in {files.named(several[other].path)}"
                    )
            except (pa.ArrowException, OSError):
                unread.add(each.path)
        for a, b in part.lost:
            if there := window.count(a, b):
                yield f"partition {part.name!r}: {there} offsets of {a} to {b - 1} are recorded as lost, but exist"
        if outside := window.count(low, part.start) + window.count(part.end, high):
            yield (f"partition {part.name!r}: {outside} records are outside its offsets {part.start} to {part.end - 1}")
        known = [*part.lost, *(_range(each) for each in several if each.path in unread)]
        missing += window.missing(max(first, part.start), min(window.stop, part.end), known)
        last = max(last, window.last())
    on_missing(missing)
    if part.anchor is not None and last != part.anchor.offset and not unread:
        yield (
            f"partition {part.name!r}: the commits name the record at offset {part.anchor.offset} as its last one, and "
            + (f"that is at {last}" if last >= 0 else "there is none")
        )


def _range(each: DataFile) -> tuple[int, int]:
    return each.first_offset, each.next_offset


class _Window:
    """The number of the file that has each offset, plus one; 0: none."""

    def __init__(self, first: int, stop: int) -> None:
        self.first, self.stop = first, stop
        self._of = np.zeros(stop - first, np.int32)

    def take(self, files: Files, each: DataFile, place: int) -> Iterator[tuple[int, Ints]]:
        """Add the offsets of a file. Yield the place of each earlier file with some of them, and these offsets.

        Raises:
            OSError: The file cannot be read. pyarrow's errors are raised too.
        """
        with files.open(each.path) as file:
            for batch in reader(file).iter_batches(BATCH_ROWS, columns=["offset"]):
                offsets = batch.column("offset").to_numpy()
                yield from self._put(offsets[(offsets >= self.first) & (offsets < self.stop)], place)

    def _put(self, offsets: Ints, place: int) -> Iterator[tuple[int, Ints]]:
        if not len(offsets):
            return
        at = np.sort(offsets) - self.first
        before = self._of[at]
        again = np.concatenate([[False], np.diff(at) == 0])
        before[again] = place + 1
        for other in np.unique(before[before > 0]):
            yield int(other) - 1, at[before == other] + self.first
        self._of[at] = place + 1

    def count(self, first: int, stop: int) -> int:
        return int(np.count_nonzero(self._slice(first, stop)))

    def last(self) -> int:
        """Return the highest offset in a file; -1: there is none."""
        there = np.flatnonzero(self._of)
        return self.first + int(there[-1]) if len(there) else -1

    def missing(self, first: int, stop: int, lost: Sequence[tuple[int, int]]) -> int:
        there = self._slice(first, stop) > 0
        for a, b in lost:
            there[max(a - first, 0) : max(b - first, 0)] = True
        return int(len(there) - np.count_nonzero(there))

    def _slice(self, first: int, stop: int) -> Any:
        return self._of[max(first - self.first, 0) : max(stop - self.first, 0)]
