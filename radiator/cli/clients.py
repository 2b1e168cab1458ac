"""``radiator clients``: list the clients of a running broker."""

from __future__ import annotations

import click

from radiator.cli.common import BrokerOptions, connection_options, json_option


@click.command(short_help="List the clients of a running broker.")
@click.option(
    "--match", default="*", show_default=True, metavar="TEXT", help="Match session, user or address; * is any text."
)
@connection_options
@json_option
def clients(match: str, broker: BrokerOptions, as_json: bool) -> int:
    """List the clients of a running broker: user, address, version, subscriptions, unacknowledged messages.

    Needs the admin right. The list includes the connection of this command.
    """
    from radiator.cli.online import list_clients

    return list_clients(broker, as_json, match)
