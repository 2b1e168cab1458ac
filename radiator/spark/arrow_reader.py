"""Read the part of a store or of an archive that a report is about as Arrow batches, in this process.

Sections that need one pass over a log read it so, without Java. The records are those that Spark reads for the other
sections of the same report.

Must not import pyspark.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from radiator.archive import open_files
from radiator.archive.lookup import rows
from radiator.columns.decode import Counters
from radiator.columns.options import ReadOptions
from radiator.columns.planning import plan
from radiator.columns.read import read
from radiator.columns.selection import Selection
from radiator.errors import StorageError
from radiator.spark.archived import archived
from radiator.spark.boundary import find_boundary, report_gaps
from radiator.spark.unknown import warn_unknown
from radiator.spark.uris import arrow_uri


@dataclass(frozen=True)
class ArrowReader:
    """A reader of a store, of an archive, or of both.

    Attributes:
        path: The path or the URI of the store, or None.
        archive: The path or the URI of the archive, or None.
        ends: The first offset that is not read, by partition; without an archive.
        now_ns: The receive time from which nothing is read, in nanoseconds since the epoch; with an archive.
        report: Called with a line of text about missing records and names that do not exist; with an archive.
        fail_on_data_loss: Raise if records cannot be read; else report them.
        warn_once: A directory that lets several reads print each warning once, or None.
    """

    path: str | None
    archive: str | None
    ends: Mapping[str, int]
    now_ns: int
    report: Callable[[str], None]
    fail_on_data_loss: bool = True
    warn_once: str | None = None

    def read(self, selection: Selection, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield records. A partition is read in the order of its offsets.

        Args:
            selection: The records to read.
            schema: The columns to return, as ``radiator.columns.schema.arrow_schema`` returns them.

        Raises:
            LostRecords: Records cannot be read, and ``fail_on_data_loss`` is set.
            StorageError: Store or archive cannot be read, or they belong to different logs.
        """
        if self.archive is None:
            yield from self._log(selection.until(self.ends), schema)
        else:
            yield from self._both(self.archive, selection.received(high_ns=self.now_ns), schema)

    def _log(self, selection: Selection, schema: pa.Schema, archive: str | None = None) -> Iterator[pa.RecordBatch]:
        assert self.path is not None
        options = ReadOptions(
            self.path, selection, self.fail_on_data_loss, archive=archive, warn_once=self.warn_once
        )  # fmt: skip
        warn_unknown(options)
        instead = archived(options, schema)
        for ranges in plan(options):
            yield from read(ranges, options, schema, Counters(), instead)

    def _both(self, archive: str, selection: Selection, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        files = open_files(arrow_uri(os.fspath(archive)))
        found = find_boundary(self.path, files, selection)
        report_gaps(found, self.fail_on_data_loss, self.report)
        for each in found.files:
            try:
                yield from rows(files, each, schema, selection)
            except FileNotFoundError as error:
                raise StorageError(
                    f"{files.named(each.path)}: the file does not exist any more: it was removed from the archive "
                    "after this report was planned; make the report again"
                ) from error
            except (pa.ArrowException, OSError) as error:
                raise StorageError(
                    f"{files.named(each.path)}: the file cannot be read: {error}; radiator archive verify checks the "
                    "files of an archive"
                ) from error
        if found.log:
            starts = {name: low for name, (low, _) in found.log.items()}
            ends = {name: high for name, (_, high) in found.log.items()}
            yield from self._log(replace(selection, starts=starts).until(ends), schema, files.given)
