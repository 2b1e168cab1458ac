"""``radiator reload`` and ``radiator apply``: change the configuration of a running broker, and print what changes."""

from __future__ import annotations

import os
import re
from typing import Any

import click

from radiator.cli.common import (
    FAILED,
    OK,
    USAGE,
    BrokerOptions,
    CommandFailed,
    connection_options,
    json_option,
    put_json,
    put_text,
)


@click.command(short_help="Let a running broker read its configuration again.")
@click.option("--check", is_flag=True, help="Only print what would change.")
@connection_options
@json_option
def reload(check: bool, broker: BrokerOptions, as_json: bool) -> int:
    """Let a running broker read its configuration file again, and print what changes.

    All changes are applied, or none: the broker refuses a file with a fault, and changes that need a restart. Needs the
    admin right over everything.
    """
    return _show(_ask(broker, "config.reload", check=check), as_json)


@click.command("apply", short_help="Create the durable subscriptions of a configuration.")
@click.option(
    "--config", metavar="FILE", required=True, type=click.Path(dir_okay=False), help="The file with `subscriptions:`."
)
@click.option(
    "--prune",
    is_flag=True,
    help="Delete those that an earlier file declared, and neither FILE nor the broker's own file does.",
)
@click.option("--check", is_flag=True, help="Only print what would change.")
@connection_options
@json_option
def apply(config: str, prune: bool, check: bool, broker: BrokerOptions, as_json: bool) -> int:
    """Create the durable subscriptions and groups that FILE declares, and change those that differ.

    The broker need not read FILE. Nothing changes if they exist as declared. Needs the admin right over everything.
    """
    from radiator.broker.durable.declared import check as check_subscriptions
    from radiator.config import load
    from radiator.config.subscriptions import SUBSCRIPTION

    loaded = load(config)
    check_subscriptions(loaded)
    wanted = [
        {
            key.path: key.show(entry)
            for key in SUBSCRIPTION
            if getattr(entry, key.field) is not None or key.path == "selector"
        }
        for entry in loaded.subscriptions
    ]
    return _show(_ask(broker, "subscriptions.apply", subscriptions=wanted, prune=prune, check=check), as_json)


def compare_with(broker: BrokerOptions, path: str | None, as_json: bool) -> int:
    """Print what a reload of ``broker`` with the file ``path`` would change, and return the exit code.

    Raises:
        CommandFailed: There is no file, or the broker refuses to compare it.
    """
    from radiator.config.load import VARIABLE, read_text

    if path is None:
        raise CommandFailed(USAGE, "--against needs a FILE to compare")
    text = read_text(path, "the configuration")
    used = {found[2] for found in re.finditer(VARIABLE, text)}
    environ = {name: value for name in used if (value := os.environ.get(name)) is not None}
    return _show(_ask(broker, "config.reload", check=True, text=text or "\n", source=path, environ=environ), as_json)


def _ask(broker: BrokerOptions, verb: str, **args: Any) -> dict[str, Any]:
    from radiator.client.errors import ServerError

    try:
        return broker.ask(verb, **args)
    except ServerError as error:
        if error.code != "bad-request":
            raise
        raise CommandFailed(USAGE, f"{error.message}\n{error.detail}") from None


def _show(found: dict[str, Any], as_json: bool) -> int:
    from radiator.config.compare import describe

    refused = [change for change in found["changes"] if change["effect"] == "refused"]
    if as_json:
        put_json({name: found[name] for name in ("changed", "applied", "changes")})
        return FAILED if refused else OK
    for change in found["changes"]:
        put_text(describe(change))
    if refused:
        click.echo("refused: nothing has changed")
        return FAILED
    if found["applied"]:
        click.echo("applied")
    elif not found["changed"]:
        click.echo("nothing changes")
    return OK
