"""Show percentiles of the time from the event to its transmission and to the broker."""

from __future__ import annotations

from collections import Counter
from typing import Any

from radiator.spark import units
from radiator.spark.charts import ranges
from radiator.spark.jobs.latency import LEGS
from radiator.spark.page import Field, Section, Table
from radiator.spark.sections.left_out import of_old_times
from radiator.spark.sections.options import Options
from radiator.spark.sections.part import Answers, Rows
from radiator.spark.sections.work import Work

HISTORY_MS = 30 * 86_400_000.0  # older events were not sent live
DESTINATIONS_MAX = 15  # in the chart
WRONG_MAX = 3  # destinations whose clocks disagree, by name
TOGETHER = "all together"
SLOW_MIN = 10.0  # a p99 below this multiple of the overall p50 is no finding


def _fields(options: Options) -> tuple[Field, ...]:
    return (
        Field("destination", options.what),
        Field("leg", "leg"),
        Field("messages", "messages", "count"),
        Field("p50_ms", "p50", "duration"),
        Field("p95_ms", "p95", "duration"),
        Field("p99_ms", "p99", "duration"),
        Field("max_ms", "max", "duration"),
        Field("negative", "negative", "count"),
    )


def run(work: Work) -> Answers:
    """Query the log and return the answers of the section ``latency``.

    Args:
        work: The part of the log, and the jobs.

    Raises:
        LostRecords: Records cannot be read, and the report fails on data loss.
    """
    return {
        "left_out": work.left_out(),
        "latency_all": work.job("latency", by=()),
        "latency": work.job("latency"),
    }


def section(answers: Answers, options: Options) -> Section:
    """Return the section ``latency`` of the page.

    Args:
        answers: The result of ``run``.
        options: The options of the report.
    """
    rows, everything, notes = answers["latency"], answers["latency_all"], of_old_times(answers)
    if not rows:
        found = " ".join(["No message carries event-time or transmit-time, so there is no latency to measure.", *notes])
        return Section("Latency", summary=found, empty=True)
    together = [{"destination": TOGETHER, **row} for row in everything]
    order = list(LEGS)
    old = [row for row in everything if row["p50_ms"] > HISTORY_MS]
    drawn = [row["leg"] for row in everything if row not in old] or order
    shown = [row for row in [*together, *_busiest(rows)] if row["leg"] in drawn]
    shown.sort(key=lambda row: order.index(row["leg"]))
    charts = [
        ranges(
            "latency",
            "Latency",
            shown,
            label="destination",
            points=("p50_ms", "p95_ms", "p99_ms"),
            panel="leg",
            limit=DESTINATIONS_MAX + 1,
            note="p50, p95 and p99; logarithmic",
        )
    ]
    text = "From the event (event-time) to the transmission (transmit-time) and to the broker (receive-time)."
    if old and len(drawn) < len(order):
        back = units.duration(max(row["p50_ms"] for row in old))
        text += (
            f" Event times are about {back} old: recorded data was published. Latencies from the event are not drawn."
        )
    tables = [Table("Percentiles", _fields(options), [*together, *rows], brief=shown)]
    leg = [row for row in everything if row["leg"] in drawn][-1]  # the longest leg with data
    return Section(
        "Latency",
        text,
        summary=_summary(leg),
        findings=_findings(everything, rows, leg),
        charts=charts,
        tables=tables,
        notes=notes,
    )


def _summary(leg: dict[str, Any]) -> str:
    if leg["max_ms"] < 0:
        by = units.duration(-leg["p50_ms"])
        return f"From {leg['leg']} all messages have their times in the wrong order: half of them by {by} or more."
    half, most, longest = (units.duration(leg[name]) for name in ("p50_ms", "p99_ms", "max_ms"))
    return f"From {leg['leg']}: p50 {half}, p99 {most}, maximum {longest}."


def _findings(everything: Rows, rows: Rows, leg: dict[str, Any]) -> list[str]:
    said = []
    others = [row for row in rows if row["leg"] == leg["leg"]]
    slowest = max(others, key=lambda row: row["p99_ms"])
    if len(others) > 1 and slowest["p99_ms"] > max(SLOW_MIN * leg["p50_ms"], 1.0):
        half, most = units.duration(slowest["p50_ms"]), units.duration(slowest["p99_ms"])
        said.append(f"the slowest is {slowest['destination']}: p50 {half}, p99 {most}")
    negative = sum(row["first_negative"] for row in everything)
    if negative:
        have = "has" if negative == 1 else "have"
        said.append(
            f"{units.many(negative, 'message')} {have} times in the wrong order, of {_wrong(rows)}: "
            "the clocks differ, or the events are in the future"
        )
    return said


def _wrong(rows: Rows) -> str:
    """Return the destinations with the most messages whose later time is the earlier one."""
    messages: Counter[str] = Counter()
    for row in rows:
        messages[row["destination"]] += row["first_negative"]
    worst = sorted((name for name in messages if messages[name]), key=lambda name: (-messages[name], name))
    return units.names([f"{name} ({messages[name]:,})" for name in worst], WRONG_MAX)


def _busiest(rows: Rows) -> Rows:
    messages: dict[str, int] = {}
    for row in rows:
        messages[row["destination"]] = max(messages.get(row["destination"], 0), row["messages"])
    chosen = sorted(messages, key=lambda name: (-messages[name], name))[:DESTINATIONS_MAX]
    shown = [row for row in rows if row["destination"] in chosen]
    return sorted(shown, key=lambda row: chosen.index(row["destination"]))
