"""``radiator ls``: list the contents of a data directory from its files; with ``--url``, the destinations of a broker.

The figures of a partition end at its ``head``, the committed end. The backlog of a cursor is the number of offsets
above its floor that are not acknowledged. If several destinations share a partition, it includes those of the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from radiator.cli.common import (
    NOT_FOUND,
    OK,
    USAGE,
    BrokerOptions,
    CommandFailed,
    check_readable,
    connection_options,
    json_option,
    progress,
    put_json,
    size,
)

if TYPE_CHECKING:
    from radiator.storage.reader import StoredCursor, StoredPartition

SHOWN_DESTINATIONS = 3
SORTS = ("name", "ready", "in_flight", "bytes", "consumers", "published")  # of a broker
PRIORITY_LOG = re.compile(r".*-p[0-9]", re.DOTALL)
Item = TypeVar("Item")
Group = TypeVar("Group", bound=Hashable)
Backlog = tuple["StoredCursor", int | None]


@dataclass
class Listed:
    """One partition with the figures to show."""

    partition: StoredPartition
    destinations: list[str]
    records: int
    oldest_ns: int | None
    newest_ns: int | None

    def as_json(self) -> dict[str, Any]:
        """Return the partition for ``--json``."""
        stored = self.partition
        return {
            "partition": stored.name,
            "destinations": self.destinations,
            "log_start_offset": stored.log_start_offset,
            "next_offset": stored.next_offset,
            "records": self.records,
            "bytes": stored.size_bytes,
            "segments": len(stored.segments),
            "oldest_receive_ns": self.oldest_ns,
            "newest_receive_ns": self.newest_ns,
            "directory": stored.directory,
        }


@click.command(short_help="List the contents of a data directory.")
@click.argument("pattern", required=False)
@click.option("--data", metavar="DIR", default="./data", show_default=True, help="The data directory.")
@click.option("--sort", type=click.Choice(SORTS), help="With --url: the order; numbers come with the highest first.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="With --url: list the first N only.")
@partial(connection_options, url="List the destinations of this broker instead.", default=None)
@json_option
def ls(
    pattern: str | None, data: str, sort: str | None, limit: int | None, broker: BrokerOptions | None, as_json: bool
) -> int:
    """List the partitions of a data directory, and the cursors of queues with their backlog.

    Needs no broker; a running broker is not disturbed. With --url a running broker lists its destinations: waiting and
    unacknowledged messages, and subscribers. That needs the monitor right. PATTERN selects destinations, as in
    SUBSCRIBE.
    """
    if broker is not None:
        from radiator.cli.online import list_destinations

        return list_destinations(broker, as_json, pattern, sort, limit)
    if sort is not None or limit is not None:
        raise click.UsageError("--sort and --limit are for the list of a broker: give --url")
    from radiator.cli.formats import visible
    from radiator.storage.reader import list_cursors, list_partitions

    check_readable(data)
    if not os.path.isdir(data):
        raise CommandFailed(NOT_FOUND, f"{data}: no such directory; --data names the data_dir of a broker")
    if not os.path.isdir(os.path.join(data, "partitions")) and not os.path.exists(os.path.join(data, "LOCK")):
        raise CommandFailed(NOT_FOUND, f"{data}: no radiator store here; --data names the data_dir of a broker")
    listed = []
    with progress() as bar:
        task = bar.add_task("reading", total=None, note="")
        partitions = list_partitions(data) if os.path.isdir(os.path.join(data, "partitions")) else []
        for partition in bar.track(partitions, task_id=task):
            listed.append(_listed(partition))
    empty = not listed
    cursors = [(cursor, _backlog(cursor, listed)) for cursor in list_cursors(data)]
    if pattern is not None:
        listed, cursors = _matching(pattern, listed, cursors)
    if as_json:
        put_json(
            {
                "data_dir": data,
                "partitions": [each.as_json() for each in listed],
                "cursors": [_cursor_json(cursor, backlog) for cursor, backlog in cursors],
            }
        )
    elif listed:
        _print(listed, cursors)
    elif empty:
        click.echo(f"{visible(data)} contains no partitions yet")
    else:
        click.echo(f"no partition in {visible(data)} has messages of {visible(pattern or '')}")
    return OK


def _matching(pattern: str, listed: list[Listed], cursors: list[Backlog]) -> tuple[list[Listed], list[Backlog]]:
    """Return the partitions that may hold records of these destinations, and the cursors over them."""
    from radiator.errors import ProtocolError
    from radiator.routing.pattern import parse_list

    try:
        matches = parse_list(pattern).matches
    except ProtocolError as error:
        raise CommandFailed(USAGE, f"{error.message}. {error.detail}") from None
    found = [each for each in listed if any(map(matches, each.destinations))]
    names = {each.partition.name for each in found}
    return found, [each for each in cursors if each[0].partition in names]


def _listed(partition: StoredPartition) -> Listed:
    from radiator.storage import layout, names
    from radiator.storage.files import FileSystem, read_file
    from radiator.storage.reader import count_records, newest_receive_ns

    found, _ = names.decode(read_file(FileSystem(), layout.names_path(partition.directory)) or b"")
    filled = [segment for segment in partition.segments if segment.size_bytes]
    oldest = next((segment.first_receive_ns for segment in filled if segment.first_receive_ns is not None), None)
    newest = newest_receive_ns(filled[-1]) if filled else None
    records = sum(map(count_records, partition.segments))
    return Listed(partition, found or [partition.name], records, oldest, newest if newest is not None else oldest)


def _backlog(cursor: StoredCursor, listed: list[Listed]) -> int | None:
    """Return the number of offsets that are not acknowledged, or None if the partition does not exist."""
    for each in listed:
        if each.partition.name == cursor.partition:
            floor = max(cursor.floor, each.partition.log_start_offset)
            acked = sum(max(0, stop - max(start, floor)) for start, stop in cursor.intervals)
            return max(0, each.partition.next_offset - floor - acked)
    return None


def _cursor_json(cursor: StoredCursor, backlog: int | None) -> dict[str, Any]:
    return {
        "cursor": cursor.name,
        "partition": cursor.partition,
        "ack_floor": cursor.floor,
        "acked_above": [list(interval) for interval in cursor.intervals],
        "redelivered": len([count for count in cursor.counts.values() if count > 1]),
        "backlog": backlog,
    }


def _print(listed: list[Listed], cursors: list[Backlog]) -> None:
    from radiator.cli.formats import to_the_second
    from radiator.cli.tables import Column, print_table

    same = all(each.destinations == [each.partition.name] for each in listed)
    columns = (
        Column("partition"), Column("destinations", drop=7 if same else 0),
        Column("start", number=True, drop=5), Column("next", number=True, drop=3), Column("records", number=True),
        Column("size", number=True, drop=1), Column("segments", number=True, drop=6),
        Column("oldest", drop=4), Column("newest", drop=2),
    )  # fmt: skip
    rows = []
    lanes = _lanes(listed)
    for name, group in _grouped(listed, lambda each: lanes.get(each.partition.name, each.partition.name)):
        stored = group[0].partition
        ends = ["", ""] if len(group) > 1 else [f"{stored.log_start_offset:,}", f"{stored.next_offset:,}"]
        records = f"{sum(each.records for each in group):,}"
        bytes_, segments = sum(e.partition.size_bytes for e in group), sum(len(e.partition.segments) for e in group)
        oldest = min((each.oldest_ns for each in group if each.oldest_ns is not None), default=None)
        newest = max((each.newest_ns for each in group if each.newest_ns is not None), default=None)
        figures = [*ends, records, size(bytes_), str(segments)]
        rows.append([name, _destinations(group[0]), *figures, to_the_second(oldest), to_the_second(newest)])
    print_table(columns, rows)
    if cursors:
        click.echo()
        _print_cursors(cursors, lanes)


def _print_cursors(cursors: list[Backlog], lanes: dict[str, str]) -> None:
    from radiator.cli.tables import Column, print_table

    columns = (
        Column("cursor"), Column("partition", drop=1),
        Column("ack floor", number=True, drop=2), Column("backlog", number=True),
    )  # fmt: skip
    rows = []
    for (name, partition), group in _grouped(cursors, lambda each: (each[0].name, _priority_log(each[0], lanes))):
        known = [backlog for _, backlog in group if backlog is not None]
        floor = f"{group[0][0].floor:,}" if len(group) == 1 else ""
        rows.append([name, partition, floor, f"{sum(known):,}" if known else "?"])
    print_table(columns, rows)


def _lanes(listed: list[Listed]) -> dict[str, str]:
    """Return what partitions of queues with priorities are shown as, so that a queue has one row."""
    found = {}
    for each in listed:
        name = each.partition.name
        if PRIORITY_LOG.fullmatch(name) and each.destinations != [name]:
            found[name] = f"{name[:-1]}*"
    return found


def _priority_log(cursor: StoredCursor, lanes: dict[str, str]) -> str:
    """Return what the partition of a cursor is shown as. A priority without records has a cursor and no files."""
    shown = f"{cursor.partition[:-1]}*"
    return shown if shown in lanes.values() else lanes.get(cursor.partition, cursor.partition)


def _grouped(items: list[Item], key: Callable[[Item], Group]) -> list[tuple[Group, list[Item]]]:
    groups: dict[Group, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.items())


def _destinations(each: Listed) -> list[str]:
    if each.destinations == [each.partition.name]:
        return ["="]
    more = len(each.destinations) - SHOWN_DESTINATIONS
    shown = sorted(each.destinations)[:SHOWN_DESTINATIONS]
    return [*shown[:-1], f"{shown[-1]} and {more} more"] if more > 0 else shown
