"""Which of the names that are there somebody meant who gave one that is not.

Knows: names. Must not know: files, options.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator

from radiator.routing.pattern import WILDCARDS, parse_list, segments

SHOWN = 5
SNAPSHOT = "radiator.spark.snapshot(data) gives the ends of all partitions, for such options"


def near(name: str, known: Collection[str], most: int = 1) -> list[str]:
    """Those of ``known`` that ``name`` may stand for, the likeliest first."""
    if written := sorted(each for each in known if each.lower() == name.lower()):
        return written[:most]
    tails = sorted(each for each in known if each.endswith(f"/{name.lstrip('/')}"))
    if tails:
        return tails[:most]
    stem = name
    if not WILDCARDS.isdisjoint(segments(name)):  # of a pattern, what stands before its first wildcard
        stem = name[: min(name.index(mark) for mark in WILDCARDS if mark in name)].rstrip("./")
        begun = sorted(each for each in known if len(stem) > 1 and (each.startswith(stem) or f"/{stem}" in each))
        if begun:
            return begun[:most]
    return difflib.get_close_matches(name, known, n=most) or difflib.get_close_matches(stem, known, n=most)


def did_you_mean(name: str, known: Collection[str], most: int = 1) -> str:
    """``; did you mean /topic/orders?``, or nothing."""
    found = near(name, known, most)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def unheard(destinations: str, known: Collection[str]) -> Iterator[str]:
    """Names and patterns of a comma list that nothing known is called by, in words: what, which, and the likely one."""
    for pattern in parse_list(destinations):
        if not any(map(pattern.matches, known)):
            what = "destination" if pattern.is_literal else "destination that matches"
            meant = "; # matches all of them" if pattern.text == "*" else did_you_mean(pattern.text, known)
            yield f"{what} {pattern.text!r} yet{meant}"


def instead(name: str, found: Collection[str]) -> str:
    """What a store has where no partition is called ``name``: those of the destination of that name, or like it."""
    numbered = [each for each in found if re.fullmatch(re.escape(name) + r"-\d+", each)]
    if numbered:
        numbered.sort(key=lambda each: int(each[len(name) + 1 :]))
        return f"{name} is a destination; it lies in partitions {_some(numbered)}; {SNAPSHOT}"
    alike = near(name, found, SHOWN)
    rest = [each for each in sorted(found) if each not in alike]
    meant = f"did you mean {alike[0]!r}? It has" if alike else "it has"
    return f"{meant} {_some([*alike, *rest])}; {SNAPSHOT}"


def _some(names: Collection[str]) -> str:
    shown = list(names)
    more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return (", ".join(map(repr, shown[:SHOWN])) + more) or "none"
