"""Build the top section of a page with several sections.

It shows the log in a few numbers, from the answers of the other sections.
"""

from __future__ import annotations

from radiator.spark import units
from radiator.spark.page import Field, Section, Table, Tile
from radiator.spark.sections.options import Options
from radiator.spark.sections.part import Answers, span

TOP = 25  # destinations in the open table; a folded table has all


def _fields(options: Options) -> tuple[Field, ...]:
    return (
        Field("destination", options.what),
        Field("messages", "messages", "count"),
        Field("share", "share", "share"),
        Field("bytes", "bytes", "size"),
        Field("first_received", "first received", "moment"),
        Field("last_received", "last received", "moment"),
        Field("first_event", "first event", "moment", page_only=True),
        Field("last_event", "last event", "moment", page_only=True),
    )


def section(answers: Answers, options: Options) -> Section:
    """Return the section.

    Args:
        answers: The answers, with ``totals``, and ``integrity`` if it was queried.
        options: The options of the report.
    """
    totals, integrity = answers["totals"], answers.get("integrity")
    if not totals:
        others = answers.get("left_out")
        empty = "The store is empty." if not others else "No message is left for the report."
        return Section("Overview", summary="No message was selected." if options.described() else empty)
    width, what = span(totals), options.what + "s" * (len(totals) != 1)
    messages = sum(row["messages"] for row in totals)
    rate = messages / max(width.total_seconds(), 1.0)
    tiles = [
        Tile(units.count(messages), "message" + "s" * (messages != 1)),
        Tile(units.size(sum(row["bytes"] for row in totals)), "in bodies"),
    ]
    if integrity is not None:  # counts whole partitions, whatever destinations are chosen
        on_disk = sum(row["on_disk"] for row in integrity)
        partitions = units.many(len(integrity), "partition")
        tiles += [Tile(units.size(on_disk), f"on disk in {partitions}, with headers")] if on_disk else []
    tiles.append(Tile(f"{len(totals):,}", what))
    if width:
        tiles.append(Tile(units.duration(width.total_seconds() * 1000), f"from first to last, {units.rate(rate)}"))
    if integrity is not None:
        missing = sum(row["missing"] for row in integrity)
        duplicates = sum(row["duplicates"] for row in integrity)
        whole = not missing and not duplicates
        if whole:
            tiles.append(Tile("complete", "every offset checked", "good"))
        else:
            tiles.append(
                Tile(units.count(missing or duplicates), f"offsets {'missing' if missing else 'twice'}", "bad")
            )
    fields = _fields(options)
    tables = [
        Table(
            f"{options.what}s".capitalize() if len(totals) <= TOP else f"Busiest {options.what}s", fields, totals[:TOP]
        )
    ]
    if len(totals) > TOP:
        tables.append(Table(f"All {options.what}s", fields, totals, rows_max=2000, folded=True))
    return Section("Overview", tiles=tiles, tables=tables)
