"""``radiator export``: write records from the files of a store as JSON lines, CSV or Parquet."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

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
    say,
    size,
)
from radiator.cli.selection import (
    POSITIONS,
    check_store,
    destinations_of,
    names_of,
    read_selection,
    selection_options,
    warn_unknown,
)
from radiator.words import counted

if TYPE_CHECKING:
    from radiator.export.files import Export
    from radiator.storage.reader import StoredPartition

TABLES = MESSAGES, DELIVERIES = "messages", "deliveries"
FORMATS = ("jsonl", "csv", "parquet")
SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}
MARK_NEEDS = "--mark-archived requires a complete export: it cannot be combined with {}"


@click.command(short_help="Write records as JSON lines, CSV or Parquet.")
@click.option("--data", metavar="DIR", default="./data", show_default=True, help="The data directory, or a backup.")
@partial(selection_options, start=f"Where to start: {POSITIONS}, or archived: where the last archive ended.")
@click.option("--table", type=click.Choice(TABLES), default=TABLES[0], show_default=True,
              help="The messages, or who received them and how it ended (record: deliveries).")  # fmt: skip
@click.option("--format", "kind", type=click.Choice(FORMATS), help="Output format. Default: by the suffix of --to.")
@click.option("--to", "target", metavar="FILE|DIR|-", required=True,
              help="A new file; an existing directory (a file per partition); or - for standard output.")  # fmt: skip
@click.option("--skip-damaged", is_flag=True, help="Report and leave out unreadable records instead of failing.")
@click.option("--mark-archived", is_flag=True, help="Then let retention remove the segments (wait_for: archive).")
@json_option
def export(
    data: str, destinations: str | None, partitions: tuple[str, ...], start: str, stop: str | None,
    table: str, kind: str | None, target: str, skip_damaged: bool, mark_archived: bool, as_json: bool,
) -> int:  # fmt: skip
    """Write records as JSON lines, CSV or Parquet.

    Needs no broker; a running broker is not disturbed. Parquet needs the extra radiator-broker[parquet].
    """
    from radiator.columns.delivery_records import DESTINATION
    from radiator.errors import ProtocolError
    from radiator.export.files import Export

    of_deliveries = table == DELIVERIES
    if mark_archived:
        _check_mark(
            data,
            start,
            {
                "--destination": destinations,
                "--until": stop,
                "--skip-damaged": skip_damaged,
                "--to -": target == "-",
                f"--table {DELIVERIES}": of_deliveries,
            },
        )
    kind = kind or _format_of(target)
    if kind == "parquet" and target == "-":
        raise click.UsageError("parquet cannot be written to standard output: give --to FILE or DIR")
    check_store(data)
    try:
        messages = read_selection(start, stop, destinations, partitions)
    except (ValueError, ProtocolError) as error:
        raise click.UsageError(str(error)) from None
    if of_deliveries:  # --destination and --partition are those of the messages
        selection, about = read_selection(start, stop, DESTINATION, ()), messages
        chosen = [each for each in _partitions(data, ()) if DESTINATION in (names_of(each) or {DESTINATION})]
    else:
        selection, about = messages, None
        chosen = _partitions(data, partitions)
    starts = _archived(chosen) if start == "archived" or mark_archived else {}
    if start == "archived":
        _report_removed(chosen, starts)
        selection = replace(selection, starts=starts)
    if destinations is not None:
        warn_unknown(destinations, destinations_of(data), data)
    with progress() as bar:
        bar.disable = bar.disable or (target == "-" and sys.stdout.isatty())
        task = bar.add_task("exporting", total=sum(each.size_bytes for each in chosen), note="")
        work = Export(
            selection, kind, skip=skip_damaged, on_loss=say, progress=lambda done: bar.update(task, advance=done),
            deliveries_of=about,
        )  # fmt: skip
        _write(work, chosen, target)
    if mark_archived:
        _mark(chosen, starts)
    _report(work, target, as_json, mark_archived)
    return DAMAGED if work.result.losses else OK


def _check_mark(data: str, start: str, against: Mapping[str, object]) -> None:
    """Check that an export is complete, so that its partitions can be marked as archived.

    Args:
        data: The data directory.
        start: The value of ``--from``.
        against: The options that make an export incomplete, with their values.

    Raises:
        UsageError: It is not complete, or the directory is a copy.
    """
    for option, given in against.items():
        if given:
            raise click.UsageError(MARK_NEEDS.format(option))
    if start not in ("first", "archived"):
        raise click.UsageError(MARK_NEEDS.format("--from other than first or archived"))
    from radiator.storage.copies import kind_of_copy
    from radiator.storage.files import FileSystem

    if os.path.isdir(data) and (kind := kind_of_copy(FileSystem(), data)):
        raise click.UsageError(f"{data} is {kind}: it cannot be changed, so --mark-archived cannot be used")


def _report_removed(partitions: list[StoredPartition], starts: dict[str, int]) -> None:
    """Report the records that retention has removed before they were archived."""
    for each in partitions:
        if 0 < starts[each.name] < each.log_start_offset:
            first, last = starts[each.name], each.log_start_offset - 1
            say(
                f"{each.name}: offsets {first} to {last} were removed before they were "
                "archived (retention without wait_for)"
            )


def _format_of(target: str) -> str:
    kind = SUFFIXES.get(os.path.splitext(target.rstrip("/"))[1].lower())
    if kind is None:
        raise click.UsageError(
            f"--format is missing: expected {', '.join(FORMATS)}, or a --to that ends in {', '.join(SUFFIXES)}"
        )
    return kind


def _partitions(data: str, names: tuple[str, ...]) -> list[StoredPartition]:
    from radiator.columns.near import did_you_mean
    from radiator.storage.reader import list_partitions

    found = list_partitions(data)
    known = [each.name for each in found]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise CommandFailed(NOT_FOUND, f"{data}: no partition {name}{hint}; `radiator ls` lists them")
    return [each for each in found if not names or each.name in names]


def _archived(partitions: list[StoredPartition]) -> dict[str, int]:
    from radiator.storage import archived
    from radiator.storage.files import FileSystem

    return {each.name: archived.read(FileSystem(), each.directory) for each in partitions}


def _write(work: Export, partitions: list[StoredPartition], target: str) -> None:
    """Write a file, a directory, or standard output. Raises CommandFailed, BrokenPipeError."""
    from radiator.export.files import Lost

    try:
        if target == "-":
            work.to_stream(partitions, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        elif os.path.isdir(target):
            work.to_directory(partitions, target)
        else:
            work.to_file(partitions, target)
    except Lost as error:
        raise CommandFailed(DAMAGED, f"{error}; --skip-damaged leaves it out") from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandFailed(FAILED, f"{error.filename or target}: cannot be written: {error.strerror}") from None


def _mark(partitions: list[StoredPartition], before: dict[str, int]) -> None:
    from radiator.storage import archived
    from radiator.storage.files import FileSystem

    for each in partitions:
        if each.next_offset > before[each.name]:
            archived.write(FileSystem(), each.directory, each.next_offset)


def _report(work: Export, target: str, as_json: bool, marked: bool) -> None:
    found = work.result
    if as_json and target != "-":
        put_json(
            {
                "records": found.records,
                "body_bytes": found.body_bytes,
                "files": found.paths,
                "partitions": found.partitions,
                "lost": [{"partition": name, "first": first, "last": last} for name, first, last in found.losses],
                "marked_archived": marked,
            }
        )
        return
    holding = sum(count > 0 for count in found.partitions.values())
    text = f"{counted(found.records, 'record')} of {counted(holding, 'partition')}, {size(found.body_bytes)} of bodies"
    if target == "-":
        say(text)
    else:
        click.echo(f"{target}: {text}")
