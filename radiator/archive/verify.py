"""Check an archive against its commits.

    files       each file of the state exists, with the size of its commit, and its footer agrees
    ranges      within a partition, day and folder no two files have an offset in common
    coverage    files and lost ranges of a partition reach from its start to its end without a gap
    checksums   if requested: the bytes of a file have the digest of its commit
    records     if requested: also the rows of each file, and of all files of a partition, are those of the commits
                (``rows``), and the anchor of the partition too

An archive may be written meanwhile: a missing file is searched in the latest commits.

This module knows the manifest and Parquet. It does not know stores. It writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pyarrow as pa

from radiator.archive import rows
from radiator.archive.files import Files
from radiator.archive.listing import in_order
from radiator.archive.manifest import DataFile, Span, State, load
from radiator.archive.parquet import digest_of, footer_of, spans_in_footer
from radiator.words import counted


def verify(
    files: Files, state: State, records: bool = False, advance: Callable[[int], None] = lambda done: None,
    *, checksums: bool = False, on_missing: Callable[[str, int], None] = lambda partition, count: None,
) -> Iterator[str]:  # fmt: skip
    """Yield what is wrong, as texts.

    Args:
        files: The archive.
        state: Its state.
        records: Check the rows.
        advance: Called for each file.
        checksums: Check digests.
        on_missing: Called with a partition and the number of its offsets without a record that are not lost, if rows
            are checked.
    """
    found: dict[str, list[DataFile]] = {}
    lost: dict[str, list[tuple[int, int]]] = {}
    whole: dict[str, frozenset[str]] = {}
    for each in in_order(state.files.values()):
        whole[each.path] = yield from _file(files, state, each, checksums or records, records)
        for name in each.partitions:
            found.setdefault(name, []).append(each)
        advance(1)
    yield from _overlaps(state)
    for gone in state.lost:
        lost.setdefault(gone.partition, []).append((gone.first, gone.next_offset))
    for name in sorted({*state.ends, *found}):
        part = rows.PartitionState(
            name, found.get(name, []), lost.get(name, []), state.starts.get(name, 0), state.ends.get(name, 0),
            state.anchors.get(name),
        )  # fmt: skip
        yield from _holes(part)
        if records:
            on_missing(name, (yield from rows.check_partition(files, part, whole)))


def _file(
    files: Files, state: State, each: DataFile, checksums: bool, records: bool
) -> Generator[str, None, frozenset[str]]:
    address = files.named(each.path)
    size = files.size(each.path)
    if size is None:
        if each.path in load(files).files:
            yield f"{address}: does not exist; {each.records} records of {_named(each)} are missing"
        return frozenset()
    if size != each.bytes:
        yield f"{address}: has {size} bytes, its commit says {each.bytes}"
    try:
        return (yield from _inside(files, state, each, checksums, records))
    except (pa.ArrowException, OSError) as error:
        if each.path not in load(files).files:
            return frozenset()  # merged, since a moment ago
        yield f"{address}: cannot be read: {error}"
        return frozenset()


def _named(each: DataFile) -> str:
    first, *others = sorted(each.partitions)
    return f"{first!r}" + (f" and {counted(len(others), 'more partition')}" if others else "")


def _inside(
    files: Files, state: State, each: DataFile, checksums: bool, records: bool
) -> Generator[str, None, frozenset[str]]:
    """Yield what is wrong inside a file. Return the partitions that it has whole (``rows.check_file``)."""
    address = files.named(each.path)
    with files.open(each.path) as file:
        count, said = footer_of(file)
        if checksums and each.digest:
            file.seek(0)
            digest = digest_of(file)
            if digest != each.digest:
                yield f"{address}: has the digest {digest}, its commit says {each.digest}: the bytes have changed"
    expected: dict[str, Any] = {**spans_in_footer(each.spans), "radiator.source": state.source}
    for name, value in expected.items():
        if said.get(name) != value:
            yield f"{address}: its footer says {name} {said.get(name)!r}, its commit says {value!r}"
    if count != each.records:
        yield f"{address}: has {counted(count, 'record')}, its commit says {each.records}"
    if records:
        return (yield from rows.check_file(files, each, state.anchors))
    return frozenset()


def _overlaps(state: State) -> Iterator[str]:
    found: dict[tuple[str, str], list[Span]] = {}
    for each in in_order(state.files.values()):
        for span in each.spans:
            found.setdefault((each.path.rpartition("/")[0], span.partition), []).append(span)
    for (folder, partition), spans in found.items():
        end = 0
        for span in sorted(spans, key=lambda span: span[:3]):
            if span.first < end:
                yield f"{folder}: two files of {partition!r} have the offsets from {span.first} to {end - 1}"
            end = max(end, span.next_offset)


def _holes(part: rows.PartitionState) -> Iterator[str]:
    spans = [*((span.first, span.next_offset) for each in part.files for span in each.spans_of(part.name)), *part.lost]
    expected = part.start
    for first, following in sorted([*spans, (part.end, part.end)]):
        if first > expected:
            yield f"partition {part.name!r}: no file has the offsets {expected} to {first - 1}"
        expected = max(expected, following)
    if expected > part.end:
        yield f"partition {part.name!r}: files reach to {expected}, the commits to {part.end}"
