"""Commands over the admin channel of a running broker: ``clients``, ``clock``, ``pause``, ``resume``, ``ls --url``."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

import click

from radiator.cli.common import OK, BrokerOptions, connection_options, json_option, put_json, put_text, size

COUNTED = ("ready", "in_flight", "delayed")  # figures of queues that are always shown
SELDOM = ("dead_lettering", "unchecked")  # figures that are shown if not zero
DROPPED = {"total": 4, "delayed": 3}  # order in which a narrow terminal drops figures
TEMPORARY = "/temp-queue/"
LOOKING_SECONDS, LOOK_SECONDS = 1.0, 0.02
PAGE = 1_000  # entries of an answer of the broker at most


def ask_all(broker: BrokerOptions, verb: str, field: str, **args: Any) -> list[dict[str, Any]]:
    """Return all entries of a list of the admin channel."""
    from radiator.client.admin import ask_all as pages

    with broker.connect_admin() as connection:
        return list(pages(connection, verb, field, **args))


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
    found = ask_all(broker, "clients.ls", "clients", match=match)
    if as_json:
        put_json({"clients": found})
        return OK
    if not found:
        put_text(f"no client matches {match}")
        return OK
    from radiator.cli.formats import rfc3339
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
                rfc3339(each["since_ns"])[:19].replace("T", " ") if each["since_ns"] else "not yet",
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
    from radiator.cli.formats import rfc3339
    from radiator.client.admin import ask
    from radiator.clock import NS_PER_SECOND

    with broker.connect_admin() as connection:
        facts = ask(connection, "clock.accept" if accept else "clock")
    if as_json:
        put_json({"clock": {name: value for name, value in facts.items() if name != "do"}})
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
    from radiator.cli.formats import visible
    from radiator.client.admin import ask

    with broker.connect_admin() as connection:
        done = ask(connection, verb, name=name)
    if as_json:
        put_json({"name": done["name"], "paused": done["paused"]})
    else:
        click.echo(f"{visible(done['name'])} {'is paused' if done['paused'] else 'delivers'}")
    return OK
