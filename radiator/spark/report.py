"""Build the report of ``radiator report``: sections about a store, as tables, charts, JSON and one page.

    make_report("./data", "./report", progress=print).page      # the files are in ./report
    make_report("./data", sections=["traffic"], start="-1d", every="5m").answers["traffic"]

All sections read up to the same ends, which are fixed when the report begins, so their numbers agree on a store that is
being written. Each reads only the columns that it needs. The answers are small. Spark starts only for a section that
queries it (``spark`` in ``SECTIONS``), and only then pyspark is imported.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radiator import __version__
from radiator.columns.files import open_store
from radiator.columns.heads import Holdings
from radiator.columns.heads import ends as heads
from radiator.columns.log import NoStore, partitions
from radiator.columns.scan import LostRecords
from radiator.columns.warn import warn
from radiator.errors import ConfigError, StorageError
from radiator.spark import units
from radiator.spark.arrow_reader import ArrowReader
from radiator.spark.page import Page, Section
from radiator.spark.reasons import reason
from radiator.spark.sections import SECTIONS, chosen, load, overview
from radiator.spark.sections import options as asking
from radiator.spark.sections.options import Options
from radiator.spark.sections.part import Answers, Part
from radiator.spark.waiting import waiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LostRecords", "NoStore", "Report", "make_report", "reason"]

Progress = Callable[[str, int, int], None]  # the name of the step, its number, the number of steps

FIRST, LAST = "start Spark", "draw the charts"  # the steps before and after the sections; FIRST if one needs Spark
WEIGHTS = (
    "Integrity",
    "Dead letters",
    "Lag",
    "Consumers",
    "Lateness",
    "Latency",
    "Traffic",
)  # the order of findings; then others
NAMES_MAX = 5  # names in a sentence
REPORT = "report"  # the file name for several sections; a single section has its own name


@dataclass
class Report:
    """The result of a report.

    Attributes:
        path: The store, the archive, or both.
        made: The time of the report.
        sections: The names of the sections.
        answers: The rows of each answer, by name.
        page: The page.
        folder: The directory with the files, or None.
        files: The files that were written.
        notes: Remarks about records that are not in the numbers.
    """

    path: str
    made: datetime
    sections: list[str]
    answers: Answers
    page: Page
    folder: Path | None = None
    files: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """The number of lost records; 0 too without the section ``integrity``, which counts them."""
        return sum(row["missing"] for row in self.answers.get("integrity", ()))

    def summary(self) -> dict[str, Any]:
        """Return the report as JSON-compatible values: the content of the JSON file."""
        totals = self.answers.get("totals")
        sums = {name: sum(row[name] for row in totals) for name in ("messages", "bytes")} if totals is not None else {}
        return {
            "data": self.path,
            "made": self.made.isoformat(),
            "sections": self.sections,
            **sums,
            **({"missing": self.missing} if "integrity" in self.answers else {}),
            **({"notes": self.notes} if self.notes else {}),
            "files": [str(path) for path in self.files],
            **{name: json.loads(json.dumps(rows, default=_plain)) for name, rows in self.answers.items()},
        }


def make_report(
    path: str | None,
    folder: str | os.PathLike[str] | None = None,
    *,
    archive: str | None = None,
    sections: Iterable[str] | None = None,
    spark: SparkSession | None = None,
    fail_on_data_loss: bool = True,
    title: str = "Contents of the log",
    progress: Progress | None = None,
    **options: Any,
) -> Report:
    """Build a report of a store, and write its page, JSON and charts into a directory.

    Args:
        path: The data directory of the broker; None with an archive alone.
        folder: The directory for the files; None writes none.
        archive: The path or the URI of an archive, which is read together with the log.
        sections: Names of ``radiator.spark.sections.SECTIONS``; None is all of them.
        spark: The session to use. None uses the active session, or starts a local one and stops it at the end.
        fail_on_data_loss: Raise if records cannot be read; else leave them out.
        title: The title of the page.
        progress: Called with the name of a step, its number, and the number of steps.
        **options: Options of ``radiator.spark.sections.options.Options``.

    Returns:
        The sections, and the files that were written.

    Raises:
        NoStore: There is no store at ``path``.
        LostRecords: Records cannot be read, and ``fail_on_data_loss`` is set.
        JavaMissing: A section needs Spark, and no usable Java was found.
        ConfigError: A section or an option is unknown, or has a wrong value.
        StorageError: The store cannot be read, or the directory cannot be written.

    Example:
        With a store in ``./data``::

            report = make_report("./data", "./report", sections=["traffic", "latency"])
            print(report.files)
    """
    step = progress or (lambda what, i, n: None)
    names = chosen(sections)
    of_spark = any(SECTIONS[name].spark for name in names)
    if of_spark:
        from radiator.spark.report_session import spark_work  # needs pyspark
    now_ns = time.time_ns()
    asked = asking.parse(options, now_ns)
    if path is None and archive is None:
        raise ConfigError("report: expected the broker's data directory, or an archive, or both; got neither")
    place = None if path is None else open_store(path)
    logs = [] if place is None else partitions(place)  # report a wrong path before Java is started
    is_part = asked.described()
    behind = waiting(path, now_ns) if "lag" in names and path and os.path.isdir(path) and not is_part else []
    sharing = tempfile.TemporaryDirectory(prefix="radiator-warned-")
    steps = len(names) + of_spark + 1
    with _folder(folder), sharing as once:
        ends = {log.name: log.next_offset for log in logs}
        source = ArrowReader(path, archive, ends, now_ns, partial(warn, once=once), fail_on_data_loss, once)
        known = None if place is None or archive is not None else Holdings(place.fs).destinations(heads(place))
        opened: AbstractContextManager[Part] = nullcontext(Part(source, asked, known))
        if of_spark:
            step(FIRST, 0, steps)
            opened = spark_work(source, asked, logs, known, behind, spark)
        found = []
        with opened as part:
            for at, name in enumerate(names, int(of_spark)):
                step(name, at, steps)
                found.append((name, load(name).run(part)))
        answers = {name: rows for _, of in found for name, rows in of.items()}
        where = " and ".join(filter(None, (path, archive)))
        report = Report(where, datetime.now(UTC), names, answers, Page(title, ""), notes=part.notes)
        report.page = _page(report, title, found, asked)
        step(LAST, steps - 1, steps)
        if folder is not None:
            _save(report, Path(folder))
        step("done", steps, steps)
        return report


def _save(report: Report, folder: Path) -> None:
    stem = report.sections[0] if len(report.sections) == 1 else REPORT
    summary = folder / f"{stem}.json"
    report.folder = folder
    try:
        report.files = [report.page.save(folder, f"{stem}.html"), *report.page.save_charts(folder), summary]
        summary.write_text(json.dumps(report.summary(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        place = error.filename or os.fspath(folder)
        raise StorageError(f"{place} cannot be written: {error.strerror}; give another output folder") from error


@contextlib.contextmanager
def _folder(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """Create the directory for the report, and remove it again if the report fails and the directory is empty."""
    if folder is None:
        yield
        return
    made = not os.path.isdir(folder)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{os.fspath(folder)} cannot be created: {error.strerror}; give another output folder"
        ) from error
    try:
        yield
    except BaseException:
        if made:
            with contextlib.suppress(OSError):  # a directory with files is not removed
                os.rmdir(folder)
        raise


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _weight(section: Section) -> int:
    return WEIGHTS.index(section.title) if section.title in WEIGHTS else len(WEIGHTS)


def _uncounted(answers: Answers) -> list[str]:
    """Return a note about lost records, because they look like silence in all other sections."""
    names = [row["partition"] for row in answers.get("integrity", ()) if row["missing"]]
    which = units.names(names, NAMES_MAX)
    return [f"Missing records are not counted: the numbers of {which} are too low."] if names else []


def _page(report: Report, title: str, found: list[tuple[str, Answers]], options: Options) -> Page:
    """Return the page: the sections with findings; empty sections are one line each at the top."""
    part = options.described()
    made = f"{report.path}, as of {units.moment(report.made)} UTC" + (f"; {part}" if part else "")
    foot = f"Made by radiator {__version__} from the files of the log. All times are UTC."
    sections = [load(name).section(answers, options) for name, answers in found]
    if len(sections) > 1:
        sections = [*_head(report.answers, sections, options), *(each for each in sections if not each.empty)]
    first, *others = sections
    notes = [*first.notes, *report.notes]
    if "left_out" in report.answers:
        from radiator.spark.sections import left_out  # needs pyspark

        notes += left_out.of_operations(report.answers)
    return Page(title, made, [replace(first, notes=notes), *others], foot)


def _head(answers: Answers, sections: Sequence[Section], options: Options) -> list[Section]:
    """Return the top section of a page with several sections: the findings of all, and which have nothing to show."""
    nothing = [f"{each.title}: {each.summary}" for each in sections if each.empty]
    if "totals" not in answers:
        return [Section("Nothing to show", notes=nothing)] if nothing else []
    head = overview.section(answers, options)
    findings = [f"{each.title}: {line}" for each in sorted(sections, key=_weight) for line in each.findings]
    if not answers["totals"]:
        return [replace(head, findings=findings, notes=[*head.notes, *_uncounted(answers)])]
    found = "Findings:" if findings else "No findings."
    return [replace(head, summary=found, findings=findings, notes=[*head.notes, *nothing, *_uncounted(answers)])]
