"""Show whether every offset exists once, and the reason for those that do not.

Whole partitions are checked, whatever destinations are chosen: in a shared partition the offsets of one destination
have gaps.

``missing`` are lost offsets. Offsets that retention removed, or that were settled or compacted away, are counted
separately: files and commits show the difference (``absent``), offsets alone do not. For a time window, and for an
archive, they show what is lost; other offsets without a record between the first and the last count as left out.
"""

from __future__ import annotations

from collections import Counter

from radiator.spark import units
from radiator.spark.jobs.damage import LEFT_OUT, LOST, REMOVED, WHY
from radiator.spark.page import Field, Section, Table
from radiator.spark.sections.options import Options
from radiator.spark.sections.part import Answers, Row, Rows
from radiator.spark.sections.work import Work

SHOWN_MAX, MORE = 5, "and {:,} more partitions"  # partitions with a line of their own
REPEATS_MAX = 100  # ids with a row of their own
_INTEGRITY = (
    Field("partition", "partition"),
    Field("messages", "messages", "count"),
    Field("first_offset", "first offset", "count"),
    Field("last_offset", "last offset", "count"),
    Field("missing", "missing", "count"),
    Field("duplicates", "duplicates", "count"),
    Field("removed", "removed", "count", page_only=True),
    Field("left_out", "left out", "count", page_only=True),
    Field("on_disk", "on disk", "size"),
)
_GAPS = (
    Field("partition", "partition"),
    Field("first_missing", "first missing", "count"),
    Field("last_missing", "last missing", "count"),
    Field("records", "records", "count"),
)
_REPEATS = (
    Field("destination", "destination"),
    Field("kind", "header"),
    Field("identity", "message id"),
    Field("messages", "stored", "count"),
    Field("first_received", "first", "moment"),
    Field("last_received", "last", "moment"),
    Field("first_offset", "first offset", "count", page_only=True),
    Field("last_offset", "last offset", "count", page_only=True),
)
_ABSENT = (
    *_GAPS,
    Field("why", "why"),
    Field("reason", "reason"),
    Field("path", "file", page_only=True),
    Field("position", "byte", "count", page_only=True),
)


def run(work: Work) -> Answers:
    """Query the log and return the answers of the section ``integrity``.

    Args:
        work: The part of the log, and the jobs.

    Raises:
        LostRecords: Records cannot be read, and the report fails on data loss.
    """
    everything = {"destination": None}
    found = work.job("integrity", selection=everything)
    if work.absent is None:
        missing = any(row["missing"] for row in found)
        rows = [{**row, "removed": 0, "left_out": 0} for row in found]
        answers = {"integrity": rows, "gaps": work.job("gaps", selection=everything) if missing else [], "absent": []}
    else:
        times = {"start_time": work.options.start, "end_time": work.options.until}
        window = {name: time for name, time in times.items() if time is not None}
        absent = work.rows(work.absent(**window), "absent")
        if window or work.archived:
            absent = _with_left_out(found, [row for row in absent if row["why"] != LEFT_OUT], bool(window))
        answers = {"integrity": _explained(found, absent), "gaps": [], "absent": absent}
    for row in answers["integrity"]:
        row["on_disk"] = work.sizes.get(row["partition"], 0)
    answers["repeats"] = work.job("repeats", limit=REPEATS_MAX)
    return answers


def _with_left_out(found: Rows, absent: Rows, window: bool) -> Rows:
    """Return ``absent`` with one more row for other offsets without a record.

    For a time ``window`` only ranges that touch it are returned.
    """
    spans = {row["partition"]: row for row in found}
    touching = [row for row in absent if not window or _touches(row, spans.get(row["partition"]))]
    for row in found:
        inside = sum(_inside(each, row) for each in touching if each["partition"] == row["partition"])
        if row["missing"] > inside:
            span = {"first_missing": row["first_offset"] + 1, "last_missing": row["last_offset"] - 1}
            touching.append(
                {"partition": row["partition"], "why": LEFT_OUT, **span, "records": row["missing"] - inside,
                 "path": None, "position": None, "reason": WHY[LEFT_OUT]}
            )  # fmt: skip
    return sorted(touching, key=lambda row: (row["partition"], row["first_missing"]))


