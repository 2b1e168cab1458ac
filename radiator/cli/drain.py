"""``radiator drain``: disconnect the clients of a running broker over a period, and refuse new ones."""

from __future__ import annotations

import click

from radiator.cli.common import FAILED, OK, BrokerOptions, CommandFailed, connection_options, json_option, put_json, say
from radiator.limits import DRAIN_SECONDS, DRAIN_SECONDS_MAX
from radiator.words import counted

ANSWER_SECONDS = 30.0  # beyond the period, until the broker answers that it is drained


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
    from radiator.client.admin import ask

    if cancel and seconds is not None:
        raise click.UsageError("--cancel takes no --seconds")
    args = {} if seconds is None else {"seconds": seconds}
    with broker.connect_admin() as connection:
        state = ask(connection, "broker.drain", **({"cancel": True} if cancel else args))
    if not cancel:
        left = state["connections"]
        within = state["ends_in_seconds"] or 0
        if not as_json:
            say(f"draining: {counted(left, 'connection')} to disconnect within {within} s; new clients are refused")
        patient = broker._replace(timeout=within + ANSWER_SECONDS)
        try:
            with patient.connect_admin() as connection:
                state = ask(connection, "broker.drain", wait=True)
        except KeyboardInterrupt:
            say("the drain continues; `radiator drain --cancel` ends it")
            raise
        if not state["draining"]:
            raise CommandFailed(FAILED, "the drain was cancelled")
    if as_json:
        put_json({"drain": {name: value for name, value in state.items() if name != "do"}})
    else:
        click.echo("clients are accepted again" if cancel else "drained: no client is connected")
    return OK
