"""Split records of a unit, in the order of offsets, into files: one per day and destination, or one that many share.

Days follow one another, since receive times never fall in a partition, so only the files of one day are open. Rows of a
destination with its own file wait for a row group. Rows for the shared file, which is sorted by destination and offset,
wait on disk in *buckets*, ranges of names that are sorted one by one.

This module knows Arrow batches. It does not know segments or commits. Invariant: the rows in memory are never more than
the budget and a batch; beyond it the largest group is written early.
"""

from __future__ import annotations

import itertools
import os
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from radiator.archive.manifest import DataFile
from radiator.archive.parquet import GROUP_BYTES, GROUP_ROWS, LEVEL, SCHEMA, DataWriter
from radiator.archive.paths import DATA_SUFFIX, data_path
from radiator.limits import MIB

OWN_FILES_MAX = 64  # destinations of a day in a unit that have files of their own
BUDGET_BYTES = 128 * MIB  # of rows that wait for their row group
BUCKET_BYTES = 16 * MIB  # of a shared file that are sorted at a time, about
BUCKETS_MAX = 256  # each has an open file
DAY_NS = 86_400 * 10**9


@dataclass(frozen=True)
class Settings:
    """The settings of the files."""

    spool: str
    level: int = LEVEL
    skip_damaged: bool = False
    budget_bytes: int = BUDGET_BYTES
    own_files_max: int = OWN_FILES_MAX
    group_rows: int = GROUP_ROWS
    group_bytes: int = GROUP_BYTES
    bucket_bytes: int = BUCKET_BYTES


class SpooledFile(NamedTuple):
    """Where a complete file is in the spool, and its entry in a commit."""

    spooled: str
    file: DataFile


def date_of(day: int) -> str:
    """Return the date of a day since 1970."""
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day):%Y-%m-%d}"


class _Group:
    """Rows that wait for their row group, and their file. ``key``: the destination."""

    def __init__(self, path: str, key: str, settings: Settings) -> None:
        self.key, self.rows, self.bytes = key, 0, 0
        self.names = {key}
        self._path, self._settings = path, settings
        self._batches: list[pa.RecordBatch] = []
        self._writer: DataWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    @property
    def full(self) -> bool:
        return self.rows >= self._settings.group_rows or self.bytes >= self._settings.group_bytes

    def flush(self) -> None:
        if self._batches:
            self._write(self._batches)
            self._batches, self.rows, self.bytes = [], 0, 0

    def _write(self, batches: list[pa.RecordBatch]) -> None:
        if self._writer is None:
            self._writer = DataWriter(self._path, ["offset"], self._settings.level)
        self._writer.write_group(batches)

    def finish(self) -> DataWriter | None:
        self.flush()
        return self._writer


class _Bucket(_Group):
    """A range of names, from ``key`` on. Flushed rows wait on disk until they are sorted."""

    def __init__(self, path: str, key: str, settings: Settings) -> None:
        super().__init__(path, key, settings)
        self.names = set()
        self._sink: Any = None

    def _write(self, batches: list[pa.RecordBatch]) -> None:
        if self._sink is None:
            self._sink = pa.ipc.new_stream(self._path, SCHEMA)
        for batch in batches:
            self._sink.write_batch(batch)

    def sorted_into(self, writer: DataWriter) -> None:
        self.flush()
        if self._sink is None:
            return
        self._sink.close()
        with pa.OSFile(self._path) as file, pa.ipc.open_stream(file) as source:
            table = source.read_all()
        os.unlink(self._path)
        table = table.take(pa.compute.sort_indices(table, [("destination", "ascending"), ("offset", "ascending")]))
        self.names.update(table.column("destination").unique().to_pylist())
        for start in range(0, table.num_rows, self._settings.group_rows):
            writer.write_group(table.slice(start, self._settings.group_rows).to_batches())


