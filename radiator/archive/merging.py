"""Merge small files of one day into one larger file with the same records.

Files of different partitions are merged together, by partition, destination and offset (``sorting``): ten thousand logs
with a few records each make a few files a day. The small files of a partition that has enough of them for a large file
are merged among themselves. Files of one partition and destination whose offsets follow one another are concatenated.
Files of earlier versions, which have a directory for each destination, are merged with others of their partition: the
result has the path of a new file.

This module knows Parquet. It does not know commits. It needs a few row groups of memory, whatever the size of the
files. Invariants: a file whose digest differs from that of its commit is not merged; the result has as many records,
with as many bytes of bodies, as the files; the offsets of files with a new path do not overlap; the spans of the result
have no offset that no span of the files has.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, groupby, pairwise
from typing import Any

import pyarrow as pa

from radiator.archive.files import Files
from radiator.archive.manifest import DataFile, Span, State
from radiator.archive.parquet import digest_of, footer_of, listed_spans
from radiator.archive.paths import DATA_SUFFIX
from radiator.archive.sorting import batches, merged_files
from radiator.archive.split import RowGroups, Settings, SpooledFile
from radiator.errors import StorageError
from radiator.limits import KIB, MIB

SMALL_BYTES = 64 * MIB
MERGED_BYTES_MAX = 256 * MIB
MERGED_FILES_MAX = 128  # of TINY_BYTES and more: each of them has an open file in the spool while they are merged
TINY_BYTES = 512 * KIB  # smaller ones are sorted in memory
SPANS_MAX = 16 * 1024  # of a file: some 100 bytes each, in the commit that adds it and in each checkpoint
OPEN_DAY_FILES = 32  # of the latest day: so many small files are merged; of one that is over, two
OPEN_DAY_GROWTH = 4  # what is merged before its day is over is then at least so many times larger
PAST_DAY_GROWTH = 2  # likewise, of an earlier day that some logs may get more records of
RECORD_BYTES = 200  # of a record besides its body, about


@dataclass(frozen=True)
class Sizes:
    """The limits of merging."""

    small_bytes: int = SMALL_BYTES
    merged_bytes_max: int = MERGED_BYTES_MAX
    open_day_files: int = OPEN_DAY_FILES
    spans_max: int = SPANS_MAX


class DamagedFile(StorageError):
    """The bytes of a file of the archive have changed, or its disk cannot read them. ``path``: in the archive."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


def groups_to_merge(
    state: State, sizes: Sizes = Sizes(), force: bool = False, partitions: Collection[str] = ()
) -> list[list[DataFile]]:
    """Return groups of small files, each to be merged into one.

    Args:
        state: The state of the archive.
        sizes: The limits.
        force: Also those of days that may get more.
        partitions: Only files of these; empty: of all.
    """
    latest = _latest_days(state)
    found: list[list[DataFile]] = []
    wanted = [each for each in state.files.values() if not partitions or each.partitions.issubset(partitions)]
    for date, of_day in groupby(sorted(wanted, key=_place), key=lambda each: each.date):
        shared: list[DataFile] = []
        for alone, group in groupby(of_day, key=_alone):
            own = list(group)
            small = [each for each in own if each.bytes < sizes.small_bytes]
            if alone and (_bytes(small) >= sizes.small_bytes or any(map(_is_old, own))):
                least = 2 if force or date < latest[alone] else max(2, sizes.open_day_files)
                found += (run for run in _runs(own, sizes) if len(run) >= least)
            else:
                shared += small
        if force or all(date < latest[name] for each in shared for name in each.partitions):
            least, growth = 2, 1
        elif date < max(latest.values()):  # some logs have no later day, and may get more
            least, growth = 2, PAST_DAY_GROWTH
        else:
            least, growth = max(2, sizes.open_day_files), min(OPEN_DAY_GROWTH, sizes.open_day_files)
        if len(shared) >= least:
            found += _shared(shared, sizes, growth)
    return found


def _latest_days(state: State) -> dict[str, str]:
    """Return the latest day of each partition: only this one may get more records."""
    latest: dict[str, str] = {}
    for each in state.files.values():
        for name in each.partitions:
            latest[name] = max(latest.get(name, ""), each.date)
    return latest


def _shared(small: list[DataFile], sizes: Sizes, growth: int) -> Iterator[list[DataFile]]:
    """Yield groups of small files of any partitions.

    The smallest files are merged, as many as make the result ``growth`` times larger than the largest of them. So a
    record is merged again only into a file of so many times the size, and few files are left, each with a considerable
    part of the records of all smaller ones.
    """
    small.sort(key=_weight)
    sums = accumulate(map(_weight, small))
    count = max((n for n, total in enumerate(sums, 1) if total >= growth * _weight(small[n - 1])), default=0)
    group: list[DataFile] = []
    size = large = 0
    spans = _SpanCount()
    for each in sorted(small[:count], key=_place):
        full = size + each.bytes > sizes.merged_bytes_max or large >= MERGED_FILES_MAX
        if group and (full or spans.with_those_of(each) > sizes.spans_max):
            if len(group) > 1:
                yield group
            group, size, large, spans = [], 0, 0, _SpanCount()
        group.append(each)
        size += each.bytes
        large += each.bytes >= TINY_BYTES
        spans.add(each)
    if len(group) > 1:
        yield group


