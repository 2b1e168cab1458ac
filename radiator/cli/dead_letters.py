"""``radiator dlq``: list the messages of dead-letter queues, send them back, or drop them.

Listing only browses. To settle consumes: a message that is sent back and its acknowledgement are one transaction, so
the message is in one of the two queues whatever fails.

The ``dlq-`` headers of a message count only if the broker wrote them (``is_dead_letter``). Otherwise a client that may
send to a dead-letter queue could choose where an operator's replay sends.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import click

from radiator.cli.common import (
    FAILED,
    NOT_FOUND,
    OK,
    USAGE,
    BrokerOptions,
    CommandFailed,
    connection_options,
    json_option,
    progress,
    put_json,
    put_result,
    put_text,
    say,
)
from radiator.stomp.spec import HOP_BY_HOP, RESERVED
from radiator.words import are, counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from radiator.client import Connection
    from radiator.client.message import Message

WINDOW_MAX = 60_000  # other messages stay in the window until the end, and then return
BATCH = 100  # messages of one transaction
QUIET_SECONDS = 1.0
LETTER = "dlq-"
OWNER = "dlq-subscription"
NAMES_SHOWN = 5
REFUSED_SHOWN = 5
SHOWN = 20  # letters
# These concern the first SEND: the message would expire, be delayed again, or be dropped as a duplicate.
LEFT_OUT = frozenset({"expires", "deliver-at", "dedup-id", "sequence", "transmit-time"})


@click.command(short_help="List dead letters, send them back, or drop them.")
@click.argument("action", metavar="ACTION", type=click.Choice(["ls", "show", "replay", "drop"]))
@click.argument("queue", required=False)
@click.option(
    "-n",
    "--count",
    type=click.IntRange(1),
    metavar="N",
    help=f"show: print N messages instead of {SHOWN}, the oldest first.",
)
@click.option("--id", "ids", multiple=True, metavar="ID", help="replay, drop: only this message. May be repeated.")
@click.option("--all", "everything", is_flag=True, help="replay, drop: all messages of the queue.")
@click.option("--to-topic", is_flag=True, help="replay: also messages of subscriptions, to all readers of their topic.")
@click.option("--to", metavar="DESTINATION", help="replay: send to DESTINATION instead of the origin of each message.")
@connection_options
@json_option
def dlq(
    action: str,
    queue: str | None,
    count: int | None,
    ids: tuple[str, ...],
    everything: bool,
    to_topic: bool,
    to: str | None,
    broker: BrokerOptions,
    as_json: bool,
) -> int:
    """Run ACTION on dead letters: ls, show, replay or drop.

    ls lists the dead-letter queues with reasons and origins. show prints messages of QUEUE. replay sends them back to
    their origin, as new messages; drop acknowledges them. replay and drop need --id or --all. Messages of a durable
    subscription or a group came from a topic that others read: replay sends them only with --to, or with --to-topic to
    all its readers.
    """
    if action != "ls" and queue is None:
        raise CommandFailed(USAGE, f"dlq {action} needs the name of a queue; `radiator dlq ls` lists them")
    if action in ("replay", "drop") and bool(ids) == everything:
        raise CommandFailed(USAGE, f"dlq {action} needs either --id ID or --all")
    if to is not None and action != "replay":
        raise CommandFailed(USAGE, "--to belongs to dlq replay")
    if to_topic and (action != "replay" or to is not None):
        raise CommandFailed(USAGE, "--to-topic belongs to dlq replay without --to")
    with broker.connect() as connection:
        if action == "ls" or queue is None:
            return _ls(connection, queue, as_json)
        _require(connection, queue)
        if action == "show":
            return _show(connection, queue, count or SHOWN, as_json)
        return _settle(connection, queue, ids, action == "replay", to, to_topic, as_json)


def _require(connection: Connection, queue: str) -> None:
    """Check that a queue exists. Without the right ``monitor`` it is not known: then it may be empty.

    Raises:
        ServerError: ``not-found``.
    """
    from radiator.client.admin import ask
    from radiator.client.errors import ServerError

    try:
        ask(connection, "destinations.show", name=queue)
    except ServerError as error:
        if error.code == "not-found":
            raise


def is_dead_letter(message: Message) -> bool:
    """Return True if the broker moved this message to a dead-letter queue.

    Then its ``dlq-time`` is its receive time there. SEND removes ``dlq-`` headers, but a store of an earlier version
    may contain messages that a client sent with them.
    """
    return message.receive_time is not None and message.headers.get("dlq-time") == str(message.receive_time)


def _written(message: Message) -> Mapping[str, str]:
    """Return the ``dlq-`` headers that the broker wrote; none if the message is not a dead letter."""
    return message.headers if is_dead_letter(message) else {}


def _ls(connection: Connection, pattern: str | None, as_json: bool) -> int:
    """List the dead-letter queues that match, or all."""
    from radiator.cli.formats import to_the_second
    from radiator.cli.tables import Cell, Column, print_table
    from radiator.client.admin import ask_all

    wanted = {"match": pattern} if pattern is not None else {}
    pages = ask_all(connection, "destinations.ls", "destinations", dead_letters=True, **wanted)
    names = [each["name"] for each in pages]
    found = []
    with progress() as bar:
        task = bar.add_task("reading", total=len(names), note="")
        for name in names:
            found.append(_summary(connection, name))
            bar.advance(task)
    if as_json:
        put_json({"queues": found})
        return OK
    if not found:
        put_text("no dead-letter queues" if pattern is None else f"no dead-letter queue matches {pattern}")
        return OK
    rows: list[list[Cell]] = [
        [
            each["name"],
            [f"{reason} {count:,}" for reason, count in each["reasons"].items()],
            [f"{name} {count:,}" for name, count in (each["origins"] | each["subscriptions"]).items()],
            to_the_second(each["oldest_ns"]) if each["oldest_ns"] else "-",
            f"{each['count']:,}",
        ]
        for each in found
    ]
    columns = (
        Column("queue"), Column("reasons"), Column("from"), Column("oldest", drop=1), Column("messages", number=True)
    )  # fmt: skip
    print_table(columns, rows)
    return OK


def _summary(connection: Connection, name: str) -> dict[str, Any]:
    reasons: Counter[str] = Counter()
    origins: Counter[str] = Counter()
    subscriptions: Counter[str] = Counter()
    oldest_ns = 0
    for message in connection.subscribe(name, headers={"browser": "true"}):
        written = _written(message)
        reasons[written.get("dlq-reason", "none")] += 1
        origins[written.get("dlq-destination", "unknown")] += 1
        if OWNER in written:
            subscriptions[written[OWNER]] += 1
        oldest_ns = min(_time_ns(message), oldest_ns or _time_ns(message))
    return {
        "name": name,
        "count": sum(reasons.values()),
        "reasons": dict(reasons.most_common()),
        "origins": dict(origins.most_common()),
        "subscriptions": dict(subscriptions.most_common()),
        "oldest_ns": oldest_ns,
    }


def _time_ns(message: Message) -> int:
    return message.receive_time or 0


def _show(connection: Connection, queue: str, most: int, as_json: bool) -> int:
    """Print the oldest dead letters of a queue."""
    from radiator.cli.formats import json_record, visible
    from radiator.clock import rfc3339

    shown = 0
    for message in connection.subscribe(queue, headers={"browser": "true"}):
        if shown == most:
            break
        shown += 1
        if as_json:
            put_json({"id": message.id, **json_record(message)})
            continue
        headers = message.headers
        owner = f" for {headers[OWNER]}" if OWNER in headers else ""
        about = "not a dead letter: a client sent it here"
        if is_dead_letter(message):
            deliveries = headers.get("dlq-deliveries", "?")
            about = (
                f"{headers.get('dlq-reason', '?')}, from {headers.get('dlq-destination', '?')}{owner} "
                f"after {deliveries} {'delivery' if deliveries == '1' else 'deliveries'}"
            )
        click.echo(visible(f"{unquote(message.id)}  {rfc3339(_time_ns(message))[:19]}Z  {about}"))
        click.echo(f"    {visible(message.body[:200].decode('utf-8', 'replace'))}")
    if not shown:
        say(f"{queue} is empty")
    return OK


class Letter(NamedTuple):
    """A message of the queue, as far as it decides about a replay."""

    subscription: str | None  # the durable subscription that it was for
    has_origin: bool


def _settle(
    connection: Connection,
    queue: str,
    ids: tuple[str, ...],
    back: bool,
    to: str | None,
    to_topic: bool,
    as_json: bool,
) -> int:
    """Send dead letters back (``back``) or drop them, and return the exit code.

    Messages that are not dead letters stay, unless ``to`` names a destination for them.
    """
    in_queue = {}
    for each in connection.subscribe(queue, headers={"browser": "true"}):
        written = _written(each)
        in_queue[each.id] = Letter(written.get(OWNER), bool(written.get("dlq-destination")))
    wanted = _chosen(queue, ids, set(in_queue))
    refused: list[str] = []
    if back and to is None:
        if not to_topic:
            _check_readers(queue, Counter(letter.subscription for each, letter in in_queue.items() if each in wanted))
        refused = sorted(each for each in wanted if not in_queue[each].has_origin)
        wanted.difference_update(refused)
    done = _take(connection, queue, wanted, len(in_queue), back, to)
    if refused:
        say(
            f"{counted(len(refused), 'message')} of {queue} {are(len(refused))} no dead letter, but sent by a client. "
            "They stay, because they have no origin; --to names a destination for them: "
            f"{', '.join(map(unquote, refused[:REFUSED_SHOWN]))}{' and others' if len(refused) > REFUSED_SHOWN else ''}"
        )
    if wanted:
        held = f"{counted(len(wanted), 'message')} of {queue} {are(len(wanted))}"
        say(f"{held} unacknowledged at other consumers, and not sent back")
    total = sum(done.values())
    fields = {"queue": queue, "left": len(wanted), "refused": len(refused), "to": dict(done)}
    if back:
        where = ", ".join(f"{count:,} to {name}" for name, count in done.items())
        text = f"{counted(total, 'message')} of {queue} sent back{': ' + where if where else ''}"
        put_result(as_json, {**fields, "replayed": total}, text)
    else:
        put_result(as_json, {**fields, "dropped": total}, f"{counted(total, 'message')} of {queue} dropped")
    return FAILED if refused else OK


def _chosen(queue: str, ids: tuple[str, ...], in_queue: set[str]) -> set[str]:
    """Return the ids that ``--id`` selects, or all. They are accepted as the broker writes them, and as printed.

    Raises:
        CommandFailed: The queue has no such message.
    """
    printed = {unquote(each): each for each in in_queue}
    wanted = {printed.get(each, each) for each in ids} if ids else set(in_queue)
    missing = wanted - in_queue
    if missing:
        raise CommandFailed(NOT_FOUND, f"{queue} has no message {min(missing)}; `radiator dlq show {queue}` lists them")
    return wanted


def _check_readers(queue: str, subscriptions: Counter[str | None]) -> None:
    """Check that no message is of a durable subscription: the other readers of its topic would get it again.

    Raises:
        CommandFailed: There are such messages.
    """
    del subscriptions[None]
    if subscriptions:
        names = ", ".join(f"{name} {count:,}" for name, count in subscriptions.most_common(NAMES_SHOWN))
        raise CommandFailed(
            USAGE,
            f"{queue}: {sum(subscriptions.values()):,} of these messages are of subscriptions ({names}); their topic "
            "would deliver them again to all its readers. Nothing was sent. Name a queue for them with --to, use "
            "--to-topic to send them to all readers, or select the others with --id",
        )


def _take(
    connection: Connection, queue: str, wanted: set[str], waiting: int, back: bool, to: str | None
) -> Counter[str]:
    """Consume the wanted messages, remove each from ``wanted``, and return the numbers by destination.

    Args:
        connection: The connection.
        queue: The queue.
        wanted: The ids of messages. Those that other consumers have are left in it.
        waiting: The number of messages in the queue, which all come before the last of them.
        back: Send them back, or drop them.
        to: The destination of all, or None.
    """
    done: Counter[str] = Counter()
    window = min(max(waiting, 1), WINDOW_MAX)
    with progress() as bar, connection.subscribe(queue, ack="client-individual", prefetch=window) as inbox:
        task = bar.add_task("replaying" if back else "dropping", total=len(wanted), note="")
        batch: list[Message] = []
        while wanted and (message := inbox.fetch(QUIET_SECONDS)) is not None:
            if message.id in wanted:
                wanted.discard(message.id)
                batch.append(message)
            if len(batch) >= BATCH:
                done += _commit(connection, batch, back, to)
                bar.update(task, advance=len(batch))
                batch = []
        done += _commit(connection, batch, back, to)
    return done


def _commit(connection: Connection, batch: list[Message], back: bool, to: str | None) -> Counter[str]:
    done: Counter[str] = Counter()
    if not batch:
        return done
    with connection.transaction() as transaction:
        for message in batch:
            target = to or message.headers.get("dlq-destination", "")
            if back:
                transaction.send(target, message.body, _headers(message))
            transaction.ack(message)
            done[target if back else ""] += 1
        transaction.commit({"audit-log": "true"})
    return done if back else Counter(dropped=len(batch))


def _headers(message: Message) -> dict[str, str]:
    """Return the headers that the message had before it became a dead letter."""
    gone = RESERVED | HOP_BY_HOP | LEFT_OUT
    return {name: value for name, value in message.headers.items() if name not in gone and not name.startswith(LETTER)}
