"""Whether an archive is what its commits say.

    files       each file of the state is there, as large as its commit says, and its footer says the same
    ranges      within a partition, day and folder no two files have an offset in common
    coverage    files and lost ranges of a partition reach from its start to its end without a hole
    records     if asked for: the bytes of a file have the digest that its commit says; every offset is read, and
                is there once, in the order and the range that its file says

Knows: the manifest, Parquet. Must not know: stores. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from radiator.archive.files import Files
from radiator.archive.listing import in_order
from radiator.archive.manifest import DataFile, State
from radiator.archive.parquet import digest_of, footer_of, reader


def verify(
    files: Files, state: State, records: bool = False, advance: Callable[[int], None] = lambda done: None
) -> Iterator[str]:
    """What is wrong, in words; nothing if all is well. ``advance`` hears of each file."""
    for each in in_order(state.files.values()):
        yield from _file(files, state, each, records)
        advance(1)
    yield from _overlaps(state)
    for partition in sorted(state.ends):
        yield from _holes(state, partition)
    if records:
        for partition in sorted(state.ends):
            yield from _records(files, [each for each in state.files.values() if each.partition == partition])


def _file(files: Files, state: State, each: DataFile, records: bool) -> Iterator[str]:
    address = files.address(each.path)
    size = files.size(each.path)
    if size is None:
        yield f"{address}: is not there; {each.records} records of {each.partition!r} are missing"
        return
    if size != each.bytes:
        yield f"{address}: has {size} bytes, its commit says {each.bytes}"
    try:
        with files.open(each.path) as file:
            rows, said = footer_of(file)
            if records and each.digest:
                file.seek(0)
                digest = digest_of(file)
                if digest != each.digest:
                    yield f"{address}: has the digest {digest}, its commit says {each.digest}: its bytes have changed"
    except (pa.ArrowException, OSError) as error:
        yield f"{address}: cannot be read: {error}"
        return
    expected: dict[str, Any] = {
        "radiator.partition": each.partition,
        "radiator.first_offset": str(each.first_offset),
        "radiator.next_offset": str(each.next_offset),
        "radiator.source": state.source,
    }
    for name, value in expected.items():
        if said.get(name) != value:
            yield f"{address}: its footer says {name} {said.get(name)!r}, its commit says {value!r}"
    if rows != each.records:
        yield f"{address}: has {rows} records, its commit says {each.records}"


def _overlaps(state: State) -> Iterator[str]:
    def place(each: DataFile) -> tuple[str, str]:
        return each.path.rpartition("/")[0], each.partition

    for (folder, partition), group in groupby(in_order(state.files.values()), key=place):
        end = 0
        for each in group:
            if each.first_offset < end:
                yield f"{folder}: two files of {partition!r} have the offsets from {each.first_offset} to {end - 1}"
            end = max(end, each.next_offset)


def _holes(state: State, partition: str) -> Iterator[str]:
    spans = [(each.first_offset, each.next_offset) for each in state.files.values() if each.partition == partition]
    spans += [(each.first, each.next_offset) for each in state.lost if each.partition == partition]
    expected = state.starts.get(partition, 0)
    for first, following in sorted([*spans, (state.ends[partition], state.ends[partition])]):
        if first > expected:
            yield f"partition {partition!r}: no file has the offsets {expected} to {first - 1}"
        expected = max(expected, following)
    if expected > state.ends[partition]:
        yield f"partition {partition!r}: files reach to {expected}, the commits to {state.ends[partition]}"


def _records(files: Files, found: Iterable[DataFile]) -> Iterator[str]:
    """Offsets only, which are a few bytes a thousand."""
    pieces = []
    for each in found:
        try:
            with files.open(each.path) as file:
                offsets = reader(file).read(columns=["offset"]).column("offset").to_numpy()
        except (pa.ArrowException, OSError):
            continue  # told already
        if len(offsets) and not (each.first_offset <= offsets.min() and offsets.max() < each.next_offset):
            yield f"{files.address(each.path)}: has offsets outside {each.first_offset} to {each.next_offset - 1}"
        pieces.append(offsets)
    if not pieces:
        return
    every = np.sort(np.concatenate(pieces))
    twice = every[1:][np.diff(every) == 0]
    if len(twice):
        yield f"{len(twice)} offsets are there more than once, the first of them is {twice[0]}"
