"""What ``radiator dlq`` does, over a connection.

Looking is browsing: nothing is consumed. ``settle`` consumes: what is sent back and its acknowledgement are one
transaction, so a letter is in one of the two places whatever breaks.

The ``dlq-`` headers of a message count only if the broker wrote them (``is_dead_letter``). Otherwise whoever may send
to a dead-letter queue could choose where an operator's replay sends.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import click

from radiator.cli.common import (
    FAILED,
    NOT_FOUND,
    OK,
    USAGE,
    CommandFailed,
    are,
    counted,
    progress,
    put_json,
    say,
)
from radiator.stomp.spec import HOP_BY_HOP, RESERVED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from radiator.client import Connection
    from radiator.client.message import Message

WINDOW_MAX = 60_000  # what is not wanted stays in the window until the end, and then goes back
BATCH = 100  # messages of one transaction
QUIET_SECONDS = 1.0
LETTER = "dlq-"
OWNER = "dlq-subscription"
OWNERS_SHOWN = 5
REFUSED_SHOWN = 5
# They are about the first time: it would expire at once, wait again, or be taken for a repeat and not be stored.
LEFT_OUT = frozenset({"expires", "deliver-at", "dedup-id", "sequence", "transmit-time"})


def is_dead_letter(message: Message) -> bool:
    """True if the broker moved this message to where it is.

    Then its ``dlq-time`` is its receive time there. SEND loses ``dlq-`` headers, but a store of an earlier version may
    hold messages that a client sent with them.
    """
    return message.receive_time is not None and message.headers.get("dlq-time") == str(message.receive_time)


def _written(message: Message) -> Mapping[str, str]:
    """The ``dlq-`` headers that the broker wrote; none, if the message is no dead letter."""
    return message.headers if is_dead_letter(message) else {}


def ls(connection: Connection, pattern: str | None, as_json: bool) -> int:
    """Every dead-letter queue, or those that match."""
    from radiator.cli.formats import rfc3339
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
    rows: list[list[Cell]] = [
        [
            each["name"],
            [f"{reason} {count:,}" for reason, count in each["reasons"].items()],
            [f"{name} {count:,}" for name, count in (each["origins"] | each["subscriptions"]).items()],
            rfc3339(each["oldest_ns"])[:19].replace("T", " ") if each["oldest_ns"] else "-",
            f"{each['count']:,}",
        ]
        for each in found
    ]
    columns = (
        Column("queue"), Column("reasons"), Column("from"), Column("oldest", drop=1), Column("letters", number=True)
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


def show(connection: Connection, queue: str, most: int, as_json: bool) -> int:
    """The oldest letters."""
    from radiator.cli.formats import json_record, rfc3339, visible

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
        about = "no dead letter: a client sent it here"
        if is_dead_letter(message):
            about = (
                f"{headers.get('dlq-reason', '?')}, from {headers.get('dlq-destination', '?')}{owner} "
                f"after {headers.get('dlq-deliveries', '?')} deliveries"
            )
        click.echo(visible(f"{unquote(message.id)}  {rfc3339(_time_ns(message))[:19]}Z  {about}"))
        click.echo(f"    {visible(message.body[:200].decode('utf-8', 'replace'))}")
    if not shown:
        say(f"nothing lies in {queue}")
    return OK


def settle(
    connection: Connection,
    queue: str,
    ids: tuple[str, ...],
    back: bool,
    to: str | None,
    to_topic: bool,
    as_json: bool,
) -> int:
    """Send letters back (``back``), or drop them. Those of named subscriptions came from a topic, and all who read that
    would get them again: they are sent there only if that is said (``to_topic``). Messages that are no dead letters
    stay, unless ``to`` says where they are to go. Returns the exit code."""
    browser = connection.subscribe(queue, headers={"browser": "true"})
    lying: dict[str, str | None] = {}
    unknown: set[str] = set()
    for each in browser:
        lying[each.id] = _written(each).get(OWNER)
        if not _written(each).get("dlq-destination"):
            unknown.add(each.id)
    shown = {unquote(each): each for each in lying}  # ids may be given as the broker writes them, or as they are shown
    wanted = {shown.get(each, each) for each in ids} if ids else set(lying)
    missing = wanted.difference(lying)
    if missing:
        raise CommandFailed(NOT_FOUND, f"{queue} has no message {min(missing)}; `radiator dlq show {queue}` lists them")
    owners = Counter(owner for name, owner in lying.items() if owner is not None and name in wanted)
    if back and owners and to is None and not to_topic:
        raise CommandFailed(
            USAGE,
            f"{queue}: {sum(owners.values()):,} of these letters are of subscriptions "
            f"({', '.join(f'{name} {count:,}' for name, count in owners.most_common(OWNERS_SHOWN))}); back at their "
            "topic, all who read it would get them once more, also those that are done with them. Nothing was sent. "
            "Name a queue for them with --to, say --to-topic if all shall have them, or take the others by --id",
        )
    refused = sorted(wanted & unknown) if back and to is None else []
    wanted.difference_update(refused)
    done: Counter[str] = Counter()
    window = min(max(len(lying), 1), WINDOW_MAX)
    with progress() as bar, connection.subscribe(queue, ack="client-individual", prefetch=window) as inbox:
        task = bar.add_task("replaying" if back else "dropping", total=len(wanted), note="")
        batch: list[Message] = []
        while wanted:
            message = inbox.fetch(QUIET_SECONDS)
            if message is None:
                break
            if message.id in wanted:
                wanted.discard(message.id)
                batch.append(message)
            if len(batch) >= BATCH or not wanted:
                done += _commit(connection, batch, back, to)
                bar.update(task, advance=len(batch))
                batch = []
        done += _commit(connection, batch, back, to)
    if refused:
        say(
            f"{counted(len(refused), 'message')} of {queue} {are(len(refused))} no dead letter, but sent by a client. "
            "Left there, as nothing says where they belong; --to sends them somewhere: "
            f"{', '.join(map(unquote, refused[:REFUSED_SHOWN]))}{' and others' if len(refused) > REFUSED_SHOWN else ''}"
        )
    if wanted:
        held = f"{counted(len(wanted), 'letter')} of {queue} {are(len(wanted))}"
        say(f"{held} in the hands of other consumers, and left to them")
    total = sum(done.values())
    if as_json:
        about = {"queue": queue, "left": len(wanted), "refused": len(refused), "to": dict(done)}
        put_json({**about, "replayed" if back else "dropped": total})
    elif back:
        where = ", ".join(f"{count:,} to {name}" for name, count in done.items())
        click.echo(f"{counted(total, 'letter')} of {queue} sent back{': ' + where if where else ''}")
    else:
        click.echo(f"{counted(total, 'letter')} of {queue} dropped")
    return FAILED if refused else OK


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
    return done if back else Counter(dropped=len(batch))


def _headers(message: Message) -> dict[str, str]:
    """As they were before: nothing of this queue, and nothing of what went wrong."""
    gone = RESERVED | HOP_BY_HOP | LEFT_OUT
    return {name: value for name, value in message.headers.items() if name not in gone and not name.startswith(LETTER)}
