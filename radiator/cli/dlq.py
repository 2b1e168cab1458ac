"""``radiator dlq``: list the messages of dead-letter queues, send them back, or drop them."""

from __future__ import annotations

import click

from radiator.cli.common import USAGE, BrokerOptions, CommandFailed, connection_options, json_option

SHOWN = 20


@click.command(short_help="List dead letters, send them back, or drop them.")
@click.argument("action", type=click.Choice(["ls", "show", "replay", "drop"]))
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
    from radiator.cli import dead_letters

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
            return dead_letters.ls(connection, queue, as_json)
        if action == "show":
            return dead_letters.show(connection, queue, count or SHOWN, as_json)
        return dead_letters.settle(connection, queue, ids, action == "replay", to, to_topic, as_json)
