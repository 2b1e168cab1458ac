"""Show how often each key is active, and for how long. A session ends where a gap follows."""

from __future__ import annotations

from radiator.spark import units
from radiator.spark.charts import bars, ranges
from radiator.spark.jobs import key_columns, session_lengths, sessions
from radiator.spark.jobs.frequent import PARTITION_KEY
from radiator.spark.page import Field, Section, Table
from radiator.spark.sections.options import Options
from radiator.spark.sections.part import Answers
from radiator.spark.sections.work import Work

GAP_SECONDS = 1800
KEYS_MAX = 15  # in the chart
_EVERY_EVENT = 0.5  # the share of messages with an event time that is needed to use it
_KEYS = (
    Field("key", "key"),
    Field("sessions", "sessions", "count"),
    Field("messages", "messages", "count"),
    Field("per_session", "per session", "short"),
    Field("p50_ms", "p50", "duration"),
    Field("p95_ms", "p95", "duration"),
    Field("longest_ms", "longest", "duration"),
    Field("first", "first", "moment", page_only=True),
    Field("last", "last", "moment", page_only=True),
)
_LENGTHS = (
    Field("length", "length"),
    Field("sessions", "sessions", "count"),
    Field("share", "share", "share"),
    Field("messages", "messages", "count"),
    Field("keys", "keys, about", "count"),
)


def run(work: Work) -> Answers:
    """Query the log and return the answers of the section ``sessions``.

    Args:
        work: The part of the log, and the jobs.

    Raises:
        LostRecords: Records cannot be read, and the report fails on data loss.
    """
    options, totals = work.options, work.totals()
    messages, events = (sum(row[name] for row in totals) for name in ("messages", "with_event_time"))
    time = "event_time" if events >= messages * _EVERY_EVENT else "receive_time"
    key = options.key or PARTITION_KEY
    asked = {"key": key, "gap": f"{options.gap or GAP_SECONDS} seconds", "time": time}
    lengths = work.rows(session_lengths(work.frame(*key_columns(key, time)), **asked), "session_lengths")
    if not lengths:
        return {"left_out": work.left_out(), "session_lengths": [], "sessions": []}
    found = work.rows(sessions(work.frame(*key_columns(key, time)), limit=options.limit, **asked), "sessions")
    return {"left_out": work.left_out(), "session_lengths": lengths, "sessions": found}


def section(answers: Answers, options: Options) -> Section:
    """Return the section ``sessions`` of the page.

    Args:
        answers: The result of ``run``.
        options: The options of the report.
    """
    lengths, rows, key = answers["session_lengths"], answers["sessions"], options.key or PARTITION_KEY
    if not lengths:
        found = f"No message carries {key}; choose another header, or a field of JSON bodies ($.name), with --key."
        return Section("Sessions", summary=found, empty=True)
    gap = units.duration((options.gap or GAP_SECONDS) * 1000)
    total = sum(row["sessions"] for row in lengths)
    usual = max(lengths, key=lambda row: row["sessions"])
    longest = max(rows, key=lambda row: row["longest_ms"])
    found = (
        f"{units.many(total, 'session')} of {key}, with gaps of up to {gap}; "
        f"{units.percent(usual['share'])} of them are {usual['length']}. The longest of the busiest "
        f"{units.many(len(rows), 'key')} lasted {units.duration(longest['longest_ms'])}: {longest['key']}."
    )
    charts = [
        bars(
            "session-lengths",
            "Length of sessions",
            lengths,
            label="length",
            value="sessions",
            note=f"Sessions of all keys; a session ends after {gap} without a message",
        )
    ]
    lasting = [row for row in rows if row["longest_ms"] > 0]
    if lasting:
        others = f"; {len(rows) - len(lasting):,} more keys have no session of two messages"
        charts.append(
            ranges(
                "sessions",
                "Sessions of the busiest keys",
                lasting,
                label="key",
                points=("p50_ms", "p95_ms", "longest_ms"),
                limit=KEYS_MAX,
                note="p50, p95 and the longest; logarithmic" + others * (len(lasting) < len(rows)),
            )
        )
    tables = [Table("Busiest keys", _KEYS, rows), Table("Lengths of sessions", _LENGTHS, lengths)]
    return Section("Sessions", summary=found, charts=charts, tables=tables)
