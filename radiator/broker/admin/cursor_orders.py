"""Orders of the admin channel about cursors: ``cursors.ls``, ``cursors.set``, ``cursors.rm``.

A cursor is called as in the store (``queue:/queue/a``, ``sub:billing``, ``group:workers``); without a prefix the first
of the three that there is. To set a queue's cursor its sources are made anew; what consumers hold of the old ones is
not called back, and its acknowledgement means nothing any more.

Knows: queues, sources, positions. Must not know: who may ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from radiator.broker.named import cursor_names, lag
from radiator.broker.named.names import JOIN_WORK
from radiator.broker.queues import rewound
from radiator.broker.queues.source import QueueSource
from radiator.broker.subscriptions.positions import Position, parse_position
from radiator.errors import ProtocolError, StorageError
from radiator.storage.cursor import Cursor

if TYPE_CHECKING:
    from radiator.broker.admin.channel import Ask
    from radiator.broker.broker import Broker
    from radiator.broker.queues.queue import Queue

PAGE = 500
NAMES_A_FRAME = 10


def ls(broker: Broker, asked: Ask) -> dict[str, Any]:
    """Cursors whose name matches ``match`` (with ``*``), in pages by name."""
    match, after = asked.text("match", "*"), asked.text("after", "")
    limit = asked.number("limit", PAGE, 1, PAGE)
    known = lag.queues(broker)
    broker.work += len(known) // NAMES_A_FRAME
    stranded: dict[str, list[dict[str, Any]]] = {}
    for each in broker.former.stranded:
        stranded.setdefault(each.cursor, []).append(each.row)
    there = known | stranded
    names = (key for key in there if key > after and (fnmatchcase(key, match) or fnmatchcase(_bare(key), match)))
    found = nsmallest(limit + 1, names)

    def rows(key: str) -> Iterable[dict[str, Any]]:
        return lag.rows(broker, key, known[key]) if key in known else ()

    return {
        "cursors": [row for key in found[:limit] for row in (*rows(key), *stranded.get(key, ()))],
        "next": found[limit - 1] if len(found) > limit else None,
    }


def rm(broker: Broker, asked: Ask) -> dict[str, Any] | None:
    """Delete a named subscription, also one that is in use: whoever uses it is told and its connection ended."""
    key = _find(broker, asked.text("name"))
    named = broker.names.by_key.get(key)
    if named is None:
        raise ProtocolError("bad-request", f"{key} is a queue's cursor, which lasts as the queue does", "See purge.")
    for each in list(named.queue.consumers):
        broker.refuse(each.session, ProtocolError("bad-subscription", f"{named.asked} was deleted by an administrator"))
    broker.names.delete(named)
    return {"cursor": key}


def move(broker: Broker, asked: Ask) -> dict[str, Any] | None:
    """Set a cursor to ``position``: over all its logs, or with ``destination`` over those of that one."""
    key = _find(broker, asked.text("name"))
    position = parse_position("position", asked.text("position"), asked.now_ns)
    wanted = asked.text("destination", "")
    if wanted and wanted not in broker.destinations:
        raise ProtocolError("bad-request", f"there is no destination {wanted[:200]!r}")
    named = broker.names.by_key.get(key)
    if named is None:
        _move_queue(broker, asked, key, position, wanted)
        return None
    topics = [each for each in named.destinations if not wanted or each.name == wanted]
    if not topics:
        raise ProtocolError("bad-request", f"{key} is not about {wanted[:200]!r}", f"It reads {named.patterns.text}.")
    broker.work += JOIN_WORK * len(topics)
    if wanted:
        named.move_in(topics, position, asked.now_ns)
    else:
        named.move(list(named.destinations), position, asked.now_ns)

    def settled(error: StorageError | None) -> None:
        if named.gone:
            asked.refuse(ProtocolError("not-found", f"{key} was deleted meanwhile"))
        elif error is not None:
            asked.refuse(_failed(error, "It is looked up again, and then holds; or set the cursor anew."))
            broker.names.keep_once_settled(named)
        else:
            broker.names.keep(named)
            asked.answer({"cursors": list(lag.rows(broker, key, named.queue))})

    named.seeking.settled(settled)
    return None


def _move_queue(broker: Broker, asked: Ask, key: str, position: Position, wanted: str) -> None:
    queue = lag.queues(broker)[key]
    destination = broker.destinations.get(wanted)
    feeds = None if destination is None else [*destination.feeds, *destination.former]
    sources = [each for each in queue.sources if feeds is None or each.feed in feeds]
    if not sources:
        raise ProtocolError("bad-request", f"{key} has no cursor over {wanted[:200]!r}")
    places: dict[QueueSource, int] = {}
    failed: list[StorageError] = []

    def placed(source: QueueSource, place: int | StorageError) -> None:
        if failed:
            return
        if isinstance(place, StorageError):  # nothing has been changed
            failed.append(place)
            asked.refuse(_failed(place, "Nothing was changed; try again."))
            return
        places[source] = place
        if len(places) == len(sources):
            for each, offset in places.items():
                if each in queue.sources:
                    _replace(broker, key, queue, each, offset)
            asked.answer({"cursors": list(lag.rows(broker, key, queue))})

    for source in sources:
        _place(broker, source, position, placed)


def _failed(error: StorageError, remedy: str) -> ProtocolError:
    return ProtocolError("storage", "the position could not be looked up", f"{error}. {remedy}")


def _place(
    broker: Broker, source: QueueSource, position: Position, then: Callable[[QueueSource, int | StorageError], None]
) -> None:
    """Find the offset; ``then`` is called with it, now or once it was looked up, or with what went wrong."""
    partition = source.feed.partition
    first, end = partition.log_start_offset, partition.high_watermark
    if position.kind in ("first", "next", "offset"):
        place = {"first": first, "next": end, "offset": position.value}[position.kind]
        then(source, min(max(place, first), end))
        return
    last = position.kind == "last"
    job = partition.offset_of_last(position.value) if last else partition.offset_for_time(position.value)

    def done(finished: Any) -> None:
        then(source, finished.offset if finished.error is None else finished.error)

    broker.reading.look_up(job, done, lambda: True)


def _replace(broker: Broker, key: str, queue: Queue, old: QueueSource, start: int) -> None:
    registry, feed = broker.registry, old.feed
    cursor: Any = Cursor(start)
    if old.cursor.stored:
        sync = registry.cursors.sync_of(old.cursor)
        registry.cursors.delete(key, feed.partition.name)
        cursor = registry.cursors.open(key, feed.partition.name, start, sync)
        registry.cursors.hurry()
    registry.dirty_sources.pop(old, None)
    handed = rewound.handed_out(old)
    old.close()
    feed.leave(queue)
    new = QueueSource(queue, feed, cursor, registry.dirty_sources, old.terms)
    new.fed, new.former, new.first, new.lane = old.fed, old.former, old.first, old.lane
    rewound.remember(new, handed)
    broker.former.replaced(old, new)
    queue.replaced(old, new)
    feed.join(new)
    feed.pin()
    broker.ready.queue(queue)


def _find(broker: Broker, name: str) -> str:
    known = lag.queues(broker)
    prefixes = ("", cursor_names.SUBSCRIPTION, cursor_names.GROUP, cursor_names.QUEUE)
    key = next((prefix + name for prefix in prefixes if prefix + name in known), None)
    if key is None:
        raise ProtocolError("not-found", f"there is no cursor {name[:200]!r}", "`radiator cursors ls` lists them.")
    return key


def _bare(key: str) -> str:
    return key.partition(":")[2]
