"""Show dead letters: cause and origin, time, number of deliveries and age."""

from __future__ import annotations

from collections import Counter

from radiator.spark import units
from radiator.spark.charts import bars, stacked
from radiator.spark.jobs import JOBS, dead_letter_words, key_columns
from radiator.spark.labels import shortened
from radiator.spark.page import Field, Section, Table
from radiator.spark.sections.options import Options
from radiator.spark.sections.part import Answers, Rows
from radiator.spark.sections.work import Again, Work

BARS_MAX = 15
PIECES = 40  # time buckets: letters are few, and more buckets would be almost empty
SAID_LETTERS = 200  # characters of a value in a sentence; the table has all of it
SHOWN_MAX = 3  # findings with a line of their own
_ANSWERS = ("dead_letters", "dead_letters_over_time", "deliveries_of_dead_letters", "dead_letter_words")
ERROR = "error"  # the header with the error text, unless --key names another
CAUSES = {
    "max-deliveries": "too many deliveries",
    "rejected": "rejected",
    "expired": "expired",
    "unacked": "consumer left",
}


def _letters(options: Options) -> tuple[Field, ...]:
    return (
        Field("cause", "cause"),
        Field("origin", "origin"),
        Field("subscription", "subscription"),
        Field("destination", "destination"),
        Field("messages", "messages", "count"),
        Field("first_moved", "first", "moment", page_only=True),
        Field("last_moved", "last", "moment"),
        Field("deliveries_max", "deliveries", "count"),
        Field("age_p50_ms", "age p50", "duration"),
        Field("age_max_ms", "age max", "duration", page_only=True),
        Field("repeated", "before", "count", page_only=True),
    )


_WORDS = (
    Field("cause", "cause"),
    Field("origin", "origin"),
    Field("value", "value"),
    Field("messages", "messages", "count"),
)
_DELIVERIES = (
    Field("cause", "cause"),
    Field("deliveries", "deliveries", "count"),
    Field("messages", "messages", "count"),
)


def run(work: Work) -> Answers:
    """Query the log and return the answers of the section ``dead-letters``.

    Args:
        work: The part of the log, and the jobs.

    Raises:
        LostRecords: Records cannot be read, and the report fails on data loss.
    """
    found = work.job("dead_letters", again=Again.AS_IT_IS)
    if not found:
        return dict.fromkeys(_ANSWERS, found)
    width = max(row["last_moved"] for row in found) - min(row["first_moved"] for row in found)
    _, every = work.options.width(width, PIECES, of_clients=True)
    key = work.options.key or ERROR
    columns = dict.fromkeys([*JOBS["dead_letter_words"].columns, *key_columns(key)])
    words = dead_letter_words(work.frame(*columns), key=key, limit=work.options.limit)
    return {
        "dead_letters": found,
        "dead_letters_over_time": work.job("dead_letters_over_time", again=Again.AS_IT_IS, every=every),
        "deliveries_of_dead_letters": work.job("deliveries_of_dead_letters", again=Again.AS_IT_IS),
        "dead_letter_words": work.rows(words, "dead_letter_words"),
    }


def section(answers: Answers, options: Options) -> Section:
    """Return the section ``dead-letters`` of the page.

    Args:
        answers: The result of ``run``.
        options: The options of the report.
    """
    rows = answers["dead_letters"]
    if not rows:
        return Section("Dead letters", summary="No dead letter is in the log.", empty=True)
    shown, over_time, deliveries, words = (
        [{**row, "cause": _words(row["cause"])} for row in answers[name]] for name in _ANSWERS
    )
    width = max(row["last_moved"] for row in rows) - min(row["first_moved"] for row in rows)
    seconds, every = options.width(width, PIECES, of_clients=True)
    charts = [
        bars(
            "dead-letters",
            "Dead letters by origin",
            [{**row, "label": _place(row)} for row in shown],
            label="label",
            value="messages",
            series="cause",
            limit=BARS_MAX,
            note=f"Dead letters that are still in the log{_rest(rows)}",
        )
    ]
    if len({row["start"] for row in over_time}) > 1:
        charts.append(
            stacked(
                "dead-letters-time",
                "Dead letters over time",
                over_time,
                x="start",
                series="cause",
                value="messages",
                order=list(dict.fromkeys(row["cause"] for row in shown)),
                width_seconds=seconds,
                label=f"messages per {every.removeprefix('1 ')}",
                note="By the time of dead-lettering, UTC",
            )
        )
    tables = [
        Table("Dead letters", _letters(options), shown),
        *([Table(f"Values of {options.key or ERROR}", _WORDS, words)] if words else []),
        Table("Deliveries before dead-lettering", _DELIVERIES, deliveries, folded=True),
    ]
    text = (
        "Replayed messages are no longer dead letters, and settled ones are removed in time: the log still has these. "
        "The age is how long the broker had the message; where this is unknown, it is from the event, or else from the "
        "transmission."
    )
    return Section(
        "Dead letters",
        text,
        summary=_summary(rows, words),
        findings=_findings(shown),
        charts=charts,
        tables=tables,
    )


def _words(cause: str) -> str:
    return CAUSES.get(cause, cause) or "no reason given"


def _rest(rows: Rows) -> str:
    return f"; {len(rows) - BARS_MAX:,} origins with fewer are not shown" if len(rows) > BARS_MAX else ""


def _findings(rows: Rows) -> list[str]:
    """Return a line for each origin and cause; if there are many, the last line counts the rest."""
    shown = rows if len(rows) <= SHOWN_MAX + 1 else rows[:SHOWN_MAX]
    lines = [f"{units.many(row['messages'], 'dead letter')} from {_place(row)}: {row['cause']}" for row in shown]
    rest = sum(row["messages"] for row in rows[len(shown) :])
    return [*lines, f"and {units.many(rest, 'dead letter')} more"] if rest else lines


def _place(row: dict[str, object]) -> str:
    of = f" ({row['subscription']})" if row["subscription"] else ""
    return f"{_origin(row)}{of}"


def _origin(row: dict[str, object]) -> str:
    """Return the origin; any client may have sent a message with ``dlq-reason`` and without an origin."""
    return str(row["origin"] or "an unknown origin")


def _summary(rows: Rows, words: Rows) -> str:
    total, first = sum(row["messages"] for row in rows), rows[0]
    part = units.percent(first["messages"] / total)
    most = f"most, {part}, are" if first["messages"] * 2 > total else f"the largest part, {part}, is"
    if first["messages"] == total:
        most = "it is" if total == 1 else "all are"
    said = [f"{units.many(total, 'dead letter')}; {most} from {_origin(first)}: {_words(first['cause'])}."]
    said.append(f"The last was moved at {units.moment(max(row['last_moved'] for row in rows))}.")
    counts: Counter[str] = Counter()
    for row in words:
        counts[row["value"]] += row["messages"]
    said += [
        f"The most frequent value: {shortened(value, SAID_LETTERS)} ({letters:,})."
        for value, letters in counts.most_common(1)
    ]
    repeated = sum(row["repeated"] for row in rows)
    if repeated:
        said.append(f"{units.many(repeated, 'message')} had been dead-lettered before.")
    return " ".join(said)
