"""Show the lag of cursors over time, from the samples in the log itself."""

from __future__ import annotations

from collections.abc import Iterable

from radiator.spark import units
from radiator.spark.charts import lines
from radiator.spark.jobs import JOBS, lag
from radiator.spark.jobs.left_out import DEAD_LETTER
from radiator.spark.page import Field, Section, Table
from radiator.spark.sections.options import SAMPLES, Options
from radiator.spark.sections.part import Answers, Row, Rows
from radiator.spark.sections.work import Work

DRAWN_MAX = 7  # cursors in the chart: the number of colours
SHOWN_MAX, MORE = 5, "and {:,} more cursors"  # cursors with a line of their own
STILL_SHARE = 0.1  # a cursor with a lag that settles nothing for this share of the samples is stuck
GROWN_MIN = 10  # messages: a smaller growth is no trend
_LAG = (
    Field("cursor", "cursor"),
    Field("partition", "partition"),
    Field("lag", "lag", "count"),
    Field("lag_max", "largest", "count"),
    Field("max_at", "at", "moment", page_only=True),
    Field("lag_avg", "average", "count"),
    Field("slope", "growth", "change"),
    Field("took", "settled", "rate"),
    Field("still_since", "nothing settled since", "moment"),
    Field("age_ms", "oldest age", "duration"),
    Field("in_flight", "in flight", "count"),
    Field("members", "members", "count"),
)
_WAITING = (
    Field("cursor", "cursor"),
    Field("partition", "partition"),
    Field("lag", "unacknowledged", "count"),
    Field("oldest", "oldest received", "moment"),
)


def run(work: Work) -> Answers:
    """Query the log and return the answers of the section ``lag``.

    Args:
        work: The part of the log, and the jobs.

    Raises:
        LostRecords: Records cannot be read, and the report fails on data loss.
    """
    samples = {"destination": work.options.samples}
    if work.options.samples == SAMPLES and work.never_held(SAMPLES):  # the default topic was never used: no warning
        return {"lag": [], "lag_over_time": [], "waiting": _waiting(work)}
    body = work.frame(*JOBS["lag"].columns, destination=work.options.samples)
    log = work.frame("partition", "offset", "receive_ns", destination=None, start_time=None)
    found = work.rows(lag(body, log), "lag")
    answers: Answers = {"lag": found, "lag_over_time": []}
    if not found:
        answers["waiting"] = _waiting(work)
    if found:
        answers["left_out"] = work.left_out()
        width = max(row["last"] for row in found) - min(row["first"] for row in found)
        every = work.options.width(width, of_clients=True)[1]
        answers["lag_over_time"] = work.job("lag_over_time", selection=samples, every=every)
    return answers


def section(answers: Answers, options: Options) -> Section:
    """Return the section ``lag`` of the page.

    Args:
        answers: The result of ``run``.
        options: The options of the report.
    """
    rows = answers["lag"]
    if not rows:
        where = options.samples
        found = (
            f"The topic {where} has no samples, so the lag of the past is unknown. To record it: "
            f"`radiator cursors sample --to {where} --every 30s`."
        )
        return _waits(answers.get("waiting", []), found)
    dead_letter_only = {row["destination"] for row in answers.get("left_out", ()) if row["why"] == DEAD_LETTER}
    worst = _worst(answers["lag_over_time"])
    drawn = [row for row in answers["lag_over_time"] if row["cursor"] in worst]
    drawn.sort(key=lambda row: worst.index(row["cursor"]))
    more = f"; {len(_cursors(rows)) - DRAWN_MAX:,} others had a smaller lag" if len(_cursors(rows)) > DRAWN_MAX else ""
    chart = lines(
        "lag",
        "Lag of cursors",
        drawn,
        x="start",
        y="lag",
        series="cursor",
        label="messages",
        limit=DRAWN_MAX,
        note=f"Messages that were stored and not settled, the maximum of each time bucket, UTC{more}",
    )
    text = "Growth is the slope of a line through all samples. The age of the oldest message is from the last sample."
    table = Table("Cursors", _LAG, rows)
    return Section(
        "Lag",
        text,
        summary=_summary(rows),
        findings=_findings(rows, dead_letter_only),
        charts=[chart],
        tables=[table],
    )


def _waiting(work: Work) -> Rows:
    """Return the cursors whose messages wait, except those of dead-letter queues: these wait for a person."""
    if not work.waiting:
        return []
    dead_letter_only = {row["destination"] for row in work.left_out() if row["why"] == DEAD_LETTER}
    return [row for row in work.waiting if row["cursor"].removeprefix("queue:") not in dead_letter_only]


