"""``radiator cursors``: list, move, delete and sample cursors over the admin channel of a running broker."""

from __future__ import annotations

import glob
import itertools
import json
import time
from typing import TYPE_CHECKING, Any

import click

from radiator.cli.common import (
    NOT_FOUND,
    OK,
    BrokerOptions,
    CommandFailed,
    confirm,
    connection_options,
    json_option,
    put_json,
    put_result,
    put_text,
)
from radiator.clock import NS_PER_SECOND
from radiator.words import counted

if TYPE_CHECKING:
    from radiator.client import Connection

SAMPLES = "/topic/ops.cursors"
FIELDS = ("cursor", "destination", "partition", "position", "end", "lag", "in_flight", "members")  # of a sample
STDOUT = "-"


@click.group(short_help="List, sample, move and delete cursors.")
def cursors() -> None:
    """List, sample, move and delete the cursors of queues, durable subscriptions and groups of a running broker.

    Needs the admin right over everything; to list and sample, the monitor right suffices. The name of a cursor is
    queue:NAME, sub:NAME or group:NAME. A name without prefix is looked up as a subscription first, then as a group,
    then as a queue.
    """


@cursors.command(short_help="List cursors: position, end, lag.")
@click.argument("match", default="*")
@connection_options
@json_option
def ls(match: str, broker: BrokerOptions, as_json: bool) -> int:
    """List cursors: position, end, lag, unacknowledged messages, and the number of consumers.

    MATCH is a name, with * for any characters.
    """
    _show(broker.ask_all("cursors.ls", "cursors", match=match), as_json)
    return OK


@cursors.command("set", short_help="Move a cursor.")
@click.argument("name")
@click.argument("position")
@click.option("--destination", metavar="NAME", help="Only for the logs of this destination.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@connection_options
@json_option
def set_(name: str, position: str, destination: str | None, yes: bool, broker: BrokerOptions, as_json: bool) -> int:
    """Move the cursor NAME to POSITION: first, next, last:N, offset:N, time:T or ago:D.

    Messages from there on are delivered, again if they were before. Messages before it are settled.
    """
    from radiator.client.admin import ask

    args = {"name": name, "position": position} | ({"destination": destination} if destination else {})
    with broker.connect_admin() as connection:
        if not yes:
            _require(connection, name)
        confirm(f"move {name} to {position}", yes)
        moved = ask(connection, "cursors.set", **args)["cursors"]
    _show(moved, as_json)
    return OK


@cursors.command(short_help="Delete a durable subscription or a group.")
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@connection_options
@json_option
def rm(name: str, yes: bool, broker: BrokerOptions, as_json: bool) -> int:
    """Delete the durable subscription or group NAME, with its position. It then holds back no retention."""
    from radiator.client.admin import ask

    with broker.connect_admin() as connection:
        if not yes:
            _require(connection, name)
        confirm(f"delete {name}", yes)
        deleted = ask(connection, "cursors.rm", name=name)["cursor"]
    put_result(as_json, {"cursor": deleted}, f"{deleted} is deleted")
    return OK


def _require(connection: Connection, name: str) -> None:
    """Check that a cursor exists.

    Raises:
        CommandFailed: It does not exist. The message is that of the broker.
    """
    from radiator.client.admin import ask

    if not ask(connection, "cursors.ls", match=glob.escape(name), limit=1)["cursors"]:
        raise CommandFailed(NOT_FOUND, f"there is no cursor {name!r} (not-found): `radiator cursors ls` lists them.")


@cursors.command(short_help="Publish the lag of cursors at an interval.")
@click.argument("match", default="*")
@click.option("--to", "target", metavar="NAME|-", default=SAMPLES, show_default=True,
              help="The topic to publish to; - is standard output.")  # fmt: skip
@click.option("--every", metavar="WIDTH", default="30s", show_default=True, help="Interval between samples.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after N samples. Default: never.")
@connection_options
@json_option
def sample(match: str, target: str, every: str, count: int | None, broker: BrokerOptions, as_json: bool) -> int:
    """Publish the position and the lag of every cursor at an interval, for `radiator report lag`.

    A sample is one JSON message for each cursor and log, all with the same time. MATCH is a name, with * for any
    characters.
    """
    from radiator.broker.headers.values import parse_duration

    every_ns = parse_duration(every)
    if not every_ns:
        raise click.UsageError(f"--every: expected a duration such as 30s or 5m, got {every!r}")
    with broker.connect() as connection:
        taken, published = _sample(connection, match, target, every_ns, count)
    if as_json:
        put_json({"samples": taken, "published": published, "to": target})
    elif target != STDOUT:
        put_text(f"{counted(taken, 'sample')}, {counted(published, 'message')} to {target}")
    return OK


def _sample(connection: Connection, match: str, target: str, every_ns: int, count: int | None) -> tuple[int, int]:
    """Take ``count`` samples, or continue until interrupted, and return the number of samples and of messages.

    A sample has one message per cursor and log, published in one transaction. A sample that takes long does not shift
    later ones, and missed samples are skipped.
    """
    from radiator.client.admin import ask_all

    started, published = time.monotonic_ns(), 0
    for taken in itertools.count(1):
        now_ns = time.time_ns()
        found = [
            {"time_ns": now_ns, **{name: row[name] for name in FIELDS}}
            for row in ask_all(connection, "cursors.ls", "cursors", match=match)
            if row["partition"]
        ]
        rows = [json.dumps(row, ensure_ascii=False) for row in found]
        if target == STDOUT:
            for row in rows:
                click.echo(row)
        elif rows:
            headers = {"content-type": "application/json", "event-time": str(now_ns)}
            connection.send_many([(target, row.encode(), headers) for row in rows], transaction=True)
        published += len(rows)
        if taken == count:
            break
        passed = time.monotonic_ns() - started
        time.sleep((every_ns - passed % every_ns) / NS_PER_SECOND)
    return taken, published


def _show(found: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        put_json({"cursors": found})
        return
    from radiator.cli.tables import Column, print_table

    figures = {
        "position": 2,
        "end": 3,
        "lag": 0,
        "in_flight": 0,
        "members": 0,
    }  # figure: order in which a narrow terminal drops it
    rows = [
        [
            each["cursor"],
            each["destination"],
            (each["partition"] or "-") + _remark(each),
            *(f"{each[figure]:,}" for figure in figures),
        ]
        for each in found
    ]
    same = all(destination == partition for _, destination, partition, *_ in rows)
    columns = (
        Column("cursor"), Column("destination", drop=1), Column("partition", drop=4 if same else 0),
        *(Column(figure.replace("_", " "), number=True, drop=drop) for figure, drop in figures.items()),
    )  # fmt: skip
    print_table(columns, rows)


def _remark(row: dict[str, Any]) -> str:
    """Return a note for a log that no rule names any more, or for a paused queue."""
    if row.get("undelivered"):
        return f" (not delivered: {row['undelivered']})"
    return " (orphaned)" if row.get("orphaned") else " (paused)" if row.get("paused") else ""
