"""Show the differences between two time windows.

The windows: ``--from`` and ``--until`` are one. The other is ``--with -7d`` (the same, moved), or ``--with-from`` and
``--with-until``, or else the time of the same length directly before. Without ``--from`` the last day of the log (or
before ``--until``) is compared with the day before it; in a log shorter than two days its second half with its first;
a log shorter than one hour is not compared.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from radiator.clock import NS_PER_SECOND
from radiator.spark import units
from radiator.spark.charts import pairs
from radiator.spark.jobs import JOBS, compare
from radiator.spark.page import Field, Section, Table
from radiator.spark.sections.options import Options
from radiator.spark.sections.part import Answers, Rows
from radiator.spark.sections.work import Work

LONGEST = timedelta(days=1)  # the maximum length of default windows
SHORTEST = timedelta(hours=1)  # a shorter log is compared only with explicit windows
DRAWN_MAX = 12
REMARKABLE = 1.5  # smaller ratios of rates or latencies are no finding
CHANCE_MAX = 3.0  # standard deviations: a smaller difference may be chance
SLOW_MIN = 10  # messages in each window: with fewer, a single message is the p99
NAMES_MAX = 3  # in a sentence
_TICK = timedelta(microseconds=1)


class Window(NamedTuple):
    """A time window."""

    start_ns: int
    until_ns: int

    @property
    def seconds(self) -> float:
        """The length in seconds."""
        return (self.until_ns - self.start_ns) / NS_PER_SECOND

    def row(self, name: str) -> dict[str, Any]:
        """Return the window as a row of the answers.

        Args:
            name: ``now`` or ``before``.
        """
        return {
            "window": name,
            "start": units.utc(self.start_ns),
            "until": units.utc(self.until_ns),
            "seconds": self.seconds,
        }


def windows(options: Options, first: datetime | None, last: datetime | None) -> tuple[Window, Window] | None:
    """Return the window and the window to compare it with; None if the log is too short.

    Args:
        options: The options of the report.
        first: The first receive time of the log, or None for an empty log.
        last: The last receive time of the log, or None.

    Raises:
        ConfigError: The options name windows that do not fit.
    """
    start, until = options.start, options.until
    if start is None:
        if first is None or last is None or last - first < SHORTEST:
            return None
        begin, end = _ns(first), _ns(last + _TICK)
        until = end if until is None else min(until, end)
        start = until - min(_ns_of(LONGEST), (until - begin) // 2)
    if until is None:  # no message came since then, which is the finding
        until = time.time_ns() if last is None else _ns(last + _TICK)
    now = Window(start, until)
    if now.until_ns <= now.start_ns:
        return None
    if options.with_start is not None and options.with_until is not None:
        return now, Window(options.with_start, options.with_until)
    moved = now.start_ns - now.until_ns if options.shift is None else options.shift * NS_PER_SECOND
    return now, Window(now.start_ns + moved, now.until_ns + moved)


def run(work: Work) -> Answers:
    """Query the log and return the answers of the section ``compare``.

    Args:
        work: The part of the log, and the jobs.

    Raises:
        LostRecords: Records cannot be read, and the report fails on data loss.
    """
    totals = work.totals()
    first = min((row["first_received"] for row in totals), default=None)
    last = max((row["last_received"] for row in totals), default=None)
    chosen = windows(work.options, first, last)
    if chosen is None:
        return {"left_out": work.left_out(), "compare": [], "windows": []}
    now, before = chosen
    columns = JOBS["compare"].columns
    one, other = (work.frame(*columns, start_time=each.start_ns, end_time=each.until_ns) for each in chosen)
    found = work.rows(compare(one, other, now_seconds=now.seconds, before_seconds=before.seconds), "compare")
    return {"left_out": work.left_out(), "compare": found, "windows": [now.row("now"), before.row("before")]}


# --- the page ---------------------------------------------------------------------------------------------------------


def _fields(options: Options) -> tuple[Field, ...]:
    return (
        Field("destination", options.what),
        Field("messages", "messages", "count"),
        Field("messages_before", "before", "count"),
        Field("remark", "change"),
        Field("difference", "difference/s", "change", page_only=True),
        Field("bytes", "bytes", "size"),
        Field("bytes_before", "before", "size"),
        Field("p50_ms", "p50", "duration", page_only=True),
        Field("p50_ms_before", "before", "duration", page_only=True),
        Field("p99_ms", "p99", "duration"),
        Field("p99_ms_before", "before", "duration"),
    )


def section(answers: Answers, options: Options) -> Section:
    """Return the section ``compare`` of the page.

    Args:
        answers: The result of ``run``.
        options: The options of the report.
    """
    rows = [{**row, "remark": remark(row)} for row in answers["compare"]]
    if not answers["windows"]:
        log = "The log" if options.until is None else f"The log before --until, {_moment(options.until)},"
        found = f"{log} is too short for two windows: set them with --from, --until and --with."
        if options.start is not None:
            begins = _moment(options.start)
            found = f"Nothing can be compared: --from, {begins}, is in the future, and there is no --until after it."
        return Section("Compared", summary=found, empty=True)
    now, before = answers["windows"]
    text = f"Now: {_window(now)}. Before: {_window(before)}."
    if now["seconds"] != before["seconds"]:
        text += " The windows differ in length, so rates are compared, not numbers."
    text += " The latency is from the event, or else from the transmission, to the broker."
    if not rows:
        return Section("Compared", text, summary="Neither window has a message.")
    unit, factor = _per(max(max(row["rate"], row["rate_before"]) for row in rows))
    drawn = [
        {**row, "rate": row["rate"] * factor, "rate_before": row["rate_before"] * factor}
        for row in rows
        if row["difference"] or len(rows) == 1
    ]
    more = f"; {len(drawn) - DRAWN_MAX:,} smaller ones not shown" if len(drawn) > DRAWN_MAX else ""
    chart = pairs(
        "compare",
        "The largest changes",
        drawn,
        label="destination",
        before="rate_before",
        now="rate",
        remark="remark",
        limit=DRAWN_MAX,
        note=f"Messages per {unit} and {options.what}, by how much they changed{more}",
    )
    tables = [Table("Changes", _fields(options), rows)]
    return Section(
        "Compared",
        text,
        summary=_summary(rows, now, before),
        findings=_findings(rows),
        charts=[chart],
        tables=tables,
    )


def remark(row: dict[str, Any]) -> str:
    """Return the change of a destination, as a word or a number.

    Args:
        row: A row of the job ``compare``.
    """
    if _only_dead_letters(row) and row["kind"] != "both":
        return "dead letters"
    if row["kind"] != "both":
        return "new" if row["kind"] == "new" else "vanished"
    return times(row["ratio"])


def times(ratio: float) -> str:
    """Return a ratio as text: 4.2 ×, +12%, −40%, 1/250, the same.

    Args:
        ratio: The ratio.
    """
    if ratio >= 2:
        return f"{ratio:,.0f} ×" if ratio >= 10 else f"{ratio:.1f} ×"
    if 0 < ratio < 0.01:  # a percentage would be rounded to -100%
        return f"1/{1 / ratio:,.0f}"
    percent = round((ratio - 1) * 100)
    if percent == 0:
        return "the same" if math.isclose(ratio, 1) else "about the same"
    return f"+{percent}%" if percent > 0 else f"−{-percent}%"


def _summary(rows: Rows, now: dict[str, Any], before: dict[str, Any]) -> str:
    messages, then = (sum(row[name] for row in rows) for name in ("messages", "messages_before"))
    if not messages or not then:
        return (
            f"{units.many(messages, 'message')} now, none before." if messages else f"No message now, {then:,} before."
        )
    return f"{units.many(messages, 'message')} now, {then:,} before: {_whole(messages, then, now, before)}."


def _findings(rows: Rows) -> list[str]:
    alive = [row for row in rows if not _only_dead_letters(row)]
    both = [row for row in alive if row["kind"] == "both"]
    return [*_came_and_went(alive), *_changed(both), *_slower(both), *_dead_letters(rows)]


def _came_and_went(alive: Rows) -> Iterator[str]:
    gone = [row for row in alive if row["kind"] == "vanished" and not _chance(row)]
    new = [row for row in alive if row["kind"] == "new"]
    for words, some in (("silent now", gone), ("new", new)):
        if some and len(some) < len(alive):
            yield f"{words}: {_names(some)}"


def _changed(both: Rows) -> Iterator[str]:
    changed = [row for row in both if not 1 / REMARKABLE < row["ratio"] < REMARKABLE and not _chance(row)]
    for row in changed[:NAMES_MAX]:
        messages, then = f"{row['messages']:,}", f"{row['messages_before']:,}"
        yield f"{row['destination']}: {times(row['ratio'])}, {messages} now and {then} before"


def _slower(both: Rows) -> Iterator[str]:
    measured = [row for row in both if min(row["messages"], row["messages_before"]) >= SLOW_MIN]
    slower = [row for row in measured if row["p99_ratio"] and row["p99_ratio"] >= REMARKABLE and row["p99_ms"] >= 1]
    for row in sorted(slower, key=lambda row: -row["p99_ratio"])[:NAMES_MAX]:
        p99, p99_before = units.duration(row["p99_ms"]), units.duration(row["p99_ms_before"])
        yield f"{row['destination']} is slower: p99 latency {p99}, before {p99_before}"


def _dead_letters(rows: Rows) -> Iterator[str]:
    more = [row for row in rows if _only_dead_letters(row) and row["difference"] > 0]
    for row in more[:NAMES_MAX]:
        then = f"{row['messages_before']:,}" if row["messages_before"] else "none"
        yield f"{units.many(row['messages'], 'dead letter')} now in {row['destination']}, {then} before"


def _only_dead_letters(row: dict[str, Any]) -> bool:
    """Return True if the destination has only dead letters.

    The first dead letter does not make it new, and a time without dead letters does not make it silent.
    """
    return bool(row["dead_letters"] == row["messages"] and row["dead_letters_before"] == row["messages_before"])


def _chance(row: dict[str, Any]) -> bool:
    """Return True if two numbers with the same rate may differ this much by chance (independent events)."""
    counts = (row["rate"], row["messages"]), (row["rate_before"], row["messages_before"])
    deviation = math.sqrt(sum(rate**2 / messages for rate, messages in counts if messages))
    return bool(abs(row["difference"]) < CHANCE_MAX * deviation)


def _whole(messages: int, then: int, now: dict[str, Any], before: dict[str, Any]) -> str:
    words = times((messages / now["seconds"]) / (then / before["seconds"]))
    return words if now["seconds"] == before["seconds"] else f"{words} by rate"


def _names(rows: Rows) -> str:
    each = [f"{row['destination']} ({max(row['messages'], row['messages_before']):,})" for row in rows]
    return units.names(each, NAMES_MAX)


def _window(row: dict[str, Any]) -> str:
    length = units.duration(row["seconds"] * 1000)
    return f"{units.moment(row['start'])} to {units.moment(row['until'])} ({length})"


def _per(rate: float) -> tuple[str, int]:
    """Return the unit of time in which the largest rate is at least one."""
    for unit, factor in (("second", 1), ("minute", 60), ("hour", 3600)):
        if rate * factor >= 1:
            return unit, factor
    return "day", 86_400


def _moment(time_ns: int) -> str:
    return units.moment(units.utc(time_ns))


def _ns(moment: datetime) -> int:
    return _ns_of(moment - units.EPOCH)


def _ns_of(width: timedelta) -> int:
    return width // _TICK * 1000
