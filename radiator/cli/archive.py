"""``radiator archive``: write sealed segments to Parquet once, at an interval or daily; and inspect an archive."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from radiator.cli.archive_views import convert, files, ls, reporting_errors, verify
from radiator.cli.common import (
    DAMAGED,
    FAILED,
    INTERRUPTED,
    NOT_FOUND,
    OK,
    CommandFailed,
    check_readable,
    json_option,
    parsed,
    progress,
    put_json,
    put_text,
    say,
    size,
)
from radiator.cli.signals import stop_on_signals
from radiator.clock import NS_PER_SECOND
from radiator.config.units import parse_duration_ns, parse_time_of_day
from radiator.stopping import Stopping
from radiator.words import counted

if TYPE_CHECKING:
    from radiator.archive.files import Files
    from radiator.archive.run import Options, Outcome

AGAIN_SECONDS = 300  # after a failed run, unless the next one is earlier
DAY_SECONDS = 86_400
LOOK_SECONDS = 60.0  # between checks of the clock, which may be corrected


def _every(text: str) -> float:
    seconds = parse_duration_ns(text) / NS_PER_SECOND
    if seconds <= 0:
        raise ValueError("expected a duration above 0, such as 15m or 1h")
    return seconds


def _keep(text: str) -> int:
    return round(parse_duration_ns(text) / NS_PER_SECOND)


@click.group(short_help="Write sealed segments to an archive of Parquet files.", invoke_without_command=True)
@click.option("--data", metavar="DIR", default="./data", show_default=True, help="The data directory.")
@click.option("--to", "target", metavar="URI", help="The archive: a directory, or a URI such as s3://bucket/archive.")
@click.option("--partition", "partitions", metavar="NAME", multiple=True, help="Only this partition. May be repeated.")
@click.option(
    "--every", metavar="DURATION", callback=parsed(_every), help="Repeat at this interval, such as 15m or 1h."
)
@click.option("--at", metavar="HH:MM", callback=parsed(parse_time_of_day), help="Run every day at this time (UTC).")
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes that write files.")
@click.option("--level", type=click.IntRange(1, 22), default=3, show_default=True, help="Compression level of zstd.")
@click.option("--skip-damaged", is_flag=True, help="Record what cannot be read as lost, and archive everything else.")
@click.option("--compact/--no-compact", "merge", default=None,
              help="Merge all small files, or none; by default only where it is worth it.")  # fmt: skip
@click.option("--compact-only", is_flag=True, help="Merge small files, and archive nothing.")
@click.option("--keep-merged", metavar="DURATION", callback=parsed(_keep),
              help="How long merged files stay stored from now on, such as 7d (the default) or 0s.")  # fmt: skip
@click.option("--iceberg", metavar="CATALOG",
              help="Register the files in this Iceberg catalogue: a URI, or a name that pyiceberg has.")  # fmt: skip
@click.option("--iceberg-table", metavar="NAMESPACE.TABLE", help="Its table; radiator.archive by default.")
@click.option("--no-mark", is_flag=True, help="Do not let retention (wait_for: archive) remove archived segments.")
@click.option("--dry-run", is_flag=True, help="Print what would be archived, and write nothing.")
@json_option
@click.pass_context
def archive(
    ctx: click.Context, data: str, target: str | None, partitions: tuple[str, ...], every: float | None, at: int | None,
    jobs: int, level: int, skip_damaged: bool, merge: bool | None, compact_only: bool, keep_merged: int | None,
    iceberg: str | None, iceberg_table: str | None, no_mark: bool, dry_run: bool, as_json: bool,
) -> int:  # fmt: skip
    """Write sealed segments to an archive of Parquet files, each record exactly once.

    The broker may be running. Each run archives what is new, so it can be repeated at any time. Needs the extra
    radiator-broker[parquet].
    """
    if ctx.invoked_subcommand is not None:
        return OK
    if target is None:
        raise click.UsageError("--to is missing: a directory, or a URI such as s3://bucket/archive")
    if every is not None and at is not None:
        raise click.UsageError("--every and --at cannot be combined")
    if compact_only and merge is False:
        raise click.UsageError("--compact-only and --no-compact cannot be combined")
    if iceberg_table is not None and (iceberg is None or "." not in iceberg_table):
        raise click.UsageError("--iceberg-table needs --iceberg, and a name with its namespace: logs.orders")
    from radiator.archive.opening import open_files
    from radiator.archive.run import Options
    from radiator.columns.files import shown

    options = Options(
        partitions=frozenset(partitions), level=level, skip_damaged=skip_damaged, mark=not no_mark, jobs=jobs,
        archive=not compact_only, merge=True if compact_only else merge, retention_seconds=keep_merged,
    )  # fmt: skip
    files = open_files(target)
    _check_partitions(data, partitions)
    if files.local is not None and _is_inside(files.local, data):
        raise click.UsageError(f"--to {target} is in the data directory {data}: choose another place for the archive")
    if dry_run:
        return _dry_run(data, files, options, as_json)
    stop = Stopping()

    def once() -> int:
        code = _report_outcome(_run(data, files, options, stop), shown(target), as_json)
        if iceberg is not None:
            _register(files, iceberg, iceberg_table)
        return code

    with stop_on_signals(stop, breakable=False):
        if every is None and at is None:
            code = once()
            return INTERRUPTED if code == OK and stop.is_set() else code
        return _scheduled(once, stop, every, at)


def _is_inside(path: str, directory: str) -> bool:
    whole = os.path.realpath(directory)
    return os.path.commonpath([whole, os.path.realpath(path)]) == whole


def _check_partitions(data: str, names: tuple[str, ...]) -> None:
    from radiator.columns.files import open_store
    from radiator.columns.log import partitions

    check_readable(data)
    found = {each.name for each in partitions(open_store(data))}
    for name in names:
        if name not in found:
            raise CommandFailed(NOT_FOUND, f"{data}: no partition {name}; `radiator ls` lists them")


# --- runs -------------------------------------------------------------------------------------------------------------


def _run(data: str, files: Files, options: Options, stop: Stopping) -> Outcome:
    """Run once, with a progress bar.

    Raises:
        RadiatorError: The run failed.
    """
    from radiator.archive.run import Watch, run

    with progress() as bar:
        task = bar.add_task("archiving", total=None, note="")
        watch = Watch(
            report=say,
            total=lambda size: bar.update(task, total=size, completed=0),
            advance=lambda done: bar.update(task, advance=done),
            stopping=stop.is_set,
        )
        try:
            return run(data, files, options, watch)
        except OSError as error:
            from radiator.archive.failures import run_failure

            raise CommandFailed(FAILED, run_failure(files, error)) from error


def _register(files: Files, catalog: str, table: str | None) -> None:
    """Register the files of the archive in an Iceberg table, unless the archive has no commit yet.

    Raises:
        RadiatorError: The catalogue or the archive reports an error.
    """
    from radiator.archive.files import NoArchive
    from radiator.archive.iceberg import TABLE, register

    name = table or TABLE
    try:
        found = register(files, catalog, name)
    except NoArchive:
        return
    if found.added or found.removed:
        replaced = f", {found.removed} merged ones removed" if found.removed else ""
        say(f"Iceberg table {name}: version {found.version}, {counted(found.added, 'file')} added{replaced}")


def _scheduled(once: Callable[[], int], stop: Stopping, every: float | None, at: int | None) -> int:
    """Run repeatedly until a signal. A failed run is reported, and the next one continues where it stopped."""
    from radiator.errors import RadiatorError

    code = OK
    wait_seconds = 0.0 if at is None else math.inf
    while _waited(stop, wait_seconds, at):
        began = time.monotonic()
        try:
            code = once()
        except RadiatorError as error:
            say(str(error))
            code = FAILED
        wait_seconds = math.inf if every is None else max(0.0, began + every - time.monotonic())
        if code == FAILED:
            wait_seconds = min(wait_seconds, AGAIN_SECONDS)
    return code


def _waited(stop: Stopping, seconds: float, at: int | None) -> bool:
    """Wait for ``seconds`` or until the time of day ``at``. Return False after a signal.

    The wall clock may be corrected meanwhile, so it is checked every LOOK_SECONDS.
    """
    end = time.monotonic() + seconds
    due = math.inf if at is None else _next(at)
    if at is not None and not stop.is_set():
        say(f"the next run is at {time.strftime('%Y-%m-%dT%H:%MZ', time.gmtime(due))}")
    while (left := min(end - time.monotonic(), due - time.time())) > 0:
        if stop.wait(min(left, LOOK_SECONDS)):
            return False
        if at is not None:
            due = min(due, _next(at))
    return not stop.is_set()


def _next(at: int) -> float:
    """Return the next time at which it is this time of day (UTC)."""
    return (time.time() - at) // DAY_SECONDS * DAY_SECONDS + at + DAY_SECONDS


def _report_outcome(found: Outcome, target: str, as_json: bool) -> int:

    for text in found.problems.values():
        say(text)
    if found.left_bytes:
        say(f"ended by a signal: {size(found.left_bytes)} of sealed segments are left for the next run")
    code = DAMAGED if found.damaged else FAILED if found.problems else OK
    if as_json:
        put_json(
            {
                "version": found.version,
                "records": found.records,
                "typed": found.typed,
                "rejected": found.rejected,
                "body_bytes": found.body_bytes,
                "log_bytes": found.log_bytes,
                "files": found.files,
                "file_bytes": found.file_bytes,
                "merged": {"from": found.merged_from, "to": found.merged_to},
                "removed_merged": found.vacuumed,
                "unsealed": found.unsealed,
                "left_bytes": found.left_bytes,
                "removed_leftovers": found.swept,
                "lost": [
                    {"partition": each.partition, "first": each.first, "last": each.next_offset - 1, "why": each.why}
                    for each in found.lost
                ],
                "begins": found.begins,
                "problems": found.problems,
            }
        )
        return code
    if found.unsealed and not found.records and not found.problems:
        say(
            f"{counted(found.unsealed, 'record')} in segments that are still written to: archived when another segment "
            "begins (segment.size, segment.roll_at); until then radiator.spark.table and `radiator replay --data "
            "--archive` read them from the log, and `radiator export --format parquet` writes them"
        )
    merged = f"; {counted(found.merged_from, 'small file')} became {found.merged_to:,}" if found.merged_to else ""
    if found.vacuumed:
        merged += f"; {counted(found.vacuumed, 'file')} that were merged before were removed"
    text = (
        f"{counted(found.records, 'record')}, {size(found.log_bytes)} of log to {size(found.file_bytes)} in "
        f"{counted(found.files, 'file')}"
    )
    waiting = f"; {found.unsealed:,} more in segments that are still written to" if found.unsealed else ""
    put_text(f"{target}: {text}{waiting}{merged}")
    return code


def _dry_run(data: str, files: Files, options: Options, as_json: bool) -> int:
    from radiator.archive.run import preview

    with reporting_errors(files.uri):
        plan = preview(data, files, options)
    ranges: dict[str, list[int]] = {}
    for unit in plan.units:
        if not unit.ranges:
            continue  # only offsets that are lost
        first, _, total = ranges.get(unit.partition, [unit.first, 0, 0])
        ranges[unit.partition] = [first, unit.following, total + unit.bytes]
    for text in plan.problems.values():
        say(text)
    for lost in plan.lost:
        say(f"{lost.partition}: offsets {lost.first} to {lost.next_offset - 1} would be lost: {lost.why}")
    if as_json:
        put_json({name: {"first": a, "next": b, "log_bytes": c} for name, (a, b, c) in ranges.items()})
    else:
        for name, (first, following, total) in ranges.items():
            put_text(f"{name}: offsets {first} to {following - 1}, {size(total)}")
        text = f"{counted(len(ranges), 'partition')}, {size(plan.bytes)} of sealed segments to archive"
        click.echo(f"{text}; nothing was written")
    return FAILED if plan.problems else OK


archive.add_command(ls)
archive.add_command(files)
archive.add_command(verify)
archive.add_command(convert)
