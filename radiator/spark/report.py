"""``radiator report``: the jobs over a store, as tables, pictures and one page.

    make_report("./data", "./report", progress=print).page      # files are in ./report

All jobs read up to the same ends, taken when the report begins, so on a store that is being written the figures of
one report agree with one another. Each job reads only the columns that it needs. Answers of jobs are small and are
collected; the log itself never passes through this process.

Knows: jobs, pictures, page. Must not know: the command line.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from radiator import __version__
from radiator.columns.files import open_store
from radiator.columns.log import NoStore, partitions
from radiator.columns.scan import LostRecords
from radiator.errors import RadiatorError, StorageError
from radiator.spark import units
from radiator.spark.jobs import JOBS
from radiator.spark.jobs.latency import LEGS
from radiator.spark.page import Field, Page, Section, Table, Tile
from radiator.spark.pictures import Picture, bars, ranges, stacked
from radiator.spark.session import collect, get_session, read

__all__ = ["LostRecords", "NoStore", "Report", "make_report", "reason"]

Row = Mapping[str, Any]
Rows = list[dict[str, Any]]
Progress = Callable[[str, int, int], None]  # what is being done, which step, of how many

STEPS = ("start Spark", "totals", "traffic", "event traffic", "latency", "tags", "integrity", "draw the pictures")
TOP = 25  # destinations that are shown at once; the rest unfolds
PANELS_MAX = 6  # small charts of tags in one picture
HISTORY_MS = 30 * 86_400_000.0  # an event that is older than this when it is sent was not sent as it happened
DESTINATIONS_MAX = 15  # in a chart of latencies

_TOTALS = (
    Field("destination", "destination"),
    Field("messages", "messages", "count"),
    Field("share", "share", "share"),
    Field("bytes", "bytes", "size"),
    Field("first_received", "first received", "moment"),
    Field("last_received", "last received", "moment"),
    Field("first_event", "first event", "moment", page_only=True),
    Field("last_event", "last event", "moment", page_only=True),
)
_TRAFFIC = (
    Field("start", "from", "moment"),
    Field("destination", "destination"),
    Field("messages", "messages", "count"),
    Field("bytes", "bytes", "size"),
)
_LATENCY = (
    Field("destination", "destination"),
    Field("leg", "leg"),
    Field("messages", "messages", "count"),
    Field("p50_ms", "p50", "duration"),
    Field("p95_ms", "p95", "duration"),
    Field("p99_ms", "p99", "duration"),
    Field("max_ms", "max", "duration"),
    Field("negative", "negative", "count"),
)
_TAGS = (
    Field("key", "tag"),
    Field("value", "value"),
    Field("messages", "messages", "count"),
    Field("share", "share of the tag", "share"),
    Field("values", "values in all", "count"),
)
_INTEGRITY = (
    Field("partition", "partition"),
    Field("messages", "messages", "count"),
    Field("first_offset", "first offset", "count"),
    Field("last_offset", "last offset", "count"),
    Field("missing", "missing", "count"),
    Field("duplicates", "duplicates", "count"),
    Field("on_disk", "on disk", "size"),
)
_GAPS = (
    Field("partition", "partition"),
    Field("first_missing", "first missing", "count"),
    Field("last_missing", "last missing", "count"),
    Field("records", "records", "count"),
)


@dataclass
class Report:
    """What was found. ``page`` shows it, ``summary`` is the same for programs; ``folder`` holds the files."""

    path: str
    made: datetime
    answers: dict[str, Rows]
    page: Page
    folder: Path | None = None
    files: list[Path] = field(default_factory=list)

    @property
    def missing(self) -> int:
        return sum(row["missing"] for row in self.answers["integrity"])

    def summary(self) -> dict[str, Any]:
        totals = self.answers["totals"]
        return {
            "data": self.path,
            "made": self.made.isoformat(),
            "messages": sum(row["messages"] for row in totals),
            "bytes": sum(row["bytes"] for row in totals),
            "missing": self.missing,
            "files": [str(path) for path in self.files],
            **{name: json.loads(json.dumps(rows, default=_plain)) for name, rows in self.answers.items()},
        }


def make_report(
    path: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    spark: SparkSession | None = None,
    fail_on_data_loss: bool = True,
    title: str = "What the log holds",
    progress: Progress | None = None,
) -> Report:
    """Read the store at ``path`` and, if there is a ``folder``, write report.html, report.json and pictures into it.

    ``spark`` is a session to use; without one, and if none runs, a local one is made and stopped again. Raises NoStore,
    LostRecords and JavaMissing with one line for people each.
    """
    step = progress or (lambda what, i, n: None)
    logs = partitions(open_store(path))  # a wrong path is told before Java is started
    if folder is not None:
        _make_folder(folder)
    step(STEPS[0], 0, len(STEPS))
    own = spark is None and SparkSession.getActiveSession() is None  # one that runs already is not ours to stop
    session = spark or get_session("radiator report", log_level="OFF")
    try:
        ends = {log.name: log.next_offset for log in logs}
        work = _Work(session, path, ends, fail_on_data_loss, step)
        answers = work.answers()
    except RadiatorError:
        raise
    except Exception as error:
        told = reason(error)
        if told is None:
            raise
        raise (LostRecords if "LostRecords: " in str(error) else StorageError)(told) from error
    finally:
        if own:
            session.stop()
    sizes = {log.name: log.size_bytes for log in logs}
    for row in answers["integrity"]:
        row["on_disk"] = sizes.get(row["partition"], 0)
    report = Report(path, datetime.now(UTC), answers, Page(title, ""))
    report.page = _page(report, title)
    step(STEPS[-1], len(STEPS) - 1, len(STEPS))
    if folder is not None:
        report.folder = Path(folder)
        report.files = [report.page.save(folder), *report.page.save_pictures(folder), Path(folder, "report.json")]
        report.files[-1].write_text(json.dumps(report.summary(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    step("done", len(STEPS), len(STEPS))
    return report


def reason(error: BaseException) -> str | None:
    """The text of our own error inside one of Spark's, which carries the traceback of another process; else None."""
    found = re.findall(r"^radiator\.[\w.]+: (.+)$", str(error), re.MULTILINE)
    return found[-1].strip() if found else None


