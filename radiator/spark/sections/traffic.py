"""Show messages and bytes per destination over time, by receive time and by event time.

Of very many destinations the busiest have names over time, and the rest is one series.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import Any

import pandas as pd
from pyspark.sql import functions as F

from radiator.spark import units
from radiator.spark.charts import OTHER, Chart, bars, stacked
from radiator.spark.jobs import JOBS
from radiator.spark.jobs.left_out import DEAD_LETTER
from radiator.spark.page import Field, Section, Table
from radiator.spark.sections.options import Options
from radiator.spark.sections.part import ROWS_MAX, Answers, Rows, span
from radiator.spark.sections.work import Work

NAMED_MAX = 200  # destinations with a series of their own
REST = OTHER
MOST_MIN = 0.25  # the minimum share of a burst for its cause
BARS_MAX = 12
SHOWN_MAX = 2  # silences of each kind with a line of their own
BURSTS_MAX = 3
PEAK_MIN = 3.0  # the minimum multiple of the usual rate in a burst
DEVIATIONS_MIN = 6.0  # above the usual: among 5,000 buckets chance does not reach it
BUCKETS_MIN = 5  # fewer time buckets have no usual rate
ALMOST_ALWAYS, PAUSE_MIN = 0.8, 2  # share of buckets with a message; empty buckets in a pause
STOPPED_MIN, STOPPED_TIMES = 20, 20  # minimum messages, and multiple of the usual interval, for a silence
SILENT_MIN = timedelta(seconds=1)  # the page shows times in seconds
LOADED_TIMES = 5  # a destination silent for this multiple of its active time was a finished load
FAR_TIMES, NEAR_MIN = 10, timedelta(hours=1)  # events further away than this multiple of the usual span are strays
STRAYS_MAX = 0.05  # the maximum share of strays: more belong into the chart
_TICK = timedelta(microseconds=1)
_EVERY_EVENT = 0.5  # the share of messages with an event time that a chart of it needs


def _fields(options: Options) -> tuple[Field, ...]:
    return (
        Field("start", "from", "moment"),
        Field("destination", options.what),
        Field("messages", "messages", "count"),
        Field("bytes", "bytes", "size"),
    )


def run(work: Work) -> Answers:
    """Query the log and return the answers of the section ``traffic``.

    Args:
        work: The part of the log, and the jobs.

    Raises:
        LostRecords: Records cannot be read, and the report fails on data loss.
    """
    totals = work.totals()
    answers: Answers = {
        "left_out": work.left_out(),
        "totals": totals,
        "traffic": _over_time(work, "receive_time", span(totals)),
        "event_traffic": [],
        "event_strays": [],
    }
    messages = sum(row["messages"] for row in totals)
    if messages and sum(row["with_event_time"] for row in totals) >= messages * _EVERY_EVENT:
        answers["event_strays"] = strays = _strays(work)
        within = (strays[0]["first"], strays[0]["last"]) if strays else None
        answers["event_traffic"] = _over_time(work, "event_time", _event_span(totals, strays), within)
    return answers


def _strays(work: Work) -> Rows:
    """Return one row if a few events are so far from all others that a chart would show nothing else.

    The row has the number of earlier and later ones, and the time span of the others.
    """
    totals = work.totals()
    near = max(span(totals), NEAR_MIN)
    if span(totals, "event") <= FAR_TIMES * near:
        return []
    micros = F.unix_micros("event_time")
    at = work.frame("event_time").where("event_time IS NOT NULL").select(micros.alias("at"))
    (quartiles,) = work.rows(at.agg(F.percentile_approx("at", [0.25, 0.75]).alias("q")), "event_strays")
    low, high = quartiles["q"]
    far = FAR_TIMES * max(high - low, near // _TICK)
    inside = F.col("at").between(low - far, high + far)
    (found,) = work.rows(
        at.agg(
            F.count_if(F.col("at") < low - far).alias("earlier"),
            F.count_if(F.col("at") > high + far).alias("later"),
            F.timestamp_micros(F.min(F.when(inside, F.col("at")))).alias("first"),
            F.timestamp_micros(F.max(F.when(inside, F.col("at")))).alias("last"),
            F.count("*").alias("messages"),
        ),
        "event_strays",
    )
    stray = found["earlier"] + found["later"]
    return [found] if 0 < stray <= STRAYS_MAX * found.pop("messages") else []


def _event_span(totals: Rows, strays: Rows) -> timedelta:
    return span([{"first_event": row["first"], "last_event": row["last"]} for row in strays] or totals, "event")


def _over_time(work: Work, clock: str, width: timedelta, within: tuple[datetime, datetime] | None = None) -> Rows:
    job = JOBS["traffic"]
    df = work.frame(*job.columns)
    if within is not None:
        df = df.where(F.col(clock).between(*map(F.lit, within)))
    seconds, every = work.options.width(width, of_clients=clock == "event_time")
    pieces = int(width.total_seconds() / seconds) + 2
    named = [row["destination"] for row in work.totals()[: min(NAMED_MAX, max(ROWS_MAX // pieces - 1, 1))]]
    if len(work.totals()) > len(named):
        known = F.col("destination").isin(named)
        df = df.withColumn("destination", F.when(known, F.col("destination")).otherwise(REST))
    return work.rows(job.run(df, time=clock, every=every), "traffic")


def section(answers: Answers, options: Options) -> Section:
    """Return the section ``traffic`` of the page.

    Args:
        answers: The result of ``run``.
        options: The options of the report.
    """
    totals, rows = answers["totals"], answers["traffic"]
    if not totals:
        return Section("Traffic", summary="There are no messages.", empty=True)
    rest = f"; {len(totals) - BARS_MAX:,} more not shown" if len(totals) > BARS_MAX else ""
    charts = [
        bars(
            "volume",
            f"Messages per {options.what}",
            totals[:BARS_MAX],
            label="destination",
            value="messages",
            note=f"All selected messages{rest}",
        ),
        _chart("traffic", "Traffic by receive time", rows, totals, "received", options, span(totals)),
    ]
    if answers["event_traffic"]:
        charts.append(
            _chart(
                "traffic-events",
                "Traffic by event time",
                answers["event_traffic"],
                totals,
                "event",
                options,
                _event_span(totals, answers["event_strays"]),
                _of_strays(answers["event_strays"]),
            )
        )
    return Section(
        "Traffic",
        "Messages by receive time, and by event time.",
        summary=_summary(totals),
        findings=findings(rows, totals, options, _only_dead_letters(answers)),
        charts=charts,
        tables=[
            Table("Messages by receive time", _fields(options), rows, rows_max=1000, folded=True),
        ],
    )


def _of_strays(strays: Rows) -> str:
    parts = [f"{row[name]:,} {name}" for row in strays for name in ("earlier", "later") if row[name]]
    return f"; not shown: {' and '.join(parts)}" if parts else ""


def _chart(
    name: str,
    title: str,
    rows: Rows,
    totals: Rows,
    clock: str,
    options: Options,
    width_of_all: timedelta,
    strays: str = "",
) -> Chart:
    seconds, words = options.width(width_of_all, of_clients=clock == "event")
    width = words.removeprefix("1 ")
    return stacked(
        name,
        title,
        rows,
        x="start",
        series="destination",
        order=[row["destination"] for row in totals],
        value="messages",
        width_seconds=seconds,
        label=f"messages per {width}",
        note=f"Messages per {width} and {options.what}, UTC{strays}",
    )


# --- what is remarkable -----------------------------------------------------------------------------------------------


def _summary(totals: Rows) -> str:
    messages, width = sum(row["messages"] for row in totals), span(totals)
    share, most = units.percent(totals[0]["share"]), _of(totals[0]["destination"])
    if messages == 1:
        return f"1 message, {most}."
    when = f"in {units.duration(width.total_seconds() * 1000)}" if width else "at one moment"
    return f"{units.many(messages, 'message')} {when}, {'all' if len(totals) == 1 else share} of them {most}."


def _only_dead_letters(answers: Answers) -> frozenset[str]:
    """Return the destinations that have only dead letters, whose silence is no finding."""
    dead = {row["destination"]: row["messages"] for row in answers.get("left_out", ()) if row["why"] == DEAD_LETTER}
    return frozenset(row["destination"] for row in answers["totals"] if dead.get(row["destination"]) == row["messages"])


def findings(rows: Rows, totals: Rows, options: Options, only_dead_letters: Collection[str] = ()) -> list[str]:
    """Return findings: bursts, and destinations that were silent in the middle or are silent at the end.

    Args:
        rows: The messages per destination and time bucket.
        totals: The answer of the job ``totals``.
        options: The options of the report.
        only_dead_letters: Destinations whose silence is no finding.
    """
    width, words = options.width(span(totals))
    said = _bursts(rows, words)
    silent = [
        f"{name} was silent from {units.moment(first)} to {units.moment(last)}"
        for name, first, last in _pauses(rows, timedelta(seconds=width))
        if name not in only_dead_letters
    ]
    end = max(row["last_received"] for row in totals)
    return [
        *said,
        *units.first(silent, SHOWN_MAX, "and {:,} more were silent for a time"),
        *_silent_since([row for row in totals if row["destination"] not in only_dead_letters], end),
    ]


def _silent_since(totals: Rows, end: datetime) -> list[str]:
    stopped = [(row, pace) for row in totals for pace in [_stopped(row, end)] if pace]
    if len(stopped) > SHOWN_MAX:
        first = min(row["last_received"] for row, _ in stopped)
        names = [row["destination"] for row, _ in stopped]
        rest = f"{len(names) - SHOWN_MAX:,} more" if len(names) > SHOWN_MAX + 1 else names[SHOWN_MAX]
        more = f"{', '.join(names[:SHOWN_MAX])} and {rest}"
        return [f"{len(stopped):,} destinations have been silent, the first since {units.moment(first)}: {more}"]
    return [
        f"{row['destination']} has been silent since {units.moment(row['last_received'])}; "
        f"before, a message came {pace}"
        for row, pace in stopped
    ]


def _bursts(rows: Rows, width: str) -> list[str]:
    """Return the largest burst of each destination with one, and the largest burst of many together."""
    frame = pd.DataFrame(rows, columns=["start", "destination", "messages"])
    buckets = frame.groupby("start")["messages"].sum()
    if len(buckets) < BUCKETS_MIN:
        return []
    usual = buckets.median()
    high = buckets[buckets >= max(PEAK_MIN * usual, usual + DEVIATIONS_MIN * usual**0.5)]
    largest = frame.loc[frame.groupby("start")["messages"].idxmax()].set_index("start")
    said: dict[str, str] = {}
    for at, messages in high.sort_values(ascending=False, kind="stable").items():
        name, share = largest["destination"][at], largest["messages"][at] / messages
        maker = REST if share < MOST_MIN else name
        whose = "from many" if maker == REST else f"{'all' if share == 1 else units.percent(share)} of them {_of(name)}"
        times = f"{messages / usual:,.0f} times the usual"
        said.setdefault(maker, f"a burst at {units.moment(at)}: {messages:,} messages in {width}, {times}; {whose}")
    return list(said.values())[:BURSTS_MAX]


def _pauses(rows: Rows, width: timedelta) -> Iterator[tuple[str, datetime, datetime]]:
    """Return the longest time without a message of each destination that is almost always active."""
    frame = pd.DataFrame(rows, columns=["start", "destination"])
    for name, starts in frame.groupby("destination", sort=False)["start"]:
        between = (starts.iloc[-1] - starts.iloc[0]) // width + 1
        if name == REST or len(starts) < BUCKETS_MIN or len(starts) < ALMOST_ALWAYS * between:
            continue
        pauses = starts.diff() - width
        if pauses.max() >= PAUSE_MIN * width:
            last = starts[pauses == pauses.max()].iloc[-1]
            yield name, last - pauses.max(), last


def _stopped(row: dict[str, Any], end: datetime) -> str:
    """Return the number of usual intervals since the last message of a destination that has stopped; else nothing."""
    if row["messages"] < STOPPED_MIN:
        return ""
    every = (row["last_received"] - row["first_received"]) / (row["messages"] - 1)
    silent, took = end - row["last_received"], row["last_received"] - row["first_received"]
    if silent < SILENT_MIN or not STOPPED_TIMES * every < silent < LOADED_TIMES * took:
        return ""
    return f"every {units.duration(every.total_seconds() * 1000)} on average"


def _of(destination: str) -> str:
    return "from others" if destination == REST else f"in {destination}"
