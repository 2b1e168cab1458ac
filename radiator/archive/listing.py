"""List the files of an archive that a reader wants, as paths or URIs that DuckDB, pandas, Polars and Spark accept.

This module knows the manifest. It does not know the contents of files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime

from radiator.archive.files import Files, NoArchive
from radiator.archive.manifest import DataFile, State, load
from radiator.archive.opening import open_files
from radiator.clock import NS_PER_MS
from radiator.routing.pattern import parse_list

Time = int | str | datetime  # 19 digits of nanoseconds since 1970, or 13 of milliseconds; RFC 3339; UTC without a zone
UNITS = {19: 1, 13: NS_PER_MS}  # unit of a number, by its length


def files(
    archive: str | os.PathLike[str] | Files,
    destination: str | None = None,
    start: Time | None = None,
    end: Time | None = None,
    partition: str | None = None,
) -> list[str]:
    """Return the files that may contain the wanted messages. They are whole files, so they may contain others as well.

    Args:
        archive: A path, a URI or files.
        destination: A name, a pattern, or a comma list of them; None: all.
        start: The first receive time.
        end: The receive time up to which, not including, messages are wanted.
        partition: The partition; None: all.

    Raises:
        NoArchive: There is no archive.
        StorageError: It cannot be read.
        ValueError: A time is malformed.
    """
    where = open_files(archive)
    low, high = (None if start is None else time_ns(start)), (None if end is None else time_ns(end))
    wants = None if destination is None else parse_list(destination)

    def wanted(each: DataFile) -> bool:
        return (
            (low is None or each.max_receive_ns >= low)
            and (high is None or each.min_receive_ns < high)
            and (partition is None or each.partition == partition)
            and (wants is None or each.destinations is None or any(map(wants.matches, each.destinations)))
        )

    return [where.address(each.path) for each in in_order(load_existing(where).files.values()) if wanted(each)]


def load_existing(archive: Files) -> State:
    """Return the state of an archive. Raises NoArchive, or another StorageError."""
    state = load(archive)
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
    return sorted(found, key=lambda each: (each.path.rpartition("/")[0], each.partition, each.first_offset))


def time_ns(time: Time) -> int:
    """Return a time in nanoseconds since 1970. Raises ValueError."""
    if isinstance(time, int):
        digits = len(str(abs(time)))
        if digits not in UNITS:
            raise ValueError(
                "expected nanoseconds since 1970 (19 digits), milliseconds (13 digits), RFC 3339 or a datetime, got "
                f"{time}"
            )
        return time * UNITS[digits]
    moment = datetime.fromisoformat(time) if isinstance(time, str) else time
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000
