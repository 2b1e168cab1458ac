"""``radiator dlq``: what lies in dead-letter queues, and what is to become of it."""

from __future__ import annotations

import click

from radiator.cli.common import USAGE, CommandFailed, connection_options, json_option, open_connection

SHOWN = 20


@click.command(short_help="Look at dead letters, send them back, or drop them.")
@click.argument("action", type=click.Choice(["ls", "show", "replay", "drop"]))
@click.argument("queue", required=False)
@click.option("-n", "--count", type=click.IntRange(1), metavar="N", help=f"show: so many, not {SHOWN}. Oldest first.")
@click.option("--id", "ids", multiple=True, metavar="ID", help="replay, drop: this message only; may be repeated.")
@click.option("--all", "everything", is_flag=True, help="replay, drop: all that lie there now.")
@click.option("--to-topic", is_flag=True, help="replay: letters of subscriptions too, to all who read their topic.")
@click.option("--to", metavar="DESTINATION", help="replay: there, and not to where each came from.")
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
    url: str,
    login: str | None,
    passcode: str | None,
    timeout: float,
    as_json: bool,
) -> int:
    """ACTION is ls, show, replay or drop.

    ls lists the dead-letter queues: how much lies there, for which reasons, from where. show prints the letters of
    QUEUE. replay sends them back to where they came from, as new messages; drop acknowledges them. Both want --id or
    --all. What a durable subscription or a group did not want came from a topic that others read: replay sends that
    somewhere --to, or --to-topic, where all get it.
    """
    from radiator.cli import dead_letters

    if action != "ls" and queue is None:
        raise CommandFailed(USAGE, f"dlq {action} needs the name of a queue; `radiator dlq ls` lists them")
    if action in ("replay", "drop") and bool(ids) == everything:
        raise CommandFailed(USAGE, f"dlq {action} needs either --id ID or --all")
    if to is not None and action != "replay":
        raise CommandFailed(USAGE, "--to belongs to dlq replay")
    if to_topic and (action != "replay" or to is not None):
        raise CommandFailed(USAGE, "--to-topic belongs to dlq replay without --to")
    with open_connection(url, login, passcode, timeout) as connection:
        if action == "ls" or queue is None:
            return dead_letters.ls(connection, queue, as_json)
        if action == "show":
            return dead_letters.show(connection, queue, count or SHOWN, as_json)
        return dead_letters.settle(connection, queue, ids, action == "replay", to, to_topic, as_json)
