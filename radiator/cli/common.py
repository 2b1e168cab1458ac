"""Share exit codes, output, the options of a connection and progress bars among the commands.

Results go to stdout, everything else (errors, notes, progress) to stderr, so that output can be piped. Colours and bars
appear on a terminal only; rich obeys ``NO_COLOR``. rich is imported when something is drawn, to keep the start short.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

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

ERROR_EXITS = {  # by the name of the class, because importing the classes would slow down every command
    **dict.fromkeys(
        ("NoArchive", "NoPartition", "NoStore", "NoSuchDestination", "NoSuchStore", "NoVersion"), NOT_FOUND
    ),
    "DamagedBackup": DAMAGED,
}
SERVER_EXITS = {
    **dict.fromkeys(("bad-destination", "bad-pattern", "bad-selector"), USAGE),  # as where a command finds it itself
    "denied": DENIED,
    "not-found": NOT_FOUND,
    "no-route": NOT_FOUND,
    "timeout": UNREACHABLE,
    "draining": UNREACHABLE,
    "shutting-down": UNREACHABLE,
}
DEFAULT_URL = "127.0.0.1:61613"
MORE_OPTIONS = "Login, passcode, TLS and timeout: see `radiator help connection`."
PIPE_WIDTH = 200  # of a table that is not written to a terminal

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


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
    return ERROR_EXITS.get(type(error).__name__, FAILED)


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
    """Print a message to stderr. It may have words of a server or a name of a destination, so no escape is printed."""
    click.echo(f"radiator: {_visible_lines(text)}", err=True)


def put_text(text: str) -> None:
    """Print a result for people to stdout. As with ``say``, no escape is printed."""
    click.echo(_visible_lines(text))


def _visible_lines(text: str) -> str:
    from radiator.cli.formats import visible  # not for --help

    return "\n".join(map(visible, text.split("\n")))


def size(count: int) -> str:
    """Return a number of bytes as text with a binary unit: ``512 B``, ``3.4 MiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def put_json(value: Any) -> None:
    """Print a result to stdout as one line of JSON, in which no text can control a terminal."""
    from radiator.cli.formats import escaped

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    click.echo(escaped(text))


def put_result(as_json: bool, fields: Mapping[str, Any], text: str) -> None:
    """Print a result to stdout: ``fields`` as JSON, or ``text`` for people."""
    if as_json:
        put_json(fields)
    else:
        put_text(text)


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


def confirm(what: str, yes: bool) -> None:
    """Ask at a terminal whether to go on, unless ``yes``.

    Raises:
        CommandFailed: There is no terminal to ask at.
        click.Abort: The user did not confirm.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandFailed(USAGE, f"this would {what}; confirm with --yes")
    click.confirm(f"{what}?", abort=True, err=True)


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


def parsed(parse: Callable[[str], T]) -> Callable[[click.Context, click.Parameter, str | None], T | None]:
    """Return the callback of an option whose value is parsed. A ValueError is a usage error."""

    def read(ctx: click.Context, parameter: click.Parameter, value: str | None) -> T | None:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return read


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


class BrokerOptions(NamedTuple):
    """The values of the options of a connection."""

    url: str
    login: str | None
    passcode: str | None
    timeout: float

    def connect(self, **more: Any) -> Connection:
        """Return a connection. At a terminal, ask for a passcode that is not given.

        Args:
            **more: More arguments of ``radiator.client.connect``.

        Raises:
            ClientError: The connection cannot be opened.
        """
        from radiator.client import connect

        url, login, passcode, timeout = self
        if login is not None and passcode is None and sys.stdin.isatty() and sys.stderr.isatty():
            passcode = click.prompt(f"Passcode of {login}", hide_input=True, err=True)
        seconds = min(timeout, 10.0)
        return connect(url, login=login, passcode=passcode, timeout=timeout, connect_timeout=seconds, **more)

    def connect_admin(self) -> Connection:
        """Return a connection for requests of the admin channel. A broker that is drained accepts administrators too.

        Raises:
            ClientError: The connection cannot be opened.
        """
        return self.connect(headers={"while-draining": "true"})

    def ask(self, verb: str, /, **args: Any) -> dict[str, Any]:
        """Send one request to the admin channel on a connection of its own, and return the fields of the answer.

        Args:
            verb: The verb.
            **args: The arguments of the request.

        Raises:
            ClientError: The connection cannot be opened, or the broker refused the request.
        """
        from radiator.client.admin import ask

        with self.connect_admin() as connection:
            answer = ask(connection, verb, **args)
        answer.pop("do", None)
        return answer

    def ask_all(self, verb: str, field: str, /, **args: Any) -> list[dict[str, Any]]:
        """Return all entries of a list of the admin channel.

        Args:
            verb: The verb, whose answer has pages.
            field: The field of the answer with the entries.
            **args: The arguments of the request.

        Raises:
            ClientError: The connection cannot be opened, or the broker refused the request.
        """
        from radiator.client.admin import ask_all

        with self.connect_admin() as connection:
            return list(ask_all(connection, verb, field, **args))


def _trust(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Set the environment variable that the client reads the authorities from."""
    if value is not None:
        os.environ["RADIATOR_CA"] = value


def connection_options(
    function: F,
    url: str = "Address of the broker.",
    default: str | None = DEFAULT_URL,
    hidden: bool = True,
    name: str = "url",
) -> F:
    """Add the options of a connection, as one argument ``broker``. ``radiator help connection`` shows all of them.

    Args:
        function: The command.
        url: The help text of ``--url``.
        default: The default of ``--url``. Without a default ``broker`` is None if ``--url`` is not given.
        hidden: The help of the command shows ``--url`` only.
        name: The name of the option with the address.
    """
    other = functools.partial(click.option, hidden=hidden)

    @click.option(f"--{name}", "url", envvar=default and "RADIATOR_URL", default=default, show_default=True,
                  metavar="ADDRESS", help=f"{url} {MORE_OPTIONS}" if hidden else url)  # fmt: skip
    @other("--login", "--user", "login", envvar="RADIATOR_LOGIN", metavar="NAME",
           help="Login name. Environment: RADIATOR_LOGIN.")  # fmt: skip
    @other("--passcode", envvar="RADIATOR_PASSCODE",
           help="Passcode. Others can see the command line, so prefer the environment: "
           "RADIATOR_PASSCODE.")  # fmt: skip
    @other("--ca", metavar="FILE", type=click.Path(dir_okay=False), envvar="RADIATOR_CA", expose_value=False,
           callback=_trust,
           help="With TLS: file of authorities to trust instead of the system's. Environment: RADIATOR_CA; "
           "RADIATOR_CERT and RADIATOR_KEY name a client certificate.")  # fmt: skip
    @other("--passcode-file", type=click.File("r"), metavar="FILE", help="File with the passcode in its first line.")
    @other("--timeout", type=click.FloatRange(min=0, min_open=True), default=30.0, show_default=True,
           metavar="SECONDS", help="Time limit for answers of the broker.")  # fmt: skip
    @functools.wraps(function)
    def wrapper(
        *, url: str | None, login: str | None, passcode: str | None, passcode_file: IO[str] | None, timeout: float,
        **more: Any,
    ) -> Any:  # fmt: skip
        if passcode is None and passcode_file is not None:
            passcode = passcode_file.readline().rstrip("\r\n")
        broker = None if url is None else BrokerOptions(url, login, passcode, timeout)
        return function(broker=broker, **more)

    return cast(F, wrapper)
