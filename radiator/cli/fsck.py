"""``radiator fsck``: check whether a store conforms to its format, and repair it.

Findings are printed as they come; the worst one determines the exit code. ``--repair`` checks, repairs under the lock
of the broker, and checks again. What it prints last is what is left.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from radiator.cli.common import (
    DAMAGED,
    NOT_FOUND,
    OK,
    CommandFailed,
    check_readable,
    json_option,
    progress,
    put_json,
    stdout_console,
    unreadable,
)
from radiator.words import counted

if TYPE_CHECKING:
    from rich.progress import Progress

    from radiator.upkeep.findings import Finding
    from radiator.upkeep.fsck import Fsck

SHOWN_OF_A_KIND = 8  # for people; --json has all
MB = 1_000_000
PLURALS = {"damage": "damage", "warning": "warnings", "note": "notes"}


@click.command(short_help="Check or repair a data directory.")
@click.argument("partitions", nargs=-1, metavar="[PARTITION]...")
@click.option("--data", metavar="DIR", default="./data", show_default=True, help="The data directory.")
@click.option("--repair", is_flag=True, help="Repair what can be repaired. No broker may run.")
@click.option(
    "--latest",
    metavar="MOMENT",
    help="Report receive times after MOMENT (now, or a time); with --repair, lower them to it.",
)
@json_option
def fsck(partitions: tuple[str, ...], data: str, repair: bool, latest: str | None, as_json: bool) -> int:
    """Check every byte of a data directory, or of the named PARTITIONs.

    Needs no broker. A running broker is not disturbed; then the committed data is checked.
    """
    check_readable(data)
    if not os.path.isdir(data):
        raise CommandFailed(NOT_FOUND, f"{data}: no such directory; --data names the data_dir of a broker")
    if repair and partitions:
        raise click.UsageError("--repair repairs the whole store; it takes no PARTITION")
    from radiator.upkeep.fsck import Fsck

    latest_ns = _moment(latest)
    data = os.path.normpath(data)
    with progress() as bar:
        look = Look(bar)
        try:
            if repair:
                return _repair(data, look, as_json, latest_ns, lower=latest is not None)
            run = Fsck(data, on_bytes=look.advance, latest_ns=latest_ns)
            look.begin(run.total_bytes(set(partitions) or None))
            findings = list(run.run(set(partitions) or None))
        except PermissionError as error:
            raise unreadable(error.filename or data) from None
    return _report(run, findings, look.seconds, as_json)


def _moment(latest: str | None) -> int:
    """Return the latest receive time that is no finding: as the option says, else now, and a bit for small steps."""
    from radiator import limits
    from radiator.broker.headers.values import parse_time
    from radiator.cli.selection import complete_time
    from radiator.clock import NS_PER_SECOND, now_ns

    if latest is None:
        return now_ns() + int(limits.LOG_AHEAD_SECONDS * NS_PER_SECOND)
    moment = now_ns() if latest == "now" else parse_time(complete_time(latest))
    if moment is None:
        raise click.BadParameter(
            f"expected now, a time such as 2026-01-31T12:00:00Z, or nanoseconds since 1970, got {latest!r}",
            param_hint="--latest",
        )
    return moment


class Look:
    """The progress bar of one check, and its duration."""

    def __init__(self, bar: Progress) -> None:
        self.bar = bar
        self.task = bar.add_task("checking", total=None, note="")
        self.begin(None)

    def begin(self, total: int | None) -> None:
        """Set the total number of bytes."""
        self.started, self.done = time.perf_counter(), 0
        self.bar.reset(self.task, total=total)

    def advance(self, count: int) -> None:
        """Count checked bytes."""
        self.done += count
        self.bar.update(self.task, advance=count, note=f"{self.done / MB / max(self.seconds, 1e-9):,.0f} MB/s")

    @property
    def seconds(self) -> float:
        """The duration of the check so far, in seconds."""
        return time.perf_counter() - self.started


def _repair(data: str, look: Look, as_json: bool, latest_ns: int, lower: bool) -> int:
    from radiator.broker.headers.send import identify
    from radiator.cli.formats import visible
    from radiator.clock import now
    from radiator.upkeep.latest import ClampTimes
    from radiator.upkeep.repair import Repair

    def report_repair(done: str) -> None:
        if as_json:
            put_json({"repaired": done})
        else:
            click.echo(f"repaired  {visible(_named(data, done))}")

    with Repair(data, now(), on_bytes=look.advance, identify=identify, latest_ns=latest_ns) as mending:
        run, findings = mending.check()
        _report(run, findings, look.seconds, as_json)
        for done in mending.run(run, findings):
            report_repair(done)
        look.begin(None)
        run, findings, more = mending.recheck()
        seconds = look.seconds
        for done in more:
            report_repair(done)
    if lower and any(finding.kind == "future" for finding in findings):
        with ClampTimes(data, latest_ns, on_bytes=look.advance) as lowering:
            for done in lowering.run():
                report_repair(done)
            look.begin(None)
            run, findings = lowering.check()
            seconds = look.seconds
    return _report(run, findings, seconds, as_json)


def _report(run: Fsck, findings: list[Finding], seconds: float, as_json: bool) -> int:
    from radiator.upkeep.findings import DAMAGE, SEVERITIES

    numbers = {severity: sum(each.severity == severity for each in findings) for severity in SEVERITIES}
    counts = run.counts
    rate = counts.bytes / MB / max(seconds, 1e-9)
    if as_json:
        for finding in findings:
            put_json({"severity": finding.severity, **asdict(finding)})
        summary = {
            "data_dir": run.root, "live": run.live, "partitions": counts.partitions, "segments": counts.segments,
            "batches": counts.batches, "records": counts.records, "bytes": counts.bytes,
            "seconds": round(seconds, 3), "mb_per_second": round(rate, 1), **numbers,
        }  # fmt: skip
        put_json({"summary": summary})
    else:
        _print(run.root, findings)
        beside = ", beside a running broker" if run.live else ""
        speed = f", {rate:,.0f} MB/s" if counts.bytes >= MB else ""  # of a small store the start takes most of the time
        found = ", ".join(counted(number, each, PLURALS[each]) for each, number in numbers.items() if number)
        click.echo(
            f"{counted(counts.partitions, 'partition')}, {counted(counts.segments, 'segment')}, "
            f"{counted(counts.batches, 'batch', 'batches')}, {counted(counts.records, 'record')}, "
            f"{counted(counts.bytes, 'byte')}{speed}{beside}: {found or 'all is well'}"
        )
    return DAMAGED if numbers[DAMAGE] else OK


def _print(root: str, findings: list[Finding]) -> None:
    from rich.table import Table
    from rich.text import Text

    from radiator.cli.formats import visible
    from radiator.upkeep.findings import SEVERITIES

    if not findings:
        return
    styles = dict(zip(SEVERITIES, ("bold red", "yellow", "dim"), strict=True))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "kind", "bytes", "offsets"):
        table.add_column(heading, no_wrap=True)
    table.add_column("what", overflow="fold")
    shown: dict[str, int] = {}
    for finding in sorted(findings, key=lambda each: SEVERITIES.index(each.severity)):
        shown[finding.kind] = shown.get(finding.kind, 0) + 1
        if shown[finding.kind] <= SHOWN_OF_A_KIND:
            severity = Text(finding.severity, styles[finding.severity])
            offsets = _range(finding.first_offset, finding.last_offset)
            end = None if finding.end is None or finding.start is None else max(finding.end - 1, finding.start)
            table.add_row(
                severity,
                finding.kind,
                _range(finding.start, end),
                offsets,
                Text(visible(_named(root, str(finding)))),
            )
    console = stdout_console()
    console.print(table)
    for kind, number in shown.items():
        if number > SHOWN_OF_A_KIND:
            console.print(f"and {number - SHOWN_OF_A_KIND:,} more {kind}; --json has all")
    console.print()


def _named(root: str, text: str) -> str:
    """Return what is said of a path with the name of its partition instead, and other paths relative to the store."""
    from radiator.storage.layout import PARTITIONS, decode_name

    found = re.match(rf"{re.escape(root)}/{PARTITIONS}/([^/:]+)(?:/([^/:]+))?: ", text)
    if found is None:
        return text.removeprefix(f"{root}/")
    try:
        name = decode_name(found[1])
    except ValueError:  # no partition's directory
        return text.removeprefix(f"{root}/")
    place = f"{name}, {found[2]}" if found[2] else name
    return f"{place}: {text[found.end() :]}"


def _range(first: int | None, last: int | None) -> str:
    if first is None or last is None:
        return ""
    return str(first) if first == last else f"{first}-{last}"
