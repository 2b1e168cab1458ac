"""``radiator bench``: measure a broker and print a table.

Without ``--url`` and ``--compare`` it starts a broker on a free port with a temporary data directory, and removes both
at the end. ``radiator.bench.cells`` defines the measurements; separate processes generate the load.
``docs/performance.md`` has the figures of this project and how they were measured.
"""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from radiator.cli.common import (
    FAILED,
    NOT_FOUND,
    OK,
    UNREACHABLE,
    CommandFailed,
    json_option,
    progress,
    put_json,
    say,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from radiator.bench.cells import Cell
    from radiator.bench.run import Row
    from radiator.bench.target import Target

QUICK_SECONDS = 0.3
START = "start"
CONNECT_SECONDS = 10.0

# Columns of the table: figure of a row -> heading, format
COLUMNS = {
    "per_second": ("msg/s", "{:,.0f}"),
    "broker_cpu_us": ("broker CPU µs/msg", "{:.2f}"),
    "p50_ms": ("p50 ms", "{:.2f}"),
    "p99_ms": ("p99 ms", "{:.2f}"),
    "own_cpu_us": ("load CPU µs/msg", "{:.2f}"),
}


@click.command(short_help="Measure a broker: throughput, latency, memory.")
@click.option("--url", metavar="URL", help="Measure the broker at URL instead of a new radiator.")
@click.option(
    "--compare", metavar="URL", multiple=True,
    help="Measure this broker too, interleaved with the others: stomp://[LOGIN:PASSCODE@]HOST:PORT[?name=...&"
    "vhost=...&pid=...&send=NAME:VALUE&subscribe=NAME:VALUE&replay=NAME:VALUE&skip=REGEX]. May be repeated.",
)  # fmt: skip
@click.option("--only", metavar="REGEX", help="Only measurements whose names match.")
@click.option("--list", "list_cells", is_flag=True, help="List the measurements.")
@click.option(
    "--seconds", type=click.FloatRange(min=0.05), default=1.0, show_default=True, help="Length of one timed run."
)
@click.option("--quick", is_flag=True, help=f"The same as --seconds {QUICK_SECONDS}.")
@click.option("--rounds", type=click.IntRange(min=1), default=1, show_default=True, help="Rounds; the median counts.")
@click.option("--config", metavar="FILE", type=click.Path(dir_okay=False), help="Configuration of the new radiator.")
@click.option("--data", metavar="DIR", type=click.Path(file_okay=False), help="Directory for its temporary data.")
@json_option
def bench(
    url: str | None, compare: tuple[str, ...], only: str | None, list_cells: bool, seconds: float, quick: bool,
    rounds: int, config: str | None, data: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Measure a broker: durable produce, fan-out, drain, replay, latency, memory, start-up.

    Numbers on a shared machine vary by 20 to 30 %; the broker's CPU time per message varies least.
    """
    from radiator.bench.cells import table
    from radiator.bench.target import default_directory

    wanted = _matcher(only)
    chosen = [cell for cell in table(QUICK_SECONDS if quick else seconds) if wanted(cell.name)]
    if list_cells:
        for cell in chosen:
            click.echo(f"{cell.name:22} {cell.about}")
        return OK
    starts = url is None and wanted(START)
    if not chosen and not starts:
        raise CommandFailed(NOT_FOUND, f"--only {only}: no measurement matches; --list shows them")
    parent = data or default_directory()
    rows = _measure(chosen, starts, url, compare, rounds, parent, config)
    if as_json:
        put_json({"machine": machine(parent), "rows": [row.as_json() for row in rows]})
    else:
        _print(rows, machine(parent))
    failures = [row for row in rows if row.error]
    for row in failures:
        say(f"{row.cell} on {row.target}: {row.error}")
    return FAILED if failures else OK


def _measure(
    cells: list[Cell],
    starts: bool,
    url: str | None,
    compare: tuple[str, ...],
    rounds: int,
    parent: str,
    config: str | None,
) -> list[Row]:
    """Measure the start (``starts``) and the cells, with a progress bar, and return the rows."""
    from radiator.bench.run import Bench, start_up
    from radiator.bench.target import OwnBroker, parse

    rows: list[Row] = []
    with ExitStack() as stack:
        bar = stack.enter_context(progress())
        total = len(cells) * rounds * (len(compare) + 1) + (3 if starts else 0)
        task = bar.add_task("measuring", total=total, note="")

        def note(cell: str, target: str) -> None:
            bar.update(task, advance=1, note=f"{cell} on {target}")

        targets = [parse(peer) for peer in compare]
        given = [parse(url)] if url else []
        for target in (*given, *targets):
            _check(target)
        if starts:
            rows.append(start_up(parent, config, note))
        if cells:
            own = given or [stack.enter_context(OwnBroker(parent, config)).target()]
            rows += Bench([*own, *targets], rounds, note).rows(cells)
    return rows


def _check(target: Target) -> None:
    """Raise CommandFailed if no process listens at the address, before every measurement fails there."""
    from radiator.client.errors import reason

    try:
        socket.create_connection((target.host, target.port), CONNECT_SECONDS).close()
    except OSError as error:
        text = f"cannot connect to {target.host}:{target.port}: {reason(error)}; is a broker running there?"
        raise CommandFailed(UNREACHABLE, text) from None


def _matcher(only: str | None) -> Any:
    try:
        pattern = re.compile(only or "")
    except re.error as error:
        raise click.BadParameter(f"--only: expected a regular expression ({error}), got {only!r}") from None
    return lambda name: bool(pattern.search(name))


def machine(parent: str) -> dict[str, Any]:
    """Return a description of this machine for the results."""
    from radiator.bench.process import filesystem

    model = ""
    try:
        with open("/proc/cpuinfo") as info:
            model = next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), "")
    except OSError:
        pass
    python = f"{platform.python_implementation()} {platform.python_version()}"
    system = f"{platform.system()} {platform.release()}"
    return {
        "cpus": os.cpu_count(),
        "cpu": model,
        "python": python,
        "system": system,
        "filesystem": filesystem(parent) or None,
    }


def _print(rows: Iterable[Row], about: dict[str, Any]) -> None:
    from radiator.cli.tables import Column, print_table

    rows = list(rows)
    several = len({row.target for row in rows}) > 1
    columns = [Column(heading, number=True) for heading, _ in COLUMNS.values()]
    cells = [
        [
            row.cell,
            *([row.target] if several else []),
            *(_shown(row.figures.get(figure), form) for figure, (_, form) in COLUMNS.items()),
            _remark(row),
        ]
        for row in rows
    ]
    print_table([Column("cell"), *([Column("broker")] if several else []), *columns, Column("")], cells)
    line = f"{about['cpus']} CPUs {about['cpu']}, {about['python']}, {about['system']}"
    click.echo(f"{line}, data on {about['filesystem'] or 'an unknown file system'}")
    if about["filesystem"] in ("tmpfs", "ramfs"):
        say("the data was in memory, so the durable numbers are too good; choose a directory on a disk with --data")
    sys.stdout.flush()


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _remark(row: Row) -> str:
    """Return the figures of a cell that have no column."""
    figures = row.figures
    if row.error:
        return "failed"
    memory = figures.get("bytes_per_connection")
    if memory is not None:
        return f"{memory / 1024:.1f} KiB per connection"
    start = figures.get("start_seconds")
    if start is not None:
        return f"{start:.3f} s"
    receipt = figures.get("receipt_p50_ms")
    if receipt is not None:
        return f"receipts {receipt:.2f} / {figures['receipt_p99_ms']:.2f} ms"
    return ""
