"""Archives for the tests, made of a store up to any offset: what ``radiator archive`` makes of whole segments."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from radiator.archive import Changes, DataFile, Lost, commit, load, open_files
from radiator.archive.manifest import Span
from radiator.archive.planning import source_of
from radiator.columns.decode import Counters
from radiator.columns.options import ReadOptions
from radiator.columns.planning import plan, snapshot
from radiator.columns.read import read
from radiator.columns.schema import arrow_schema
from radiator.columns.selection import Selection
from tests.archive.stores import old_path


def records(data: str, starts: Mapping[str, int], ends: Mapping[str, int]) -> pa.Table:
    options = ReadOptions(data, Selection(starts=starts, ends=ends))
    batches = [batch for task in plan(options) for batch in read(task, options, arrow_schema(), Counters())]
    return pa.Table.from_batches(batches, arrow_schema())


def archive(root: Path | str, data: str, ends: Mapping[str, int] | None = None, *, many: bool = False) -> list[str]:
    """One commit: everything below ``ends``, by default all there is. ``many``: all destinations of a day in a file,
    which does not say which."""
    files = open_files(root)
    state = load(files)
    ends = dict(ends if ends is not None else snapshot(data))
    before = {name: state.ends.get(name, 0) for name in ends}
    found = records(data, before, ends)
    added = []
    for partition, following in ends.items():
        rows = found.filter(pa.compute.equal(found.column("partition"), partition))
        days = [f"{datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%d}" for ns in rows.column("receive_ns").to_pylist()]
        names = [None] * len(days) if many else rows.column("destination").to_pylist()
        for day, name in sorted(set(zip(days, names, strict=True)), key=str):
            mask = [pair == (day, name) for pair in zip(days, names, strict=True)]
            added.append(
                _publish(root, rows.filter(pa.array(mask)), day, name, partition, before[partition], following)
            )
    starts = {name: 0 for name in ends if name not in state.ends}
    commit(files, state, Changes(source_of(data), add=added, ends=ends, starts=starts))
    return [each.path for each in added]


def lose(root: Path | str, *lost: Lost) -> None:
    files = open_files(root)
    state = load(files)
    commit(files, state, Changes(state.source or "", lost=lost))


def compact(root: Path | str, partition: str, destination: str) -> None:
    """All files of a day and destination become one; the old ones go at once."""
    files = open_files(root)
    state = load(files)
    old = [
        each for each in state.files.values() if each.partitions == {partition} and each.destinations == (destination,)
    ]
    for day in sorted({each.date for each in old}):
        those = [each for each in old if each.date == day]
        rows = pa.concat_tables([pq.read_table(files.open(each.path)) for each in those]).sort_by("offset")
        first, following = min(each.spans[0].first for each in those), max(each.spans[-1].next_offset for each in those)
        new = _publish(root, rows.cast(arrow_schema()), day, destination, partition, first, following)
        state = load(files)
        commit(files, state, Changes(state.source or "", add=[new], remove=[each.path for each in those]))
    for each in old:
        files.remove(each.path)


def _publish(
    root: Path | str, rows: pa.Table, day: str, name: str | None, partition: str, first: int, following: int
) -> DataFile:
    files = open_files(root)
    path = old_path(day, name, partition, first, following, secrets.token_hex(4))
    spooled = f"{files.spool('of-a-test')}/{secrets.token_hex(4)}"
    pq.write_table(rows, spooled, compression="zstd", row_group_size=500)
    size = os.path.getsize(spooled)
    files.publish(spooled, path)
    times = rows.column("receive_ns").to_pylist()
    bodies = sum(rows.column("size").to_pylist())
    listed = None if name is None else (name,)
    spans = (Span(partition, first, following, len(rows)),)
    return DataFile(path, spans, day, listed, len(rows), size, bodies, min(times), max(times))
