"""Names and patterns that the store has nothing for yet are no error, but may be slips: they are told on stderr.

Knows: names, patterns. Must not know: records, pyspark.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping

from radiator.columns.files import open_store, shown
from radiator.columns.heads import End, Holdings, ends
from radiator.columns.near import did_you_mean
from radiator.columns.options import ReadOptions
from radiator.routing.pattern import parse_list


def tell_unknown(options: ReadOptions, found: Mapping[str, End] | None = None) -> None:
    """``found``: what ``ends`` has said already."""
    selection = options.selection
    asked = any(each.kind in ("in", "pattern") for each in (*selection.destinations, *selection.partitions))
    if not asked or options.pushdown:
        return
    place = open_store(options.path, options.storage)
    found = ends(place) if found is None else found
    wanted = {name: None for each in selection.partitions if each.kind == "in" for name in each.values}
    _tell(options, "partition", [name for name in wanted if name not in found], found)
    known = Holdings(place.fs).destinations(found) if selection.destinations else None
    if known is None:
        return
    for each in selection.destinations:
        if each.kind == "in":
            _tell(options, "destination", [name for name in each.values if name not in known], known)
        elif each.kind == "pattern":
            for pattern in (pattern for text in each.values for pattern in parse_list(text)):
                if not any(map(pattern.matches, known)):
                    what = "destination" if pattern.is_literal else "destination that matches"
                    _tell(options, what, [pattern.text], known)


def _tell(options: ReadOptions, what: str, names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        hint = did_you_mean(name, known)
        print(f"radiator: {shown(options.path)} has no {what} {name!r} yet{hint}", file=sys.stderr, flush=True)