def _waits(rows: Rows, no_samples: str) -> Section:
    """Return the section without samples: how far behind the cursors are now."""
    if not rows:
        return Section("Lag", summary=no_samples, empty=True)
    found: dict[str, Row] = {}
    for row in rows:
        one = found.setdefault(row["cursor"], {**row, "lag": 0})
        one["lag"] += row["lag"]
        one["oldest"] = min(one["oldest"], row["oldest"])
    findings = [
        f"{row['cursor']}: {units.many(row['lag'], 'message')} unacknowledged, the oldest received at "
        f"{units.moment(row['oldest'])}"
        for row in sorted(found.values(), key=lambda row: -row["lag"])
    ]
    return Section(
        "Lag", no_samples, summary=f"{units.many(len(found), 'cursor')} with unacknowledged messages.",
        findings=units.first(findings, SHOWN_MAX, MORE), tables=[Table("Unacknowledged messages", _WAITING, rows)],
    )  # fmt: skip


def _cursors(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["cursor"] for row in rows))


def _worst(rows: Rows) -> list[str]:
    most: dict[str, int] = {}
    for row in rows:
        most[row["cursor"]] = max(most.get(row["cursor"], 0), row["lag"])
    return sorted(most, key=lambda name: (-most[name], name))[:DRAWN_MAX]


def _summary(rows: Rows) -> str:
    last, most = max(row["last"] for row in rows), max(rows, key=lambda row: row["lag_max"])
    furthest = f"{most['cursor']}, {units.many(most['lag_max'], 'message')} at {units.moment(most['max_at'])}"
    behind = sum(row["lag"] > 0 for row in rows)
    now = f"{units.many(behind, 'cursor')} of {len(rows):,} with a lag" if behind else "No cursor had a lag"
    return f"{now} at the last sample, {units.moment(last)}" + (
        f"; the maximum: {furthest}." if most["lag_max"] else "."
    )


def _findings(rows: Rows, dead_letter_only: set[str]) -> list[str]:
    """Return a line for each cursor that does not advance or whose lag grows, with its partitions combined."""
    still = _by_name(row for row in rows if _stands_still(row))
    falling = _by_name(row for row in rows if _falls_behind(row) and row["cursor"] not in still)
    worst = sorted(
        [*still.values(), *falling.values()], key=lambda row: (row["destination"] in dead_letter_only, -row["lag"])
    )
    findings = [_remark(row, row["cursor"] in still, row["destination"] in dead_letter_only) for row in worst]
    return units.first(findings, SHOWN_MAX, MORE)


def _by_name(rows: Iterable[Row]) -> dict[str, Row]:
    """Yield the partitions of each cursor as one row."""
    found: dict[str, Row] = {}
    for row in rows:
        one = found.setdefault(row["cursor"], {**row, "lag": 0, "slope": 0.0, "partitions": 0, "age_ms": None})
        one["lag"] += row["lag"]
        one["slope"] += row["slope"] or 0.0
        one["partitions"] += 1
        one["members"] = max((each for each in (one["members"], row["members"]) if each is not None), default=None)
        one["still_since"] = max(filter(None, (one["still_since"], row["still_since"])), default=None)
        one["age_ms"] = max((age for age in (one["age_ms"], row["age_ms"]) if age is not None), default=None)
    return found


def _stands_still(row: Row) -> bool:
    watched, still = (row["last"] - row["first"]).total_seconds(), row["still_since"]
    return bool(row["lag"] and still and (row["last"] - still).total_seconds() >= STILL_SHARE * watched > 0)


def _falls_behind(row: Row) -> bool:
    watched = (row["last"] - row["first"]).total_seconds()
    grown = bool(row["slope"] and row["slope"] * watched >= max(row["lag_avg"], GROWN_MIN))
    return grown and bool(row["lag"] >= row["lag_avg"]) and not _stands_still(row)


def _remark(row: Row, still: bool, only_dead_letters: bool) -> str:
    where = f" in {row['partitions']:,} partitions" if row["partitions"] > 1 else ""
    if only_dead_letters:  # a dead-letter queue needs no consumer; the section dead-letters reports its contents
        said = f"{units.many(row['lag'], 'dead letter')} in {row['destination']}{where} are not settled"
        return said + (f", the oldest for {units.duration(row['age_ms'])}" if row["age_ms"] is not None else "")
    parts = [f"{row['cursor']} has a lag of {units.many(row['lag'], 'message')}{where}"]
    if still:
        parts.append(f"and has settled nothing since {units.moment(row['still_since'])}")
        parts += ["it has no consumers"] if row["members"] == 0 else []
    else:
        parts.append(f"and it grows by {units.rate(row['slope'])}")
    if row["age_ms"] is not None:
        parts.append(f"the oldest message is {units.duration(row['age_ms'])} old")
    return f"{parts[0]} {', '.join(parts[1:])}"
