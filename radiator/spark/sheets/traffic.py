"""The sheet ``traffic``: messages and bytes per destination over time, by time of arrival and by time of event.

Of very many destinations the busiest stand by name over time, and the rest together: a page does not show more.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from itertools import pairwise
from statistics import median
from typing import Any

from pyspark.sql import functions as F

from radiator.spark import units
from radiator.spark.jobs import JOBS
from radiator.spark.page import Field, Section, Table
from radiator.spark.pictures import Picture, bars, stacked
from radiator.spark.sheets.options import Options
from radiator.spark.sheets.work import Answers, Rows, Sheet, Work, span

NAMED_MAX = 200  # destinations that stand by name over time
REST = "(all others)"
BARS_MAX = 12
PEAK_MIN = 3.0  # times the usual: less is no burst
_EVERY_EVENT = 0.5  # of the messages must have an event time for a picture of it


def _fields(options: Options) -> tuple[Field, ...]:
    return (
        Field("start", "from", "moment"),
        Field("destination", options.what),
        Field("messages", "messages", "count"),
        Field("bytes", "bytes", "size"),
    )


def run(work: Work) -> Answers:
    totals = work.totals()
    answers: Answers = {
        "totals": totals,
        "traffic": _over_time(work, "receive_time", span(totals)),
        "event_traffic": [],
    }
    messages = sum(row["messages"] for row in totals)
    if messages and sum(row["with_event_time"] for row in totals) >= messages * _EVERY_EVENT:
        answers["event_traffic"] = _over_time(work, "event_time", span(totals, "event"))
    return answers


def _over_time(work: Work, clock: str, width: timedelta) -> Rows:
    job = JOBS["traffic"]
    df = work.frame(*job.columns)
    named = [row["destination"] for row in work.totals()[:NAMED_MAX]]
    if len(work.totals()) > NAMED_MAX:
        known = F.col("destination").isin(named)
        df = df.withColumn("destination", F.when(known, F.col("destination")).otherwise(REST))
    return work.rows(job.run(df, time=clock, every=work.options.width(width)[1]), "traffic")


def section(answers: Answers, options: Options) -> Section:
    totals, rows = answers["totals"], answers["traffic"]
    if not totals:
        return Section("Traffic", found="No message was found.", nothing=True)
    rest = f"; {len(totals) - BARS_MAX:,} more not shown" if len(totals) > BARS_MAX else ""
    pictures = [
        bars(
            "volume",
            f"Messages per {options.what}",
            totals[:BARS_MAX],
            label="destination",
            value="messages",
            note=f"All messages that were looked at{rest}",
        ),
        _picture("traffic", "Traffic by time of arrival", rows, totals, "received", options),
    ]
    if answers["event_traffic"]:
        pictures.append(
            _picture("traffic-events", "Traffic by time of event", answers["event_traffic"], totals, "event", options)
        )
    return Section(
        "Traffic",
        "When messages came in, and when the things happened that they tell of.",
        found=findings(rows, totals, options),
        pictures=pictures,
        tables=[
            Table("Messages by time of arrival", _fields(options), rows, rows_max=1000, folded=True),
        ],
    )


def _picture(name: str, title: str, rows: Rows, totals: Rows, clock: str, options: Options) -> Picture:
    seconds, words = options.width(span(totals, clock))
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
        note=f"Messages per {width} and {options.what}, UTC",
    )


# --- what is remarkable -----------------------------------------------------------------------------------------------


def findings(rows: Rows, totals: Rows, options: Options) -> str:
    """How much in how long, and the burst and the silence, if there was one."""
    messages, width = sum(row["messages"] for row in totals), span(totals)
    seconds, words = options.width(width)
    share, most = f"{totals[0]['share']:.0%}", _of(totals[0]["destination"])
    said = [
        f"{units.many(messages, 'message')} in {units.duration(width.total_seconds() * 1000)}, {share} of them {most}."
    ]
    buckets = _per_moment(rows)
    usual = median(buckets.values()) if buckets else 0
    peak = max(buckets, key=lambda at: buckets[at], default=None)
    if peak is not None and len(buckets) >= 3 and buckets[peak] >= PEAK_MIN * usual:
        there = [row for row in rows if row["start"] == peak]
        largest = max(there, key=lambda row: row["messages"])
        said.append(
            f"The busiest {words.removeprefix('1 ')} began at {units.moment(peak)}: {buckets[peak]:,} messages, "
            f"{buckets[peak] / usual:,.0f} times the usual; {largest['messages'] / buckets[peak]:.0%} of them "
            f"{_of(largest['destination'])}."
        )
    silent = _longest_silence(buckets, seconds)
    if silent:
        said.append(f"Nothing came from {units.moment(silent[0])} to {units.moment(silent[1])}.")
    return " ".join(said)


def _of(destination: str) -> str:
    return "from others" if destination == REST else f"in {destination}"


def _per_moment(rows: Iterable[dict[str, Any]]) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for row in rows:
        found[row["start"]] = found.get(row["start"], 0) + row["messages"]
    return found


def _longest_silence(buckets: dict[Any, int], seconds: int) -> tuple[Any, Any] | None:
    """The longest time without a message, if it is remarkable: three buckets, and twice what is usual between two."""
    moments, width = sorted(buckets), timedelta(seconds=seconds)
    pauses = [(later - earlier - width, earlier + width, later) for earlier, later in pairwise(moments)]
    if not pauses:
        return None
    longest = max(pauses)
    usual = median(pause for pause, _, _ in pauses)
    return longest[1:] if longest[0] >= 3 * width and longest[0] > 2 * usual else None


SHEET = Sheet(run, section)
