"""Describe one destination or one client (``destinations.show``, ``clients.show``).

This module changes nothing. The oldest message of a destination may have to be read from the disk.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from radiator.broker.admin import lists, suggestions
from radiator.broker.clients.session import subscriptions_of
from radiator.clock import NS_PER_SECOND, MonoNs
from radiator.routing.pattern import parse_list
from radiator.routing.rules import describe

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from radiator.broker.admin.request import Request, Work
    from radiator.broker.admin.view import View
    from radiator.broker.clients.session import Session, Subscription
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.logs.feed import Feed
    from radiator.broker.services import Services
    from radiator.storage.batch import RecordBatch

SHOW_UNITS: Final = 150  # for the rule and its settings
CONSUMERS_SHOWN: Final = 100
CONSUMER_UNITS: Final = 10
DELIVERIES_EXAMINED_MAX: Final = 10_000  # of a consumer with several queues
DELIVERIES_A_UNIT: Final = 20
DELIVERIES_SHOWN: Final = 20  # of a subscription
SUBSCRIPTIONS_SHOWN: Final = 100
NAMING: Final = ("dead_letter", "fan_out")  # settings that are names of destinations
HIDDEN: Final = "(hidden)"
READ_NS: Final = 5 * NS_PER_SECOND  # the longest wait for a cold read


def destination(broker: Services, request: Request) -> Work:
    """Return everything about the destination ``name``, in steps (``destinations.show``).

    Raises:
        ProtocolError: It does not exist, or the client may not see it.
    """
    name = request.text("name")
    request.session.identity.require("monitor", name)
    found = broker.destinations.get(name)
    if found is None:
        shown = request.view.shows
        raise (yield from suggestions.not_found(broker, "destination", name, broker.destinations, shown))
    broker.budget.spend(SHOW_UNITS)
    yield True
    if found.queue is not None:
        for source in list(found.queue.sources):
            source.look_ahead(lists.LOOKED_READS)
    oldest = yield from _oldest(broker, found)
    consumers = yield from _consumers(broker, found)
    broker.budget.spend(lists.ENTRY_UNITS)
    yield True
    return {
        "destination": lists.destination_entry(found, request.view, broker.timing.shown_ns),
        "rule": _rule(broker, found, request.view),
        "rates": broker.monitor.rates_of(found),
        "oldest": oldest,
        "paused": found.queue is not None and found.queue.paused,
        "held_by_record": found.queue is not None and found.queue.held_by_record,
        "consumers": consumers,
        "storage": _storage(found),
    }


def client(broker: Services, request: Request) -> Work:
    """Return the client ``session`` with its unacknowledged deliveries, in steps (``clients.show``).

    Raises:
        ProtocolError: It does not exist, or the client may not see a subscription of it.
    """
    name, view = request.text("session"), request.view
    session = broker.sessions.get(name)
    if session is None or not view.shows_session(session):
        sessions = broker.sessions if view.everything else ()
        raise (yield from suggestions.not_found(broker, "client", name, sessions))
    broker.budget.spend(lists.ENTRY_UNITS + 2 * (len(session.subscriptions.by_id) + view.session_units(session)))
    yield True
    entry = lists.client_entry(session, view, 0)
    shown: list[dict[str, Any]] = []
    for each, text in list(view.subscriptions_of(session))[:SUBSCRIPTIONS_SHOWN]:
        broker.budget.spend(CONSUMER_UNITS)
        yield True
        messages = _held(broker, each) if view.shows_whole(broker.durable.used_by(each) or each) else []
        shown.append({**lists.subscription_entry(each, text), "messages": messages})
    return {**entry, "subscriptions": shown}


def _rule(broker: Services, destination: Destination, view: View) -> dict[str, Any]:
    """Return the rule of a destination. Names of destinations and patterns that the client may not see are left out."""
    policy = destination.policy
    rule = policy.rule
    settings = describe(policy)
    for key in NAMING:
        names = settings[key].split(", ")
        settings[key] = ", ".join(each if each == "none" or view.shows(each) else HIDDEN for each in names)
    if rule.match is None:
        matched = f"regex {rule.match_regex}" if view.everything else HIDDEN
    elif view.everything:
        matched = rule.match
    else:
        matched = ",".join(each.text for each in parse_list(rule.match) if each.matches(destination.name))
    return {
        "pattern": matched if policy.rule_index >= 0 else None,
        "index": policy.rule_index if policy.rule_index >= 0 else None,
        "source": f"{broker.config.source or 'configuration'}:{rule.line}" if rule.line else "defaults",
        "settings": settings,
    }


def _storage(destination: Destination) -> list[dict[str, Any]]:
    fsync = describe(destination.policy)["fsync"]
    partitions = [feed.partition for feed in destination.feeds[: lists.PARTITIONS_SHOWN]]
    return [
        {
            "name": each.name,
            "first_offset": each.log_start_offset,
            "next_offset": each.high_watermark,
            "bytes": each.size_bytes,
            "segments": len(getattr(each, "segments", ())),
            "fsync": fsync,
        }
        for each in partitions
    ]


# --- consumers --------------------------------------------------------------------------------------------------------


def _consumers(broker: Services, destination: Destination) -> Generator[bool, None, list[dict[str, Any]]]:
    """Return the first consumers of a queue, or subscriptions of a topic, in steps."""
    queue, found = destination.queue, []
    subscriptions = subscriptions_of(queue) if queue is not None else list(_readers(destination))
    for each in subscriptions[:CONSUMERS_SHOWN]:
        broker.budget.spend(CONSUMER_UNITS)
        yield True
        held = iter(each.in_flight.items())
        if queue is None or len(each.queues) > 1:
            own = [] if queue is None else [queue]
            held = (
                pair
                for pair in islice(held, DELIVERIES_EXAMINED_MAX)
                if (pair[1][0] is None if queue is None else pair[1][0] is not None and pair[1][0].queue in own)
            )
            broker.budget.spend(min(len(each.in_flight), DELIVERIES_EXAMINED_MAX) // DELIVERIES_A_UNIT)
            numbers = [number for number, _ in held]
            count, oldest = len(numbers), next(iter(numbers), None)
        else:
            count, oldest = len(each.in_flight), next((number for number, _ in held), None)
        session = each.session
        found.append(
            {
                "session": session.id,
                "user": session.user,
                "address": session.address,
                "subscription": lists.subscription_entry(each, "")["id"],
                "window": session.window.size if each.window is None else each.window,
                "in_flight": count,
                "oldest_in_flight_seconds": None if oldest is None else _seconds(broker, session, oldest),
            }
        )
    return found


def _readers(destination: Destination) -> Iterator[Subscription]:
    readers = (reader for feed in destination.feeds for reader in feed.readers)
    seen = dict.fromkeys(reader.subscription for reader in islice(readers, DELIVERIES_EXAMINED_MAX))
    yield from (each for each in seen if destination in each.destinations)


def _held(broker: Services, subscription: Subscription) -> list[dict[str, Any]]:
    """Return the message ids of the oldest unacknowledged deliveries, each with its age."""
    return [
        {"message_id": f"{log.decode()}{offset}", "seconds": _seconds(broker, subscription.session, number)}
        for number, (_, offset, log) in islice(subscription.in_flight.items(), DELIVERIES_SHOWN)
    ]


def _seconds(broker: Services, session: Session, number: str) -> float | None:
    seconds = broker.monitor.survey.seconds_held(session, number)
    return None if seconds is None else round(seconds, 1)


# --- the oldest message -----------------------------------------------------------------------------------------------


class _Look:
    """Waits for the cold read of one record (``Waiter``)."""

    def __init__(self) -> None:
        self.waits = True
        self.batch: RecordBatch | None = None

    def loaded(self, offset: int, batch: RecordBatch | None, skip_to: int | None) -> None:
        """Handle the end of the read."""
        self.waits, self.batch = False, batch


def _oldest(broker: Services, destination: Destination) -> Generator[bool, None, dict[str, Any] | None]:
    """Return the oldest unsettled message of a queue, or the oldest one of a topic, in steps; None if unknown."""
    starts: list[tuple[Feed, int]] = []
    if destination.queue is None:
        starts = [(feed, feed.partition.log_start_offset) for feed in destination.feeds if feed.destinations <= 1]
    else:
        sources = [each for each in destination.queue.sources if not each.shared]
        starts = [(each.feed, max(each.cursor.floor, each.feed.partition.log_start_offset)) for each in sources]
    found: tuple[int, int] | None = None
    for feed, offset in starts[: lists.PARTITIONS_SHOWN]:
        if offset >= feed.partition.high_watermark:
            continue
        broker.budget.spend(CONSUMER_UNITS)
        yield True
        batch = feed.partition.read(offset)
        if batch is None:
            batch = yield from _read(broker, feed, offset)
        if batch is None or not len(batch) or batch.next_offset <= offset:
            continue
        index = batch.index_at(offset)
        if found is None or batch.receive_ns[index] < found[1]:
            found = (batch.offsets[index], batch.receive_ns[index])
    if found is None:
        return None
    age = max(0, broker.timing.shown_ns - found[1]) / NS_PER_SECOND
    return {"offset": found[0], "receive_time_ns": found[1], "age_seconds": round(age, 3)}


def _read(broker: Services, feed: Feed, offset: int) -> Generator[bool, None, RecordBatch | None]:
    look, end_ns = _Look(), MonoNs(broker.timing.now.mono + READ_NS)
    feed.load(offset, look)
    try:
        yield from broker.background.until(lambda: not look.waits or broker.timing.now.mono >= end_ns)
    finally:
        look.waits = False
    return look.batch
