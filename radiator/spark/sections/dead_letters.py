"""Show dead letters: cause and origin, time, number of deliveries and age."""

from __future__ import annotations

from collections import Counter

from radiator.spark import units
from radiator.spark.charts import bars, stacked
from radiator.spark.jobs import JOBS, dead_letter_words, key_columns
from radiator.spark.labels import shortened
from radiator.spark.page import Field, Section, Table
from radiator.spark.sections.options import Options
from radiator.spark.sections.work import Again, Answers, Rows, Work

BARS_MAX = 15
PIECES = 40  # time buckets: letters are few, and more buckets would be almost empty
SAID_LETTERS = 200  # characters of a value in a sentence; the table has all of it
SHOWN_MAX = 3  # findings with a line of their own
_ANSWERS = ("dead_letters", "dead_letters_over_time", "deliveries_of_dead_letters", "dead_letter_words")
ERROR = "error"  # the header with the error text, unless --key names another
CAUSES = {
    "max-deliveries": "delivered too often",
    "rejected": "rejected",
    "expired": "expired",
    "unacked": "consumer gone",
}


def _letters(options: Options) -> tuple[Field, ...]:
    return (
        Field("cause", "cause"),
        Field("origin", "was in"),
        Field("subscription", "of"),
        Field("destination", "lies in"),
        Field("letters", "letters", "count"),
        Field("first_died", "first", "moment", page_only=True),
        Field("last_died", "last", "moment"),
        Field("deliveries_max", "deliveries", "count"),
        Field("age_p50_ms", "age p50", "duration"),
        Field("age_max_ms", "age max", "duration", page_only=True),
        Field("repeated", "died before", "count", page_only=True),
    )


_WORDS = (
    Field("cause", "cause"),
    Field("origin", "was in"),
    Field("value", "says"),
    Field("letters", "letters", "count"),
)
_DELIVERIES = (
    Field("cause", "cause"),
    Field("deliveries", "delivered so often", "count"),
    Field("letters", "letters", "count"),
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
    width = max(row["last_died"] for row in found) - min(row["first_died"] for row in found)
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
        return Section("Dead letters", found="No dead letter is in the log.", nothing=True)
    shown, over_time, deliveries, words = (
        [{**row, "cause": _words(row["cause"])} for row in answers[name]] for name in _ANSWERS
    )
    width = max(row["last_died"] for row in rows) - min(row["first_died"] for row in rows)
    seconds, every = options.width(width, PIECES, of_clients=True)
    charts = [
        bars(
            "dead-letters",
            "Dead letters by where they were",
            [{**row, "label": _place(row)} for row in shown],
            label="label",
            value="letters",
            series="cause",
            limit=BARS_MAX,
            note=f"Messages that the log still holds as dead letters{_rest(rows)}",
        )
    ]
    if len({row["start"] for row in over_time}) > 1:
        charts.append(
            stacked(
                "dead-letters-time",
                "When they died",
                over_time,
                x="start",
                series="cause",
                value="letters",
                order=list(dict.fromkeys(row["cause"] for row in shown)),
                width_seconds=seconds,
                label=f"letters per {every.removeprefix('1 ')}",
                note="By the time at which the broker gave them up, UTC",
            )
        )
    tables = [
        Table("Dead letters", _letters(options), shown),
        *([Table(f"What their {options.key or ERROR} says", _WORDS, words)] if words else []),
        Table("Deliveries before death", _DELIVERIES, deliveries, folded=True),
    ]
    text = (
        "What was replayed is no dead letter any more, and what was settled is removed in time: these are those that "
        "the log still holds. The age is how long the broker had had it; of letters that do not say that, it counts "
        "from the event, or else from the transmission."
    )
    return Section(
        "Dead letters",
        text,
        found=_findings(rows, words),
        stands_out=_stands_out(shown),
        charts=charts,
        tables=tables,
    )


def _words(cause: str) -> str:
    return CAUSES.get(cause, cause) or "no reason given"


def _rest(rows: Rows) -> str:
    return f"; {len(rows) - BARS_MAX:,} places with fewer of them are not shown" if len(rows) > BARS_MAX else ""


def _stands_out(rows: Rows) -> list[str]:
    """Return a line for each origin and cause; if there are many, the last line counts the rest."""
    shown = rows if len(rows) <= SHOWN_MAX + 1 else rows[:SHOWN_MAX]
    lines = [f"{units.many(row['letters'], 'letter')} of {_place(row)}: {row['cause']}" for row in shown]
    rest = sum(row["letters"] for row in rows[len(shown) :])
    return [*lines, f"and {units.many(rest, 'letter')} more"] if rest else lines


def _place(row: dict[str, object]) -> str:
    of = f" ({row['subscription']})" if row["subscription"] else ""
    return f"{_origin(row)}{of}"


def _origin(row: dict[str, object]) -> str:
    """Return the origin; any client may have sent a message with ``dlq-reason`` and without an origin."""
    return str(row["origin"] or "a place that they do not name")


def _findings(rows: Rows, words: Rows) -> str:
    total, first = sum(row["letters"] for row in rows), rows[0]
    part = units.percent(first["letters"] / total)
    most = f"most, {part}, were" if first["letters"] * 2 > total else f"the largest part, {part}, was"
    if first["letters"] == total:
        most = "it was" if total == 1 else "all were"
    said = [f"{units.many(total, 'dead letter')}; {most} in {_origin(first)}: {_words(first['cause'])}."]
    said.append(f"The last died at {units.moment(max(row['last_died'] for row in rows))}.")
    counts: Counter[str] = Counter()
    for row in words:
        counts[row["value"]] += row["letters"]
    said += [
        f"Most often said: {shortened(value, SAID_LETTERS)} ({letters:,})." for value, letters in counts.most_common(1)
    ]
    repeated = sum(row["repeated"] for row in rows)
    if repeated:
        said.append(f"{units.many(repeated, 'letter')} had been dead before.")
    return " ".join(said)
