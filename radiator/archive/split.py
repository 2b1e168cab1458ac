"""Write records of a unit, which come in the order of offsets, to files that are sorted by destination and offset.

There is one file for each day. Days follow one another, since receive times never fall in a partition, so one file is
open at a time. Rows wait in memory. When there are ``run_bytes`` of them, they are written: to the file itself as long
as it has one destination, since they are in its order; else, sorted, to a *run* in the spool. At the end the runs are
merged. If a second destination comes when the file has rows already, the file ends before it, and another one begins:
so a day may have several files, of one destination each, and one with the rest. Each file has a range of offsets of its
own.

This module knows Arrow batches. It does not know segments or commits. Invariant: the rows in memory are never more than
those of a run, a row group and a batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from radiator.archive.manifest import DataFile, Span
from radiator.archive.parquet import GROUP_BYTES, GROUP_ROWS, LEVEL, SCHEMA, DataWriter
from radiator.archive.paths import DATA_SUFFIX, data_path
from radiator.archive.raw import RAW_SCHEMA, complete
from radiator.archive.sorting import Names, merged, read_run, sorted_rows, write_run
from radiator.columns.typed import UNTYPED, TypedColumns, Typing
from radiator.limits import MIB

RUN_BYTES = 64 * MIB  # of rows that are sorted at a time
PIECE_BYTES = 4 * MIB  # of each run that is in memory while they are merged
RUNS_MAX = 16  # of a file, so that the spool has at most 1 GiB of them: the log may be compressed
DECODED_ROWS = 8_192  # bodies that are decoded at a time: each is several Python objects until it is in a column
DAY_NS = 86_400 * 10**9


@dataclass(frozen=True)
class Settings:
    """The settings of the files. ``schema``: their columns; ``typed``: the struct columns of the log."""

    spool: str
    level: int = LEVEL
    skip_damaged: bool = False
    run_bytes: int = RUN_BYTES
    group_rows: int = GROUP_ROWS
    group_bytes: int = GROUP_BYTES
    schema: pa.Schema = SCHEMA
    typed: TypedColumns = UNTYPED


class SpooledFile(NamedTuple):
    """Where a complete file is in the spool, and its entry in a commit."""

    spooled: str
    file: DataFile


def date_of(day: int) -> str:
    """Return the date of a day since 1970."""
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day):%Y-%m-%d}"


class RowGroups:
    """Writes rows that come in the order of a file, one row group after the other."""

    def __init__(self, path: str, settings: Settings) -> None:
        self._writer = DataWriter(path, settings.level, settings.schema)
        self._settings = settings
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        while batch.num_rows:
            part = batch.slice(0, self._settings.group_rows - self._rows)
            batch = batch.slice(part.num_rows)
            self._batches.append(part)
            self._rows += part.num_rows
            self._bytes += part.nbytes
            if self._rows >= self._settings.group_rows or self._bytes >= self._settings.group_bytes:
                self._flush()

    def _flush(self) -> None:
        self._writer.write_group(self._batches)
        self._batches, self._rows, self._bytes = [], 0, 0

    @property
    def records(self) -> int:
        """The number of rows so far."""
        return self._writer.records + self._rows

    def close(self, spans: tuple[Span, ...], date: str, names: Iterable[str], token: str, source: str) -> SpooledFile:
        """Close the file."""
        if self._batches:
            self._flush()
        return SpooledFile(
            self._writer.path, self._writer.close(data_path(date, spans, token), spans, date, names, source)
        )


class _File:
    """A file that is being made. ``spooled`` returns a new path in the spool for a suffix."""

    def __init__(
        self, first: int, day: int, partition: str, names: Names, spooled: Callable[[str], str],
        settings: Settings, typing: Typing | None,
    ) -> None:  # fmt: skip
        self.first, self.day, self._typing = first, day, typing
        self._partition, self._names, self._spooled, self._settings = partition, names, spooled, settings
        self._numbers: set[int] = set()  # of its destinations
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._runs: list[str] = []
        self._groups: RowGroups | None = None

    def takes(self, numbers: set[int]) -> bool:
        """Return whether rows of these destinations can still be written in order, and the file is not too large."""
        return len(self._runs) < RUNS_MAX if self._groups is None else numbers == self._numbers

    def add(self, batch: pa.RecordBatch, numbers: set[int]) -> None:
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        self._numbers |= numbers
        if self._bytes >= self._settings.run_bytes:
            if len(self._numbers) == 1:
                self._write(self._waiting)
            else:
                self._runs.append(self._spooled(".rows"))
                write_run(self._runs[-1], [sorted_rows(self._waiting, self._names)], RAW_SCHEMA, PIECE_BYTES)
            self._waiting, self._bytes = [], 0

    def _write(self, batches: Iterable[pa.RecordBatch]) -> RowGroups:
        if self._groups is None:
            self._groups = RowGroups(self._spooled(DATA_SUFFIX), self._settings)
        for batch in batches:
            whole = complete(batch, self._partition, self._names)
            if self._typing is None:
                self._groups.write(whole)
                continue
            for start in range(0, whole.num_rows, DECODED_ROWS):
                self._groups.write(self._typing.add(whole.slice(start, DECODED_ROWS)))
        return self._groups

    def close(self, following: int, token: str, source: str) -> SpooledFile:
        last = [sorted_rows(self._waiting, self._names)] if self._waiting else []
        self._waiting = []
        runs = [*map(read_run, self._runs), iter(last)]
        groups = self._write(merged(runs, self._names) if self._runs else last)
        names = [self._names.names[number] for number in self._numbers]
        spans = (Span(self._partition, self.first, following, groups.records),)
        return groups.close(spans, date_of(self.day), names, token, source)


class Split:
    """Splits the records from ``first`` up to, not including, ``following``. ``names``: of the numbers in rows."""

    def __init__(
        self, partition: str, first: int, following: int, token: str, source: str, settings: Settings, names: list[str]
    ) -> None:
        self.partition, self._following, self._names = partition, following, Names(names)
        self._token, self._source, self._settings = token, source, settings
        self._files: list[SpooledFile] = []
        self._numbers = itertools.count(1)
        self._begin = first  # of the next file
        plain = settings.schema.names == SCHEMA.names
        self._typing = None if plain else Typing(settings.typed, settings.schema)
        self._file: _File | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, with the columns of ``RAW_SCHEMA``."""
        days = batch.column("receive_ns").to_numpy() // DAY_NS
        cuts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
        for start, stop in itertools.pairwise(cuts):
            if start < stop:
                self._add(batch.slice(start, stop - start), int(days[start]))

    def _add(self, batch: pa.RecordBatch, day: int) -> None:
        numbers = set(np.flatnonzero(np.bincount(batch.column("destination").to_numpy())).tolist())
        if self._file is not None and not (self._file.day == day and self._file.takes(numbers)):
            self._close(batch.column("offset")[0].as_py())
        if self._file is None:
            self._file = _File(
                self._begin, day, self.partition, self._names, self._spooled, self._settings, self._typing
            )
        self._file.add(batch, numbers)

    def finish(self) -> list[SpooledFile]:
        """Close the last file, and return all."""
        self._close(self._following)
        return self._files

    def _close(self, following: int) -> None:
        if self._file is not None:
            self._files.append(self._file.close(following, self._token, self._source))
            self._begin, self._file = following, None

    def _spooled(self, suffix: str) -> str:
        return f"{self._settings.spool}/{self._token}-{next(self._numbers)}{suffix}"
