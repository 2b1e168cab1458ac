"""``radiator tail``: print messages of destinations, from any position of their history on.

It does not consume: it always sends a ``start-position``, with which a queue is only browsed. ``--consume`` takes
messages off a queue, and acknowledges each when it has been written.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import stat
import sys
import threading
from typing import TYPE_CHECKING

import click

from radiator.cli.common import OK, BrokerOptions, connection_options, header_option, json_option, parsed, say
from radiator.cli.formats import Show, bare, compile_format, for_people, json_line
from radiator.cli.hints import warn_of_slips
from radiator.errors import ClientError
from radiator.words import are, counted

if TYPE_CHECKING:
    from radiator.client import Subscription

WORDS = {"first": "first", "beginning": "first", "next": "next", "end": "end", "last": "last"}
POSITIONS = (
    "first, next, last, N (an offset), -N (the last N), -1h30m (before now), 'yesterday 14:05', or TIME "
    "(RFC 3339, or @ and epoch nanoseconds)"
)


def position(text: str) -> str:
    """Return the value of an option as the ``start-position`` header has it.

    The positions of ``export`` and ``replay`` are accepted, and those of ``start-position``.

    Raises:
        ValueError: This is not a position.
    """
    from radiator.broker.headers.values import parse_duration, parse_time
    from radiator.cli.selection import complete_time
    from radiator.clock import now_ns, relative_time

    kind, _, rest = text.partition(":")
    moment = complete_time(text.removeprefix("@").removeprefix("time:"))
    if text in WORDS:
        return WORDS[text]
    if re.fullmatch(r"\d+", text):
        return f"offset:{text}"
    if re.fullmatch(r"-\d+", text):
        return f"last:{text[1:]}"
    if text.startswith("-") and parse_duration(text[1:]) is not None:
        return f"ago:{text[1:]}"
    relative_ns = relative_time(text, now_ns())
    if relative_ns is not None:
        return f"time:{relative_ns}"
    if parse_time(moment) is not None:
        return f"time:{moment}"
    if kind == "ago" and parse_duration(rest) is not None:
        return text
    if kind in ("last", "offset") and re.fullmatch(r"\d+", rest):
        return text
    raise ValueError(f"expected {POSITIONS}, got {text!r}")


@click.command(short_help="Print messages, from the history or live.")
@click.argument("destinations", nargs=-1, required=True, metavar="DESTINATION...")
@click.option(
    "-o", "--offset", "start", callback=parsed(position), metavar="POSITION",
    help=f"Where to start: {POSITIONS}. Default: next.",
)  # fmt: skip
@click.option("--until", callback=parsed(position), metavar="POSITION", help="Where to stop: as --offset, or end.")
@click.option("-e", "--exit", "at_end", is_flag=True, help="Stop at the present end; the same as --until end.")
@click.option("-c", "--count", type=click.IntRange(min=1), metavar="N", help="Stop after N messages.")
@click.option(
    "-f", "--format", "show", callback=parsed(compile_format), metavar="FORMAT",
    help=r"Print each message in this format, such as '%t %o %s\n': %t destination %p partition %o offset "
    r"%i message-id %T receive-time (ns) %D (RFC 3339) %e event-time %x transmit-time %S size %s body "
    r"%k partition-key %g tags %h headers %d delivery-count %%.",
)  # fmt: skip
@click.option("-J", "json_lines", is_flag=True, help="JSON lines; the same as --json.")
@click.option("--consume", is_flag=True, help="Consume the queue: acknowledge each message when it is written.")
@click.option(
    "--prefetch", type=click.IntRange(min=1), metavar="N", help="Window of --consume. Default: that of the rule."
)
@header_option("Add a header to SUBSCRIBE. May be repeated.")
@connection_options
@json_option
def tail(
    destinations: tuple[str, ...], start: str | None, until: str | None, at_end: bool, count: int | None,
    show: Show | None, json_lines: bool, consume: bool, prefetch: int | None, headers: dict[str, str],
    broker: BrokerOptions, as_json: bool,
) -> int:  # fmt: skip
    """Print the messages of each DESTINATION (a name or a pattern such as '/topic/weather.>').

    A terminal gets a line per message with time, destination and offset, a pipe the bare body.
    """
    if at_end and until:
        raise click.UsageError("--exit and --until both say where to stop: give one")
    if show and (json_lines or as_json):
        raise click.UsageError("--format and --json both say how to print: give one")
    if consume and (start or until or at_end):
        raise click.UsageError(
            "--consume reads the queue in its order: it cannot be combined with --offset, --until or --exit"
        )
    if prefetch and not consume:
        raise click.UsageError("--prefetch belongs to --consume")
    warn_of_slips(destinations)
    with broker.connect() as connection:
        subscription = connection.subscribe(
            destinations,
            ack="client-individual" if consume else "auto",
            start_position=None if consume else start or "next",
            stop_position="end" if at_end else until,
            prefetch=prefetch,
            headers=headers,
        )
        watch_reader(subscription)
        _print(subscription, show or _default(json_lines or as_json), count)
    return OK


def watch_reader(subscription: Subscription) -> None:
    """End the subscription when the reader of stdout ends.

    So ``| head -1`` does not wait for a further message.
    """
    try:
        descriptor = sys.stdout.fileno()
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return
    except (OSError, ValueError):  # not a file
        return
    gone = select.poll()
    gone.register(descriptor, 0)  # errors and hang-ups are always reported

    def wait() -> None:
        gone.poll()
        with contextlib.suppress(ClientError):
            subscription.close()

    threading.Thread(target=wait, name="radiator-reader-gone", daemon=True).start()


def _default(as_json: bool) -> Show:
    if as_json:
        return json_line
    if sys.stdout.isatty():
        return for_people(colour="NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb")
    return bare


def _print(subscription: Subscription, show: Show, count: int | None) -> None:
    """Write messages as they arrive. Flush when no further one is waiting. Gaps are reported on stderr."""
    stdout = sys.stdout.buffer
    settle = subscription.ack != "auto"
    left = -1 if count is None else count
    for message in subscription:
        if "gap" in message.headers:
            where = f"{message.partition} before offset {message.offset}"
            say(f"{counted(message.gap, 'record')} of {where} {are(message.gap)} lost (retention, damage)")
        stdout.write(show(message))
        if settle:
            stdout.flush()
            message.ack()
        elif not subscription.pending:
            stdout.flush()
        left -= 1
        if not left:
            break
    stdout.flush()