def _make_folder(folder: str | os.PathLike[str]) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{os.fspath(folder)} cannot be made: {error.strerror}; give another output folder"
        ) from error


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


class _Work:
    """Runs the jobs one after the other."""

    def __init__(
        self, spark: SparkSession, path: str, ends: Mapping[str, int], fail_on_data_loss: bool, step: Progress
    ) -> None:
        self._spark, self._path, self._step = spark, path, step
        self._options = {"ending_offsets": json.dumps(ends), "fail_on_data_loss": fail_on_data_loss}

    def answers(self) -> dict[str, Rows]:
        totals = self._job("totals", 1)
        messages = sum(row["messages"] for row in totals) or 1
        for row in totals:
            row["share"] = row["messages"] / messages
        _, words = units.bucket(_span(totals, "first_received", "last_received"))
        answers = {"totals": totals, "traffic": self._job("traffic", 2, every=words)}
        answers["event_traffic"] = []
        if sum(row["with_event_time"] for row in totals) * 2 >= messages:
            _, event_words = units.bucket(_span(totals, "first_event", "last_event"))
            answers["event_traffic"] = self._job("traffic", 3, every=event_words, time="event_time")
        answers["latency_all"] = self._job("latency", 4, by=())
        answers["latency"] = self._job("latency", 4)
        answers["tags"] = self._job("top_tags", 5)
        answers["integrity"] = self._job("integrity", 6)
        missing = any(row["missing"] for row in answers["integrity"])
        answers["gaps"] = self._job("gaps", 6) if missing else []
        return answers

    def _job(self, name: str, place: int, **arguments: Any) -> Rows:
        self._step(STEPS[place], place, len(STEPS))
        job = JOBS[name]
        df: DataFrame = read(self._spark, self._path, columns=job.columns, **self._options)
        return collect(job.run(df, **arguments))


def _span(totals: Rows, first: str, last: str) -> timedelta:
    starts = [row[first] for row in totals if row[first] is not None]
    ends = [row[last] for row in totals if row[last] is not None]
    return max(ends) - min(starts) if starts else timedelta(0)


# --- the page ---------------------------------------------------------------------------------------------------------


def _page(report: Report, title: str) -> Page:
    answers = report.answers
    made = f"{report.path}, as of {units.moment(report.made)} UTC"
    foot = f"Made by radiator {__version__} with Spark from the files of the log. All times are UTC."
    page = Page(title, made, [_overview(report)], foot)
    if answers["totals"]:
        page.sections += [_traffic(answers), _latency(answers)]
        if answers["tags"]:
            page.sections.append(_tags(answers["tags"]))
    page.sections.append(_integrity(answers))
    return page


def _overview(report: Report) -> Section:
    totals, integrity = report.answers["totals"], report.answers["integrity"]
    if not totals:
        return Section("Overview", "The store is empty: nothing has been committed yet.")
    span = _span(totals, "first_received", "last_received")
    messages = sum(row["messages"] for row in totals)
    rate = messages / max(span.total_seconds(), 1.0)
    duplicates = sum(row["duplicates"] for row in integrity)
    whole = not report.missing and not duplicates
    tiles = [
        Tile(units.count(messages), "messages"),
        Tile(units.size(sum(row["bytes"] for row in totals)), "in their bodies"),
        Tile(units.size(sum(row["on_disk"] for row in integrity)), "on disk, headers and all"),
        Tile(f"{len(totals):,}", f"destinations in {len(integrity):,} partitions"),
        Tile(units.duration(span.total_seconds() * 1000), f"from first to last, {units.short(rate)} messages/s"),
        Tile(
            "whole" if whole else f"{report.missing:,} missing",
            "offsets checked one by one",
            "good" if whole else "bad",
        ),
    ]
    tables = [Table("Destinations" if len(totals) <= TOP else "Busiest destinations", _TOTALS, totals[:TOP])]
    if len(totals) > TOP:
        tables.append(Table("All destinations", _TOTALS, totals, rows_max=2000, folded=True))
    return Section("Overview", tiles=tiles, tables=tables)


