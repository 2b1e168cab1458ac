"""``radiator check-config``: read a configuration as strictly as the broker does, and explain its rules.

Every fault is reported with its file and line. ``--explain`` shows for a destination which rules were tried, which one
applies, and every value that it sets. ``--against`` shows what a reload of a running broker would change.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from radiator.cli.common import OK, BrokerOptions, connection_options, json_option, put_json
from radiator.cli.reload import compare_with
from radiator.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from radiator.config import Config
    from radiator.routing.rules import Rules


@click.command("check-config", short_help="Check a configuration and explain its rules.")
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option(
    "--config", metavar="FILE", type=click.Path(dir_okay=False), help="The YAML file (or give it as argument)."
)
@click.option(
    "--explain", metavar="NAME", multiple=True, help="Explain the rules for this destination. May be repeated."
)
@partial(
    connection_options,
    name="against",
    url="Show what a reload of this broker with FILE would change. Fails if the broker would refuse it.",
    default=None,
)
@json_option
def check_config(
    file: str | None, config: str | None, explain: tuple[str, ...], broker: BrokerOptions | None, as_json: bool
) -> int:
    """Check a configuration FILE and explain its rules. Without FILE, show the defaults."""
    from radiator.broker.durable import declared
    from radiator.config import load
    from radiator.routing.rules import Rules
    from radiator.server import listener, logs
    from radiator.server.certificates import Certificates
    from radiator.server.hooks import load_hooks, missing_decoders, new_schemas
    from radiator.server.users_file import check
    from radiator.storage.files import FileSystem

    if file and config:
        raise click.UsageError("give the file once: as argument or with --config")
    settings = load(file or config)
    warnings: list[str] = []

    def check_schemas() -> None:
        try:
            new_schemas(settings.rules, settings.source, FileSystem(), settings.data_dir)
        except OSError as error:
            warnings.append(f"{settings.data_dir}: earlier versions of the schemas were not compared: {error.strerror}")

    certificates = Certificates()
    rules: list[Rules] = []
    _all(
        lambda: rules.append(Rules(settings)),
        lambda: declared.check(settings),
        lambda: load_hooks(settings.rules, settings.source),
        lambda: warnings.extend(check(settings.auth)),
        check_schemas,
        lambda: warnings.extend(logs.check_file(settings.logging.file)),
        *(partial(certificates.of, listen, settings.tls) for listen in settings.listen),
        *(partial(listener.check, listen, "listen") for listen in settings.listen),
    )
    warnings += listener.public_listeners(settings)
    warnings += _slips(settings)
    warnings += missing_decoders(settings.rules, settings.source)
    if broker is not None:
        return compare_with(broker, file or config, as_json)
    if as_json:
        put_json(
            {**_summary(settings), "explain": [_explained(rules[0], name) for name in explain], "warnings": warnings}
        )
        return OK
    if not explain:
        for key, value in _summary(settings).items():
            shown = ", ".join(value) if isinstance(value, list) else value
            click.echo(f"{key}: {'none' if shown is None else shown}")
        for warning in warnings:
            click.echo(f"warning: {warning}")
        click.echo("ok")
    for name in explain:
        click.echo(rules[0].explain(name))
    return OK


def _all(*checks: Callable[[], object]) -> None:
    """Carry out all checks, also behind one that fails.

    Raises:
        ConfigError: The faults of all of them.
    """
    faults: dict[str, None] = {}
    for check in checks:
        try:
            check()
        except ConfigError as error:
            faults.update(dict.fromkeys(str(error).split("\n")))
    if faults:
        raise ConfigError("\n".join(faults))


def _slips(settings: Config) -> list[str]:
    """Return a warning for each name of a rule that is probably mistyped, such as ``queue/a``."""
    from radiator.cli.hints import suggestion

    names = [(rule.line, name.strip()) for rule in settings.rules for name in (rule.match or "").split(",")]
    return [f"{settings.source}:{line}: match: {meant}" for line, name in names if (meant := suggestion(name))]


def _summary(settings: Config) -> dict[str, Any]:
    return {
        "source": settings.source or "(no file: defaults)",
        "data_dir": settings.data_dir,
        "listen": [str(listen) for listen in settings.listen],
        "users_file": settings.auth.users_file,
        "admin": None if settings.admin is None else str(settings.admin),
        "rules": len(settings.rules),
    }


def _explained(rules: Rules, name: str) -> dict[str, Any]:
    from radiator.routing.rules import describe

    tried = [step._asdict() for step in rules.steps(name)]
    return {"destination": name, "tried": tried, "policy": describe(rules.policy_for(name))}
