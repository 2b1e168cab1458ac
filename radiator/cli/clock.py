"""``radiator clock``: whether a running broker trusts its wall clock; confirm a step forward."""

from __future__ import annotations

import click

from radiator.cli.common import connection_options, json_option


@click.command(short_help="Show how far a broker trusts its clock; confirm a step.")
@click.option("--accept", is_flag=True, help="Confirm that the wall clock is right after a step forward.")
@connection_options
@json_option
def clock(accept: bool, url: str, login: str | None, passcode: str | None, timeout: float, as_json: bool) -> int:
    """Show whether a running broker trusts its wall clock.

    After a step forward nothing expires, and nothing is removed by age because of the step, until it is confirmed: by
    time, or with --accept. It takes the admin right over everything.
    """
    from radiator.cli.online import show_clock

    return show_clock(url, login, passcode, timeout, as_json, accept)
