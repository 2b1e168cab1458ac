"""``radiator purge``: settle all messages of a queue, or drop the history of a topic.

With ``--data`` no broker may run, because the files are changed under its lock. Otherwise a request to the broker
empties a queue, which needs the admin right over it. Messages that are sent later stay.
"""

from __future__ import annotations

import click

from radiator.cli.common import (
    OK,
    USAGE,
    BrokerOptions,
    CommandFailed,
    confirm,
    connection_options,
    json_option,
    put_json,
    put_result,
    put_text,
    say,
)
from radiator.cli.selection import check_store, destinations_of
from radiator.words import are, counted


@click.command(short_help="Empty a queue, or drop a topic's history.")
@click.argument("destination")
@click.option("--data", metavar="DIR", help="Change this data directory; no broker may run.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@connection_options
@json_option
def purge(destination: str, data: str | None, yes: bool, broker: BrokerOptions, as_json: bool) -> int:
    """Settle all messages that wait in the queue DESTINATION, or drop the history of a topic.

    A running broker can empty queues only, for a user with the admin right. With --data, and no broker running, both
    are possible.
    """
    from radiator.broker.logs import cursor_names
    from radiator.routing.pattern import is_pattern
    from radiator.routing.rules import kind_of

    if is_pattern(destination):
        raise CommandFailed(USAGE, f"{destination} is a pattern: purge takes one name, without wildcards and commas")
    queue = kind_of(destination) == "queue"
    if data is not None:
        check_store(data)
    elif destination.startswith((cursor_names.SUBSCRIPTION, cursor_names.GROUP)):
        raise CommandFailed(
            USAGE,
            f"{destination} is a cursor, and purge takes a queue. `radiator cursors set {destination} next` skips all "
            "its messages",
        )
    elif destination.startswith(cursor_names.QUEUE):
        name = destination.removeprefix(cursor_names.QUEUE)
        raise CommandFailed(USAGE, f"{destination} is a cursor, and purge takes a queue, such as {name}")
    elif not queue:
        raise CommandFailed(
            USAGE,
            f"{destination} is a topic: its history cannot be dropped through the broker. Lower its retention, or stop "
            "the broker and give --data",
        )
    doing = "settle all waiting messages of" if queue else "drop the whole history of"
    if data is not None:
        if not yes:
            _check_stored(data, destination)
        confirm(f"{doing} {destination} in {data}", yes)
        return _offline(data, destination, queue, as_json)
    from radiator.client.admin import ask

    with broker.connect_admin() as connection:
        if not yes:
            ask(connection, "destinations.show", name=destination)  # an unknown name is an error, and no question
        confirm(f"{doing} {destination} at {broker.url}", yes)
        done = ask(connection, "queues.purge", name=destination)
    held = (done["in_flight"] or 0) + (done["dead_lettering"] or 0)
    if held:
        say(
            f"{counted(held, 'message')} of {destination} {are(held)} unacknowledged at consumers, or waiting for room "
            "in the dead-letter queue; not settled"
        )
    fields = {"destination": destination, "settled": done["purged"], "held": held}
    put_result(as_json, fields, f"{counted(done['purged'], 'message')} of {destination} settled")
    return OK


def _check_stored(data: str, destination: str) -> None:
    """Check that the files have something of a destination, without the lock of the store.

    Until a start has replayed the journal, the files may lack destinations. Then nothing is checked here.

    Raises:
        NoSuchDestination: Nothing is stored under this name.
    """
    from radiator.broker.logs.cursor_names import of_queue
    from radiator.storage import layout
    from radiator.storage.files import FileSystem
    from radiator.storage.reader import list_cursors, list_partitions
    from radiator.upkeep.purge import NoSuchDestination

    stored = destinations_of(data)
    if stored is None or FileSystem().listdir(layout.journal_path(data)):
        return
    names = stored.union(each.name for each in list_partitions(data))
    if destination not in names and of_queue(destination) not in {each.name for each in list_cursors(data)}:
        raise NoSuchDestination(data, destination)


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
        put_text(f"{counted(records, 'message')} of {destination} {'settled' if queue else 'removed'}")
        for each in done:
            put_text(f"  {each.partition} continues at offset {each.next_offset}")
    return OK
