"""Select partitions and positions, for the commands that read a data directory."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from radiator.cli.common import NOT_FOUND, CommandFailed, F, check_readable, say

if TYPE_CHECKING:
    from radiator.columns.selection import Selection
    from radiator.storage.reader import StoredPartition

POSITIONS = "first, N (an offset), TIME (RFC 3339, or @ and epoch nanoseconds), -1h30m (before now), 'yesterday 14:05'"


def selection_options(function: F, start: str = f"Where to start: {POSITIONS}.") -> F:
    """Add the options that select records: ``destinations``, ``partitions``, ``start`` and ``stop``.

    Args:
        function: The command.
        start: The help text of ``--from``.
    """
    for option in (
        click.option(
            "--until", "stop", metavar="POSITION", help="Where to stop: N (after it), @TIME or -1h (before it)."
        ),
        click.option("--from", "start", metavar="POSITION", default="first", show_default=True, help=start),
        click.option(
            "--partition", "partitions", metavar="NAME", multiple=True, help="Only this partition. May be repeated."
        ),
        click.option(
            "--destination",
            "destinations",
            metavar="PATTERN",
            help="Only these destinations, as in SUBSCRIBE; a list has commas.",
        ),
    ):
        function = option(function)
    return function


def check_store(data: str) -> None:
    """Check that a directory contains a store.

    Raises:
        CommandFailed: It does not, or cannot be read.
    """
    check_readable(data)
    if not os.path.isdir(os.path.join(data, "partitions")):
        raise CommandFailed(NOT_FOUND, f"{data}: no radiator store here; --data names the data_dir of a broker")


def warn_unknown(destinations: str | None, known: Collection[str] | None, where: str) -> None:
    """Print a message for each name or pattern that matches no destination. ``known`` None: not all names are known."""
    from radiator.columns.near import unheard

    for text in () if destinations is None or known is None else unheard(destinations, known):
        say(f"{where} has no {text}")


def destinations_of(data: str) -> set[str] | None:
    """Return all destinations of a store, or None if a list of names is incomplete."""
    from radiator.storage.reader import list_partitions

    found = set[str]()
    for partition in list_partitions(data):
        names = names_of(partition)
        if names is None:
            return None
        found.update(names)
    return found


def names_of(partition: StoredPartition) -> set[str] | None:
    """Return the destinations of a partition, or None if its list of names is incomplete."""
    from radiator.storage import layout, names
    from radiator.storage.files import FileSystem, read_file
    from radiator.storage.reader import read_head

    fs = FileSystem()
    _, raw = read_head(fs, partition.directory)
    listed = None if raw is None else layout.decode_listed(raw)
    listing = (read_file(fs, layout.names_path(partition.directory)) or b"") if listed is not None else b""
    if listed is None or not names.vouched(listing, listed):
        return None
    return set(names.decode(listing[: listed.size_bytes])[0] or [partition.name])


def complete_time(moment: str) -> str:
    """Return a time with its missing parts: midnight for a date, UTC without a zone, as in the options for Spark."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d", moment):
        return f"{moment}T00:00:00Z"
    return f"{moment}Z" if re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+", moment) else moment


def read_selection(start: str, stop: str | None, destinations: str | None, partitions: Collection[str]) -> Selection:
    """Return the records that ``--from``, ``--until``, ``--destination`` and ``--partition`` select.

    Raises:
        ValueError: A position is not valid.
        ProtocolError: A pattern is not valid.
    """
    from radiator.broker.headers.values import parse_time
    from radiator.clock import relative_time
    from radiator.columns.selection import HIGH, LOW, Selection
    from radiator.routing.pattern import parse_list

    now_ns = time.time_ns()

    def read(option: str, text: str) -> tuple[int | None, int | None]:
        if re.fullmatch(r"\d{1,19}", text):
            return int(text), None
        time_ns = relative_time(text, now_ns)
        if time_ns is None:
            time_ns = parse_time(complete_time(text.removeprefix("@")))
        if time_ns is None:
            expected = POSITIONS if option == "--from" else POSITIONS.removeprefix("first, ")
            raise ValueError(f"{option}: expected {expected}, got {text!r}")
        return None, time_ns

    offset, time_ns = (None, None) if start in ("first", "archived") else read("--from", start)
    last, stop_ns = (None, None) if stop is None else read("--until", stop)
    selection = Selection().offsets(LOW if offset is None else offset, HIGH if last is None else last + 1)
    selection = selection.received(LOW if time_ns is None else time_ns, HIGH if stop_ns is None else stop_ns)
    if destinations is not None:
        parse_list(destinations)
        selection = selection.destination("pattern", destinations)
    return selection.partition("in", *partitions) if partitions else selection