def _traffic(answers: dict[str, Rows]) -> Section:
    totals = answers["totals"]
    shown = totals[:12]
    rest = f"; {len(totals) - 12} more not shown" if len(totals) > 12 else ""
    pictures = [
        bars(
            "volume",
            "Messages per destination",
            shown,
            label="destination",
            value="messages",
            note=f"All messages in the log{rest}",
        ),
        _over_time("traffic", "Traffic by time of arrival", answers["traffic"], totals, "received"),
    ]
    if answers["event_traffic"]:
        pictures.append(
            _over_time("traffic-events", "Traffic by time of event", answers["event_traffic"], totals, "event")
        )
    return Section(
        "Traffic",
        "When messages came in, and when the things happened that they tell of.",
        pictures=pictures,
        tables=[Table("Messages by time of arrival", _TRAFFIC, answers["traffic"], rows_max=1000, folded=True)],
    )


def _over_time(name: str, title: str, rows: Rows, totals: Rows, clock: str) -> Picture:
    seconds, words = units.bucket(_span(totals, f"first_{clock}", f"last_{clock}"))
    width = words.removeprefix("1 ")
    return stacked(
        name,
        title,
        rows,
        x="start",
        series="destination",
        value="messages",
        width_seconds=seconds,
        label=f"messages per {width}",
        note=f"Messages per {width} and destination, UTC",
    )


def _latency(answers: dict[str, Rows]) -> Section:
    rows, everything = answers["latency"], answers["latency_all"]
    if not rows:
        return Section("Latency", "No message carries event-time or transmit-time, so there is nothing to measure.")
    together = [{"destination": "all together", **row} for row in everything]
    order = list(LEGS)
    old = [row for row in everything if row["p50_ms"] > HISTORY_MS]
    drawn = [row["leg"] for row in everything if row not in old] or order
    shown = [row for row in [*together, *_busiest(rows)] if row["leg"] in drawn]
    shown.sort(key=lambda row: order.index(row["leg"]))
    pictures = [
        ranges(
            "latency",
            "How long messages were on their way",
            shown,
            label="destination",
            points=("p50_ms", "p95_ms", "p99_ms"),
            panel="leg",
            limit=DESTINATIONS_MAX + 1,
            note="Half of the messages took less than p50, all but one in a hundred less than p99; logarithmic",
        )
    ]
    negative = sum(row["negative"] for row in everything)
    text = "From the event to its transmission (event-time, transmit-time) and on to the broker (receive-time)."
    if old and len(drawn) < len(order):
        back = units.duration(max(row["p50_ms"] for row in old))
        text += (
            f" Event times lie about {back} back: recorded history was published. Legs from the event are not drawn."
        )
    if negative:
        text += f" {negative:,} differences are negative: clocks that disagree, or events that lie ahead."
    return Section(
        "Latency", text, pictures=pictures, tables=[Table("Percentiles", _LATENCY, [*together, *rows], brief=shown)]
    )


def _busiest(rows: Rows) -> Rows:
    messages: dict[str, int] = {}
    for row in rows:
        messages[row["destination"]] = max(messages.get(row["destination"], 0), row["messages"])
    chosen = sorted(messages, key=lambda name: (-messages[name], name))[:DESTINATIONS_MAX]
    kept = [row for row in rows if row["destination"] in chosen]
    return sorted(kept, key=lambda row: chosen.index(row["destination"]))


def _tags(rows: Rows) -> Section:
    keys = list(dict.fromkeys(row["key"] for row in rows))
    shown = [{**row, "panel": f"{row['key']}"} for row in rows if row["key"] in keys[:PANELS_MAX]]
    picture = bars(
        "tags",
        "Most frequent values of the tags",
        shown,
        label="value",
        value="messages",
        unit="short",
        panel="panel",
        limit=10,
        note="Messages that carry the tag with this value, the ten most frequent each",
    )
    return Section("Tags", "", pictures=[picture], tables=[Table("Values", _TAGS, rows, folded=True)])


def _integrity(answers: dict[str, Rows]) -> Section:
    rows, gaps = answers["integrity"], answers["gaps"]
    text = (
        "Offsets are given out without a gap and never again, so every offset between the first and the last must be "
        "there once. Every batch that was read has passed its crc."
    )
    tables = [Table("Partitions", _INTEGRITY, rows)]
    if gaps:
        tables.append(Table("Missing ranges", _GAPS, gaps))
    return Section("Integrity", text, tables=tables)
