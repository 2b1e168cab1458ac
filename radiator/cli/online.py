"""Commands over the admin channel of a running broker, beside those of their own modules.

``clients``, ``clock``, ``disconnect``, ``drain``, ``maintain``, ``pause``, ``resume``, ``stats``, and ``ls --url``.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

import click

from radiator.cli.common import (
    FAILED,
    OK,
    BrokerOptions,
    CommandFailed,
    confirm,
    connection_options,
    json_option,
    progress,
    put_json,
    put_result,
    put_text,
    say,
    size,
)
from radiator.limits import DRAIN_SECONDS, DRAIN_SECONDS_MAX
from radiator.words import counted

COUNTED = ("ready", "in_flight", "delayed")  # figures of queues that are always shown
SELDOM = ("dead_lettering", "unchecked")  # figures that are shown if not zero
DROPPED = {"total": 4, "delayed": 3}  # order in which a narrow terminal drops figures
TEMPORARY = "/temp-queue/"
LOOKING_SECONDS, LOOK_SECONDS = 1.0, 0.02
PAGE = 1_000  # entries of an answer of the broker at most
DRAINED_SECONDS = 30.0  # beyond the period, until the broker answers that it is drained
MAINTAIN_LOOK_SECONDS = 0.2
MAINTAINED = {"retention": "removed", "compaction": "rewritten"}  # segments
SECTIONS = {"stats": "since the start", "now": "now", "store": "store"}


def list_destinations(
    broker: BrokerOptions, as_json: bool, pattern: str | None, sort: str | None, limit: int | None
) -> int:
    """Run ``radiator ls --url``, and return the exit code."""
    args: dict[str, Any] = {} if pattern is None else {"match": pattern}
    if sort is not None:
        args |= {"sort": sort, "descending": sort != "name"}
    if limit is not None:
        args["limit"] = min(limit, PAGE)
    found = _destinations(broker, args, limit)
    if as_json:
        put_json({"destinations": found})
        return OK
    from radiator.cli.tables import Column, print_table

    fields = [*COUNTED, *(name for name in SELDOM if any(each.get(name) for each in found)), "total"]
    rows = [
        [
            each["name"],
            _kind(each),
            *(_count(each[name]) if name in each else "-" for name in fields),
            _count(each["subscribers"]),
            size(each["bytes"]),
            _offsets(each),
        ]
        for each in found
    ]
    columns = [
        Column("destination"), Column("kind", drop=1),
        *(Column(name.replace("_", " "), number=True, drop=DROPPED.get(name, 0)) for name in fields),
        Column("subscribers", number=True), Column("size", number=True, drop=2), Column("offsets", drop=5),
    ]  # fmt: skip
    print_table(columns, rows)
    return OK


def _kind(destination: dict[str, Any]) -> str:
    kind: str = "fan_out" if "fan_out" in destination else destination["kind"]
    return f"{kind} (paused)" if destination.get("paused") else kind


def _destinations(broker: BrokerOptions, args: dict[str, Any], limit: int | None) -> list[dict[str, Any]]:
    """Return all destinations that match, or the first ``limit`` of them.

    After a restart each request makes the broker examine some stored messages. So the request is repeated for a short
    time while the counts are not complete.
    """
    from radiator.client.admin import ask_all as pages

    end = time.monotonic() + LOOKING_SECONDS
    with broker.connect_admin() as connection:
        while True:
            found = list(islice(pages(connection, "destinations.ls", "destinations", **args), limit))
            if not any(each.get("unchecked") for each in found) or time.monotonic() > end:
                return found
            time.sleep(LOOK_SECONDS)


@click.command(short_help="List the clients of a running broker.")
@click.option(
    "--match", default="*", show_default=True, metavar="TEXT", help="Match session, user or address; * is any text."
)
@connection_options
@json_option
def clients(match: str, broker: BrokerOptions, as_json: bool) -> int:
    """List the clients of a running broker: user, address, version, subscriptions, unacknowledged messages.

    Needs the monitor right. The list includes the connection of this command.
    """
    found = broker.ask_all("clients.ls", "clients", match=match)
    if as_json:
        put_json({"clients": found})
        return OK
    if not found:
        put_text(f"no client matches {match}")
        return OK
    from radiator.cli.formats import to_the_second
    from radiator.cli.tables import Cell, Column, print_table

    rows: list[list[Cell]] = []
    for each in found:
        names = [_subscribed(subscription["destination"]) for subscription in each["subscriptions"]]
        more = each["subscription_count"] - len(names)
        rows.append(
            [
                each["session"],
                each["user"] or "-",
                each["address"],
                each["version"],
                to_the_second(each["since_ns"]) if each["since_ns"] else "not yet",
                [*names, f"and {more} more"] if more > 0 else names,
                _count(each["window"]),
                _count(each["in_flight"]),
            ]
        )
    columns = (
        Column("session"), Column("user"), Column("address", drop=1), Column("version", drop=4),
        Column("since", drop=3), Column("subscriptions"),
        Column("window", number=True, drop=2), Column("in flight", number=True),
    )  # fmt: skip
    print_table(columns, rows)
    return OK


def _subscribed(destination: str) -> str:
    """Return the destination of a subscription, shortened for temporary queues, whose names are random and long."""
    return f"{TEMPORARY}..." if destination.startswith(TEMPORARY) else destination


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _offsets(destination: dict[str, Any]) -> list[str]:
    shown = [f"{each['first_offset']}-{each['next_offset']}" for each in destination["partitions"][:3]]
    more = destination["partition_count"] - len(shown)
    return [*shown, f"and {more} more"] if more > 0 else shown


@click.command(short_help="Show whether a broker trusts its clock, or confirm a step.")
@click.option("--accept", is_flag=True, help="Confirm that the wall clock is right after a step forward.")
@connection_options
@json_option
def clock(accept: bool, broker: BrokerOptions, as_json: bool) -> int:
    """Show whether a running broker trusts its wall clock.

    After a step forward nothing expires, and retention removes nothing because of the step, until it is confirmed:
    after some time, or with --accept. Needs the monitor right, and --accept the admin right over everything.
    """
    from radiator.clock import NS_PER_SECOND, rfc3339

    facts = broker.ask("clock.accept" if accept else "clock")
    if as_json:
        put_json({"clock": facts})
        return OK
    names = ("ahead_ns", "confirmed_in_ns")
    ahead, left = (round(facts[name] / NS_PER_SECOND) for name in names)
    click.echo(f"wall clock  {rfc3339(facts['wall_ns'])}")
    if accept and facts["accepted_ns"]:
        click.echo(f"a step forward of {round(facts['accepted_ns'] / NS_PER_SECOND)} s is confirmed")
    elif facts["ahead_ns"]:
        click.echo(f"trusted     {rfc3339(facts['trusted_ns'])}")
        click.echo(f"the clock stepped forward by {ahead} s; this is confirmed in {left} s, or with --accept")
    else:
        click.echo("the clock is trusted")
    return OK


@click.command(short_help="Deliver no more messages of a queue.")
@click.argument("name")
@connection_options
@json_option
def pause(name: str, broker: BrokerOptions, as_json: bool) -> int:
    """Deliver no more messages of the queue NAME until `radiator resume`, also after a restart of the broker.

    Clients can go on to send and to settle what they have. sub:NAME and group:NAME are durable subscriptions. Needs the
    admin right.
    """
    return _set_paused(broker, "queues.pause", name, as_json)


@click.command(short_help="Deliver the messages of a paused queue again.")
@click.argument("name")
@connection_options
@json_option
def resume(name: str, broker: BrokerOptions, as_json: bool) -> int:
    """Deliver the messages of the queue NAME again. Needs the admin right."""
    return _set_paused(broker, "queues.resume", name, as_json)


def _set_paused(broker: BrokerOptions, verb: str, name: str, as_json: bool) -> int:
    done = broker.ask(verb, name=name)
    put_result(as_json, done, f"{done['name']} {'is paused' if done['paused'] else 'delivers'}")
    return OK


@click.command(short_help="End the connection of a client.")
@click.argument("session")
@click.option("--reason", metavar="TEXT", default="", help="The text that the client gets in the ERROR.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@connection_options
@json_option
def disconnect(session: str, reason: str, yes: bool, broker: BrokerOptions, as_json: bool) -> int:
    """End the connection SESSION, which `radiator clients` lists. Its unacknowledged messages are requeued at once.

    The client gets an ERROR with the code `disconnected`, and may connect again. Needs the admin right over everything.
    """
    from radiator.client.admin import ask

    with broker.connect_admin() as connection:
        if not yes:
            ask(connection, "clients.show", session=session)  # an unknown client is an error, and no question
        confirm(f"disconnect {session}", yes)
        done = ask(connection, "clients.disconnect", session=session, reason=reason)["disconnected"]
    put_result(as_json, {"disconnected": done}, f"{done} is disconnected")
    return OK


@click.command(short_help="Disconnect the clients of a broker before it stops.")
@click.option("--seconds", type=click.IntRange(0, DRAIN_SECONDS_MAX), metavar="N",
              help=f"Period over which the clients are disconnected.  [default: {DRAIN_SECONDS}]")  # fmt: skip
@click.option("--cancel", is_flag=True, help="Accept clients again.")
@connection_options
@json_option
def drain(seconds: int | None, cancel: bool, broker: BrokerOptions, as_json: bool) -> int:
    """Disconnect the clients of a running broker before it stops, and wait until they are gone.

    From the start of the period the broker refuses new clients, and /ready answers 503. Each client first gets time to
    acknowledge its messages, and an ERROR. The broker runs on: stop it, or end the drain with --cancel. Needs the
    admin right over everything.
    """
    if cancel and seconds is not None:
        raise click.UsageError("--cancel takes no --seconds")
    args = {} if seconds is None else {"seconds": seconds}
    state = broker.ask("broker.drain", **({"cancel": True} if cancel else args))
    if not cancel:
        left = state["connections"]
        within = state["ends_in_seconds"] or 0
        if not as_json:
            say(f"draining: {counted(left, 'connection')} to disconnect within {within} s; new clients are refused")
        patient = broker._replace(timeout=within + DRAINED_SECONDS)
        try:
            state = patient.ask("broker.drain", wait=True)
        except KeyboardInterrupt:
            say("the drain continues; `radiator drain --cancel` ends it")
            raise
        if not state["draining"]:
            raise CommandFailed(FAILED, "the drain was cancelled")
    text = "clients are accepted again" if cancel else "drained: no client is connected"
    put_result(as_json, {"drain": state}, text)
    return OK


@click.command(short_help="Run retention, compaction and a checkpoint now.")
@click.option("--retention", is_flag=True, help="Remove sealed segments that the rules do not keep.")
@click.option("--compact", is_flag=True, help="Rewrite sealed segments: compact_by, acknowledged messages, compress.")
@click.option("--checkpoint", is_flag=True, help="Sync the segments of all logs, and free the journal.")
@click.option("--match", metavar="PATTERN", help="Only logs with messages of these destinations, as in SUBSCRIBE.")
@connection_options
@json_option
def maintain(
    retention: bool, compact: bool, checkpoint: bool, match: str | None, broker: BrokerOptions, as_json: bool
) -> int:
    """Run retention, compaction and a checkpoint of a running broker now, and wait for the end.

    Without options it does everything. Needs the admin right over everything. If this command is interrupted, the
    broker continues.
    """
    from radiator.client.admin import ask

    wanted = {"retention": retention, "compaction": compact, "checkpoint": checkpoint}
    tasks = [name for name, asked in wanted.items() if asked] or list(wanted)
    args = {} if match is None else {"match": match}
    with broker.connect_admin() as connection, progress() as bar:
        task = bar.add_task("maintaining", total=None, note="")
        found = ask(connection, "maintenance.run", tasks=tasks, background=True, **args)
        while found["running"]:
            bar.update(task, total=found["logs"] or None, completed=found["logs_done"], note=_maintained(found["done"]))
            time.sleep(MAINTAIN_LOOK_SECONDS)
            found = ask(connection, "maintenance.status")
    put_result(as_json, {"done": found["done"], "failed": found["failed"]}, _maintained(found["done"]))
    if found["failed"]:
        click.echo(f"{counted(found['failed'], 'job')} failed; see the log of the broker", err=True)
        return FAILED
    return OK


def _maintained(done: dict[str, int]) -> str:
    parts = [f"{counted(done[name], 'segment')} {what}" for name, what in MAINTAINED.items() if name in done]
    if "checkpoint" in done:
        parts.append(counted(done["checkpoint"], "checkpoint"))
    return ", ".join(parts)


@click.command(short_help="Show the counters of a running broker.")
@connection_options
@json_option
def stats(broker: BrokerOptions, as_json: bool) -> int:
    """Show the counters of a running broker since its start, and its current values, as /stats has them.

    Needs the monitor right.
    """
    found = broker.ask("stats")
    if as_json:
        put_json(found)
        return OK
    from radiator.cli.tables import Column, print_table

    click.echo(found["version"])
    for key, title in SECTIONS.items():
        click.echo()
        rows = [row for name, value in found[key].items() for row in _rows_of_stats(name, value)]
        print_table((Column(title), Column("value", number=True)), rows)
    return OK


def _rows_of_stats(name: str, value: Any) -> list[list[str]]:
    if isinstance(value, dict):
        return [row for key, each in value.items() for row in _rows_of_stats(f"{name}.{key}", each)]
    if isinstance(value, bool):
        return [[name, "yes" if value else "no"]]
    return [
        [name, f"{value:,}" if isinstance(value, int) else f"{value:,.1f}" if isinstance(value, float) else str(value)]
    ]
