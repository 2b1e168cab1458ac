"""``radiator replay``: send records of a data directory or an archive to a broker, at their original pace."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Set
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import click

from radiator.cli.common import (
    DAMAGED,
    INTERRUPTED,
    OK,
    BrokerOptions,
    CommandFailed,
    connection_options,
    header_option,
    json_option,
    parsed,
    progress,
    put_json,
    put_text,
    say,
    size,
)
from radiator.cli.hints import warn_of_slips
from radiator.cli.selection import check_store, destinations_of, read_selection, selection_options, warn_unknown
from radiator.cli.signals import stop_on_signals
from radiator.clock import NS_PER_SECOND, rfc3339
from radiator.config.units import format_duration_ns
from radiator.errors import ProtocolError
from radiator.replay.schedule import Speed, parse_speed
from radiator.stopping import Stopping
from radiator.words import counted

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from radiator.client.reliable import OnReceipts, ReliableSender
    from radiator.export.rows import Row
    from radiator.replay.messages import Targets
    from radiator.replay.sources import Sources
    from radiator.replay.work import Result


@click.command(short_help="Send records of a store or an archive to a broker.")
@click.option("--data", metavar="DIR", help="A data directory, or a backup. Without --archive: ./data.")
@click.option("--archive", metavar="URI", help="An archive. With --data the log continues where the archive ends.")
@click.option("--to", "template", metavar="NAME", required=True,
              help="Destination. {name} is that of the record, {1} the text of its first wildcard.")  # fmt: skip
@selection_options
@click.option(
    "--where", "selector", metavar="SELECTOR", help="Only records that match, as with the selector of SUBSCRIBE."
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Send at most N records.")
@click.option("--speed", default="original", show_default=True, metavar="SPEED", callback=parsed(parse_speed),
              help="original, a factor such as 10x or 0.5x, a rate such as 100/s, or max.")  # fmt: skip
@click.option("--clock", type=click.Choice(("receive", "event")), default="receive", show_default=True,
              help="Time that sets the pace: receive-time or event-time.")  # fmt: skip
@header_option("Add a header. May be repeated.")
@click.option("--id", "name", metavar="NAME",
              help="Id of this replay. The same command with the same id stores only what is missing.")  # fmt: skip
@click.option("--resume", metavar="FILE", type=click.Path(dir_okay=False),
              help="File for the progress. If it exists, continue there.")  # fmt: skip
@click.option("--skip-damaged", is_flag=True, help="Report and leave out unreadable records instead of failing.")
@click.option("--dry-run", is_flag=True, help="Print what would be sent, and how long it would take.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before records of all destinations are sent to one.")
@connection_options
@json_option
def replay(
    data: str | None, archive: str | None, template: str, destinations: str | None, partitions: tuple[str, ...],
    start: str, stop: str | None, selector: str | None, limit: int | None, speed: Speed, clock: str,
    headers: dict[str, str], name: str | None, resume: str | None, skip_damaged: bool, dry_run: bool,
    yes: bool, broker: BrokerOptions, as_json: bool,
) -> int:  # fmt: skip
    """Send records of a data directory, an archive, or both to a broker, in the order of their receive times.

    The store may belong to the same broker or to another. Records that are committed when the command begins are
    replayed. An archive needs the extra radiator-broker[parquet].
    """
    from radiator.client.sending import check_headers
    from radiator.replay.messages import Targets
    from radiator.replay.progress import Progress
    from radiator.replay.schedule import Schedule
    from radiator.replay.sources import Sources
    from radiator.replay.work import Replay
    from radiator.routing.pattern import parse_list

    if data is None and archive is None:
        data = "./data"
    if data is not None:
        check_store(data)
    continues = resume is not None or name is not None  # then an earlier run may have stored some of the messages
    if continues:
        _check_fixed(start, stop)
    chosen = {**_read_from(data, archive), "to": template, "destination": destinations,
              "partitions": sorted(partitions), "from": start, "until": stop, "where": selector}  # fmt: skip
    done = Progress(resume, chosen, name)
    starts = dict(done.next_offsets)
    losses = Losses(skip_damaged)
    try:
        check_headers(headers)
        selection = replace(read_selection(start, stop, destinations, partitions), starts=starts)
        targets = Targets(template, None if destinations is None else parse_list(destinations))
        sources = Sources(selection, data, archive, losses, _settled, selector)
    except (ValueError, ProtocolError) as error:
        raise click.UsageError(str(error).replace("header selector", "--where")) from None
    known = _known(data, sources)
    warn_unknown(destinations, known, " or ".join(filter(None, (data, archive))))
    if dry_run:
        return _dry_run(sources, targets, Schedule(speed), clock == "event", limit, losses, as_json)

    warn_of_slips([template])
    if not (destinations or partitions or selector or starts or yes or "{" in template):
        _confirm_all(template, known)
    bar, stopping = progress(), Stopping()
    work = Replay(
        partial(_sender, broker, continues), targets, Schedule(speed), done, by_event_time=clock == "event",
        added=headers, on_step=_shown_on(bar), stopping=stopping,
    )  # fmt: skip
    started = time.monotonic()
    complete = False
    try:
        with bar, stop_on_signals(stopping):
            work.run(islice(sources.rows(), limit))
        complete = not stopping.is_set()
    finally:
        if not complete:
            _report_stored(work.result, None if resume is not None else done.name)
        if work.result.sent:
            done.write()
    if as_json:
        seconds = round(time.monotonic() - started, 6)
        put_json({"id": done.name, **_summary(work.result), "seconds": seconds, "lost": losses.found})
    else:
        _print(work.result, complete and bool(starts))
    return INTERRUPTED if not complete else DAMAGED if losses.found else OK


def _check_fixed(*positions: str | None) -> None:
    """Check that each run selects the same records."""
    from radiator.clock import relative_time

    if any(text is not None and relative_time(text, 0) is not None for text in positions):
        raise click.UsageError("a time relative to now changes with each run: with --resume and --id use @TIME")


def _known(data: str | None, sources: Sources) -> set[str] | None:
    """Return all destinations of log and archive, or None if a list of names is incomplete."""
    logged = set() if data is None else destinations_of(data)
    return None if logged is None or sources.archived_names is None else logged | sources.archived_names


def _sender(broker: BrokerOptions, receipt_each: bool, on_receipts: OnReceipts) -> ReliableSender:
    """Return a sender. ``receipt_each``: so that the broker reports which messages were stored before."""
    from radiator.client.reliable import ReliableSender

    return ReliableSender(
        lambda policy: broker.connect(transmit_time=False, reconnect=policy),
        patience_seconds=broker.timeout,
        receipt_each=receipt_each,
        on_receipts=on_receipts,
    )


def _shown_on(bar: Bar) -> Callable[[Result, Row], None]:
    """Return a function that shows how far the replay came."""
    task = bar.add_task("replaying", total=None, note="")

    def show(result: Result, row: Row) -> None:
        if result.sent % 256 == 1 or result.sent - result.stored < 2:
            bar.update(task, note=f"{result.stored:,} stored, at {_moment(row.receive_ns)}")

    return show


def _print(result: Result, continued: bool) -> None:
    """Print what was sent. ``continued``: an earlier run of the replay has sent records."""
    before = f", {result.repeats:,} of them were stored before" if result.repeats else ""
    sent = "nothing: all selected records were sent before" if continued and not result.sent else _describe(result)
    put_text(f"sent {sent}{before}")


def _report_stored(result: Result, name: str | None) -> None:
    again = "" if name is None else f" with --id {name}"
    say(
        f"{counted(result.stored, 'message')} stored for certain before this; "
        f"the same command{again} stores only what is missing"
    )


def _confirm_all(target: str, known: Set[str] | None) -> None:
    """Confirm at a terminal, or else report, that the messages of all destinations are sent to one."""
    if known is not None and len(known - {target}) < 2:
        return
    what = "every destination" if known is None else f"all {counted(len(known), 'destination')}"
    if sys.stdin.isatty() and sys.stderr.isatty():
        click.confirm(f"send the messages of {what} to {target}? (--destination selects some)", abort=True, err=True)
    else:
        say(f"sending the messages of {what} to {target}; --destination selects some")


class Losses:
    """Records that cannot be read: an error, or reported and left out."""

    def __init__(self, skip: bool) -> None:
        self.skip = skip
        self.found: list[dict[str, Any]] = []

    def __call__(self, partition: str, first: int, last: int, why: str) -> None:
        """Report records that cannot be read.

        Raises:
            CommandFailed: They are not to be left out.
        """
        text = f"{partition}: offsets {first} to {last} cannot be read ({why})"
        if not self.skip:
            raise CommandFailed(DAMAGED, f"{text}; --skip-damaged leaves them out")
        say(text)
        self.found.append({"partition": partition, "first": first, "last": last, "why": why})


def _settled(partition: str, first: int, last: int, why: str) -> None:
    say(f"{partition}: offsets {first} to {last} are not replayed: {why}")


def _read_from(data: str | None, archive: str | None) -> dict[str, str | None]:
    """Return what identifies the source of the records in any working directory, without secrets of a URI."""
    from hashlib import blake2b

    from radiator.storage import layout
    from radiator.storage.files import FileSystem, read_file
    from radiator.storage.salt import decode_key

    place = None if archive is None else urlsplit(archive)
    if place is not None and archive is not None:
        remote = "://" in archive and place.scheme not in ("file", "local")
        shown = f"{place.scheme}://{place.netloc.rpartition('@')[2]}{place.path}"
        archive = shown if remote else os.path.abspath(unquote(place.path) if place.scheme else archive)
    if data is None:
        return {"data": None, "store": None, "archive": archive}
    key = decode_key(read_file(FileSystem(), layout.salt_path(data)))
    store = None if key is None else blake2b(key, digest_size=16).hexdigest()
    return {"data": os.path.abspath(data), "store": store, "archive": archive}


def _dry_run(
    sources: Sources, targets: Targets, schedule: Any, by_event_time: bool, limit: int | None, losses: Losses,
    as_json: bool,
) -> int:  # fmt: skip
    from radiator.replay.work import Result

    result, due_ns = Result(), 0
    for row in islice(sources.rows(), limit):
        result.count(row, targets.of(row.destination))
        due_ns = schedule.due_ns(row.event_ns if by_event_time else row.receive_ns)
    seconds = due_ns / NS_PER_SECOND
    if as_json:
        put_json({"dry_run": True, **_summary(result), "seconds": round(seconds, 6), "lost": losses.found})
    else:
        shown = f"{seconds:.1f} s" if seconds < 60 else format_duration_ns(int(seconds) * NS_PER_SECOND)
        put_text(f"would send {_describe(result)}{f', in {shown} at least' if result.sent else ''}")
    return DAMAGED if losses.found else OK


def _summary(result: Result) -> dict[str, Any]:
    return {
        "messages": result.sent,
        "stored": result.stored,
        "repeats": result.repeats,
        "body_bytes": result.body_bytes,
        "first_receive_ns": result.first_ns,
        "last_receive_ns": result.last_ns,
        "destinations": result.targets,
    }


def _describe(result: Result) -> str:
    if result.first_ns is None or result.last_ns is None:
        return "nothing: no record is selected"
    where = ", ".join(f"{name} ({count:,})" for name, count in list(result.targets.items())[:3])
    others = len(result.targets) - 3
    more = f" and {others:,} other{'s' * (others > 1)}" if others > 0 else ""
    span = f"of {_moment(result.first_ns)} to {_moment(result.last_ns)}"
    return f"{counted(result.sent, 'message')} ({size(result.body_bytes)}) {span} to {where}{more}"


def _moment(ns: int) -> str:
    return f"{rfc3339(ns)[:19]}Z"
