"""Lists on the admin channel: destinations, clients, counters.

Lists come in pages: at most ``limit`` entries after the name ``after``; ``next`` in the answer is the ``after`` of the
next page, or null. The names are sorted once for all pages of a session's list, and a page looks at a bounded number of
names, so that a hundred thousand destinations do not block the broker.

This module changes nothing. It does not know how answers are sent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Generator
from fnmatch import fnmatchcase
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any

from radiator.broker.admin import by_rule, readiness
from radiator.broker.headers.send import without_secret
from radiator.clock import WallNs
from radiator.routing import dead_letter
from radiator.routing.pattern import parse_list
from radiator.routing.rules import TEMPORARY

if TYPE_CHECKING:
    from radiator.broker.admin.request import Request, Work
    from radiator.broker.budget import Budget
    from radiator.broker.clients.session import Session
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.queues.queue import Queue
    from radiator.broker.services import Services

PAGE = 1_000  # entries of an answer: a few hundred kilobytes
PARTITIONS_SHOWN = 16  # of a destination
SUBSCRIPTIONS_SHOWN = 20  # of a client
LOOKED_AT_MAX = 2_000  # names for one page: a few milliseconds
NAME_UNITS = 2  # per name that is compared
ENTRY_UNITS = 10  # per entry of the answer
LOOKED_READS = 32  # reads for one page, of messages that an earlier run has left: 16 MiB
FIGURES_UNITS = 1_000  # for the counters of the broker
SORTED_TOGETHER = 500  # names
SORTED_A_UNIT = 5
MERGED_TOGETHER = 50  # names, a unit each
COUNTED = ("ready", "in_flight", "delayed", "dead_lettering", "unchecked", "total")  # messages of a queue


def destinations(broker: Services, request: Request) -> Work:
    """Return a page of destinations that the client may administer, in steps (``destinations.ls``).

    ``match`` limits the names. Temporary queues are listed only if ``match`` begins with their prefix. ``dead_letters``
    limits the list to dead-letter destinations of rules.
    """
    match = request.text("match", "#")
    patterns, temporaries = parse_list(match), match.startswith(TEMPORARY)
    may = request.session.rights.may
    templates = dead_letter.templates(broker.config) if request.flag("dead_letters") else None

    def wanted(name: str) -> bool:
        if templates is not None and not any(dead_letter.is_dead_letter(each, name) for each in templates):
            return False
        return patterns.matches(name) and may("admin", name) and (temporaries or not name.startswith(TEMPORARY))

    page, more = yield from _page(broker, request, broker.destinations, wanted)
    found = [each for each in map(broker.destinations.get, page) if each is not None]
    reads = LOOKED_READS
    for source in [source for each in found if each.queue is not None for source in each.queue.sources]:
        reads -= source.look_ahead(reads)
    now_ns = broker.timing.shown_ns
    entries = []
    for each in found:
        broker.budget.spend(ENTRY_UNITS)
        yield True
        entries.append(_destination(each, now_ns))
    return {"destinations": entries, "next": more}


def clients(broker: Services, request: Request) -> Work:
    """Return a page of connections, in steps (``clients.ls``).

    ``match`` (with ``*``) limits them to those whose session, user or address matches.
    """
    match = request.text("match", "*")
    sessions = broker.sessions

    def wanted(name: str) -> bool:
        session = sessions[name]
        return any(fnmatchcase(text, match) for text in (name, session.user, session.address))

    page, more = yield from _page(broker, request, sessions, wanted)
    entries = []
    for each in [session for session in map(sessions.get, page) if session is not None]:
        broker.budget.spend(ENTRY_UNITS + len(each.subscriptions))
        yield True
        entries.append(_client(each))
    return {"clients": entries, "next": more}


def stats(broker: Services, request: Request) -> Work:
    """Return the counters since the start and the current state, in steps (``stats``)."""
    broker.budget.spend(FIGURES_UNITS)
    yield True
    figures = readiness.figures(broker)
    steps = by_rule.sums(broker)
    while True:
        try:
            units = next(steps)
        except StopIteration as end:
            return {"version": broker.server_name, **figures, "rules": end.value}
        broker.budget.spend(units)
        yield True


def _page(
    broker: Services, request: Request, there: Collection[str], wanted: Callable[[str], bool]
) -> Generator[bool, None, tuple[list[str], str | None]]:
    limit = request.number("limit", PAGE, 1, PAGE)
    after = request.text("after", "")
    budget = broker.budget
    verb, names = request.session.listing
    if not after or verb != request.verb:
        names = yield from _sorted(budget, there)
        request.session.list_for(request.verb, names)
    start = bisect_right(names, after)
    found: list[str] = []
    for at in range(start, min(start + LOOKED_AT_MAX, len(names))):
        budget.spend(NAME_UNITS)
        yield True
        if names[at] in there and wanted(names[at]):
            found.append(names[at])
            if len(found) == limit:
                break
    else:
        at = min(start + LOOKED_AT_MAX, len(names)) - 1
    if at + 1 < len(names):
        return found, names[at]
    request.session.list_for("", [])
    return found, None


def _sorted(budget: Budget, there: Collection[str]) -> Generator[bool, None, list[str]]:
    """Return the names in order, sorted in portions that are merged, in steps."""
    names = list(there)
    runs = []
    for at in range(0, len(names), SORTED_TOGETHER):
        runs.append(sorted(names[at : at + SORTED_TOGETHER]))
        budget.spend(SORTED_TOGETHER // SORTED_A_UNIT)
        yield True
    if len(runs) < 2:
        return runs[0] if runs else []
    merged: list[str] = []
    every = merge(*runs)
    while some := list(islice(every, MERGED_TOGETHER)):
        merged += some
        budget.spend(MERGED_TOGETHER)
        yield True
    return merged


def _destination(destination: Destination, now_ns: WallNs) -> dict[str, Any]:
    partitions = [feed.partition for feed in destination.feeds]
    return {
        "name": destination.name,
        "kind": destination.policy.kind,
        "store": destination.policy.settings.store,
        "subscribers": destination.subscribers,
        **(_waiting(destination.queue, now_ns) if destination.queue is not None else {}),
        **({"fan_out": list(destination.policy.fan_out)} if destination.policy.fan_out else {}),
        "bytes": sum(partition.size_bytes for partition in partitions),
        "partition_count": len(partitions),
        "partitions": [
            {"name": each.name, "first_offset": each.log_start_offset, "next_offset": each.high_watermark}
            for each in partitions[:PARTITIONS_SHOWN]
        ],
    }


def _waiting(queue: Queue, now_ns: WallNs) -> dict[str, Any]:
    """Return the numbers of waiting and unacknowledged messages of a queue.

    They are null for a queue in a shared log, because only a read would give them.
    """
    if any(source.shared for source in queue.sources):
        return {"consumers": len(queue.consumers), **dict.fromkeys(COUNTED)}
    waiting = delayed = dead_lettering = unchecked = total = 0
    for source in queue.sources:
        cursor = source.cursor
        settled = cursor.settled_above + cursor.floor
        waiting += source.available + source.fresh + len(source.deferred)
        delayed += source.delayed(now_ns)
        dead_lettering += source.burying
        unchecked += source.unlooked
        total += source.feed.partition.next_offset - settled - len(source.settled)
    figures = (waiting - delayed, max(0, total - waiting - dead_lettering), delayed, dead_lettering, unchecked, total)
    return {"consumers": len(queue.consumers), **dict(zip(COUNTED, figures, strict=True))}


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
                "id": without_secret(each.id),
                "destination": each.patterns.text,
                "ack": each.ack,
                "browser": each.browser,
                "window": each.window,
                "in_flight": len(each.in_flight),
            }
            for each in subscriptions[:SUBSCRIPTIONS_SHOWN]
        ],
    }
