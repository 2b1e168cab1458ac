"""``radiator clock``: show whether a running broker trusts its wall clock, and confirm a step forward."""

from __future__ import annotations

import click

from radiator.cli.common import BrokerOptions, connection_options, json_option


@click.command(short_help="Show whether a broker trusts its clock, or confirm a step.")
@click.option("--accept", is_flag=True, help="Confirm that the wall clock is right after a step forward.")
@connection_options
@json_option
def clock(accept: bool, broker: BrokerOptions, as_json: bool) -> int:
    """Show whether a running broker trusts its wall clock.

    After a step forward nothing expires, and retention removes nothing because of the step, until it is confirmed:
    after some time, or with --accept. Needs the admin right over everything.
    """
    from radiator.cli.online import show_clock

    return show_clock(broker, as_json, accept)
