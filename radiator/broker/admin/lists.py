"""Lists on the admin channel: destinations, clients, counters.

Lists come in pages: at most ``limit`` entries after the one with the name ``after``; ``next`` in the answer is the
``after`` of the next page, or null. The names are filtered and sorted once for all pages of a session's list. A long
list serves all sessions for some seconds (``monitoring.listings``). All of this happens in steps, so that a hundred
thousand destinations do not block the broker.

This module changes nothing. It does not know how answers are sent.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Collection, Generator
from fnmatch import fnmatchcase
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from radiator.broker.admin import by_rule, lag, readiness
from radiator.broker.admin.request import bad_request
from radiator.broker.headers.send import without_secret
from radiator.broker.monitoring import figures
from radiator.routing import dead_letter
from radiator.routing.pattern import parse_list
from radiator.routing.rules import TEMPORARY

if TYPE_CHECKING:
    from radiator.broker.admin.request import Request, Work
    from radiator.broker.admin.view import View
    from radiator.broker.budget import Budget
    from radiator.broker.clients.session import Session, Subscription
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.services import Services
    from radiator.clock import WallNs

T = TypeVar("T")

PAGE: Final = 1_000  # entries of an answer: a few hundred kilobytes
PARTITIONS_SHOWN: Final = 16  # of a destination
SUBSCRIPTIONS_SHOWN: Final = 20  # of a client
NAME_UNITS: Final = 2  # per name that is compared
VALUE_UNITS: Final = 4  # per destination whose value to sort by is computed
ENTRY_UNITS: Final = 10  # per entry of the answer
LOOKED_READS: Final = 32  # reads for one page, of messages that an earlier run has left: 16 MiB
FIGURES_UNITS: Final = 1_000  # for the counters of the broker
SORTED_TOGETHER: Final = 500  # names
SORTED_A_UNIT: Final = 5
MERGED_TOGETHER: Final = 50  # names
MERGED_UNITS: Final = 50
SEARCHED_TOGETHER: Final = 1_000  # names, compared with one
SEARCHED_UNITS: Final = 20
SHARED_FROM: Final = 2_000  # names: a shorter list is made again for each request
BY_NAME: Final = "name"


def destinations(broker: Services, request: Request) -> Work:
    """Return a page of the destinations that the client may see, in steps (``destinations.ls``).

    ``match`` (a pattern) and ``search`` (a part of the name) limit the names. Temporary queues are listed only if
    ``match`` begins with their prefix. ``dead_letters`` limits the list to dead-letter destinations of rules. ``sort``
    and ``descending`` give the order.

    Raises:
        ProtocolError: An argument is bad.
    """
    match, part = request.text("match", "#"), request.text("search", "").casefold()
    patterns, temporaries = parse_list(match), match.startswith(TEMPORARY)
    order = request.word("sort", BY_NAME, (BY_NAME, *figures.ORDERS))
    shows = request.view.shows
    only_dead = request.flag("dead_letters")
    templates = dead_letter.templates(broker.config) if only_dead else []
    everything = match in ("#", ">")

    def wanted(name: str) -> bool:
        if only_dead and not any(dead_letter.is_dead_letter(each, name) for each in templates):
            return False
        if part and part not in name.casefold():
            return False
        if not temporaries and name.startswith(TEMPORARY):
            return False
        return (everything or patterns.matches(name)) and shows(name)

    there, now_ns = broker.destinations, broker.timing.shown_ns
    value = figures.ORDERS.get(order)

    def key(name: str) -> int:
        destination = there.get(name)
        return -1 if value is None or destination is None else value(destination, now_ns)

    kind = json.dumps([request.verb, match, part, order, request.flag("descending"), only_dead])
    candidates = [name for name in patterns.names if name in there] if patterns.is_literal else there
    names = yield from _list(broker, request, kind, candidates, wanted, None if value is None else key)
    page, more = yield from _page(broker, request, names, order == BY_NAME and not request.flag("descending"))
    found = [each for each in map(there.get, page) if each is not None and shows(each.name)]
    reads = LOOKED_READS
    for source in [source for each in found if each.queue is not None for source in each.queue.sources]:
        reads -= source.look_ahead(reads)
    entries = []
    for each in found:
        broker.budget.spend(ENTRY_UNITS)
        yield True
        entries.append(destination_entry(each, request.view, broker.timing.shown_ns))
    return {"destinations": entries, "matched": len(names), "next": more}


def clients(broker: Services, request: Request) -> Work:
    """Return a page of connections, in steps (``clients.ls``).

    ``match`` (with ``*``) limits them to those whose session, user or address matches. A client who may not see all
    destinations gets the connections with a subscription to those that it may see.

    Raises:
        ProtocolError: An argument is bad.
    """
    match, view = request.text("match", "*"), request.view
    sessions = broker.sessions

    def wanted(name: str) -> bool:
        session = sessions.get(name)
        if session is None or not any(fnmatchcase(text, match) for text in (name, session.user, session.address)):
            return False
        broker.budget.spend(view.session_units(session))
        return view.shows_session(session)

    kind = json.dumps([request.verb, match])
    names = yield from _list(broker, request, kind, sessions, wanted, None)
    page, more = yield from _page(broker, request, names, True)
    entries = []
    for each in [session for session in map(sessions.get, page) if session is not None]:
        broker.budget.spend(ENTRY_UNITS + len(each.subscriptions.by_id) + view.session_units(each))
        yield True
        if view.shows_session(each):
            entries.append(client_entry(each, view, SUBSCRIPTIONS_SHOWN))
    return {"clients": entries, "matched": len(names), "next": more}


def stats(broker: Services, request: Request) -> Work:
    """Return the counters since the start and the current state, in steps (``stats``)."""
    broker.budget.spend(FIGURES_UNITS)
    yield True
    found = {"version": broker.server_name, **readiness.numbers(broker)}
    if not request.view.everything:
        return found
    found["cursors"] = yield from _spent(broker, lag.furthest_behind(broker, readiness.CURSORS_SHOWN))
    found["rules"] = yield from _spent(broker, by_rule.sums(broker))
    return found


def _spent(broker: Services, steps: Generator[int, None, T]) -> Generator[bool, None, T]:
    """Run steps that yield their units of work within the budget of a turn."""
    while True:
        try:
            units = next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
        broker.budget.spend(units)
        yield True


# --- the names of a list ----------------------------------------------------------------------------------------------


def _list(
    broker: Services,
    request: Request,
    kind: str,
    there: Collection[str],
    wanted: Callable[[str], bool],
    value: Callable[[str], int] | None,
) -> Generator[bool, None, list[str]]:
    """Return all wanted names in the order of the request, in steps.

    Args:
        broker: The services of the broker.
        request: The request; later pages use the list of the first one.
        kind: What the list depends on, beside the rights of the user.
        there: The names to look at.
        wanted: Returns True if the list has a name.
        value: Returns the number to sort by; None to sort by name.
    """
    budget, session, listings = broker.budget, request.session, broker.monitor.listings
    listed, names = session.listing
    if request.text("after", "") and listed == kind:
        return names
    now_ns = broker.timing.now.mono
    known = listings.get((kind, session.rights), now_ns)
    if known is None:
        descending = request.flag("descending")
        every = list(there)
        found: dict[int, list[str]] = {}  # the names by the number to sort by
        units = NAME_UNITS + request.view.name_units()
        for name in every:
            budget.spend(units)
            yield True
            if not wanted(name):
                continue
            number = 0
            if value is not None:
                budget.spend(VALUE_UNITS)
                yield True
                number = value(name)
            found.setdefault(number, []).append(name)
        numbers = yield from _sorted(budget, list(found))
        known = []
        for number in reversed(numbers) if descending else numbers:
            known += yield from _sorted(budget, found[number])
        if value is None and descending:
            known.reverse()
        if len(every) >= SHARED_FROM:
            listings.put((kind, session.rights), now_ns, len(every), known)
    session.list_for(kind, known)
    return known


def _page(
    broker: Services, request: Request, names: list[str], ascending: bool
) -> Generator[bool, None, tuple[list[str], str | None]]:
    """Return the names of the page, and the ``after`` of the next one, in steps.

    Raises:
        ProtocolError: ``after`` is not in the list, which is not sorted by name.
    """
    limit, after = request.number("limit", PAGE, 1, PAGE), request.text("after", "")
    start = 0
    if after and ascending:
        start = bisect_right(names, after)
    elif after:
        for first in range(0, len(names), SEARCHED_TOGETHER):
            broker.budget.spend(SEARCHED_UNITS)
            yield True
            part = names[first : first + SEARCHED_TOGETHER]
            if after in part:
                start = first + part.index(after) + 1
                break
        else:
            raise bad_request("after: the name is not in this list", "Begin again without after.")
    page = names[start : start + limit]
    if start + limit < len(names):
        return page, page[-1]
    request.session.list_for("", [])
    return page, None


def sorted_runs(budget: Budget, items: list[Any]) -> Generator[bool, None, list[list[Any]]]:
    """Return the items in portions, each of which is sorted, in steps."""
    runs = []
    for at in range(0, len(items), SORTED_TOGETHER):
        runs.append(sorted(items[at : at + SORTED_TOGETHER]))
        budget.spend(1 + len(runs[-1]) // SORTED_A_UNIT)
        yield True
    return runs


def _sorted(budget: Budget, items: list[Any]) -> Generator[bool, None, list[Any]]:
    """Return the items in order, in steps."""
    runs = yield from sorted_runs(budget, items)
    if len(runs) < 2:
        return runs[0] if runs else []
    merged: list[Any] = []
    every = merge(*runs)
    while some := list(islice(every, MERGED_TOGETHER)):
        merged += some
        budget.spend(MERGED_UNITS)
        yield True
    return merged


# --- entries ----------------------------------------------------------------------------------------------------------


def destination_entry(destination: Destination, view: View, now_ns: WallNs) -> dict[str, Any]:
    """Return the entry of a destination, with those bound queues that the user may see."""
    partitions = [feed.partition for feed in destination.feeds]
    queue, fan_out = destination.queue, destination.policy.fan_out
    waiting = {} if queue is None else {"consumers": len(queue.consumers), **figures.counts(queue, now_ns)}
    return {
        "name": destination.name,
        "kind": destination.policy.kind,
        "store": destination.policy.settings.store,
        "subscribers": destination.subscribers,
        **waiting,
        **({"paused": queue.paused} if queue is not None else {}),
        **({"fan_out": list(filter(view.shows, fan_out))} if fan_out else {}),
        "published": figures.published(destination),
        "bytes": sum(partition.size_bytes for partition in partitions),
        "partition_count": len(partitions),
        "partitions": [
            {"name": each.name, "first_offset": each.log_start_offset, "next_offset": each.high_watermark}
            for each in partitions[:PARTITIONS_SHOWN]
        ],
    }


def client_entry(session: Session, view: View, most: int) -> dict[str, Any]:
    """Return the entry of a client, with the first subscriptions of those that the user may see."""
    shown = list(view.subscriptions_of(session))
    return {
        "session": session.id,
        "user": session.user,
        "address": session.address,
        "version": session.version,
        "since_ns": session.since_ns,
        "window": session.window.size,
        "in_flight": sum(len(each.in_flight) for each, _ in shown),
        "unsent_bytes": session.outbox.unsent_bytes,
        "transactions": len(session.transactions.by_name),
        "subscription_count": len(shown),
        "subscriptions": [subscription_entry(*each) for each in shown[:most]],
    }


def subscription_entry(subscription: Subscription, destination: str) -> dict[str, Any]:
    """Return the entry of a subscription. ``destination`` is what the user may see of its destinations."""
    return {
        "id": without_secret(subscription.id),
        "destination": destination,
        "ack": subscription.ack,
        "browser": subscription.browser,
        "window": subscription.window,
        "in_flight": len(subscription.in_flight),
    }
