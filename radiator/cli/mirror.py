"""``radiator mirror``: maintain a second copy of the store of a running broker, by replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from radiator.cli.common import FAILED, OK, BrokerOptions, CommandFailed, connection_options, json_option, put_json, say
from radiator.cli.signals import stop_on_signals
from radiator.words import counted

if TYPE_CHECKING:
    from radiator.mirror.follow import Progress

PRINT_INTERVAL_SECONDS = 10.0


@click.command(short_help="Maintain a second copy of a running broker's store.")
@click.option("--from", "source", metavar="ADDRESS", help="The broker to follow; the same as --url.")
@click.option("--to", "target", metavar="DIR", required=True, help="The data directory of the copy.")
@click.option(
    "--destinations",
    metavar="PATTERN,...",
    default="#,/topic/radiator.>",
    show_default=True,
    help="Destinations to copy, as in SUBSCRIBE.",
)
@click.option("--once", is_flag=True, help="Stop at the present end.")
@connection_options
@json_option
def mirror(source: str | None, target: str, destinations: str, once: bool, broker: BrokerOptions, as_json: bool) -> int:
    """Maintain a second copy of a running broker's store in DIR.

    The copy has the same partitions, offsets, times, headers and bodies. Follows the broker until SIGTERM or SIGINT,
    reconnects when necessary, and continues where it stopped.
    """
    from radiator.client.address import parse
    from radiator.clock import now
    from radiator.errors import StorageError
    from radiator.mirror.copy import Copy
    from radiator.mirror.follow import Mirror
    from radiator.storage.files import NO_ROOM

    if source is not None:
        broker = broker._replace(url=source)
    parse(broker.url)  # raises BadAddress before anything is created
    copy = Copy(target)
    for note in copy.open(now()):
        say(str(note))
    printer = ProgressPrinter(as_json)
    follower = Mirror(
        copy,
        lambda: broker.connect(version="1.2"),
        [destinations],
        once=once,
        report=printer.show,
    )
    try:
        with stop_on_signals(follower.stopping, breakable=False):
            follower.run()
    except StorageError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in NO_ROOM:
            text = (
                f"{target}: {error.__cause__.strerror}; free some space there and start the mirror again; it continues"
            )
            raise CommandFailed(FAILED, text) from None
        raise
    finally:
        copy.close(now())
    if as_json:
        counts = {"records": copy.records, "lost": copy.lost, "removed": copy.removed}
        put_json({"event": "end", **counts, "partitions": copy.ends})
    else:
        lost = f", {copy.lost:,} lost at the source" if copy.lost else ""
        removed = f", {copy.removed:,} removed there before they were copied" if copy.removed else ""
        click.echo(
            f"{target}: {counted(copy.records, 'record')} added{lost}{removed}; {counted(len(copy.ends), 'partition')}"
        )
    return OK


class ProgressPrinter:
    """Print the progress: each change, and every ten seconds the lag; with ``--json`` a line every second."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._state: tuple[object, ...] | None = None
        self._quiet = 0

    def show(self, progress: Progress) -> None:
        """Print the progress if it is due."""
        behind = None if progress.behind_ns is None else progress.behind_ns / 1e9
        news = progress.records if self._as_json else (behind is None, bool(behind))
        state = (progress.connected, progress.trouble, news)
        self._quiet += 1
        if state == self._state and self._quiet < PRINT_INTERVAL_SECONDS:
            return
        self._state, self._quiet = state, 0
        if self._as_json:
            put_json(
                {
                    "event": "progress" if progress.connected else "disconnected",
                    "records": progress.records,
                    "lost": progress.lost,
                    "removed": progress.removed,
                    "behind_seconds": behind,
                    "trouble": progress.trouble,
                }
            )
        elif not progress.connected:
            say(f"{progress.trouble}; trying again")
        else:
            where = "connected" if behind is None else f"{behind:,.0f} s behind" if behind else "caught up"
            say(f"{counted(progress.records, 'record')} added, {where}")
