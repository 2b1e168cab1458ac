"""Define the group ``radiator``, and map errors to exit codes.

``SECTIONS`` is the table of commands: the module of each, and its description. A module is imported when its command is
called or its help is shown, so a missing extra (pyspark) affects no other command and the start is short.

A RadiatorError, a missing extra, or an argument that is not UTF-8, is printed as one line on stderr and sets the exit
code. Any other exception is a bug and prints its traceback. If the reader of a pipe ends early (``| head``), the
command ends quietly.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from radiator import __version__, speed
from radiator.cli.common import FAILED, INTERRUPTED, OK, USAGE, exit_code, no_such_command, say
from radiator.errors import RadiatorError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Messages": {
        "send": ("radiator.cli.send:send", "Send messages and wait until they are stored."),
        "tail": ("radiator.cli.tail:tail", "Print messages, from the history or live."),
        "replay": ("radiator.cli.replay:replay", "Send records of a store or an archive to a broker."),
    },
    "Run a broker": {
        "serve": ("radiator.cli.serve:serve", "Run the broker until SIGTERM or SIGINT."),
        "reload": ("radiator.cli.reload:reload", "Let a running broker read its configuration again."),
        "drain": ("radiator.cli.online:drain", "Disconnect the clients of a broker before it stops."),
        "apply": ("radiator.cli.reload:apply", "Create the durable subscriptions of a configuration."),
        "check-config": ("radiator.cli.check_config:check_config", "Check a configuration and explain its rules."),
        "passwd": ("radiator.cli.passwd:passwd", "Set or delete the passcode of a user in a users file."),
        "bench": ("radiator.cli.bench:bench", "Measure a broker: throughput, latency, memory."),
    },
    "Manage queues and clients": {
        "top": ("radiator.cli.top:top", "Show a live screen of a running broker."),
        "ls": ("radiator.cli.ls:ls", "List the contents of a data directory."),
        "describe": ("radiator.cli.describe:describe", "Show one destination of a running broker."),
        "stats": ("radiator.cli.online:stats", "Show the counters of a running broker."),
        "clients": ("radiator.cli.online:clients", "List the clients of a running broker."),
        "disconnect": ("radiator.cli.online:disconnect", "End the connection of a client."),
        "pause": ("radiator.cli.online:pause", "Deliver no more messages of a queue."),
        "resume": ("radiator.cli.online:resume", "Deliver the messages of a paused queue again."),
        "cursors": ("radiator.cli.cursors:cursors", "List, sample, move and delete cursors."),
        "dlq": ("radiator.cli.dead_letters:dlq", "List dead letters, send them back, or drop them."),
        "purge": ("radiator.cli.purge:purge", "Empty a queue, or drop a topic's history."),
        "clock": ("radiator.cli.online:clock", "Show whether a broker trusts its clock, or confirm a step."),
    },
    "Maintain a data directory": {
        "maintain": ("radiator.cli.online:maintain", "Run retention, compaction and a checkpoint now."),
        "fsck": ("radiator.cli.fsck:fsck", "Check or repair a data directory."),
        "dump": ("radiator.cli.dump:dump", "Print the contents of any store file."),
        "backup": ("radiator.cli.backup:backup", "Copy a data directory, also while the broker runs."),
        "restore": ("radiator.cli.restore:restore", "Verify a backup, and create a data directory from it."),
        "mirror": ("radiator.cli.mirror:mirror", "Maintain a second copy of a running broker's store."),
    },
    "Archive and analyse": {
        "archive": ("radiator.cli.archive:archive", "Write sealed segments to an archive of Parquet files."),
        "export": ("radiator.cli.export:export", "Write records as JSON lines, CSV or Parquet."),
        "report": ("radiator.cli.report:report", "Make a report about a data directory."),
    },
    "Help": {
        "help": ("radiator.cli.help:show_help", "Explain a command, or how to connect to a broker."),
        "completion": ("radiator.cli.help:completion", "Print the completion script of a shell."),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
EXTRAS = {  # which extra brings a package
    **dict.fromkeys(("pyarrow", "numpy"), "parquet"),
    **dict.fromkeys(("pyspark", "pandas", "matplotlib", "jinja2"), "spark"),
    **dict.fromkeys(("pyiceberg", "sqlalchemy"), "iceberg"),
}


class LazyGroup(click.Group):
    """A group that imports its commands when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return None if the name is unknown."""
        if cmd_name not in COMMANDS:
            return None
        module_name, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module_name), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, from the table, without importing any."""
        width = max(map(len, COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), about) for name, (_, about) in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with a text, without importing any command."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=about) for name, (_, about) in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of a command line.

        Raises:
            UsageError: The name is unknown; the message suggests the closest one.
        """
        if not ctx.resilient_parsing and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise no_such_command(args[0], COMMANDS, ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. A closed pipe is not an error."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            _silence_stdout()
            return OK


def _silence_stdout() -> None:
    """Discard buffered output, so that Python's flush at exit does not report the closed pipe."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - lives as long as the process


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="radiator", message=f"%(prog)s %(version)s ({speed.IN_USE})")
def cli() -> None:
    """Run and use a log broker that speaks STOMP.

    Messages are stored in logs that can be followed, replayed and analysed. `radiator COMMAND --help` explains a
    command, `radiator help connection` how to connect to a broker.

    Exit codes: 0 ok, 1 failed, 2 usage or configuration, 3 cannot connect or timed out, 4 denied, 5 not found,
    6 damage found, 130 interrupted.
    """


def run(args: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit code.

    Args:
        args: The arguments; None uses those of the process.
    """
    try:
        result = cli.main(args=None if args is None else list(args), prog_name="radiator", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        return USAGE
    except click.ClickException as error:
        say(error.format_message())
        return USAGE if isinstance(error, click.FileError) else FAILED
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except RadiatorError as error:
        say(str(error))
        return exit_code(error)
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        say(f"the package {package} is needed and not installed: pip install 'radiator-broker[{EXTRAS[package]}]'")
        return USAGE
    except UnicodeEncodeError:
        wrong = [text for text in (sys.argv[1:] if args is None else args) if not _is_utf8(text)]
        if not wrong:
            raise
        shown = os.fsencode(wrong[0]).decode("utf-8", "backslashreplace")
        say(f"expected UTF-8 in names, headers and options, got '{shown}'")
        return USAGE
    return result if isinstance(result, int) else OK


def _is_utf8(argument: str) -> bool:
    """Return True if an argument is UTF-8. Python decodes other bytes to lone surrogates, which cannot be encoded."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def main() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    sys.exit(run())
