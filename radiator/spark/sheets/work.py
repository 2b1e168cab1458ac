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

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from radiator.spark.jobs import JOBS
from radiator.spark.jobs.left_out import OPERATIONS, SENDER_TIMES, stored_again, without_old_times
from radiator.spark.live import TOPIC as WINDOWS
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


class Again(Enum):
    """What a sheet makes of messages that were stored before: replayed ones and dead letters."""

    TIMELESS = "they count, and have no times of the sender"
    OUT = "they do not count"
    AS_IT_IS = "they are messages like others"


@dataclass(frozen=True)
class Sheet:
    run: Callable[[Work], Answers]
    section: Callable[[Answers, Options], Section]


class Work:
    """What sheets ask. ``sizes``: bytes on disk by partition; ``absent``: the job of that name, or with ``archived``
    the one for both, which takes the times of a window. None: no files. ``known``: all destinations that there are,
    where that can be told."""

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
    ) -> None:
        self.spark, self.options, self.sizes = spark, options or Options(), sizes or {}
        self.absent, self.archived, self._known = absent, archived, known
        self.waiting = waiting or []  # cursors whose messages wait, as of the files: ``radiator.spark.waiting``
        self.notes: list[str] = []  # what the reader of the report must know
        self._read = read
        self._totals: Rows | None = None
        self._left_out: Rows | None = None

    @property
    def operations(self) -> tuple[str, ...]:
        """Topics that watch the others. Who names destinations gets what he names."""
        return () if self.options.destination is not None else (self.options.samples, WINDOWS)

    def never_held(self, destination: str) -> bool:
        """False where it is not known."""
        return self._known is not None and destination not in self._known

    def frame(self, *columns: str, again: Again = Again.TIMELESS, **selection: Any) -> DataFrame:
        """The part of the log that was asked for, with these columns only. ``selection`` overrides it by options of the
        data source; None there means all, of ``destination`` those of operations too."""
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
        """Whether times of the first sending have to be kept from the sheet. Headers are dear: only where some are."""
        if again is Again.AS_IT_IS or not {*columns} & {*SENDER_TIMES}:
            return False
        return bool(selection) or any(row["why"] != OPERATIONS for row in self.left_out())

    def job(
        self, name: str, *, selection: Mapping[str, Any] | None = None, again: Again = Again.TIMELESS, **arguments: Any
    ) -> Rows:
        """The answer of a job over that part."""
        job = JOBS[name]
        return self.rows(job.run(self.frame(*job.columns, again=again, **(selection or {})), **arguments), name)

    def rows(self, df: DataFrame, name: str) -> Rows:
        found = collect(df.limit(ROWS_MAX + 1))
        if len(found) > ROWS_MAX:
            self.notes.append(f"{name} has more than {ROWS_MAX:,} rows: the others are in no figure and no picture.")
        return found[:ROWS_MAX]

    def left_out(self) -> Rows:
        """The job ``left_out`` over what was asked for, destinations under their own names."""
        if self._left_out is None:
            job = JOBS["left_out"]
            df = self._read(columns=job.columns, **self._asked({}))
            self._left_out = self.rows(job.run(df, operations=self.operations), "left_out")
        return self._left_out

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
