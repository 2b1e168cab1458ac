"""``radiator disconnect``: end the connection of a client."""

from __future__ import annotations

import click

from radiator.cli.common import OK, BrokerOptions, confirm, connection_options, json_option, put_json, put_text


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

    confirm(f"disconnect {session}", yes)
    with broker.connect_admin() as connection:
        done = ask(connection, "clients.disconnect", session=session, reason=reason)
    if as_json:
        put_json({"disconnected": done["disconnected"]})
    else:
        put_text(f"{done['disconnected']} is disconnected")
    return OK
