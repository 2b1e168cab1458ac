"""What the commands share: exit codes, where text goes, the options of a connection, progress bars.

Results go to stdout, everything else (errors, notes, progress) to stderr, so that output can be piped. Colours and bars
appear on a terminal only; ``NO_COLOR`` is obeyed by rich itself. rich is imported when something is drawn, never
before: start-up time is felt.
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
PIPE_WIDTH = 200  # of a table that does not go to a terminal

F = TypeVar("F", bound=Callable[..., Any])


class CommandFailed(RadiatorError):
    """A command cannot go on; carries its exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def exit_code(error: RadiatorError) -> int:
    """The exit code that an error ends the command with."""
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
    """The error for a command that does not exist, with the names that are close to it."""
    import difflib

    close = difflib.get_close_matches(name, list(known))
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    return click.UsageError(f"No such command {name!r}.{hint}", context)


# --- where text goes --------------------------------------------------------------------------------------------------


def say(text: str) -> None:
    """A diagnostic, on stderr."""
    click.echo(f"radiator: {text}", err=True)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number and what it counts: ``1 message``, ``1,200 messages``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def are(number: int) -> str:
    """The verb behind ``counted``."""
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
    """A result as one line of JSON, on stdout."""
    click.echo(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def stdout_console() -> Console:
    """The console of results."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def progress() -> Progress:
    """A progress bar on stderr; invisible where that is no terminal. Give ``add_task`` a field ``note``."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    bar, note = TextColumn("{task.description}"), TextColumn("{task.fields[note]}")
    columns = (bar, BarColumn(), TaskProgressColumn(), note, TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def check_readable(path: str) -> None:
    """What may not be looked into must not look as if it were not there. Raises CommandFailed."""
    try:
        os.listdir(path)
        os.stat(os.path.join(path, "partitions", "."))
    except PermissionError as error:
        raise unreadable(error.filename or path) from None
    except OSError:
        pass  # whoever needs it says what it is not


def unreadable(path: str) -> CommandFailed:
    return CommandFailed(FAILED, f"{path}: cannot be read: permission denied; run as the broker's user")


# --- options ----------------------------------------------------------------------------------------------------------


def json_option(function: F) -> F:
    """``--json``: a result for programs."""
    return click.option("--json", "as_json", is_flag=True, help="Write JSON instead of text for people.")(function)


def header_option(about: str) -> Callable[[F], F]:
    """``-H NAME:VALUE``, as a dictionary; the first of a name counts, as in STOMP."""

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
    """An option that all commands share which talk to a broker: ``radiator help connection`` shows it, and not each."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Nothing for the page of a command."""
        return None

    def shared_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """The line of ``radiator help connection``."""
        record = super().get_help_record(ctx)
        assert record is not None
        return record


def connection_options(function: F) -> F:
    """``--url --login --passcode --ca --timeout``."""
    url = click.option(
        "--url", envvar="RADIATOR_URL", default=DEFAULT_URL, show_default=True, metavar="ADDRESS",
        help=f"Where the broker is. {MORE_OPTIONS}",
    )  # fmt: skip
    return url(login_options(function))


def _trust(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """``--ca`` goes where the client finds it: into the environment, for every connection of this command."""
    if value is not None:
        os.environ["RADIATOR_CA"] = value


def login_options(function: F) -> F:
    """``--login --passcode --ca --timeout``."""
    for option in reversed(
        (
            click.option(
                "--login", "--user", "login", cls=ConnectionOption, envvar="RADIATOR_LOGIN", metavar="NAME",
                help="Login name. Environment: RADIATOR_LOGIN.",
            ),
            click.option(
                "--passcode", cls=ConnectionOption, envvar="RADIATOR_PASSCODE",
                help="Passcode; others can see it on a command line, so better the environment: RADIATOR_PASSCODE.",
            ),
            click.option(
                "--ca", cls=ConnectionOption,
                metavar="FILE", type=click.Path(dir_okay=False), envvar="RADIATOR_CA", expose_value=False,
                callback=_trust,
                help="With TLS: the authorities to trust, instead of the system's. Environment: RADIATOR_CA; "
                "RADIATOR_CERT and RADIATOR_KEY: a certificate of our own.",
            ),
            click.option(
                "--passcode-file", cls=ConnectionOption,
                type=click.File("r"), expose_value=False, callback=_keep_passcode, metavar="FILE",
                help="A file with the passcode in its first line.",
            ),
            click.option(
                "--timeout", cls=ConnectionOption,
                type=click.FloatRange(min=0, min_open=True), default=30.0, show_default=True,
                metavar="SECONDS", help="How long to wait for the broker's answers.",
            ),
        )
    ):  # fmt: skip
        function = option(function)
    return function


def open_connection(url: str, login: str | None, passcode: str | None, timeout: float, **more: Any) -> Connection:
    """A connection from the options of a command."""
    from radiator.client import connect

    context = click.get_current_context(silent=True)
    if passcode is None and context is not None:
        passcode = context.meta.get(PASSCODE)
    if login is not None and passcode is None and sys.stdin.isatty() and sys.stderr.isatty():
        passcode = click.prompt(f"Passcode of {login}", hide_input=True, err=True)
    seconds = min(timeout, 10.0)
    return connect(url, login=login, passcode=passcode, timeout=timeout, connect_timeout=seconds, **more)