class Split:
    """``sizes``: about how many bytes each day and destination will have."""

    def __init__(
        self, partition: str, first: int, following: int, token: str, source: str, settings: Settings,
        sizes: Counter[tuple[int, str]],
    ) -> None:  # fmt: skip
        self._partition, self._first, self._following = partition, first, following
        self._token, self._source, self._settings = token, source, settings
        self._sizes = sizes
        self._files: list[SpooledFile] = []
        self._number = 0
        self._day: int | None = None
        self._own: dict[str, _Group] = {}
        self._buckets: list[_Bucket] = []
        self._starts: list[str] = []  # the first name of each bucket

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch."""
        days = batch.column("receive_ns").to_numpy() // DAY_NS
        cuts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
        for start, stop in itertools.pairwise(cuts):
            if start < stop:
                if days[start] != self._day:
                    self._open_day(int(days[start]))
                self._add(batch.slice(start, stop - start))

    def finish(self) -> list[SpooledFile]:
        """Close all files, and return them."""
        self._close_day()
        return self._files

    # --- a day --------------------------------------------------------------------------------------------------------

    def _open_day(self, day: int) -> None:
        self._close_day()
        self._day = day
        sizes = {name: size for (each, name), size in self._sizes.items() if each == day}
        if len(sizes) <= self._settings.own_files_max:
            return  # each has its own, made when it comes
        largest = sorted(sizes, key=lambda name: (-sizes[name], name))
        for name in largest[: self._settings.own_files_max]:
            self._own_group(name)
        rest = sorted(largest[self._settings.own_files_max :])
        bucket_bytes = max(self._settings.bucket_bytes, sum(sizes[name] for name in rest) // BUCKETS_MAX + 1)
        filled = bucket_bytes
        for name in rest:
            if filled >= bucket_bytes:
                self._buckets.append(_Bucket(self._spooled(".rows"), name, self._settings))
                filled = 0
            filled += sizes[name]
        self._starts = [bucket.key for bucket in self._buckets]

    def _close_day(self) -> None:
        if self._day is None:
            return
        for group in self._own.values():
            writer = group.finish()
            if writer is not None:
                self._close(writer, group.key, group.names)
        if self._buckets:
            shared, names = (
                DataWriter(self._spooled(DATA_SUFFIX), ["destination", "offset"], self._settings.level),
                set(),
            )
            for bucket in self._buckets:
                bucket.sorted_into(shared)
                names |= bucket.names
            self._close(shared, None, names)
        self._own, self._buckets, self._starts, self._day = {}, [], [], None

    def _close(self, writer: DataWriter, destination: str | None, names: set[str]) -> None:
        assert self._day is not None
        date = date_of(self._day)
        path = data_path(date, destination, self._partition, self._first, self._following, self._token)
        made = writer.close(path, self._partition, self._first, self._following, date, names, self._source)
        self._files.append(SpooledFile(writer.path, made))

    def _spooled(self, suffix: str) -> str:
        self._number += 1
        return f"{self._settings.spool}/{self._token}-{self._number}{suffix}"

    # --- records ------------------------------------------------------------------------------------------------------

    def _own_group(self, name: str) -> _Group:
        group = self._own[name] = _Group(self._spooled(DATA_SUFFIX), name, self._settings)
        return group

    def _group(self, name: str) -> _Group:
        group = self._own.get(name)
        if group is not None:
            return group
        if not self._buckets:
            return self._own_group(name)
        return self._buckets[max(0, bisect_right(self._starts, name) - 1)]

    def _add(self, batch: pa.RecordBatch) -> None:
        coded = batch.column("destination").dictionary_encode()
        groups = [self._group(name) for name in coded.dictionary.to_pylist()]
        places = {id(group): place for place, group in enumerate(groups)}  # several names may share a group
        if len(places) == 1:
            self._put(groups[0], batch)
        else:
            of_name = np.array([places[id(group)] for group in groups])
            of_row = of_name[coded.indices.to_numpy()]
            order = np.argsort(of_row, kind="stable")
            ends = np.cumsum(np.bincount(of_row, minlength=len(groups)))
            for place in sorted(places.values()):
                start = int(ends[place - 1]) if place else 0
                self._put(groups[place], batch.take(pa.array(order[start : int(ends[place])])))
        waiting = [*self._own.values(), *self._buckets]
        total = sum(group.bytes for group in waiting)
        while total > self._settings.budget_bytes:
            largest = max(waiting, key=lambda group: group.bytes)
            total -= largest.bytes
            largest.flush()

    def _put(self, group: _Group, batch: pa.RecordBatch) -> None:
        group.add(batch)
        if group.full:
            group.flush()
