"""What a sheet is, and what it works with.

A sheet has two halves. ``run`` asks Spark and returns answers: lists of plain rows, small enough for this process,
under names that are the same in ``report.json``. ``section`` makes of answers what people see, and asks nobody:

    def run(work: Work) -> Answers:
        return {"lateness": work.job("lateness")}

    def section(answers: Answers, options: Options) -> Section:
        return Section("Lateness", found="No event came late.", tables=[Table("Lateness", FIELDS, answers["lateness"])])

    SHEET = Sheet(run, section)

Invariants: all reads of one ``Work`` see the same ends, and the part of the log that the options name; what several
sheets need (``totals``) is asked once.

Knows: jobs, how to read. Must not know: pages, the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from radiator.spark.jobs import JOBS
from radiator.spark.session import collect
from radiator.spark.sheets.options import Options

if TYPE_CHECKING:
    from radiator.spark.page import Section

Row = dict[str, Any]
Rows = list[Row]
Answers = dict[str, Rows]
Read = Callable[..., DataFrame]  # read(columns=..., **options of the data source)

ROWS_MAX = 100_000  # of one answer: beyond that it is no summary
NONE = "(none)"  # of a header that a record does not have


@dataclass(frozen=True)
class Sheet:
    run: Callable[[Work], Answers]
    section: Callable[[Answers, Options], Section]


class Work:
    """What sheets ask. ``sizes``: bytes on disk by partition; ``absent``: the job of that name. None: no files."""

    def __init__(
        self,
        spark: SparkSession,
        read: Read,
        options: Options | None = None,
        sizes: Mapping[str, int] | None = None,
        absent: Callable[[], DataFrame] | None = None,
    ) -> None:
        self.spark, self.options, self.sizes = spark, options or Options(), sizes or {}
        self.absent = absent
        self.notes: list[str] = []  # what the reader of the report must know
        self._read = read
        self._totals: Rows | None = None

    def frame(self, *columns: str, **selection: Any) -> DataFrame:
        """The part of the log that was asked for, with these columns only. ``selection`` overrides it by options of the
        data source; None there means all."""
        options = self.options
        asked = {
            "destination": options.destination,
            "start_time": options.start,
            "end_time": options.until,
            **selection,
        }
        given = {name: value for name, value in asked.items() if value is not None}
        by = options.by
        if by is None or "destination" not in columns:
            return self._read(columns=columns, **given)
        source = "partition" if by == "partition" else "headers"
        df = self._read(columns=(*(name for name in columns if name != "destination"), source), **given)
        value = F.col("partition") if by == "partition" else F.coalesce(F.col("headers")[by], F.lit(NONE))
        kept = df.withColumn("destination", value)
        return kept if source in columns else kept.drop(source)

    def job(self, name: str, *, selection: Mapping[str, Any] | None = None, **arguments: Any) -> Rows:
        """The answer of a job over that part."""
        job = JOBS[name]
        return self.rows(job.run(self.frame(*job.columns, **(selection or {})), **arguments), name)

    def rows(self, df: DataFrame, name: str) -> Rows:
        found = collect(df.limit(ROWS_MAX + 1))
        if len(found) > ROWS_MAX:
            self.notes.append(f"{name} has more than {ROWS_MAX:,} rows; those beyond are left out.")
        return found[:ROWS_MAX]

    def totals(self) -> Rows:
        """The job ``totals``, with the share of each."""
        if self._totals is None:
            found = self.job("totals")
            messages = sum(row["messages"] for row in found) or 1
            self._totals = [{**row, "share": row["messages"] / messages} for row in found]
        return self._totals


def span(totals: Rows, clock: str = "received") -> timedelta:
    """From the first to the last moment in an answer of ``totals``; ``clock`` is "received" or "event"."""
    starts = [row[f"first_{clock}"] for row in totals if row[f"first_{clock}"] is not None]
    ends = [row[f"last_{clock}"] for row in totals if row[f"last_{clock}"] is not None]
    return max(ends) - min(starts) if starts else timedelta(0)
