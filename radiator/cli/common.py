"""Share exit codes, output, the options of a connection and progress bars among the commands.

Results go to stdout, everything else (errors, notes, progress) to stderr, so that output can be piped. Colours and bars
appear on a terminal only; rich obeys ``NO_COLOR``. rich is imported when something is drawn, to keep the start short.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from radiator.errors import ClientError, ConfigError, RadiatorError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from radiator.client import Connection

EXIT_CODES: Mapping[int, str] = {
    0: "ok",
    1: "failed",
    2: "usage or configuration",
    3: "cannot connect, or timed out",
    4: "denied",
    5: "not found",
    6: "damage found",
    130: "interrupted",
}
OK, FAILED, USAGE, UNREACHABLE, DENIED, NOT_FOUND, DAMAGED, INTERRUPTED = EXIT_CODES

SERVER_EXITS = {"denied": DENIED, "not-found": NOT_FOUND, "no-route": NOT_FOUND, "timeout": UNREACHABLE}
DEFAULT_URL = "127.0.0.1:61613"
MORE_OPTIONS = "Login, passcode, TLS and timeout: see `radiator help connection`."
PASSCODE = "radiator.cli.passcode"  # in the meta of a click context
PIPE_WIDTH = 200  # of a table that is not written to a terminal

F = TypeVar("F", bound=Callable[..., Any])


class CommandFailed(RadiatorError):
    """A command failed.

    Args:
        code: The exit code of the command.
        message: The error message.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def exit_code(error: RadiatorError) -> int:
    """Return the exit code for an error."""
    if isinstance(error, CommandFailed):
        return error.code
    if isinstance(error, ConfigError):
        return USAGE
    if isinstance(error, ClientError):
        from radiator.client.errors import BadAddress, ServerError

        if isinstance(error, BadAddress):
            return USAGE
        if isinstance(error, ServerError):
            return SERVER_EXITS.get(error.code, FAILED)
        return UNREACHABLE
    return FAILED


def no_such_command(name: str, known: Iterable[str], context: click.Context) -> click.UsageError:
    """Return the error for an unknown command, with the names that are close to it.

    Args:
        name: The unknown name.
        known: The names of commands.
        context: The context of click.
    """
    import difflib

    close = difflib.get_close_matches(name, list(known))
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    return click.UsageError(f"No such command {name!r}.{hint}", context)


# --- where text goes --------------------------------------------------------------------------------------------------


def say(text: str) -> None:
    """Print a message to stderr."""
    click.echo(f"radiator: {text}", err=True)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number and what it counts: ``1 message``, ``1,200 messages``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def are(number: int) -> str:
    """Return "is" or "are" for a number."""
    return "is" if number == 1 else "are"


def size(count: int) -> str:
    """Return a number of bytes as text with a binary unit: ``512 B``, ``3.4 MiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def put_json(value: Any) -> None:
    """Print a result to stdout as one line of JSON."""
    click.echo(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def stdout_console() -> Console:
    """Return a console for results, which go to stdout."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def progress() -> Progress:
    """Return a progress bar on stderr, invisible if that is not a terminal. ``add_task`` needs a field ``note``."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    bar, note = TextColumn("{task.description}"), TextColumn("{task.fields[note]}")
    columns = (bar, BarColumn(), TaskProgressColumn(), note, TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def check_readable(path: str) -> None:
    """Check that a data directory can be read, so that a lack of permission does not look like an empty directory.

    Raises:
        CommandFailed: Permission is denied.
    """
    try:
        os.listdir(path)
        os.stat(os.path.join(path, "partitions", "."))
    except PermissionError as error:
        raise unreadable(error.filename or path) from None
    except OSError:
        pass  # the command itself reports other errors


def unreadable(path: str) -> CommandFailed:
    """Return the error for a path that may not be read."""
    return CommandFailed(FAILED, f"{path}: cannot be read: permission denied; run as the broker's user")


# --- options ----------------------------------------------------------------------------------------------------------


def json_option(function: F) -> F:
    """Add the option ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Write JSON instead of text.")(function)


