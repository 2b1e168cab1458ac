"""``radiator describe``: everything about one destination of a running broker."""

from __future__ import annotations

from typing import Any

import click

from radiator.cli.common import OK, BrokerOptions, connection_options, json_option, put_json, size


@click.command(short_help="Show one destination of a running broker.")
@click.argument("name")
@connection_options
@json_option
def describe(name: str, broker: BrokerOptions, as_json: bool) -> int:
    """Show the destination NAME of a running broker: numbers, rule and settings, oldest message, consumers, storage.

    Needs the monitor right.
    """
    shown = broker.ask("destinations.show", name=name)
    if as_json:
        put_json(shown)
        return OK
    from radiator.cli.formats import visible

    for key, value in _facts(shown):
        click.echo(f"{key:<15} {visible(value)}")
    click.echo()
    _print_consumers(shown["consumers"])
    click.echo()
    _print_storage(shown["storage"])
    click.echo()
    _print_settings(shown["rule"]["settings"])
    return OK


def _facts(shown: dict[str, Any]) -> list[tuple[str, str]]:
    destination, rule, oldest, rates = shown["destination"], shown["rule"], shown["oldest"], shown["rates"]
    facts = [
        ("name", destination["name"]),
        ("kind", f"{destination['kind']}{', paused' if shown['paused'] else ''}{_held(shown)}"),
        ("rule", f"{rule['pattern'] or 'none matches'} ({rule['source']})"),
    ]
    if "fan_out" in destination:
        facts.append(("bound queues", ", ".join(destination["fan_out"])))
    for name in ("ready", "in_flight", "delayed", "dead_lettering", "total", "published"):
        if name in destination:
            value = destination[name]
            facts.append((name.replace("_", " "), "? (shared log)" if value is None else f"{value:,}"))
    facts.append(("stored", size(destination["bytes"])))
    if oldest is not None:
        facts.append(("oldest message", f"offset {oldest['offset']}, {oldest['age_seconds']:,.0f} s old"))
    measured = [f"{value:,.1f} {name}" for name, value in rates.items() if value is not None]
    if measured:
        facts.append(("per second", ", ".join(measured)))
    return facts


def _held(shown: dict[str, Any]) -> str:
    return ", held back: rows of its deliveries wait to be stored" if shown.get("held_by_record") else ""


def _print_consumers(consumers: list[dict[str, Any]]) -> None:
    from radiator.cli.tables import Column, print_table

    if not consumers:
        click.echo("no consumers")
        return
    rows = [
        [
            each["session"],
            each["user"] or "-",
            each["address"],
            each["subscription"],
            f"{each['window']:,}",
            f"{each['in_flight']:,}",
            "-" if each["oldest_in_flight_seconds"] is None else f"{each['oldest_in_flight_seconds']:,.0f} s",
        ]
        for each in consumers
    ]
    columns = (
        Column("session"), Column("user"), Column("address", drop=1), Column("subscription", drop=3),
        Column("window", number=True, drop=2), Column("in flight", number=True), Column("oldest", number=True),
    )  # fmt: skip
    print_table(columns, rows)


def _print_storage(partitions: list[dict[str, Any]]) -> None:
    from radiator.cli.tables import Column, print_table

    rows = [
        [
            each["name"],
            f"{each['first_offset']:,}",
            f"{each['next_offset']:,}",
            size(each["bytes"]),
            f"{each['segments']:,}",
            each["fsync"],
        ]
        for each in partitions
    ]
    columns = (
        Column("partition"), Column("first", number=True), Column("next", number=True),
        Column("size", number=True), Column("segments", number=True, drop=1), Column("fsync", drop=2),
    )  # fmt: skip
    print_table(columns, rows)


def _print_settings(settings: dict[str, str]) -> None:
    from radiator.cli.tables import Column, print_table

    print_table((Column("setting"), Column("value")), [[name, value] for name, value in settings.items()])
