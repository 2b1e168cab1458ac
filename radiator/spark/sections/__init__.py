"""List the sections of a report. Each answers one question about the log, with a table, charts and JSON.

``SECTIONS`` has them in the order of the page; the command line, the documentation and the tests iterate over it. It
imports nothing, so listing the sections needs no pyspark; ``load`` imports a section. To add one: a module with ``run``
and ``section`` (see ``work.py`` and ``part.py``), a line here, and a line in docs/spark.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from radiator.errors import ConfigError


class Entry(NamedTuple):
    """A section.

    Attributes:
        question: The question that it answers.
        takes: The fields of ``options.Options`` that it uses, beside COMMON.
        spark: True if it queries Spark, which needs Java.
    """

    question: str
    takes: tuple[str, ...] = ()
    spark: bool = True


ALL = "all"
SECTIONS: Mapping[str, Entry] = {
    "traffic": Entry("How many messages came, where and when?", ("every", "by")),
    "latency": Entry("How long did messages take to the broker?", ("by",)),
    "lateness": Entry("How late and out of order do events come?", ("every", "by")),
    "top": Entry("Which tags, keys and senders are frequent?", ("limit", "key", "sender")),
    "sessions": Entry("How often is each key active, and for how long?", ("key", "gap", "limit")),
    "dead-letters": Entry("Which messages were dead-lettered, where and why?", ("every", "key", "limit")),
    "integrity": Entry("Does every record exist exactly once?"),
    "lag": Entry("How large is the lag of each cursor, and does it grow?", ("every", "samples")),
    "consumers": Entry("Who received the messages, how fast, how often and how evenly?", ("every", "limit"), False),
    "compare": Entry(
        "What has changed since an earlier time?",
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
    unknown = sorted(wanted - {*SECTIONS, ALL})
    if unknown:
        raise ConfigError(f"there is no section {', '.join(unknown)}: expected {', '.join(SECTIONS)} or {ALL}")
    return [name for name in SECTIONS if name in wanted or ALL in wanted]


def load(name: str) -> ModuleType:
    """Import and return the module of a section, with its functions ``run`` and ``section``.

    Args:
        name: A key of SECTIONS.
    """
    return import_module(f"{__name__}.{name.replace('-', '_')}")
