"""``radiator completion``: print the script that makes a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from radiator.cli.common import OK

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "radiator"
VARIABLE = "_RADIATOR_COMPLETE"  # click answers the shell when it is set


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> int:
    r"""Print the script that makes SHELL complete commands, options and choices.

    \b
    bash:  radiator completion bash > ~/.local/share/bash-completion/completions/radiator
    zsh:   radiator completion zsh > ~/.zfunc/_radiator     (with ~/.zfunc in fpath)
    fish:  radiator completion fish > ~/.config/fish/completions/radiator.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(click.get_current_context().find_root().command, {}, PROGRAM, VARIABLE).source())
    return OK
