"""``radiator help`` and ``radiator completion``: explain a command, and let a shell complete it."""

from __future__ import annotations

from functools import partial

import click
from click.shell_completion import get_completion_class

from radiator.cli.common import (
    OK,
    BrokerOptions,
    connection_options,
    json_option,
    no_such_command,
    put_json,
    put_result,
)

CONNECTION = "connection"
SHELLS = ("bash", "zsh", "fish")
PROGRAM = "radiator"
VARIABLE = "_RADIATOR_COMPLETE"  # click answers the shell when it is set


@click.command("help", short_help="Explain a command, or how to connect to a broker.")
@click.argument("topic", nargs=-1)
@json_option
def show_help(topic: tuple[str, ...], as_json: bool) -> int:
    """Explain TOPIC: a command, such as `cursors set`, or `connection`, the options to connect to a broker."""
    context = click.get_current_context().find_root()
    if topic == (CONNECTION,):
        return _print(topic, _options.get_help(click.Context(_options, info_name="COMMAND", parent=context)), as_json)
    command: click.Command = context.command
    for name in topic:
        known = command.list_commands(context) if isinstance(command, click.Group) else []
        inner = command.get_command(context, name) if isinstance(command, click.Group) else None
        if inner is None:
            raise no_such_command(name, [*known, CONNECTION] if context.parent is None else known, context)
        command, context = inner, click.Context(inner, info_name=name, parent=context)
    return _print(topic, command.get_help(context), as_json)


def _print(topic: tuple[str, ...], text: str, as_json: bool) -> int:
    put_result(as_json, {"topic": " ".join(topic), "help": text}, text)
    return OK


@click.command(CONNECTION, add_help_option=False)
@partial(connection_options, hidden=False)
def _options(broker: BrokerOptions) -> None:
    """Options of every command that connects to a broker.

    ADDRESS is HOST:PORT, stomp://[LOGIN:PASSCODE@]HOST:PORT, stomp+tls://HOST:PORT, ws://HOST:PORT/PATH,
    wss://HOST:PORT/PATH or unix:PATH. The environment variable RADIATOR_URL can replace --url.
    """


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@json_option
def completion(shell: str, as_json: bool) -> int:
    """Print the script that makes SHELL complete commands, options and choices.

    \b
    bash:  ~/.local/share/bash-completion/completions/radiator
    zsh:   ~/.zfunc/_radiator (with ~/.zfunc in fpath)
    fish:  ~/.config/fish/completions/radiator.fish
    """  # noqa: D301 - click takes the character that \b stands for as "keep these lines"
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(click.get_current_context().find_root().command, {}, PROGRAM, VARIABLE).source()
    if as_json:
        put_json({"shell": shell, "script": script})
    else:
        click.echo(script)
    return OK