def _touches(absent: Row, span: Row | None) -> bool:
    """Return True if an absent range touches the window.

    If the window has no records, lost ranges near it count; removed ranges come before it.
    """
    if span is None:
        return bool(absent["why"] == LOST)
    return bool(
        absent["last_missing"] >= span["first_offset"] - 1 and absent["first_missing"] <= span["last_offset"] + 1
    )


def _inside(absent: Row, span: Row) -> int:
    first, last = max(absent["first_missing"], span["first_offset"]), min(absent["last_missing"], span["last_offset"])
    return max(int(last - first) + 1, 0)


def _explained(found: Rows, absent: Rows) -> Rows:
    """Return the partitions with the missing offsets of each by reason; also partitions without any record left."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in absent:
        counts[row["partition"], row["why"]] += row["records"]
    nothing: Row = {"messages": 0, "first_offset": None, "last_offset": None, "duplicates": 0}
    rows = {name: {"partition": name, **nothing} for name in sorted({row["partition"] for row in absent})}
    rows |= {row["partition"]: row for row in found}
    return [
        {**row, "missing": counts[name, LOST], "removed": counts[name, REMOVED], "left_out": counts[name, LEFT_OUT]}
        for name, row in sorted(rows.items())
    ]


def section(answers: Answers, options: Options) -> Section:
    """Return the section ``integrity`` of the page.

    Args:
        answers: The result of ``run``.
        options: The options of the report.
    """
    rows, repeats = answers["integrity"], answers.get("repeats", [])
    if not rows:
        return Section("Integrity", summary="No partition was selected.", empty=True)
    text = (
        "Offsets have no gaps and are never used again, so every offset from the first one on must exist exactly once. "
        "Every batch that was read has a correct crc. Messages that retention removed, that were settled, or that a "
        "later message of their key replaced do not count as missing."
    )
    tables = [Table("Partitions", _INTEGRITY, rows)]
    if answers["gaps"]:
        tables.append(Table("Missing ranges", _GAPS, answers["gaps"]))
    lost = [row for row in answers["absent"] if row["why"] == LOST]
    if lost:
        tables.append(Table("Missing ranges", _ABSENT, lost))
    if len(lost) < len(answers["absent"]):
        rest = [row for row in answers["absent"] if row["why"] != LOST]
        tables.append(Table("Removed by the broker", _ABSENT, rest, folded=True))
    if repeats:
        tables.append(Table("Stored again with the same message id", _REPEATS, repeats))
    out = [f"{units.many(row['missing'], 'offset')} missing in {row['partition']}" for row in rows if row["missing"]]
    out += [
        f"{units.many(row['duplicates'], 'record')} twice in {row['partition']}" for row in rows if row["duplicates"]
    ]
    return Section(
        "Integrity",
        text,
        summary=_summary(rows, lost),
        findings=units.first(out, SHOWN_MAX, MORE) + _again(repeats),
        tables=tables,
    )


def _again(repeats: Rows) -> list[str]:
    """Return a note about messages that their publishers call the same and that the broker stored more than once."""
    if not repeats:
        return []
    more = " or more" if len(repeats) == REPEATS_MAX else ""
    first = max(repeats, key=lambda row: row["messages"])
    said = f"{units.many(len(repeats), 'message')}{more} stored again with the same message id"
    return [f"{said}: {first['kind']} {first['identity']} exists {first['messages']:,} times in {first['destination']}"]


def _summary(rows: Rows, lost: Rows) -> str:
    missing, duplicates, messages, removed, left_out = (
        sum(row[name] for row in rows) for name in ("missing", "duplicates", "messages", "removed", "left_out")
    )
    records, partitions = units.many(messages, "record"), units.many(len(rows), "partition")
    if missing or duplicates:
        found = f"Incomplete: {units.many(missing, 'offset')} missing, {duplicates:,} twice, {records} in {partitions}."
        said = [found]
        said += [f"In {row['partition']}: {row['reason']}." for row in lost[:1]]
    else:
        said = [f"Complete: {records} in {partitions}, every offset once."]
    if removed:
        said.append(f"Retention removed {units.many(removed, 'older record')}.")
    if left_out:
        said.append(f"{units.many(left_out, 'settled or replaced record')} removed.")
    return " ".join(said)
