"""List the files of an archive that a reader wants, as paths or URIs that DuckDB, pandas, Polars and Spark accept.

This module knows the manifest. It does not know the contents of files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from radiator.archive.files import Files, NoArchive
from radiator.archive.manifest import DataFile, State, load
from radiator.archive.opening import open_files
from radiator.archive.times import Time, time_ns
from radiator.archive.versions import AsOf, load_as_of
from radiator.routing.pattern import parse_list


def files(
    archive: str | os.PathLike[str] | Files,
    destination: str | None = None,
    start: Time | None = None,
    end: Time | None = None,
    partition: str | None = None,
    as_of: AsOf | None = None,
) -> list[str]:
    """Return the files that may contain the wanted messages. They are whole files, so they may contain others as well.

    Args:
        archive: A path, a URI or files.
        destination: A name, a pattern, or a comma list of them; None: all.
        start: The first receive time.
        end: The receive time up to which, not including, messages are wanted.
        partition: The partition; None: all.
        as_of: An earlier version: its number; a time; or ``partition@offset``, the first version with that record.
            None: the latest.

    Raises:
        NoArchive: There is no archive.
        StorageError: It cannot be read.
        ValueError: A time or ``as_of`` is malformed.
    """
    where = open_files(archive)
    low, high = (None if start is None else time_ns(start)), (None if end is None else time_ns(end))
    wants = None if destination is None else parse_list(destination)
    literals = None if destination is None else literal_names([destination])

    def wanted(each: DataFile) -> bool:
        return (
            (low is None or each.max_receive_ns >= low)
            and (high is None or each.min_receive_ns < high)
            and (partition is None or partition in each.partitions)
            and (wants is None or may_have(each, wants.matches, literals))
        )

    return [where.address(each.path) for each in in_order(load_existing(where, as_of).files.values()) if wanted(each)]


def literal_names(lists: Iterable[str]) -> list[str] | None:
    """Return the names in lists of names and patterns; None if a pattern is among them."""
    patterns = [each for text in lists for each in parse_list(text)]
    return [each.text for each in patterns] if all(each.is_literal for each in patterns) else None


def may_have(each: DataFile, wanted: Callable[[str], bool], literals: Iterable[str] | None) -> bool:
    """Return whether a file may have a wanted destination.

    Args:
        each: The file.
        wanted: Whether a destination is wanted.
        literals: All wanted destinations, if they are known by name. Then a file that does not list its own is left
            out if these are outside of its smallest and largest.
    """
    if each.destinations is not None:
        return any(map(wanted, each.destinations))
    if literals is not None and each.names is not None:
        low, high = each.names
        if not any(low <= name <= high for name in literals):
            return False
    listed = map(each.destinations_of, each.spans)
    return any(names is None or any(map(wanted, names)) for names in listed)


def load_existing(archive: Files, as_of: AsOf | None = None) -> State:
    """Return the state of an archive. Raises NoArchive, or another StorageError."""
    state = load(archive) if as_of is None else load_as_of(archive, as_of)
    if state.version < 0:
        raise NoArchive(
            f"{archive.uri}: the archive does not exist or is empty: `radiator archive --data DIR --to URI` writes "
            "the sealed segments of a data directory to one"
        )
    return state


def names(state: State) -> set[str] | None:
    """Return all destinations of an archive; None if not each of its files lists its own."""
    listed = [each.destinations for each in state.files.values()]
    return None if None in listed else {name for each in listed for name in each or ()}


def in_order(found: Iterable[DataFile]) -> list[DataFile]:
    """Return the files by date, destination, partition and offset."""
    return sorted(found, key=lambda each: (each.path.rpartition("/")[0], each.spans[0][:3]))
