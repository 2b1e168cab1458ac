"""``subscribe`` with a name that the store does not have yet is no error, but may be a slip: it is told on stderr.

Knows: names. Must not know: records, pyspark.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping

from radiator.columns.files import open_store
from radiator.columns.heads import End, Holdings, ends
from radiator.columns.options import ReadOptions


def tell_unknown(options: ReadOptions, found: Mapping[str, End] | None = None) -> None:
    """``found``: what ``ends`` has said already."""
    names = [name for each in options.selection.destinations if each.kind == "in" for name in each.values]
    if not names or options.pushdown:
        return
    place = open_store(options.path, options.storage)
    known = Holdings(place.fs).destinations(ends(place) if found is None else found)
    if known is None:
        return
    for name in names:
        if name not in known:
            near = [each for each in known if each.endswith(f"/{name}")] or difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            print(f"radiator: {options.path} has no destination {name!r} yet{hint}", file=sys.stderr, flush=True)
