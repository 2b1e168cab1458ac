"""Write records of units, which come in the order of offsets, to a file for each day, sorted as ``sorting`` does.

Rows wait in memory. When there are ``run_bytes`` of them, they are written, sorted, to *runs* in the spool. At the end
the runs are merged. Their rows come by day, and each day is a file.

A unit that is *alone* may be large. Its days follow one another, since receive times never fall in a partition, so one
file is open at a time. As long as that has one destination, its rows are in its order, and are written to the file
itself. If a second destination comes when the file has rows already, the file ends before it, and another one begins:
so a day may have several files, of one destination each, and one with the rest. Each file has a range of offsets of its
own.

Several units together have a file for each day. Their rows are sorted by day too, and the files are made at the end,
one after the other: so a unit that fails can be left out, and a unit with many days is in memory as its few batches.

This module knows Arrow batches. It does not know segments or commits. Invariant: the rows in memory are never more than
those of a run, a row group and a batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from radiator.archive.manifest import DataFile, Span
from radiator.archive.parquet import GROUP_BYTES, GROUP_ROWS, LEVEL, SCHEMA, DataWriter, listed, listed_spans
from radiator.archive.paths import DATA_SUFFIX, data_path
from radiator.archive.raw import RAW_SCHEMA, complete
from radiator.archive.sorting import DAY_NS, Names, Sorter
from radiator.columns.batches import Mask
from radiator.columns.typed import UNTYPED, TypedColumns, Typing
from radiator.limits import MIB

RUN_BYTES = 64 * MIB  # of rows that are sorted at a time
PIECE_BYTES = 4 * MIB  # of each run that is in memory while they are merged
RUNS_MAX = 16  # of a unit that is alone: the spool has at most 1 GiB of them, although the log may be compressed
DECODED_ROWS = 8_192  # bodies that are decoded at a time: each is several Python objects until it is in a column


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


def _only(batches: Iterator[pa.RecordBatch], keep: Mask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some numbers."""
    for batch in batches:
        kept = batch.filter(pa.array(keep[batch.column("destination").to_numpy()]))
        if kept.num_rows:
            yield kept


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, int, int]]:
    """Yield each run of rows of one day: the day, the first row, and the row after the last one."""
    days = batch.column("receive_ns").to_numpy() // DAY_NS
    cuts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
    for start, stop in itertools.pairwise(cuts):
        if start < stop:
            yield int(days[start]), start, stop


def _different(numbers: NDArray[np.int32]) -> set[int]:
    """Return the distinct numbers."""
    return set(np.flatnonzero(np.bincount(numbers)).tolist())


