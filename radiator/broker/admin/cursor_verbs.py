"""Cursors on the admin channel: ``cursors.ls``, ``cursors.set``, ``cursors.rm``.

Cursors have the names of the store (``queue:/queue/a``, ``sub:billing``, ``group:workers``). A name without a prefix
means the first that exists of a durable subscription, a group and a queue. To set a queue's cursor its sources are made
anew. Messages that are in flight from the old sources stay with their consumers, and their acknowledgements have no
effect.

This module knows queues, sources and positions. It does not know rights.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from radiator.broker.admin import lag
from radiator.broker.admin.view import JOINED_EXAMINED_MAX
from radiator.broker.clients.session import subscriptions_of
from radiator.broker.headers.positions import Position, parse_position
from radiator.broker.logs import cursor_names
from radiator.broker.queues.queue import QueueSource
from radiator.errors import ProtocolError, StorageError
from radiator.storage.cursor import Cursor

if TYPE_CHECKING:
    from radiator.broker.admin.request import Request, Work
    from radiator.broker.admin.view import View
    from radiator.broker.budget import Steps
    from radiator.broker.queues.queue import Queue
    from radiator.broker.services import Services

PAGE = 500
ROWS_MAX = 2_000  # rows in a page; no further name is begun after them
NAMES_A_UNIT = 2  # names that are compared
ROW_UNITS = 5
JOINED_A_UNIT = 3  # topics of a durable subscription that are compared with the rights of the user
PLACE_UNITS = 20  # per log in which a queue's cursor is set


def ls(broker: Services, request: Request) -> Work:
    """Return a page of cursors whose name matches ``match`` (with ``*``), in steps (``cursors.ls``).

    A page ends early if the cursors of its names cover very many logs.
    """
    match, after = request.text("match", "*"), request.text("after", "")
    limit = request.number("limit", PAGE, 1, PAGE)
    view = request.view
    undelivered: dict[str, list[dict[str, Any]]] = {}
    for each in broker.orphaned.undelivered:
        undelivered.setdefault(each.cursor, []).append(each.row)
    found: list[str] = []  # the names of the page in order, and one more
    for number, key in enumerate(chain(lag.names(broker), undelivered)):
        if number % NAMES_A_UNIT == 0:
            broker.budget.spend(1)
            yield True
        if key <= after or (len(found) > limit and key >= found[-1]):
            continue
        if not (fnmatchcase(key, match) or fnmatchcase(_without_prefix(key), match)) or not _shows(broker, view, key):
            continue
        at = bisect_left(found, key)
        if (at == len(found) or found[at] != key) and (key in undelivered or lag.queue_of(broker, key) is not None):
            found.insert(at, key)
            del found[limit + 1 :]
    rows: list[dict[str, Any]] = []
    last = None
    for key in found[:limit]:
        if len(rows) >= ROWS_MAX:
            return {"cursors": rows, "next": last}
        queue = lag.queue_of(broker, key)
        for row in (*(lag.rows(broker, key, queue) if queue is not None else ()), *undelivered.get(key, ())):
            rows.append(row)
            broker.budget.spend(ROW_UNITS)
            yield True
        last = key
    return {"cursors": rows, "next": last if len(found) > limit else None}


def _shows(broker: Services, view: View, key: str) -> bool:
    """Return True if the user may see a cursor: that of a queue, or of a durable subscription to permitted topics."""
    if view.everything:
        return True
    durable = broker.durable.by_key.get(key)
    if durable is not None:
        broker.budget.spend(min(len(durable.destinations), JOINED_EXAMINED_MAX) // JOINED_A_UNIT)
        return view.shows_whole(durable)
    return key.startswith(cursor_names.QUEUE) and view.shows(key.removeprefix(cursor_names.QUEUE))


def rm(broker: Services, request: Request) -> Work:
    """Delete a durable subscription, in steps (``cursors.rm``). Connections that use it get an ERROR and are closed.

    Raises:
        ProtocolError: There is no such cursor, or it is a queue's.
    """
    key = _find(broker, request.text("name"))
    yield from broker.durable.wait_unlocked(key)
    durable = broker.durable.by_key.get(key)
    if durable is None:
        raise ProtocolError("bad-request", f"{key} is the cursor of a queue and cannot be deleted", "See purge.")
    for each in subscriptions_of(durable.queue):
        broker.refuse(
            each.session, ProtocolError("bad-subscription", f"{durable.asked} was deleted by an administrator")
        )
    broker.durable.delete(durable)
    yield from broker.durable.wait_unlocked(key)
    return {"cursor": key}


def move(broker: Services, request: Request) -> Work:
    """Set a cursor to ``position`` in all its logs, or in those of ``destination``, in steps (``cursors.set``).

    Raises:
        ProtocolError: There is no such cursor, or an argument is bad.
    """
    key = _find(broker, request.text("name"))
    position = parse_position("position", request.text("position"), request.now.wall)
    wanted = request.text("destination", "")
    if wanted and wanted not in broker.destinations:
        raise ProtocolError("bad-request", f"there is no destination {wanted[:200]!r}")
    yield from broker.durable.wait_unlocked(key)
    durable = broker.durable.by_key.get(key)
    if durable is None:
        yield from _move_queue(broker, request, key, position, wanted)
        return None
    topics = [each for each in durable.destinations if not wanted or each.name == wanted]
    if not topics:
        raise ProtocolError(
            "bad-request", f"{key} does not read {wanted[:200]!r}", f"It reads {durable.patterns.text}."
        )
    with broker.durable.lock(key):
        if wanted:
            yield from durable.seek_in(topics, position, request.now.wall)
        else:
            yield from durable.seek(list(durable.destinations), position, request.now.wall)

    def settled(error: StorageError | None) -> None:
        if durable.deleted:
            request.refuse(ProtocolError("not-found", f"{key} was deleted meanwhile"))
        elif error is not None:
            request.refuse(_failed(error, "The broker will look it up again; or set the cursor again."))
            broker.durable.store_once_settled(durable)
        else:
            broker.durable.store(durable)
            request.answer({"cursors": lag.rows(broker, key, durable.queue)})

    durable.position_lookups.settled(settled)
    return None


def _move_queue(broker: Services, request: Request, key: str, position: Position, wanted: str) -> Steps:
    queue = lag.queue_of(broker, key)
    if queue is None:
        raise ProtocolError("not-found", f"{key} was deleted meanwhile")
    destination = broker.destinations.get(wanted)
    feeds = None if destination is None else [*destination.feeds, *destination.orphaned]
    sources = [each for each in queue.sources if feeds is None or each.feed in feeds]
    if not sources:
        raise ProtocolError("bad-request", f"{key} has no cursor over {wanted[:200]!r}")
    places: dict[QueueSource, int] = {}
    failed: list[StorageError] = []

    def placed(source: QueueSource, place: int | StorageError) -> None:
        if failed:
            return
        if isinstance(place, StorageError):
            failed.append(place)
            request.refuse(_failed(place, "Nothing was changed; try again."))
            return
        places[source] = place
        if len(places) == len(sources):
            for each, offset in places.items():
                if each in queue.sources:
                    _replace(broker, key, queue, each, offset)
            request.answer({"cursors": lag.rows(broker, key, queue)})

    for source in sources:
        broker.budget.spend(PLACE_UNITS)
        yield True
        _place(broker, source, position, placed)


def _failed(error: StorageError, remedy: str) -> ProtocolError:
    return ProtocolError("storage", "the position could not be looked up", f"{error}. {remedy}")


def _place(
    broker: Services, source: QueueSource, position: Position, then: Callable[[QueueSource, int | StorageError], None]
) -> None:
    """Find the offset of a position, and call ``then`` with it or with the error, now or after a look-up."""
    partition = source.feed.partition
    first, end = partition.log_start_offset, partition.high_watermark
    if position.kind in ("first", "next", "offset"):
        place = {"first": first, "next": end, "offset": position.value}[position.kind]
        then(source, min(max(place, first), end))
        return
    last = position.kind == "last"
    find = partition.offset_of_last if last else partition.offset_for_time

    def done(finished: Any) -> None:
        then(source, finished.offset if finished.error is None else finished.error)

    broker.reading.look_up(partial(find, position.value), done, lambda: True)


def _replace(broker: Services, key: str, queue: Queue, old: QueueSource, start: int) -> None:
    registry, feed = broker.registry, old.feed
    cursor: Any = Cursor(start)
    if old.cursor.stored:
        sync = registry.cursors.sync_of(old.cursor)
        registry.cursors.delete(key, feed.partition.name)
        cursor = registry.cursors.open(key, feed.partition.name, start, sync)
        registry.cursors.sync_soon()
    registry.dirty_sources.pop(old, None)
    delivery_counts = old.unsettled_deliveries()
    old.close()
    feed.leave(queue)
    new = QueueSource(
        queue,
        feed,
        cursor,
        registry.dirty_sources,
        old.policy,
        from_fan_out=old.from_fan_out,
        orphaned=old.orphaned,
        first=old.first,
        priority=old.priority,
    )
    new.expect_again(delivery_counts)
    broker.orphaned.replaced(old, new)
    queue.replaced(old, new)
    feed.join(new)
    feed.pin()
    broker.ready.queue(queue)


def _find(broker: Services, name: str) -> str:
    prefixes = ("", cursor_names.SUBSCRIPTION, cursor_names.GROUP, cursor_names.QUEUE)
    key = next((prefix + name for prefix in prefixes if lag.queue_of(broker, prefix + name)), None)
    if key is None:
        raise ProtocolError("not-found", f"there is no cursor {name[:200]!r}", "`radiator cursors ls` lists them.")
    return key


def _without_prefix(key: str) -> str:
    return key.partition(":")[2]
