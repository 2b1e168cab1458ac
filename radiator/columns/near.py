"""Suggest existing names for a name that does not exist.

Must not import files or options.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator

from radiator.routing.pattern import WILDCARDS, parse_list, segments

SHOWN = 5
SNAPSHOT = "radiator.spark.snapshot(data) gives the ends of all partitions, for such options"


def near(name: str, known: Collection[str], most: int = 1) -> list[str]:
    """Return the known names that ``name`` may stand for, the most similar first.

    Args:
        name: A name or a pattern that does not exist.
        known: The existing names.
        most: The maximum number of results.

    Example:
        >>> near("/topic/order", ["/topic/orders", "/queue/jobs"])
        ['/topic/orders']
    """
    if written := sorted(each for each in known if each.lower() == name.lower()):
        return written[:most]
    tails = sorted(each for each in known if each.endswith(f"/{name.lstrip('/')}"))
    if tails:
        return tails[:most]
    stem = name
    if not WILDCARDS.isdisjoint(segments(name)):  # compare the part of a pattern before its first wildcard
        stem = name[: min(name.index(wildcard) for wildcard in WILDCARDS if wildcard in name)].rstrip("./")
        similar = sorted(each for each in known if len(stem) > 1 and (each.startswith(stem) or f"/{stem}" in each))
        if similar:
            return similar[:most]
    return difflib.get_close_matches(name, known, n=most) or difflib.get_close_matches(stem, known, n=most)


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return the end of an error message: ``; did you mean /topic/orders?``, or an empty text without a similar name.

    Args:
        name: A name or a pattern that does not exist.
        known: The existing names.
    """
    found = near(name, known)
    return f"; did you mean {found[0]}?" if found else ""


def unheard(destinations: str, known: Collection[str]) -> Iterator[str]:
    """Yield a description of each name or pattern of a list that matches no destination, with a suggestion.

    Args:
        destinations: Names and patterns, separated by commas.
        known: The existing destinations.
    """
    for pattern in parse_list(destinations):
        if not any(map(pattern.matches, known)):
            what = "destination" if pattern.is_literal else "destination that matches"
            meant = "; # matches all of them" if pattern.text == "*" else did_you_mean(pattern.text, known)
            yield f"{what} {pattern.text!r} yet{meant}"


def instead(name: str, found: Collection[str]) -> str:
    """Return what a store has when no partition is called ``name``: partitions of that destination, or similar names.

    Args:
        name: A partition name that does not exist.
        found: The existing partition names.
    """
    numbered = [each for each in found if re.fullmatch(re.escape(name) + r"-\d+", each)]
    if numbered:
        numbered.sort(key=lambda each: int(each[len(name) + 1 :]))
        return f"{name} is a destination; its partitions are {_some(numbered)}; {SNAPSHOT}"
    alike = near(name, found, SHOWN)
    rest = [each for each in sorted(found) if each not in alike]
    meant = f"did you mean {alike[0]!r}? It has" if alike else "it has"
    return f"{meant} {_some([*alike, *rest])}; {SNAPSHOT}"


def _some(names: Collection[str]) -> str:
    shown = list(names)
    more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return (", ".join(map(repr, shown[:SHOWN])) + more) or "none"