def header_option(about: str) -> Callable[[F], F]:
    """Add the option ``-H NAME:VALUE``, whose value is a dictionary. The first of repeated headers counts, as in STOMP.

    Args:
        about: The help text.
    """

    def read(ctx: click.Context, parameter: click.Parameter, values: Iterable[str]) -> dict[str, str]:
        from radiator.client.sending import check_headers

        headers: dict[str, str] = {}
        for value in values:
            name, colon, text = value.partition(":")
            if not colon or not name:
                raise click.BadParameter(f"expected NAME:VALUE, got {value!r}")
            headers.setdefault(name, text)
        try:
            check_headers(headers)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
        return headers

    return click.option("-H", "--header", "headers", multiple=True, metavar="NAME:VALUE", callback=read, help=about)


def _keep_passcode(ctx: click.Context, parameter: click.Parameter, file: IO[str] | None) -> None:
    if file is not None:
        ctx.meta[PASSCODE] = file.readline().rstrip("\r\n")


class ConnectionOption(click.Option):
    """An option that all commands with a broker share. Only ``radiator help connection`` shows it."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return None, so that the help of a command does not show the option."""
        return None

    def shared_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the entry for ``radiator help connection``."""
        record = super().get_help_record(ctx)
        assert record is not None
        return record


def connection_options(function: F) -> F:
    """Add the options ``--url``, ``--login``, ``--passcode``, ``--passcode-file``, ``--ca`` and ``--timeout``."""
    url = click.option(
        "--url", envvar="RADIATOR_URL", default=DEFAULT_URL, show_default=True, metavar="ADDRESS",
        help=f"Address of the broker. {MORE_OPTIONS}",
    )  # fmt: skip
    return url(login_options(function))


def _trust(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Set the environment variable that the client reads the authorities from."""
    if value is not None:
        os.environ["RADIATOR_CA"] = value


def login_options(function: F) -> F:
    """Add the options of ``connection_options`` without ``--url``."""
    for option in reversed(
        (
            click.option(
                "--login", "--user", "login", cls=ConnectionOption, envvar="RADIATOR_LOGIN", metavar="NAME",
                help="Login name. Environment: RADIATOR_LOGIN.",
            ),
            click.option(
                "--passcode", cls=ConnectionOption, envvar="RADIATOR_PASSCODE",
                help="Passcode. Others can see the command line, so prefer the environment: RADIATOR_PASSCODE.",
            ),
            click.option(
                "--ca", cls=ConnectionOption,
                metavar="FILE", type=click.Path(dir_okay=False), envvar="RADIATOR_CA", expose_value=False,
                callback=_trust,
                help="With TLS: file of authorities to trust instead of the system's. Environment: RADIATOR_CA; "
                "RADIATOR_CERT and RADIATOR_KEY name a client certificate.",
            ),
            click.option(
                "--passcode-file", cls=ConnectionOption,
                type=click.File("r"), expose_value=False, callback=_keep_passcode, metavar="FILE",
                help="File with the passcode in its first line.",
            ),
            click.option(
                "--timeout", cls=ConnectionOption,
                type=click.FloatRange(min=0, min_open=True), default=30.0, show_default=True,
                metavar="SECONDS", help="Time limit for answers of the broker.",
            ),
        )
    ):  # fmt: skip
        function = option(function)
    return function


def open_connection(url: str, login: str | None, passcode: str | None, timeout: float, **more: Any) -> Connection:
    """Return a connection with the options of a command.

    Args:
        url: The address of the broker.
        login: The login, or None.
        passcode: The passcode; None uses ``--passcode-file``, or asks for it at a terminal.
        timeout: The time limit for answers, in seconds.
        **more: More arguments of ``radiator.client.connect``.

    Raises:
        ClientError: The connection cannot be opened.
    """
    from radiator.client import connect

    context = click.get_current_context(silent=True)
    if passcode is None and context is not None:
        passcode = context.meta.get(PASSCODE)
    if login is not None and passcode is None and sys.stdin.isatty() and sys.stderr.isatty():
        passcode = click.prompt(f"Passcode of {login}", hide_input=True, err=True)
    seconds = min(timeout, 10.0)
    return connect(url, login=login, passcode=passcode, timeout=timeout, connect_timeout=seconds, **more)
