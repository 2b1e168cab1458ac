"""``radiator archive ls``, ``files`` and ``verify``: list the contents of an archive, and verify them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from radiator.cli.common import (
    DAMAGED,
    FAILED,
    NOT_FOUND,
    OK,
    CommandFailed,
    json_option,
    progress,
    put_json,
    put_result,
    say,
    size,
)
from radiator.cli.selection import warn_unknown
from radiator.words import counted

if TYPE_CHECKING:
    from radiator.archive.files import Files
    from radiator.archive.manifest import State

F = TypeVar("F", bound=Callable[..., Any])


@contextlib.contextmanager
def reporting_errors(uri: str) -> Iterator[None]:
    """Report an OSError with the URI of the archive, as a context manager.

    Raises:
        CommandFailed: The archive cannot be read.
    """
    try:
        yield
    except OSError as error:
        from radiator.archive.failures import with_location

        raise CommandFailed(FAILED, with_location(f"{uri}: cannot be read", error)) from error


def _load(uri: str) -> tuple[Files, State]:
    from radiator.archive.manifest import load
    from radiator.archive.opening import open_files

    files = open_files(uri)
    with reporting_errors(files.uri):
        state = load(files)
    if state.version < 0:
        raise CommandFailed(NOT_FOUND, f"{files.uri}: no archive here: there is no commit in _delta_log/")
    return files, state


def archive_argument(function: F) -> F:
    """Add the argument URI, and ``--to URI`` as ``radiator archive`` has it. One of them is needed."""

    @click.argument("uri", required=False)
    @click.option("--to", "target", metavar="URI", help="The same as the argument URI.")
    @functools.wraps(function)
    def wrapper(*, uri: str | None, target: str | None, **more: Any) -> Any:
        parent = click.get_current_context().parent
        given = {uri, target, parent.params.get("target") if parent is not None else None} - {None}
        if len(given) != 1:
            raise click.UsageError("expected one archive: URI, or --to URI")
        return function(uri=given.pop(), **more)

    return cast(F, wrapper)


@click.command(short_help="List the contents of an archive by day and destination.")
@archive_argument
@json_option
def ls(uri: str, as_json: bool) -> int:
    """List the contents of the archive at URI by day and destination."""
    _, state = _load(uri)
    days: dict[tuple[str, str], tuple[int, int, int]] = {}
    for each in state.files.values():
        names = each.destinations or ()
        key = each.date, names[0] if len(names) == 1 else "(several)"
        files, records, total = days.get(key, (0, 0, 0))
        days[key] = files + 1, records + each.records, total + each.bytes
    lost = [{"partition": each[0], "first": each[1], "last": each[2] - 1, "why": each[3]} for each in state.lost]
    if as_json:
        fields = ("date", "destination", "files", "records", "bytes")
        put_json(
            {
                "version": state.version,
                "source": state.source,
                "ends": dict(state.ends),
                "starts": dict(state.starts),
                "lost": lost,
                "merged_files": len(state.removed),
                "days": [dict(zip(fields, (*key, *found), strict=True)) for key, found in sorted(days.items())],
            }
        )
        return OK
    from radiator.cli.tables import Column, print_table

    columns = (
        Column("date"), Column("destination"),
        Column("files", number=True, drop=1), Column("records", number=True), Column("size", number=True, drop=2),
    )  # fmt: skip
    rows = [
        [date, name, f"{files:,}", f"{records:,}", size(total)]
        for (date, name), (files, records, total) in sorted(days.items())
    ]
    print_table(columns, rows)
    for gone in lost:
        say(f"{gone['partition']}: offsets {gone['first']} to {gone['last']} are lost: {gone['why']}")
    whole = size(sum(each.bytes for each in state.files.values()))
    merged = f"; {counted(len(state.removed), 'merged file')} not removed yet" if state.removed else ""
    click.echo(
        f"{counted(state.records, 'record')} in {counted(len(state.files), 'file')}, {whole}, "
        f"as of version {state.version}{merged}"
    )
    return OK


@click.command(short_help="List the files of an archive, for other programs.")
@archive_argument
@click.option("--destination", metavar="PATTERN", help="Only files that may contain messages to these destinations.")
@click.option("--partition", metavar="NAME", help="Only files of this partition.")
@click.option("--from", "start", metavar="TIME", help="Only messages received at or after TIME (RFC 3339).")
@click.option("--until", "end", metavar="TIME", help="Only messages received before TIME.")
@click.option("--as-of", metavar="VERSION", help="An earlier version: a number, a time, or PARTITION@OFFSET.")
@json_option
def files(
    uri: str, destination: str | None, partition: str | None, start: str | None, end: str | None, as_of: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """List the files of the archive at URI, one per line, for other programs.

    Other files in its directory are not part of it.
    """
    where, state = _load(uri)
    from radiator.archive import files as found_files
    from radiator.archive.listing import names
    from radiator.errors import ProtocolError

    try:
        with reporting_errors(where.uri):
            found = found_files(where, destination, start, end, partition, as_of)
    except (ValueError, ProtocolError) as error:
        raise click.UsageError(str(error)) from None
    warn_unknown(destination, names(state), where.uri)
    if as_json:
        put_json(found)
    else:
        for path in found:
            click.echo(path)
    return OK


@click.command(short_help="Convert an archive of an earlier version of radiator.")
@archive_argument
@json_option
def convert(uri: str, as_json: bool) -> int:
    """Convert the log of the archive at URI to Delta's, in place. Data files stay as they are.

    No run of an earlier version may be active. An interrupted conversion can be repeated.
    """
    from radiator.archive.convert import convert as convert_log
    from radiator.archive.files import NoArchive
    from radiator.archive.opening import open_files

    files = open_files(uri)
    try:
        with reporting_errors(files.uri):
            state, converted = convert_log(files)
    except NoArchive as error:
        raise CommandFailed(NOT_FOUND, str(error)) from None
    fields = {"converted": converted, "version": state.version, "files": len(state.files), "records": state.records}
    what = "converted" if converted else "is a Delta table already"
    have = f"{counted(len(state.files), 'file')}, {counted(state.records, 'record')}"
    put_result(as_json, fields, f"{files.uri}: {what}: {counted(state.version + 1, 'commit')}, {have}")
    return OK


@click.command(short_help="Check an archive against its commits.")
@archive_argument
@click.option("--checksums", is_flag=True, help="Read every byte as well, and compare it with the digests.")
@click.option("--records", is_flag=True, help="Read every record's columns as well; includes --checksums.")
@json_option
def verify(uri: str, checksums: bool, records: bool, as_json: bool) -> int:
    """Check the archive at URI against its commits: files, footers, counts, no gap, no overlap.

    Files that no commit names are reported too.
    """
    files, state = _load(uri)
    from radiator.archive.uncommitted import find_uncommitted
    from radiator.archive.verify import verify as look
    from radiator.columns.files import shown

    faults: list[str] = []
    absent: dict[str, int] = {}
    with reporting_errors(files.uri), progress() as bar:
        task = bar.add_task("verifying", total=len(state.files), note="")
        found = look(
            files, state, records, lambda done: bar.update(task, advance=done), checksums=checksums,
            on_missing=absent.__setitem__,
        )  # fmt: skip
        for fault in found:
            faults.append(fault)
            if not as_json:
                say(fault)
        uncommitted = find_uncommitted(files)
    missing = {name: count for name, count in absent.items() if count}
    if as_json:
        put_json(
            {
                "version": state.version,
                "files": len(state.files),
                "records": state.records,
                "faults": faults,
                "absent": missing,
                "orphans": [
                    {"path": files.address(each.path), "bytes": each.size_bytes} for each in uncommitted.orphans
                ],
                "at_work": {
                    "files": len(uncommitted.in_progress),
                    "bytes": sum(each.size_bytes for each in uncommitted.in_progress),
                },
                "spooled": {
                    "files": len(uncommitted.spooled),
                    "bytes": sum(each.size_bytes for each in uncommitted.spooled),
                },
            }
        )
        return DAMAGED if faults else OK
    for name, count in missing.items():
        what = counted(count, "offset")
        say(f"{name}: {what} without a record: removed from the log on purpose before they were archived")
    for each in uncommitted.orphans:
        say(f"{files.named(each.path)}: {size(each.size_bytes)} that no commit names; it is not part of the archive")
    for words, some in (
        ("of a run that is active or was killed: the next run removes them", uncommitted.in_progress),
        ("in _new/, the working directory of runs", uncommitted.spooled),
    ):
        if some:
            say(f"{counted(len(some), 'file')}, {size(sum(each.size_bytes for each in some))} {words}")
    said = counted(len(faults), "fault") if faults else "as its commits say"
    orphans = f"; {counted(len(uncommitted.orphans), 'file')} that no commit names" if uncommitted.orphans else ""
    click.echo(
        f"{shown(uri)}: {counted(len(state.files), 'file')}, {counted(state.records, 'record')}: {said}{orphans}"
    )
    return DAMAGED if faults else OK