class Split:
    """Splits the records of units by day.

    Args:
        token: Of the names of files.
        source: The data directory.
        settings: Of the files.
        alone: Whether there is one unit, which may be large.
    """

    def __init__(self, token: str, source: str, settings: Settings, alone: bool) -> None:
        self._token, self._source, self._settings, self._alone = token, source, settings, alone
        self._numbers = itertools.count(1)
        plain = settings.schema.names == SCHEMA.names
        self._typing = None if plain else Typing(settings.typed, settings.schema)
        self._names = Names()
        self._sorter = self._new_sorter()
        self._spans: dict[int, list[Span]] = {}  # by day
        self._groups: RowGroups | None = None  # of the file that rows are written to
        self._groups_day = 0
        self._groups_numbers: set[int] = set()  # of its destinations
        self._closed: list[SpooledFile] = []
        self._dropped: list[range] = []
        self.bytes = 0  # of all rows so far

    def _new_sorter(self) -> Sorter:
        return Sorter(self._names, RAW_SCHEMA, lambda: self._spooled(".rows"), PIECE_BYTES)

    @property
    def days(self) -> int:
        """The number of files that are not complete."""
        return len(self._spans)

    def begin(self, partition: str, first: int, names: list[str]) -> None:
        """Begin a unit.

        Args:
            partition: Its partition, of which there was no other one.
            first: Its first offset.
            names: The destinations of the numbers in its rows, which may grow.
        """
        self.partition, self._own_names, self._base = partition, names, len(self._names.pairs)
        self._day: int | None = None  # of the last row
        self._span_first, self._span_records = first, 0
        self._span_numbers: set[int] = set()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of the unit, with the columns of ``RAW_SCHEMA``.

        Raises:
            ConfigError: They have a destination whose records cannot be decoded.
        """
        new = self._own_names[len(self._names.pairs) - self._base :]
        if self._typing is not None:
            self._typing.check(new)
        self._names.pairs.extend((self.partition, each) for each in new)
        self.bytes += batch.nbytes
        destinations = batch.column("destination").to_numpy()
        rest = 0  # the first row that is not in the sorter
        for day, start, stop in _by_day(batch):
            numbers = _different(destinations[start:stop])
            if day != self._day or not self._takes(numbers):
                if self._alone:
                    self._sort(batch.slice(rest, start - rest))
                    rest = start
                self.end(batch.column("offset")[start].as_py())
                self._day = day
            self._span_numbers |= numbers
            self._span_records += stop - start
        self._sort(batch.slice(rest))

    def _takes(self, numbers: set[int]) -> bool:
        """Return whether rows of these destinations can still be written in order, and the file is not too large."""
        if not self._alone:
            return True
        return len(self._sorter.runs) < RUNS_MAX if self._groups is None else numbers == self._span_numbers

    def _sort(self, batch: pa.RecordBatch) -> None:
        """Add rows to those in memory, and write these if they are enough for a run."""
        if not batch.num_rows:
            return
        if self._base:
            moved = pc.add(batch.column("destination"), pa.scalar(self._base, pa.int32()))
            batch = pa.RecordBatch.from_arrays([moved, *batch.columns[1:]], schema=batch.schema)
        self._sorter.add(batch)
        if self._sorter.bytes >= self._settings.run_bytes:
            if self._alone and len(self._span_numbers) == 1:
                self._write(self._sorter.taken())
            else:
                self._sorter.spill()

    def end(self, following: int) -> None:
        """End the rows of the unit on its current day, before an offset."""
        if self._day is None:
            return
        found = {self._own_names[number] for number in self._span_numbers}
        span = Span(self.partition, self._span_first, following, self._span_records, listed(found))
        self._spans.setdefault(self._day, []).append(span)
        if self._alone:
            self._close()
        self._day = None
        self._span_first, self._span_records, self._span_numbers = following, 0, set()

    def drop(self) -> None:
        """Leave out the unit."""
        self._dropped.append(range(self._base, len(self._names.pairs)))
        for day, spans in self._spans.items():
            self._spans[day] = [each for each in spans if each.partition != self.partition]
        self._spans = {day: spans for day, spans in self._spans.items() if spans}

    def finish(self) -> list[SpooledFile]:
        """Close all files, and return them."""
        self._close()
        return self._closed

    def _close(self) -> None:
        """Write the rows in memory and in runs."""
        rows = self._sorter.rows()
        if self._dropped:
            keep = np.ones(len(self._names.pairs), np.bool_)
            for each in self._dropped:
                keep[each.start : each.stop] = False
            rows = _only(rows, keep)
        self._write(rows)
        self._close_file()
        self._sorter = self._new_sorter()

    def _write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write rows that come in the order of days and files."""
        for batch in batches:
            destinations = batch.column("destination").to_numpy()
            whole = complete(batch, self._names)
            step = whole.num_rows if self._typing is None else DECODED_ROWS
            for first in range(0, whole.num_rows, step):
                part = whole.slice(first, step)
                typed = part if self._typing is None else self._typing.add(part)
                for day, start, stop in _by_day(part):
                    self._file_of(day).write(typed.slice(start, stop - start))
                    self._groups_numbers |= _different(destinations[first + start : first + stop])

    def _file_of(self, day: int) -> RowGroups:
        """Return the file of a day. That of the day before is closed."""
        if self._groups is None or self._groups_day != day:
            self._close_file()
            self._groups, self._groups_day = RowGroups(self._spooled(DATA_SUFFIX), self._settings), day
        return self._groups

    def _close_file(self) -> None:
        if self._groups is None:
            return
        spans = listed_spans(self._spans.pop(self._groups_day))
        names = {self._names.pairs[number][1] for number in self._groups_numbers}
        made = self._groups.close(spans, date_of(self._groups_day), names, self._token, self._source)
        assert made.file.records == sum(each.records for each in spans), "a row is in no span"
        self._closed.append(made)
        self._groups, self._groups_numbers = None, set()

    def _spooled(self, suffix: str) -> str:
        return f"{self._settings.spool}/{self._token}-{next(self._numbers)}{suffix}"
