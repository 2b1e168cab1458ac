"""List the sections of a report. Each answers one question about the log, with a table, charts and JSON.

``SHEETS`` has them in the order of the page; the command line, the documentation and the tests iterate over it. It
imports nothing, so listing the sections needs no pyspark; ``load`` imports a section. To add one: a module with a
``SHEET`` (see ``work.py``), a line here, and a line in docs/spark.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from radiator.errors import ConfigError

if TYPE_CHECKING:
    from radiator.spark.sheets.work import Sheet


class Entry(NamedTuple):
    """A section.

    Attributes:
        home: The module with its SHEET.
        question: The question that it answers.
        takes: The fields of ``options.Options`` that it uses, beside COMMON.
    """

    home: str
    question: str
    takes: tuple[str, ...] = ()


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
COMMON = ("destination", "start", "until")  # options of every section


def chosen(names: Iterable[str] | None) -> list[str]:
    """Return names of sections in the order of the page.

    Args:
        names: Names of sections; None and ``all`` are all of them.

    Raises:
        ConfigError: A name does not exist.

    Example:
        >>> chosen(["latency", "traffic"])
        ['traffic', 'latency']
    """
    wanted = set(names or (ALL,))
    unknown = sorted(wanted - {*SHEETS, ALL})
    if unknown:
        raise ConfigError(f"there is no sheet {', '.join(unknown)}: expected {', '.join(SHEETS)} or {ALL}")
    return [name for name in SHEETS if name in wanted or ALL in wanted]


def load(name: str) -> Sheet:
    """Import a section.

    Args:
        name: A key of SHEETS.

    Raises:
        KeyError: The name does not exist.
    """
    sheet: Sheet = import_module(SHEETS[name].home).SHEET
    return sheet
