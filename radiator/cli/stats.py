"""``radiator stats``: the counters and the current values of a running broker."""

from __future__ import annotations

from typing import Any

import click

from radiator.cli.common import OK, BrokerOptions, connection_options, json_option, put_json

SECTIONS = {"stats": "since the start", "now": "now", "store": "store"}


@click.command(short_help="Show the counters of a running broker.")
@connection_options
@json_option
def stats(broker: BrokerOptions, as_json: bool) -> int:
    """Show the counters of a running broker since its start, and its current values, as /stats has them.

    Needs the monitor right.
    """
    from radiator.client.admin import ask

    with broker.connect_admin() as connection:
        found = ask(connection, "stats")
    if as_json:
        put_json({name: value for name, value in found.items() if name not in ("ok", "do")})
        return OK
    from radiator.cli.tables import Column, print_table

    click.echo(found["version"])
    for key, title in SECTIONS.items():
        click.echo()
        rows = [row for name, value in found[key].items() for row in _rows(name, value)]
        print_table((Column(title), Column("value", number=True)), rows)
    return OK


def _rows(name: str, value: Any) -> list[list[str]]:
    if isinstance(value, dict):
        return [row for key, each in value.items() for row in _rows(f"{name}.{key}", each)]
    if isinstance(value, bool):
        return [[name, "yes" if value else "no"]]
    return [
        [name, f"{value:,}" if isinstance(value, int) else f"{value:,.1f}" if isinstance(value, float) else str(value)]
    ]
