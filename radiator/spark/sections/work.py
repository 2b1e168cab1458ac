"""Define a section of a report, and the queries that it can run.

A section is a module with two functions. ``run`` queries Spark and returns answers: lists of plain rows, small enough
for this process, with the names that they have in ``report.json``. ``section`` converts answers to text, tables and
charts, and queries nothing:

    def run(work: Work) -> Answers:
        return {"lateness": work.job("lateness")}

    def section(answers: Answers, options: Options) -> Section:
        return Section("Lateness", summary="No late event.", tables=[Table("Lateness", FIELDS, answers["lateness"])])

Invariants: all reads of one ``Work`` see the same ends, and the part of the log that the options choose. Answers that
several sections need (``totals``) are queried once. A section that needs no Spark takes a ``Part`` (``part.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from radiator.spark.arrow_reader import ArrowReader
from radiator.spark.jobs import JOBS
from radiator.spark.jobs.left_out import OPERATIONS, SENDER_TIMES, stored_again, without_old_times
from radiator.spark.sections.options import Options
from radiator.spark.sections.part import ROWS_MAX, Part, Rows
from radiator.spark.session import collect

Read = Callable[..., DataFrame]  # read(columns=..., **options of the data source)

NONE = "(none)"  # the value for records without the header


class Again(Enum):
    """How a section treats messages that were stored before: replayed ones and dead letters."""

    TIMELESS = "they count, and have no times of the sender"
    OUT = "they do not count"
    AS_IT_IS = "they are messages like others"


class Work(Part):
    """The part of the log that a report is about, and the queries of its sections.

    Args:
        spark: The session.
        read: Reads the log, with ``columns`` and options of the data source as keyword arguments.
        options: The options of the report.
        sizes: The size of each partition on disk, in bytes.
        absent: The job ``absent``, or with ``archived`` the job ``absent_from_both``; None without files.
        archived: True if an archive is read too.
        known: All destinations of the store, or None if they are not known.
        waiting: The rows of ``radiator.spark.waiting``.
        reader: Reads the store and the archive in this process.
    """

    def __init__(
        self,
        spark: SparkSession,
        read: Read,
        options: Options | None = None,
        sizes: Mapping[str, int] | None = None,
        absent: Callable[..., DataFrame] | None = None,
        archived: bool = False,
        known: Collection[str] | None = None,
        waiting: Rows | None = None,
        reader: ArrowReader | None = None,
    ) -> None:
        super().__init__(reader, options, known)
        self.spark, self.sizes = spark, sizes or {}
        self.absent, self.archived = absent, archived
        self.waiting = waiting or []  # cursors whose messages wait, as of the files: ``radiator.spark.waiting``
        self._read = read
        self._totals: Rows | None = None
        self._left_out: Rows | None = None

    def frame(self, *columns: str, again: Again = Again.TIMELESS, **selection: Any) -> DataFrame:
        """Return the chosen part of the log with the given columns.

        Args:
            *columns: The columns.
            again: How to treat messages that were stored before.
            **selection: Options of the data source that replace those of the report; None selects all. With a
                ``destination``, operations are not left out.
        """
        needed, by = set(columns), self.options.by if "destination" in columns else None
        operations = () if "destination" in selection else self.operations
        old_times = self._again(again, columns, selection)
        if old_times:
            needed.add("headers")
        if operations:
            needed.add("destination")
        if by is not None:
            needed.add("partition" if by == "partition" else "headers")
            needed -= set() if operations else {"destination"}
        read = [*(name for name in columns if name in needed), *sorted(needed - {*columns})]
        df = self._read(columns=read, **self._asked(selection))
        if operations:
            df = df.where(~F.col("destination").isin(*operations))
        if old_times:
            df = df.where(~stored_again()) if again is Again.OUT else without_old_times(df)
        if by is not None:
            value = F.col("partition") if by == "partition" else F.coalesce(F.col("headers")[by], F.lit(NONE))
            df = df.withColumn("destination", value)
        return df.drop(*(needed - {*columns}))

    def _asked(self, selection: Mapping[str, Any]) -> dict[str, Any]:
        options = self.options
        asked = {"destination": options.destination, "start_time": options.start, "end_time": options.until}
        return {name: value for name, value in {**asked, **selection}.items() if value is not None}

    def _again(self, again: Again, columns: tuple[str, ...], selection: Mapping[str, Any]) -> bool:
        """Return True if the sender's times of messages that were stored before must be removed.

        That needs the column headers, which is expensive, so it is done only if there are such messages.
        """
        if again is Again.AS_IT_IS or not {*columns} & {*SENDER_TIMES}:
            return False
        return bool(selection) or any(row["why"] != OPERATIONS for row in self.left_out())

    def job(
        self, name: str, *, selection: Mapping[str, Any] | None = None, again: Again = Again.TIMELESS, **arguments: Any
    ) -> Rows:
        """Return the answer of a job.

        Args:
            name: A key of JOBS.
            selection: Options of the data source that replace those of the report.
            again: How to treat messages that were stored before.
            **arguments: The arguments of the job.
        """
        job = JOBS[name]
        return self.rows(job.run(self.frame(*job.columns, again=again, **(selection or {})), **arguments), name)

    def rows(self, df: DataFrame, name: str) -> Rows:
        """Return the rows of a DataFrame, ROWS_MAX at most; add a note if it has more.

        Args:
            df: The DataFrame.
            name: The name of the answer, for the note.
        """
        return self.limited(collect(df.limit(ROWS_MAX + 1)), name)

    def left_out(self) -> Rows:
        """Return the answer of the job ``left_out`` for the chosen part, by destination."""
        if self._left_out is None:
            job = JOBS["left_out"]
            df = self._read(columns=job.columns, **self._asked({}))
            self._left_out = self.rows(job.run(df, operations=self.operations), "left_out")
        return self._left_out

    def totals(self) -> Rows:
        """Return the answer of the job ``totals``, with the share of each destination."""
        if self._totals is None:
            found = self.job("totals")
            messages = sum(row["messages"] for row in found) or 1
            self._totals = [{**row, "share": row["messages"] / messages} for row in found]
        return self._totals
