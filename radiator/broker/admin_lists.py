"""What the admin channel lists: destinations, clients, figures.

Lists come in pages: ``limit`` entries after the one called ``after``, by name; ``next`` in the answer is the ``after``
of the next page, or null. Reads only.

Knows: where the facts are. Must not know: how they travel.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from radiator.broker import readiness
from radiator.routing import dead_letter
from radiator.routing.pattern import parse_list

if TYPE_CHECKING:
    from radiator.broker.admin import Ask
    from radiator.broker.broker import Broker
    from radiator.broker.destination import Destination
    from radiator.broker.queue import Queue
    from radiator.broker.session import Session

PAGE = 1_000  # entries of an answer: some hundred kilobytes
PARTITIONS_SHOWN = 16  # of a destination
SUBSCRIPTIONS_SHOWN = 20  # of a client
NAMES_A_FRAME = 10  # looked at for the work of one: a page over 100,000 names gives way to others


def destinations(broker: Broker, asked: Ask) -> dict[str, Any]:
    """``destinations.ls``: what the asker may administer, those that match ``match`` if it is there; with
    ``dead_letters`` only what some rule names as a dead-letter destination."""
    wanted = parse_list(asked.text("match", "#"))
    may = asked.session.rights.may
    broker.work += len(broker.destinations) // NAMES_A_FRAME
    names = (name for name in broker.destinations if wanted.matches(name) and may("admin", name))
    if asked.flag("dead_letters"):
        templates = dead_letter.templates(broker.config)
        names = (name for name in names if any(dead_letter.is_dead_letter(each, name) for each in templates))
    page, more = _page(asked, names)
    return {"destinations": [_destination(broker.destinations[name]) for name in page], "next": more}


def clients(broker: Broker, asked: Ask) -> dict[str, Any]:
    """``clients.ls``: the connections, those whose session, user or address matches ``match`` (with ``*``)."""
    match = asked.text("match", "*")
    broker.work += len(broker.sessions) // NAMES_A_FRAME
    names = (
        name
        for name, session in broker.sessions.items()
        if any(fnmatchcase(text, match) for text in (name, session.user, session.address))
    )
    page, more = _page(asked, names)
    return {"clients": [_client(broker.sessions[name]) for name in page], "next": more}


def stats(broker: Broker, asked: Ask) -> dict[str, Any]:
    """``stats``: the counters since the start, and facts."""
    return {"version": broker.server_name, **readiness.figures(broker)}


def _page(asked: Ask, names: Iterable[str]) -> tuple[list[str], str | None]:
    limit = asked.number("limit", PAGE, 1, PAGE)
    after = asked.text("after", "")
    found = nsmallest(limit + 1, (name for name in names if name > after))
    return found[:limit], found[limit - 1] if len(found) > limit else None


def _destination(destination: Destination) -> dict[str, Any]:
    partitions = [feed.partition for feed in destination.feeds]
    return {
        "name": destination.name,
        "kind": destination.policy.kind,
        "store": destination.policy.store,
        "subscribers": destination.subscribers,
        **_waiting(destination.queue),
        "bytes": sum(partition.size_bytes for partition in partitions),
        "partition_count": len(partitions),
        "partitions": [
            {"name": each.name, "first_offset": each.log_start_offset, "next_offset": each.high_watermark}
            for each in partitions[:PARTITIONS_SHOWN]
        ],
    }


def _waiting(queue: Queue | None) -> dict[str, Any]:
    """Of a queue: what waits and what is with consumers. In a log that other destinations share it is not known without
    reading it, so it is null."""
    if queue is None:
        return {}
    if any(source.shared for source in queue.sources):
        return {"consumers": len(queue.consumers), "ready": None, "in_flight": None, "delayed": None, "total": None}
    ready = queue.ready_to_drop
    delayed = total = 0
    for source in queue.sources:
        cursor = source.cursor
        settled = sum(stop - start for start, stop in cursor.intervals) + cursor.floor
        delayed += len(source.deferred)
        total += source.feed.partition.next_offset - settled - len(source.settled)
    in_flight = max(0, total - ready - delayed)
    return {
        "consumers": len(queue.consumers),
        "ready": ready,
        "in_flight": in_flight,
        "delayed": delayed,
        "total": total,
    }


def _client(session: Session) -> dict[str, Any]:
    subscriptions = list(session.subscriptions.values())
    return {
        "session": session.id,
        "user": session.user,
        "address": session.address,
        "version": session.version,
        "since_ns": session.since_ns,
        "window": session.window,
        "in_flight": sum(len(each.in_flight) for each in subscriptions),
        "unsent_bytes": session.outbox_bytes,
        "transactions": len(session.transactions),
        "subscription_count": len(subscriptions),
        "subscriptions": [
            {
                "id": each.id,
                "destination": each.patterns.text,
                "ack": each.ack,
                "browser": each.browser,
                "window": each.window,
                "in_flight": len(each.in_flight),
            }
            for each in subscriptions[:SUBSCRIPTIONS_SHOWN]
        ],
    }
