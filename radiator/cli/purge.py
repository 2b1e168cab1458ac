"""``radiator purge``: settle all messages of a queue, or drop the history of a topic.

With ``--data`` no broker may run, because the files are changed under its lock. Otherwise a queue is emptied through
its broker, by a consumer that acknowledges the messages that waited at the begin; later messages stay. Scheduled
messages are not delivered to a consumer; a request to the broker settles them, which needs the admin right.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import click

from radiator.cli.common import (
    OK,
    USAGE,
    BrokerOptions,
    CommandFailed,
    are,
    confirm,
    connection_options,
    counted,
    json_option,
    progress,
    put_json,
    say,
)
from radiator.cli.dead_letters import is_dead_letter
from radiator.cli.selection import check_store

if TYPE_CHECKING:
    from radiator.client import Connection
    from radiator.client.message import Message

WINDOW = 5_000
SETTLE_DELAYED = "queues.settle_delayed"  # a request of the admin channel
QUIET_SECONDS = 1.0  # without a message, until the rest is counted


@click.command(short_help="Empty a queue, or drop a topic's history.")
@click.argument("destination")
@click.option("--data", metavar="DIR", help="Change this data directory; no broker may run.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@connection_options
@json_option
def purge(destination: str, data: str | None, yes: bool, broker: BrokerOptions, as_json: bool) -> int:
    """Settle all messages that wait in the queue DESTINATION, or drop the history of a topic.

    A running broker can empty queues only. With --data, and no broker running, both are possible.
    """
    from radiator.routing.pattern import is_pattern
    from radiator.routing.rules import kind_of

    if is_pattern(destination):
        raise CommandFailed(USAGE, f"{destination} is a pattern: purge takes one name, without wildcards and commas")
    queue = kind_of(destination) == "queue"
    if data is not None:
        check_store(data)
    elif not queue:
        raise CommandFailed(
            USAGE,
            f"{destination} is a topic: its history cannot be dropped through the broker. Lower its retention, or stop "
            "the broker and give --data",
        )
    doing = "settle all waiting messages of" if queue else "drop the whole history of"
    where = f"at {broker.url}" if data is None else f"in {data}"
    confirm(f"{doing} {destination} {where}", yes)
    if data is not None:
        return _offline(data, destination, queue, as_json)
    from radiator.client.admin import ask
    from radiator.client.errors import ServerError

    with broker.connect() as connection:
        settled, left, marks = _online(connection, destination)
        if left.delayed or left.held:  # some of these may wait after a NACK
            with contextlib.suppress(ServerError):  # without the right they stay, and are reported
                settled += ask(connection, SETTLE_DELAYED, name=destination, until=marks)["settled"]
                left = _left(connection, destination, marks)
    if not marks:
        say(f"nothing is stored for {destination}: all its messages were removed, or none was ever sent")
    if left.held:
        say(
            f"{counted(left.held, 'message')} of {destination} {are(left.held)} unacknowledged at other "
            "consumers, or waiting for a retry or for room in the dead-letter queue; not settled"
        )
    if left.delayed:
        say(
            f"{counted(left.delayed, 'message')} of {destination} {are(left.delayed)} scheduled for later; "
            "settling them needs the admin right"
        )
    if as_json:
        put_json({"destination": destination, "settled": settled, "held": left.held, "delayed": left.delayed})
    else:
        click.echo(f"{counted(settled, 'message')} of {destination} settled")
    return OK


def _offline(data: str, destination: str, queue: bool, as_json: bool) -> int:
    from radiator.broker.headers.send import identify
    from radiator.broker.logs.cursor_names import of_queue
    from radiator.clock import now
    from radiator.upkeep.purge import purge

    done = purge(data, destination, of_queue(destination), queue, now(), identify=identify)
    records = sum(each.records for each in done)
    if as_json:
        parts = [each._asdict() for each in done]
        put_json({"destination": destination, "settled" if queue else "removed": records, "partitions": parts})
    else:
        click.echo(f"{counted(records, 'message')} of {destination} {'settled' if queue else 'removed'}")
        for each in done:
            click.echo(f"  {each.partition} continues at offset {each.next_offset}")
    return OK


class Left(NamedTuple):
    """The messages that waited at the begin and are not settled.

    Attributes:
        held: Messages that are unacknowledged at other consumers, or wait for a retry.
        delayed: Scheduled messages.
    """

    held: int
    delayed: int


def _online(connection: Connection, destination: str) -> tuple[int, Left, dict[str, int]]:
    """Settle the messages of a queue through its broker.

    Returns:
        The number of settled messages, what is left of those that waited at the begin, and the last offset of each
        partition at that time; empty if nothing is stored for the destination.
    """
    marks: dict[str, int] = {}
    for newest in connection.subscribe(destination, start_position="last", stop_position="end"):
        partition, offset = _place(newest)
        marks[partition] = max(offset, marks.get(partition, 0))
    settled = _settle(connection, destination, marks, marks)
    if bound := _bound_marks(connection, destination, marks):  # logs of fan-out sources, which its own logs do not show
        marks |= bound
        settled += _settle(connection, destination, marks, bound)
    return settled, _left(connection, destination, marks) if marks else Left(0, 0), marks


def _settle(connection: Connection, destination: str, marks: dict[str, int], where: Iterable[str]) -> int:
    """Consume until the marks of these partitions are reached, or no message before a mark arrives any more."""
    settled, held, ahead = 0, -1, set(where)
    last: Message | None = None  # only its ACK has a receipt, which covers all before it
    with progress() as bar, connection.subscribe(destination, ack="client-individual", prefetch=WINDOW) as inbox:
        task = bar.add_task("settling", total=None, note="")
        while ahead:
            message = inbox.fetch(QUIET_SECONDS)
            if message is None:
                left = _left(connection, destination, marks).held - (last is not None)
                if left in (0, held):
                    break
                held = left  # try again: the broker may be slow
                continue
            partition, offset = _place(message)
            if offset <= marks.get(partition, -1):
                if last is not None:
                    last.ack()
                last, settled = message, settled + 1
                bar.update(task, note=f"{settled:,}")
            if offset >= marks.get(partition, -1):
                ahead.discard(partition)
        if last is not None:
            last.ack(receipt=True)
    return settled


def _waiting(connection: Connection, destination: str) -> Iterable[Message]:
    return connection.subscribe(destination, headers={"browser": "true"})


def _bound_marks(connection: Connection, destination: str, marks: dict[str, int]) -> dict[str, int]:
    """Return the last offset of each log whose waiting messages were sent to another destination."""
    bound: dict[str, int] = {}
    for message in _waiting(connection, destination):
        partition, offset = _place(message)
        if message.destination != destination and partition not in marks:
            bound[partition] = max(offset, bound.get(partition, 0))
    return bound


def _left(connection: Connection, destination: str, marks: dict[str, int]) -> Left:
    """Return how many of the messages up to the marks are not settled."""
    from radiator.clock import NS_PER_MS, now_ns

    at_ms = now_ns() // NS_PER_MS
    left: Counter[bool] = Counter()
    for message in _waiting(connection, destination):
        partition, offset = _place(message)
        left[_due_ms(message) > at_ms] += offset <= marks.get(partition, -1)
    return Left(held=left[False], delayed=left[True])


def _due_ms(message: Message) -> int:
    text = message.headers.get("deliver-at", "")
    return int(text) if text.isascii() and text.isdigit() and not is_dead_letter(message) else 0


def _place(message: Message) -> tuple[str, int]:
    return message.partition or "", message.offset if message.offset is not None else -1
