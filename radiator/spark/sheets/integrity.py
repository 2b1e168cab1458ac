"""The sheet ``integrity``: is every offset there, once? Whole partitions are looked at, whichever destinations were
asked for: of a partition that destinations share, those of one alone have gaps."""

from __future__ import annotations

from radiator.spark import units
from radiator.spark.page import Field, Section, Table
from radiator.spark.sheets.options import Options
from radiator.spark.sheets.work import Answers, Sheet, Work

TOLD_MAX = 5  # partitions that are told of by name
_INTEGRITY = (
    Field("partition", "partition"),
    Field("messages", "messages", "count"),
    Field("first_offset", "first offset", "count"),
    Field("last_offset", "last offset", "count"),
    Field("missing", "missing", "count"),
    Field("duplicates", "duplicates", "count"),
    Field("on_disk", "on disk", "size"),
)
_GAPS = (
    Field("partition", "partition"),
    Field("first_missing", "first missing", "count"),
    Field("last_missing", "last missing", "count"),
    Field("records", "records", "count"),
)


def run(work: Work) -> Answers:
    everything = {"destination": None}
    found = work.job("integrity", selection=everything)
    for row in found:
        row["on_disk"] = work.sizes.get(row["partition"], 0)
    missing = any(row["missing"] for row in found)
    return {"integrity": found, "gaps": work.job("gaps", selection=everything) if missing else []}


def section(answers: Answers, options: Options) -> Section:
    rows, gaps = answers["integrity"], answers["gaps"]
    missing, duplicates = (sum(row[name] for row in rows) for name in ("missing", "duplicates"))
    messages = sum(row["messages"] for row in rows)
    records, partitions = units.many(messages, "record"), units.many(len(rows), "partition")
    out = [f"{units.many(row['missing'], 'offset')} missing in {row['partition']}" for row in rows if row["missing"]]
    out += [
        f"{units.many(row['duplicates'], 'record')} twice in {row['partition']}" for row in rows if row["duplicates"]
    ]
    if out:
        found = f"Not whole: {missing:,} offsets missing, {duplicates:,} there twice, beside {records} in {partitions}."
    else:
        found = f"Whole: {records} in {partitions}, every offset there once."
    text = (
        "Offsets are given out without a gap and never again, so every offset between the first and the last must be "
        "there once. Every batch that was read has passed its crc."
    )
    tables = [Table("Partitions", _INTEGRITY, rows)]
    if gaps:
        tables.append(Table("Missing ranges", _GAPS, gaps))
    return Section("Integrity", text, found=found, stands_out=_brief(out), tables=tables)


def _brief(lines: list[str]) -> list[str]:
    return lines if len(lines) <= TOLD_MAX else [*lines[:TOLD_MAX], f"and {len(lines) - TOLD_MAX:,} partitions more"]


SHEET = Sheet(run, section)
