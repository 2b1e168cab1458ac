"""``radiator completion``: print the script that makes a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from radiator.cli.common import OK, json_option, put_json

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "radiator"
VARIABLE = "_RADIATOR_COMPLETE"  # click answers the shell when it is set


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
