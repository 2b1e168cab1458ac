"""Merge small files of one partition, day and folder into one larger file with the same records.

Files of one destination are concatenated. Files that several destinations share are sorted by destination, so they are
merged: all records of one name, then all of the next (``shared``).

This module knows Parquet. It does not know commits. It needs a few row groups of memory, whatever the size of the
files. Invariants: a file whose digest differs from that of its commit is not merged; the result has as many records,
with as many bytes of bodies, as the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import pyarrow as pa

from radiator.archive.files import Files
from radiator.archive.manifest import DataFile, State
from radiator.archive.parquet import GROUP_BYTES, GROUP_ROWS, DataWriter, digest_of, footer_of
from radiator.archive.paths import DATA_SUFFIX, MANY, data_path
from radiator.archive.shared import batches, by_destination
from radiator.archive.split import SpooledFile
from radiator.errors import StorageError
from radiator.limits import MIB

SMALL_BYTES = 32 * MIB
MERGED_BYTES_MAX = 256 * MIB
MERGED_FILES_MAX = 128  # each of them has an open file while shared ones are merged
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
    ordered = sorted(state.files.values(), key=_place)
    for _, group in groupby(ordered, key=lambda each: _place(each)[:2]):
        run: list[DataFile] = []
        for each in group:
            small = each.bytes < sizes.small_bytes
            large = sum(one.bytes for one in run) + each.bytes > sizes.merged_bytes_max
            if run and (not small or large or len(run) >= MERGED_FILES_MAX):
                found.append(run)
                run = []
            if small:
                run.append(each)
        found.append(run)
    over = [run for run in found if run]
    return [
        run
        for run in over
        if len(run) >= (2 if force or run[0].date < latest[run[0].partition] else max(2, sizes.open_day_files))
    ]


def _place(each: DataFile) -> tuple[str, str, int]:
    return each.path.rpartition("/")[0], each.partition, each.first_offset


def merge_files(files: Files, run: list[DataFile], spool: str, token: str, source: str, level: int) -> SpooledFile:
    """Write the file that has the records of some files. Its name in the spool begins with ``token``.

    Raises:
        StorageError: A file is damaged.
        OSError: A file cannot be read or written.
    """
    for each in run:
        _check(files, each)
    first, last = run[0], run[-1]
    shared = first.path.split("/")[1] == MANY
    writer = DataWriter(f"{spool}/{token}{DATA_SUFFIX}", ["destination", "offset"] if shared else ["offset"], level)
    names: set[str] = set()
    try:
        for group in _groups(_shared(files, run, spool, token, names) if shared else _batches(files, run)):
            writer.write_group(group)
    except pa.ArrowException as error:
        raise StorageError(
            f"{files.named(first.path)} and {len(run) - 1} more cannot be read: {error}; they are not merged: find "
            f"the file with `radiator archive verify`"
        ) from error
    if not shared:
        names.update(first.destinations or ())
    path = data_path(
        first.date, None if shared else next(iter(names)), first.partition, first.first_offset, last.next_offset, token
    )
    made = writer.close(path, first.partition, first.first_offset, last.next_offset, first.date, names, source)
    expected = sum(each.records for each in run), sum(each.body_bytes for each in run)
    with open(writer.path, "rb") as file:
        found = footer_of(file)[0], made.body_bytes
    if expected != found:
        raise StorageError(
            f"{files.named(first.path)} and {len(run) - 1} more are not what their commits say: {found[0]} records "
            f"with {found[1]} bytes, expected {expected[0]} with {expected[1]}; they are not merged: find the file "
            f"with `radiator archive verify`"
        )
    return SpooledFile(writer.path, made)


def _check(files: Files, each: DataFile) -> None:
    """Check the digest of a file: merging a damaged one would give it a new digest and remove the evidence."""
    with files.open(each.path) as file:
        found = digest_of(file)
    if each.digest and found != each.digest:
        raise StorageError(
            f"{files.named(each.path)}: its bytes have changed (digest {found}, its commit says "
            f"{each.digest}); it is not merged: restore it"
        )


def _batches(files: Files, run: Iterable[DataFile]) -> Iterator[pa.RecordBatch]:
    for each in run:
        with files.open(each.path) as file:
            yield from batches(file)


def _shared(files: Files, run: Iterable[DataFile], spool: str, token: str, names: set[str]) -> Iterator[pa.RecordBatch]:
    for name, batch in by_destination([partial(files.open, each.path) for each in run], spool, token):
        names.add(name)
        yield batch


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield the batches of each row group."""
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        group.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group
