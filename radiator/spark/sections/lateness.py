"""Show how late records come by the clock, how far out of order, and the watermark delay that this needs.

The section has one chart for each; the second has the delays for ``withWatermark``, the third shows when it was worse
than usual.
"""

from __future__ import annotations

from radiator.spark import units
from radiator.spark.charts import Chart, lines, ranges
from radiator.spark.page import Field, Section, Table
from radiator.spark.sections.left_out import of_old_times
from radiator.spark.sections.options import Options
from radiator.spark.sections.part import Answers, Row, Rows, span
from radiator.spark.sections.work import Again, Work

TOGETHER = "all together"
DESTINATIONS_MAX = 15  # in a chart
SHOWN_MAX = 3
LATE_MIN = 0.01
_ANSWERS = ("lateness", "lateness_all", "lateness_over_time", "disorder", "disorder_all")
HISTORY_MS = 30 * 86_400_000.0  # a median above this means recorded history, whose lateness says nothing


def _lateness(options: Options) -> tuple[Field, ...]:
    return (
        Field("destination", options.what),
        Field("messages", "with event time", "count"),
        Field("p50_ms", "p50", "duration"),
        Field("p95_ms", "p95", "duration", page_only=True),
        Field("p99_ms", "p99", "duration"),
        Field("max_ms", "max", "duration"),
        Field("late_1s", "> 1 s", "share", page_only=True),
        Field("late_1min", "> 1 min", "share"),
        Field("late_1h", "> 1 h", "share"),
        Field("late_1d", "> 1 d", "share", page_only=True),
        Field("ahead", "ahead", "count"),
        Field("without", "without", "count", page_only=True),
    )


def _disorder(options: Options) -> tuple[Field, ...]:
    return (
        Field("destination", options.what),
        Field("disordered", "out of order", "count"),
        Field("share", "share", "share"),
        Field("back_records", "most records late", "count", page_only=True),
        Field("keep_99_ms", "delay for 99%", "duration"),
        Field("keep_999_ms", "for 99.9%", "duration"),
        Field("keep_all_ms", "for all", "duration"),
    )


def run(work: Work) -> Answers:
    """Query the log and return the answers of the section ``lateness``.

    Args:
        work: The part of the log, and the jobs.

    Raises:
        LostRecords: Records cannot be read, and the report fails on data loss.
    """
    totals = work.totals()
    _, words = work.options.width(span(totals))
    several = sum(bool(row["with_event_time"]) for row in totals) > 1
    together = work.job("lateness", again=Again.OUT, by=())
    if not any(row["messages"] for row in together):
        return {"left_out": work.left_out(), **dict.fromkeys(_ANSWERS, together[:0])}
    everything = work.job("disorder", again=Again.OUT, by=())
    name = next(row["destination"] for row in totals if row["with_event_time"])
    return {
        "left_out": work.left_out(),
        "lateness": work.job("lateness", again=Again.OUT),
        "lateness_all": together,
        "lateness_over_time": work.job("lateness", again=Again.OUT, by=(), every=words),
        "disorder": work.job("disorder", again=Again.OUT)
        if several
        else [{"destination": name, **row} for row in everything],
        "disorder_all": everything,
    }


def section(answers: Answers, options: Options) -> Section:
    """Return the section ``lateness`` of the page.

    Args:
        answers: The result of ``run``.
        options: The options of the report.
    """
    notes = of_old_times(answers)
    if not answers["lateness"]:
        found = " ".join(["No message carries event-time, so there is no latency to measure.", *notes])
        return Section("Lateness", summary=found, empty=True)
    (together,), (order,) = answers["lateness_all"], answers["disorder_all"]
    late, disorder = _with_total(answers["lateness"], together), _with_total(answers["disorder"], order)
    history = together["p50_ms"] > HISTORY_MS
    return Section(
        "Lateness",
        "Lateness is receive-time minus event-time. An event is out of order if it arrived after a later one: "
        "a watermark of Structured Streaming waits for those.",
        summary=_summary(together, order, answers["disorder"], history),
        findings=[] if history else _findings(answers["lateness"]),
        charts=[*([] if history else _by_the_clock(late, answers["lateness_over_time"])), *_watermark(disorder)],
        tables=[
            Table("Lateness", _lateness(options), late),
            Table("Out of order, and the watermark delay", _disorder(options), disorder),
        ],
        notes=notes,
    )


