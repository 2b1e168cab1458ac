"""``radiator report live``: publish windowed counts of incoming messages to a topic, by a Spark stream."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack
from typing import Any

import click

from radiator.cli.common import (
    FAILED,
    OK,
    SERVER_EXITS,
    BrokerOptions,
    CommandFailed,
    connection_options,
    json_option,
    progress,
    put_result,
)
from radiator.cli.selection import check_store
from radiator.cli.signals import stop_on_signals
from radiator.clock import NS_PER_MS, NS_PER_SECOND
from radiator.stopping import Stopping
from radiator.words import counted

LOOK_SECONDS = 1.0  # between checks whether the query has ended


def _width(ctx: click.Context, parameter: click.Parameter, text: str) -> str:
    """Return the value of an option such as ``5m`` as Spark writes it."""
    from radiator.broker.headers.values import parse_duration

    ns = parse_duration(text)
    if ns is None or ns < NS_PER_SECOND:
        raise click.BadParameter(f"expected a duration of a second or more, such as 30s or 5m, got {text!r}")
    seconds, rest = divmod(ns, NS_PER_SECOND)
    return f"{ns // NS_PER_MS} milliseconds" if rest else f"{seconds} seconds"


@click.command("live", short_help="Publish windowed counts of messages to a topic.")
@click.option("--data", metavar="DIR", default="./data", show_default=True, help="The broker's data directory.")
@click.option("--to", metavar="TOPIC", default="/topic/ops.traffic", show_default=True, help="Topic for the counts.")
@click.option(
    "--destination", metavar="PATTERN", default="#", help="Only these destinations, as in SUBSCRIBE; a list has commas."
)
@click.option("--every", metavar="WIDTH", default="1m", show_default=True, callback=_width, help="Width of a window.")
@click.option("--clock", type=click.Choice(("receive", "event")), default="receive", show_default=True,
              help="Time to count by: receive-time or event-time.")  # fmt: skip
@click.option("--late", metavar="DURATION", default="1m", show_default=True, callback=_width,
              help="How long a window waits for late messages.")  # fmt: skip
@click.option("--closed", is_flag=True, help="Publish each window once, when it is complete.")
@click.option("--trigger", metavar="DURATION", default="5s", show_default=True, callback=_width,
              help="Interval between counts.")  # fmt: skip
@click.option("--from", "start", type=click.Choice(("now", "first")), default="now", show_default=True,
              help="Where to begin without a checkpoint.")  # fmt: skip
@click.option("--checkpoint", metavar="DIR", type=click.Path(file_okay=False),
              help="Directory of Spark's checkpoint, to continue after a stop. Default: none.")  # fmt: skip
@click.option("--once", is_flag=True, help="Count the present messages, publish, and end.")
@connection_options
@json_option
def live(
    data: str, to: str, destination: str, every: str, clock: str, late: str, closed: bool, trigger: str, start: str,
    checkpoint: str | None, once: bool, broker: BrokerOptions, as_json: bool,
) -> int:  # fmt: skip
    """Publish messages and bytes per destination and window to a topic, as JSON, until SIGINT or SIGTERM.

    A window is published again when it has grown. Any STOMP client can subscribe to the topic.
    """
    check_store(data)
    from radiator.spark.live import publish_windows
    from radiator.spark.session import get_session

    secrets = {"login": broker.login, "passcode": broker.passcode}
    broker.connect().close()  # fail before Spark starts if the broker refuses
    stopping = Stopping()
    with ExitStack() as stack:
        if checkpoint is None:
            checkpoint = tempfile.mkdtemp(prefix="radiator-live-")
            stack.callback(shutil.rmtree, checkpoint, ignore_errors=True)
        bar = stack.enter_context(progress())
        task = bar.add_task("start Spark", total=None, note="")
        spark = get_session("radiator report live", log_level="OFF")
        stack.enter_context(stop_on_signals(stopping))
        query = publish_windows(
            spark, data, broker.url, to,
            checkpoint=os.path.abspath(checkpoint), destination=destination, every=every, time=f"{clock}_time",
            watermark=late, closed=closed, trigger={"availableNow": True} if once else {"processingTime": trigger},
            starting_offsets="earliest" if start == "first" else "latest", query=f"live {to}",
            sink={"timeout": broker.timeout, **{name: value for name, value in secrets.items() if value is not None}},
        )  # fmt: skip
        stack.callback(query.stop)
        totals = Totals()
        while not stopping.wait(LOOK_SECONDS):
            active = query.isActive
            totals.look(query)
            bar.update(task, description=f"publishing to {to}", note=totals.note())
            if not active:
                break
        _end(query)
        totals.look(query)
    fields = {"to": to, "epochs": totals.epochs, "messages": totals.messages}
    text = f"{totals.note()}, and changed windows published to {to}"
    put_result(as_json, fields, text)
    return OK


class Totals:
    """The totals that the query has reported."""

    def __init__(self) -> None:
        self.messages = 0
        self.epochs = 0
        self._last = -1

    def look(self, query: Any) -> None:
        """Read the progress that the query has reported since the last call."""
        from radiator.spark.live import COUNTED

        for each in query.recentProgress:
            if each["batchId"] > self._last:
                self._last = each["batchId"]
                self.epochs += 1
                metrics = each["observedMetrics"].get(COUNTED)
                self.messages += 0 if metrics is None else metrics["messages"]

    def note(self) -> str:
        """Return the note for the progress bar."""
        return f"{counted(self.messages, 'message')} counted"


def _end(query: Any) -> None:
    from radiator.spark.report import reason

    error = query.exception()
    if error is not None:
        text = reason(error) or str(error).partition("\n")[0]
        raise CommandFailed(next((code for word, code in SERVER_EXITS.items() if f"({word})" in text), FAILED), text)