class _SpanCount:
    """Counts the spans of the file that has the records of some files."""

    def __init__(self) -> None:
        self._count = 0
        self._starts: set[tuple[str, int]] = set()
        self._ends: set[tuple[str, int]] = set()

    def with_those_of(self, each: DataFile) -> int:
        """Return the number with one more file. Spans that follow one another are joined."""
        more = len(each.spans)
        for span in each.spans:
            more -= ((span.partition, span.first) in self._ends) + ((span.partition, span.next_offset) in self._starts)
        return self._count + more

    def add(self, each: DataFile) -> None:
        self._count = self.with_those_of(each)
        self._starts.update((span.partition, span.first) for span in each.spans)
        self._ends.update((span.partition, span.next_offset) for span in each.spans)


def _runs(group: Iterable[DataFile], sizes: Sizes) -> Iterator[list[DataFile]]:
    """Yield the small files between large ones, at most so many, cut where no file has offsets of both sides."""
    run: list[DataFile] = []
    size = end = 0
    for each in group:
        small = each.bytes < sizes.small_bytes
        if not small and _is_old(each):
            continue  # a new file may have its offsets too
        full = size + each.bytes > sizes.merged_bytes_max or len(run) >= MERGED_FILES_MAX
        if run and (not small or (full and each.spans[0].first >= end)):
            yield run
            run, size = [], 0
        if small:
            run.append(each)
            size += each.bytes
            end = max(end, each.spans[-1].next_offset)
    if run:
        yield run


def _alone(each: DataFile) -> str | None:
    """Return the partition of a file that has no other one."""
    name = each.spans[0].partition
    return name if each.spans[-1].partition == name else None


def _is_old(each: DataFile) -> bool:
    """Return whether a file has a path of earlier versions."""
    return each.path.count("/") > 1


def _bytes(group: Iterable[DataFile]) -> int:
    return sum(each.bytes for each in group)


def _weight(each: DataFile) -> int:
    """Return about the bytes of the records. Unlike the bytes of files, those of merged ones add up exactly."""
    return each.body_bytes + RECORD_BYTES * each.records


def _place(each: DataFile) -> tuple[str, bool, str, int, int]:
    first = each.spans[0]
    return each.date, _alone(each) is None, first.partition, first.first, each.spans[-1].next_offset


def merge_files(files: Files, run: list[DataFile], settings: Settings, token: str, source: str) -> SpooledFile:
    """Write the file that has the records of some files. Its name in the spool begins with ``token``.

    Raises:
        DamagedFile: A file is damaged.
        StorageError: One of them is, and it is not known which.
        OSError: A file cannot be read or written.
    """
    first = run[0]
    groups = RowGroups(f"{settings.spool}/{token}{DATA_SUFFIX}", settings)
    try:
        names, rows = _rows(files, run, settings, token)
        for batch in rows:
            groups.write(batch)
    except pa.ArrowException as error:
        raise StorageError(
            f"{files.named(first.path)} and {len(run) - 1} more cannot be read: {error}; they are not merged: find "
            f"the file with `radiator archive verify`"
        ) from error
    made = groups.close(spans_of(run), first.date, names, token, source)
    expected = sum(each.records for each in run), sum(each.body_bytes for each in run)
    with open(made.spooled, "rb") as file:
        found = footer_of(file)[0], made.file.body_bytes
    if expected != found:
        raise StorageError(
            f"{files.named(first.path)} and {len(run) - 1} more are not what their commits say: {found[0]} records "
            f"with {found[1]} bytes, expected {expected[0]} with {expected[1]}; they are not merged: find the file "
            f"with `radiator archive verify`"
        )
    return made


def spans_of(run: Iterable[DataFile]) -> tuple[Span, ...]:
    """Return the spans of the file that has the records of some files."""
    return listed_spans(span._replace(destinations=each.destinations_of(span)) for each in run for span in each.spans)


def _rows(
    files: Files, run: Sequence[DataFile], settings: Settings, token: str
) -> tuple[Iterable[str], Iterator[pa.RecordBatch]]:
    """Return the destinations of files and their rows in order."""
    names = {each.destinations for each in run}
    opened = [partial(_opened, files, each) for each in run]
    alike = len(set[str]().union(*(each.partitions for each in run))) == 1
    follow = alike and all(a.spans[-1].next_offset <= b.spans[0].first for a, b in pairwise(run))
    if follow and len(names) == 1 and len(alone := names.pop() or ()) == 1:
        return alone, _batches(opened, settings.schema)
    return merged_files(opened, settings.spool, token, settings.schema)


def _opened(files: Files, each: DataFile) -> Any:
    """Open a file whose bytes have the digest of its commit: merging a damaged one would remove the evidence."""
    file = files.open(each.path)
    try:
        whole = pa.BufferReader(file.read()) if each.bytes < TINY_BYTES else None
        found = digest_of(whole or file)
    except OSError as error:
        file.close()
        if error.errno != errno.EIO:
            raise
        raise DamagedFile(
            each.path,
            f"{files.named(each.path)}: cannot be read: {error.strerror}; it is not merged: check the disk (dmesg, "
            f"smartctl), or restore it",
        ) from error
    if whole is not None:
        file.close()
        file = whole
    file.seek(0)
    if each.digest and found != each.digest:
        file.close()
        raise DamagedFile(
            each.path,
            f"{files.named(each.path)}: its bytes have changed (digest {found}, its commit says "
            f"{each.digest}); it is not merged: restore it",
        )
    return file


def _batches(opened: Iterable[Callable[[], Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for each in opened:
        with each() as file:
            yield from batches(file, schema)
