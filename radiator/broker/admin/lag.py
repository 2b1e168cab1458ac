"""Position and lag of every cursor: of queues, durable subscriptions and consumer groups.

This module knows queues and their sources. It changes nothing, and runs on the event loop.

A log that several destinations share is not read for this. There ``lag`` includes records of the other destinations
that the cursor has not passed yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from radiator.broker.destinations import orphaned
from radiator.broker.logs import cursor_names
from radiator.routing.rules import TEMP_QUEUE_PREFIX

if TYPE_CHECKING:
    from radiator.broker.queues.queue import Queue, QueueSource
    from radiator.broker.services import Services

ROWS_READ_MAX = 2_000  # rows of one call
ROW_UNITS = 8


def names(broker: Services) -> Iterator[str]:
    """Yield the names of all cursors that exist now, but those of temporary queues.

    Names of topics are among them, though a topic has no cursor (``queue_of`` returns None for it).
    """
    prefix = cursor_names.QUEUE
    queues, durable = list(broker.destinations), list(broker.durable.by_key)
    yield from (prefix + name for name in queues if not name.startswith(TEMP_QUEUE_PREFIX))
    yield from durable


def queue_of(broker: Services, key: str) -> Queue | None:
    """Return the queue whose sources have the cursors of that name; None if there is none."""
    durable = broker.durable.by_key.get(key)
    if durable is not None:
        return durable.queue
    name = key.removeprefix(cursor_names.QUEUE)
    destination = broker.destinations.get(name) if name != key and not name.startswith(TEMP_QUEUE_PREFIX) else None
    return None if destination is None else destination.queue


def rows(broker: Services, key: str, queue: Queue) -> Iterator[dict[str, Any]]:
    """Yield one row per log of a queue; for a durable subscription without logs one row with an empty ``partition``.

    ``position``: everything below it is settled. ``end``: the high watermark. ``lag``: the number of unsettled records,
    of which ``in_flight`` are with consumers.
    """
    held = Counter(source for each in queue.consumers for source, _, _ in each.in_flight.values())
    durable = broker.durable.by_key.get(key)
    same = {
        "cursor": key,
        "members": len(queue.consumers),
        "paused": queue.paused,
        "undelivered": None,
        "user": durable.user if durable is not None else None,
        "destination": durable.patterns.text if durable is not None else key.removeprefix(cursor_names.QUEUE),
        "used_ns": durable.used_ns if durable is not None else None,
    }
    for source in sorted(queue.sources, key=lambda each: each.feed.partition.name):
        yield same | {
            "partition": source.feed.partition.name,
            "position": source.cursor.floor,
            "end": source.feed.partition.high_watermark,
            "lag": unsettled(source),
            "in_flight": held[source],
            "stored": source.cursor.stored,
            "shared": source.shared,
            "orphaned": source.orphaned,
        }
    if durable is not None and not queue.sources:
        nothing = dict.fromkeys(("position", "end", "lag", "in_flight"), 0)
        yield same | nothing | {"partition": "", "stored": True, "shared": False, "orphaned": False}


def unsettled(source: QueueSource) -> int:
    """Return the number of unsettled records between the cursor and the end."""
    return max(0, orphaned.unsettled(source.cursor, source.feed.partition) - source.unflushed)


def furthest_behind(broker: Services, most: int) -> Generator[int, None, list[dict[str, Any]]]:
    """Return the rows with the largest lag, among the first ROWS_READ_MAX, in steps.

    Durable subscriptions come before queues. The bound exists because rows of a hundred thousand queues take too long.

    Args:
        broker: The services of the broker.
        most: The maximum number of rows.

    Yields:
        The units of work that each step has cost (``broker.budget``).
    """
    known = [(key, durable.queue) for key, durable in broker.durable.by_key.items()]
    known += [
        (cursor_names.of_queue(name), each.queue)
        for name, each in islice(broker.destinations.items(), ROWS_READ_MAX)
        if each.queue is not None and not name.startswith(TEMP_QUEUE_PREFIX)
    ]
    found: list[dict[str, Any]] = []
    for row in islice((row for key, queue in known for row in rows(broker, key, queue)), ROWS_READ_MAX):
        yield ROW_UNITS
        if row["lag"]:
            found.append(row)
    return sorted(found, key=lambda row: (-row["lag"], row["cursor"], row["partition"]))[:most]
