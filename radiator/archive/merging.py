"""Merge small files of one partition and day into one larger file with the same records.

Files of one destination whose offsets follow one another are concatenated. Others are merged by destination and offset
(``sorting``). Files of earlier versions, which have a directory for each destination, are merged with the others: the
result has the path of a new file.

This module knows Parquet. It does not know commits. It needs a few row groups of memory, whatever the size of the
files. Invariants: a file whose digest differs from that of its commit is not merged; the result has as many records,
with as many bytes of bodies, as the files; the offsets of files with a new path do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise

import pyarrow as pa

from radiator.archive.files import Files
from radiator.archive.manifest import DataFile, State
from radiator.archive.parquet import digest_of, footer_of
from radiator.archive.paths import DATA_SUFFIX
from radiator.archive.sorting import batches, merged_files
from radiator.archive.split import RowGroups, Settings, SpooledFile
from radiator.errors import StorageError
from radiator.limits import MIB

SMALL_BYTES = 64 * MIB
MERGED_BYTES_MAX = 256 * MIB
MERGED_FILES_MAX = 128  # each of them has an open file in the spool while they are merged
OPEN_DAY_FILES = 32  # of a day that may get more: so many small files are merged; of one that is over, two


@dataclass(frozen=True)
class Sizes:
    """The limits of merging."""

    small_bytes: int = SMALL_BYTES
    merged_bytes_max: int = MERGED_BYTES_MAX
    open_day_files: int = OPEN_DAY_FILES


def groups_to_merge(state: State, sizes: Sizes = Sizes(), force: bool = False) -> list[list[DataFile]]:
    """Return groups of adjacent small files. ``force``: also those of a day that may get more."""
    latest: dict[str, str] = {}
    for each in state.files.values():
        latest[each.partition] = max(latest.get(each.partition, ""), each.date)
    found: list[list[DataFile]] = []
    for _, group in groupby(sorted(state.files.values(), key=_place), key=lambda each: _place(each)[:2]):
        found += _runs(group, sizes)
    return [
        run
        for run in found
        if len(run) >= (2 if force or run[0].date < latest[run[0].partition] else max(2, sizes.open_day_files))
    ]


def _runs(group: Iterable[DataFile], sizes: Sizes) -> Iterator[list[DataFile]]:
    """Yield the small files between large ones, at most so many, cut where no file has offsets of both sides."""
    run: list[DataFile] = []
    size = end = 0
    for each in group:
        small = each.bytes < sizes.small_bytes
        if not small and each.path.count("/") > 1:
            continue  # with an old path: a new file may have its offsets too
        full = size + each.bytes > sizes.merged_bytes_max or len(run) >= MERGED_FILES_MAX
        if run and (not small or (full and each.first_offset >= end)):
            yield run
            run, size = [], 0
        if small:
            run.append(each)
            size += each.bytes
            end = max(end, each.next_offset)
    if run:
        yield run


def _place(each: DataFile) -> tuple[str, str, int, int]:
    return each.partition, each.date, each.first_offset, each.next_offset


def merge_files(files: Files, run: list[DataFile], settings: Settings, token: str, source: str) -> SpooledFile:
    """Write the file that has the records of some files. Its name in the spool begins with ``token``.

    Raises:
        StorageError: A file is damaged.
        OSError: A file cannot be read or written.
    """
    for each in run:
        _check(files, each)
    first, following = run[0], max(each.next_offset for each in run)
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
    made = groups.close(first.partition, first.first_offset, following, first.date, names, token, source)
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


def _rows(
    files: Files, run: Sequence[DataFile], settings: Settings, token: str
) -> tuple[Iterable[str], Iterator[pa.RecordBatch]]:
    """Return the destinations of files and their rows in order."""
    names = {each.destinations for each in run}
    follow = all(a.next_offset <= b.first_offset for a, b in pairwise(run))
    if follow and len(names) == 1 and len(alone := names.pop() or ()) == 1:
        return alone, _batches(files, run, settings.schema)
    return merged_files([partial(files.open, each.path) for each in run], settings.spool, token, settings.schema)


def _check(files: Files, each: DataFile) -> None:
    """Check the digest of a file: merging a damaged one would give it a new digest and remove the evidence."""
    with files.open(each.path) as file:
        found = digest_of(file)
    if each.digest and found != each.digest:
        raise StorageError(
            f"{files.named(each.path)}: its bytes have changed (digest {found}, its commit says "
            f"{each.digest}); it is not merged: restore it"
        )


def _batches(files: Files, run: Iterable[DataFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for each in run:
        with files.open(each.path) as file:
            yield from batches(file, schema)
