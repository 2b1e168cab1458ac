"""``radiator clients``: who is connected to a running broker, and what they hold."""

from __future__ import annotations

import click

from radiator.cli.common import connection_options, json_option


@click.command(short_help="List who is connected to a broker.")
@click.option("--match", default="*", show_default=True, metavar="TEXT", help="Of session, user or address; * is any.")
@connection_options
@json_option
def clients(match: str, url: str, login: str | None, passcode: str | None, timeout: float, as_json: bool) -> int:
    """List the connections of a running broker: user, address, version, subscriptions, what is in flight.

    It takes the admin right. The connection that asks is among them.
    """
    from radiator.cli.online import list_clients

    return list_clients(url, login, passcode, timeout, as_json, match)
