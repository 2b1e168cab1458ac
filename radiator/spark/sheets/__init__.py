"""Sheets: each answers one question about what was said, with a table, pictures and JSON.

``SHEETS`` is the table of them, in the order in which a page shows them: the command line, the documents and the tests
go through it. It imports nothing: ``load`` does, so asking which sheets there are needs no pyspark. To add one: a
module with a ``SHEET`` (see ``work.py``), a line here, a line in docs/spark.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from radiator.errors import ConfigError

if TYPE_CHECKING:
    from radiator.spark.sheets.work import Sheet


class Entry(NamedTuple):
    home: str  # the module whose SHEET it is
    question: str
    takes: tuple[str, ...] = ()  # options beyond those that every sheet takes, as ``options.Options`` calls them


ALL = "all"
SHEETS: Mapping[str, Entry] = {
    "traffic": Entry("radiator.spark.sheets.traffic", "How much came, where and when?", ("every", "by")),
    "latency": Entry("radiator.spark.sheets.latency", "How long was it on its way?", ("by",)),
    "lateness": Entry("radiator.spark.sheets.lateness", "How late and out of order do events come?", ("every", "by")),
    "top": Entry("radiator.spark.sheets.top", "Which tags, keys and senders are frequent?", ("limit", "key", "sender")),
    "sessions": Entry(
        "radiator.spark.sheets.sessions", "How often is each key active, for how long?", ("key", "gap", "limit")
    ),
    "dead-letters": Entry(
        "radiator.spark.sheets.dead_letters", "What was given up, where, and why?", ("every", "key", "limit")
    ),
    "integrity": Entry("radiator.spark.sheets.integrity", "Is every record there, once?"),
    "lag": Entry("radiator.spark.sheets.lag", "Who was how far behind, and is it growing?", ("every", "samples")),
    "compare": Entry(
        "radiator.spark.sheets.compare",
        "What is different from the time before?",
        ("shift", "with_start", "with_until", "by"),
    ),
}
COMMON = ("destination", "start", "until")  # what every sheet takes


def chosen(names: Iterable[str] | None) -> list[str]:
    """The sheets that are meant by ``names``, in the order of the page; None and "all" are all of them."""
    wanted = set(names or (ALL,))
    unknown = sorted(wanted - {*SHEETS, ALL})
    if unknown:
        raise ConfigError(f"there is no sheet {', '.join(unknown)}: expected {', '.join(SHEETS)} or {ALL}")
    return [name for name in SHEETS if name in wanted or ALL in wanted]


def load(name: str) -> Sheet:
    sheet: Sheet = import_module(SHEETS[name].home).SHEET
    return sheet