def _with_total(rows: Rows, together: Row) -> Rows:
    """Return the rows with an event time, the largest first, and the total."""
    measured = sorted((row for row in rows if row["messages"]), key=lambda row: (-row["messages"], row["destination"]))
    return [{"destination": TOGETHER, **together}, *measured] if len(measured) > 1 else measured


def _by_the_clock(late: Rows, over_time: Rows) -> list[Chart]:
    moments = [
        {"start": row["start"], "percentile": name, "ms": max(row[f"{name}_ms"], 0.0)}
        for row in over_time
        if row["messages"]
        for name in ("p50", "p99")
    ]
    ahead = "; before the event is 0" if any((row["p50_ms"] or 0) < 0 for row in over_time) else ""
    charts = [
        ranges(
            "lateness",
            "Lateness",
            late,
            label="destination",
            points=("p50_ms", "p95_ms", "p99_ms"),
            limit=DESTINATIONS_MAX + 1,
            note="receive-time minus event-time; p50, p95 and p99; logarithmic",
        )
    ]
    if len({row["start"] for row in moments}) > 2:
        charts.append(
            lines(
                "lateness-time",
                "Lateness over time",
                moments,
                x="start",
                y="ms",
                series="percentile",
                unit="duration",
                label="late by",
                log=True,
                note=f"By receive time, all destinations, UTC{ahead}",
            )
        )
    return charts


def _watermark(disorder: Rows) -> list[Chart]:
    shown = [row for row in disorder if row["keep_all_ms"] > 0]
    if not shown:
        return []
    return [
        ranges(
            "watermark",
            "Watermark delay",
            [
                {"destination": row["destination"], "99%": row["keep_99_ms"], "99.9%": row["keep_999_ms"],
                 "all": row["keep_all_ms"]}
                for row in shown
            ],
            label="destination",
            points=("99%", "99.9%", "all"),
            limit=DESTINATIONS_MAX + 1,
            note="The delay that includes this share of the messages, in the order of arrival; logarithmic",
        )
    ]  # fmt: skip


def _summary(together: Row, order: Row, rows: Rows, history: bool) -> str:
    if history:
        back = units.duration(together["p50_ms"])
        said = [f"Recorded data: half of the messages came more than {back} after their events."]
    elif together["max_ms"] < 0:
        least = units.duration(-together["max_ms"])
        said = [f"No message came late: each came at least {least} before its event."]
    else:
        minute, hour = units.share(together["late_1min"]), units.share(together["late_1h"])
        late = f"{minute} of {units.many(together['messages'], 'message')} came more than a minute late"
        said = [f"{late}, {hour} more than an hour; the latest {units.duration(together['max_ms'])}."]
    if order["disordered"]:
        # One query per destination needs less delay than one query over all of them.
        most, nearly, every = (units.duration(order[name]) for name in ("keep_99_ms", "keep_999_ms", "keep_all_ms"))
        said.append(
            f"{units.share(order['share'])} came after a later event. A watermark delay of {most} includes 99%, "
            f"{nearly} includes 99.9%, {every} all."
        )
        worst = max(rows, key=lambda row: row["keep_99_ms"])
        if len(rows) > 1 and worst["keep_99_ms"]:
            said.append(f"{worst['destination']} needs the longest: {units.duration(worst['keep_99_ms'])} for 99%.")
    else:
        said.append("All events came in order: no watermark delay is needed.")
    if together["ahead"]:
        said.append(
            f"{units.many(together['ahead'], 'message')} came before the event: "
            "the clocks differ, or the events are in the future."
        )
    return " ".join(said)


def _findings(rows: Rows) -> list[str]:
    """Return a line for each destination of which more than one percent of the messages is an hour late."""
    late = sorted((row for row in rows if (row["late_1h"] or 0) > LATE_MIN), key=lambda row: -row["late_1h"])
    findings = [f"{units.share(row['late_1h'])} of {row['destination']} came more than an hour late" for row in late]
    return units.first(findings, SHOWN_MAX, "and {:,} more destinations were as late")
