"""The part of a store that a report is about, for sections that read it in this process.

Such a section reads Arrow batches and needs no Java: ``spark`` of its entry in ``SECTIONS`` is False. The others query
Spark (``work.py``).

Must not import pyspark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa

from radiator.clock import rfc3339
from radiator.columns import schema as records
from radiator.columns.deliveries import RAW, arrow_schema, as_deliveries
from radiator.columns.delivery_records import DESTINATION as DELIVERIES
from radiator.columns.options import ReadOptions
from radiator.spark import options as read_options
from radiator.spark.arrow_reader import ArrowReader
from radiator.spark.sections.options import WINDOWS, Options

Row = dict[str, Any]
Rows = list[Row]
Answers = dict[str, Rows]

ROWS_MAX = 100_000  # per answer


class Part:
    """The part of a store that a report is about.

    Args:
        reader: Reads the store and the archive in this process.
        options: The options of the report.
        known: All destinations of the store, or None if they are not known.

    Attributes:
        options: The options of the report.
        notes: Remarks for the readers of the report.
    """

    def __init__(
        self, reader: ArrowReader | None = None, options: Options | None = None, known: Collection[str] | None = None
    ) -> None:
        self.options = options or Options()
        self.notes: list[str] = []
        self._reader, self._known = reader, known

    @property
    def operations(self) -> tuple[str, ...]:
        """The destinations that monitor others and are left out, unless the user names destinations."""
        return () if self.options.destination is not None else (self.options.samples, WINDOWS, DELIVERIES)

    def never_held(self, destination: str) -> bool:
        """Return True if the store certainly has no record of a destination.

        Args:
            destination: The destination.
        """
        return self._known is not None and destination not in self._known

    def batches_of_deliveries(self, columns: Iterable[str]) -> Iterator[pa.RecordBatch]:
        """Yield the deliveries that ended in the time of the report, of messages of its destinations.

        Args:
            columns: The columns of the table of deliveries.

        Raises:
            LostRecords: Records cannot be read, and the report fails on data loss.
            StorageError: Store or archive cannot be read.
        """
        assert self._reader is not None
        times = {"start_time": self.options.start, "end_time": self.options.until}
        chosen = self._chosen(
            table=read_options.DELIVERIES,
            **{name: rfc3339(value) for name, value in times.items() if value is not None},
        )
        schema = arrow_schema(columns)
        for batch in self._reader.read(chosen.selection, records.arrow_schema(RAW)):
            yield as_deliveries(batch, schema, chosen.deliveries)

    def batches_of_messages(self, columns: Iterable[str]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the destinations of the report, of any time, without those for operations.

        Args:
            columns: The columns of the log.

        Raises:
            LostRecords: Records cannot be read, and the report fails on data loss.
            StorageError: Store or archive cannot be read.
        """
        assert self._reader is not None
        selection = self._chosen().selection
        if self.operations:
            selection = selection.destination("in", *self.operations, negated=True)
        return self._reader.read(selection, records.arrow_schema(columns))

    def _chosen(self, **options: str) -> ReadOptions:
        """Return options of the data source as values, with the destinations of the report."""
        if self.options.destination is not None:
            options["destination"] = self.options.destination
        return read_options.parse({"path": ".", **options})

    def limited(self, rows: Rows, name: str) -> Rows:
        """Return the first ROWS_MAX rows of an answer; add a note if it has more.

        Args:
            rows: The rows.
            name: The name of the answer, for the note.
        """
        if len(rows) > ROWS_MAX:
            self.notes.append(
                f"{name} has more than {ROWS_MAX:,} rows: the others are left out of all numbers and charts."
            )
        return rows[:ROWS_MAX]


def span(totals: Rows, clock: str = "received") -> timedelta:
    """Return the time from the first to the last record.

    Args:
        totals: The answer of the job ``totals``.
        clock: ``received`` or ``event``.
    """
    starts = [row[f"first_{clock}"] for row in totals if row[f"first_{clock}"] is not None]
    ends = [row[f"last_{clock}"] for row in totals if row[f"last_{clock}"] is not None]
    return max(ends) - min(starts) if starts else timedelta(0)
