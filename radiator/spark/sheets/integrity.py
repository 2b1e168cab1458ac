"""The sheet ``integrity``: is every offset there, once, and if not, why? Whole partitions are looked at, whichever
destinations were asked for: of a partition that destinations share, those of one alone have gaps.

``missing`` are offsets that are lost. What retention has removed, and what was settled or compacted away, is counted
beside it, where the files themselves are read (``absent``): offsets alone do not tell one from the other.
"""

from __future__ import annotations

from collections import Counter

from radiator.spark import units
from radiator.spark.jobs.damage import LEFT_OUT, LOST, REMOVED
from radiator.spark.page import Field, Section, Table
from radiator.spark.sheets.options import Options
from radiator.spark.sheets.work import Answers, Row, Rows, Sheet, Work

TOLD_MAX = 5  # partitions that are told of by name
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
_ABSENT = (
    *_GAPS,
    Field("why", "why"),
    Field("reason", "reason"),
    Field("path", "file", page_only=True),
    Field("position", "byte", "count", page_only=True),
)


def run(work: Work) -> Answers:
    everything = {"destination": None}
    found = work.job("integrity", selection=everything)
    if work.absent is None or work.options.start is not None or work.options.until is not None:
        missing = any(row["missing"] for row in found)
        rows = [{**row, "removed": 0, "left_out": 0} for row in found]
        answers = {"integrity": rows, "gaps": work.job("gaps", selection=everything) if missing else [], "absent": []}
    else:
        absent = work.rows(work.absent(), "absent")
        answers = {"integrity": _explained(found, absent), "gaps": [], "absent": absent}
    for row in answers["integrity"]:
        row["on_disk"] = work.sizes.get(row["partition"], 0)
    return answers


def _explained(found: Rows, absent: Rows) -> Rows:
    """The partitions with what each lacks, by its reason; also those of which nothing is left."""
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
    rows = answers["integrity"]
    text = (
        "Offsets are given out without a gap and never again, so every offset from the first on must be there once. "
        "Every batch that was read has passed its crc. What retention has removed, and what was settled or replaced "
        "by a later message of its key, is left out on purpose."
    )
    tables = [Table("Partitions", _INTEGRITY, rows)]
    if answers["gaps"]:
        tables.append(Table("Missing ranges", _GAPS, answers["gaps"]))
    lost = [row for row in answers["absent"] if row["why"] == LOST]
    if lost:
        tables.append(Table("Missing ranges", _ABSENT, lost))
    if len(lost) < len(answers["absent"]):
        rest = [row for row in answers["absent"] if row["why"] != LOST]
        tables.append(Table("Removed on purpose", _ABSENT, rest, folded=True))
    out = [f"{units.many(row['missing'], 'offset')} missing in {row['partition']}" for row in rows if row["missing"]]
    out += [
        f"{units.many(row['duplicates'], 'record')} twice in {row['partition']}" for row in rows if row["duplicates"]
    ]
    return Section("Integrity", text, found=_findings(rows, lost), stands_out=_brief(out), tables=tables)


def _brief(lines: list[str]) -> list[str]:
    return lines if len(lines) <= TOLD_MAX else [*lines[:TOLD_MAX], f"and {len(lines) - TOLD_MAX:,} partitions more"]


def _findings(rows: Rows, lost: Rows) -> str:
    missing, duplicates, messages, removed, left_out = (
        sum(row[name] for row in rows) for name in ("missing", "duplicates", "messages", "removed", "left_out")
    )
    records, partitions = units.many(messages, "record"), units.many(len(rows), "partition")
    if missing or duplicates:
        found = f"Not whole: {missing:,} offsets missing, {duplicates:,} there twice, beside {records} in {partitions}."
        said = [found]
        said += [f"In {row['partition']}: {row['reason']}." for row in lost[:1]]
    else:
        said = [f"Whole: {records} in {partitions}, every offset there once."]
    if removed:
        said.append(f"{removed:,} older ones were removed by retention.")
    if left_out:
        said.append(f"{left_out:,} were settled, or replaced by later ones, and taken out.")
    return " ".join(said)


SHEET = Sheet(run, section)
