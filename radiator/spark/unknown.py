"""Warn about names and patterns for which the store has nothing yet.

They are not an error, but may be mistyped. With an archive, ``table`` warns, because it sees both.

Must not import records or pyspark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from radiator.columns.files import open_store, shown
from radiator.columns.heads import End, Holdings, ends
from radiator.columns.near import did_you_mean, unheard
from radiator.columns.options import ReadOptions
from radiator.columns.selection import Selection
from radiator.columns.warn import warn

NAMES_MAX = 5


def warn_unknown(options: ReadOptions, found: Mapping[str, End] | None = None) -> None:
    """Print a warning on stderr for each partition, destination or pattern of messages that matches nothing.

    Args:
        options: The options of the read.
        found: The result of ``ends``, if it is known.

    Raises:
        StorageError: The store cannot be read.
    """
    selection = options.selection
    asked = any(each.kind in ("in", "pattern") for each in (*selection.destinations, *selection.partitions))
    if not asked or options.pushdown or options.deliveries is not None:
        return
    place = open_store(options.path, options.storage)
    for text in _hints(options, Holdings(place.fs), ends(place) if found is None else found):
        warn(f"{shown(options.path)} has {text}", options.warn_once)


def _hints(options: ReadOptions, holdings: Holdings, found: Mapping[str, End]) -> Iterator[str]:
    selection = options.selection
    for name in dict.fromkeys(name for each in selection.partitions if each.kind == "in" for name in each.values):
        if name not in found:
            yield f"no partition {name!r} yet{did_you_mean(name, found)}"
    if not selection.destinations or options.archive is not None:
        return
    known = holdings.destinations(found)
    slips = [] if known is None else list(unknown(selection, known))
    for text in slips:
        yield f"no {text}"
    if not slips:
        yield from _disjoint(selection, holdings, found)


def _disjoint(selection: Selection, holdings: Holdings, found: Mapping[str, End]) -> Iterator[str]:
    """Yield a line if the selected partitions have none of the selected destinations."""
    chosen = {name: end for name, end in found.items() if selection.wants_partition(name)}
    if not chosen or len(chosen) == len(found):
        return
    if not any(holdings.may_hold(name, end, selection.wants_destination) for name, end in chosen.items()):
        names = ", ".join(list(chosen)[:NAMES_MAX]) + (" ..." if len(chosen) > NAMES_MAX else "")
        yield (
            f"none of these destinations in these partitions yet ({names}): a record must match both options; "
            "radiator ls shows the destinations of each partition"
        )


def unknown(selection: Selection, known: Collection[str]) -> Iterator[str]:
    """Yield a description of each name and pattern that matches no destination.

    Args:
        selection: The selection of the read.
        known: The existing destinations.
    """
    for each in selection.destinations:
        if each.negated:
            continue
        if each.kind == "in":
            for name in each.values:
                if name not in known:
                    yield f"destination {name!r} yet{did_you_mean(name, known)}"
        elif each.kind == "pattern":
            for destinations in each.values:
                yield from unheard(destinations, known)
