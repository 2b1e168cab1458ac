"""The command SUBSCRIBE: from its headers to a subscription, and to the readers, queues and names that it uses.

    SUBSCRIBE -> SubscribeHeaders -> patterns -> Subscription -> joins destinations (``joining``)
                                                              or uses a durable name (``durable.subscriptions``)

Invariants: headers and rights are checked before a subscription exists. A RECEIPT is sent once all destinations have
joined, or once the definition and the start position of a durable name are stored.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from radiator import limits
from radiator.broker.clients.joined import JOINED_BYTES
from radiator.broker.clients.session import Subscription
from radiator.broker.destinations import fan_out
from radiator.broker.headers.subscribe import AUTO, SubscribeHeaders, parse_subscribe
from radiator.broker.subscribing import leaving, searching, temporary
from radiator.broker.subscribing.joining import Joining
from radiator.clock import Now
from radiator.errors import ProtocolError
from radiator.memory import SUBSCRIPTIONS
from radiator.routing.pattern import parse_list
from radiator.routing.regex import RegexSet
from radiator.routing.rules import TEMPORARY
from radiator.stomp import encoder

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Session
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.services import Services
    from radiator.stomp.frames import Frame

SELECTOR_UNITS = 2  # per character of a selector that is parsed
TOPIC_UNITS = 2  # per topic of a durable subscription
SUBSCRIPTION_BYTES = 2_048  # measured, like the next
PATTERN_BYTES = 512


def subscribe(broker: Services, session: Session, frame: Frame, now: Now) -> Steps:
    """Process a SUBSCRIBE, in steps. All headers are checked before anything is changed.

    Raises:
        ProtocolError: A header, a right or a limit refuses it.
    """
    own_name = partial(temporary.own_if_temporary, broker, session)
    most = session.limits.in_flight
    headers = parse_subscribe(frame.head, session.client_id, own_name, broker.rules, most, now.wall)
    if headers.selection is not None:
        broker.budget.spend(SELECTOR_UNITS * len(headers.selection.given))
    if isinstance(headers.patterns, RegexSet) and len(broker.creation.tried) >= limits.REGEX_SUBSCRIPTIONS_MAX:
        raise ProtocolError(
            "too-many",
            "too many subscriptions with regular expressions",
            f"The limit is {limits.REGEX_SUBSCRIPTIONS_MAX} in the whole broker (REGEX_SUBSCRIPTIONS_MAX).",
        )
    if headers.name is not None:
        broker.durable.check(session, headers)
    subscription = add(broker, session, headers)
    if headers.name is not None:
        topics = yield from _topics(broker, subscription, headers.history)
        waiting: list[Any] = []
        durable = yield from broker.durable.subscribe(subscription, headers, topics, now.wall)
        if frame.receipt is not None:
            session.receipts.after(frame.receipt, [waiting, broker.store.cursors.waiters])
        broker.durable.store_once_placed(durable, session, waiting)
        return
    joining = Joining(subscription, headers, now.wall)
    yield from joining.steps(broker)
    if frame.receipt is not None:
        session.receipts.now(frame.receipt)
    if headers.stop is not None and subscription.reading == 0:
        replay_end(broker, subscription)
    yield from joining.wake(broker)


def _topics(broker: Services, subscription: Subscription, history: bool) -> Generator[bool, None, list[Destination]]:
    """Return the topics that exist, match and are permitted, for a durable subscription, in steps.

    The concrete names among the patterns are created.

    Args:
        broker: The services of the broker.
        subscription: The subscription; it has joined nothing yet.
        history: True if the subscription begins before the present, which needs the right ``browse``.

    Raises:
        ProtocolError: The user has no right, a destination cannot be created, or a limit refuses it.
    """
    found: dict[str, Destination] = {}
    session, asked, there = subscription.session, subscription.asked, broker.destinations
    with broker.creation.gathering(asked) as late:
        for name in asked.names:
            yield from broker.until_removed(name)
            found[name] = broker.destination(name)
            yield True
        for match in searching.matching(broker, asked) if not asked.is_literal else ():
            if match is not None and match in there and not match.startswith(TEMPORARY):
                found[match] = there[match]
            yield True
        found.update((each.name, each) for each in late)
    topics = []
    for name, destination in found.items():
        fan_out.is_passed_over(destination, asked, False)
        broker.budget.spend(TOPIC_UNITS)
        permitted = subscription.patterns.matches(name)
        if permitted and destination.policy.kind == "topic" and there.get(name) is destination:
            if history:
                session.identity.require("browse", name)
            topics.append(destination)
        yield True
    broker.memory_watch.require_subscription(JOINED_BYTES * len(topics))
    return topics


def add(broker: Services, session: Session, headers: SubscribeHeaders) -> Subscription:
    """Add a subscription that has joined nothing yet to a session.

    Args:
        broker: The services of the broker.
        session: The session.
        headers: The headers of the SUBSCRIBE.

    Returns:
        The subscription.

    Raises:
        ProtocolError: The id is in use, the user has no right, or a limit refuses it.
    """
    count = len(headers.patterns.patterns)
    session.subscriptions.check_add(headers.id, count)
    size = SUBSCRIPTION_BYTES + PATTERN_BYTES * count + headers.size_bytes
    subscription = Subscription(session, headers, broker.memory.shares[SUBSCRIPTIONS])
    broker.memory_watch.require_subscription(size)
    subscription.charge(size)
    session.subscriptions.add(subscription)
    return subscription


def take_replies(broker: Services, session: Session, subscription_id: str, name: str) -> None:
    """Subscribe a session to its own temporary queue, unless it is a consumer of it.

    Args:
        broker: The services of the broker.
        session: The session.
        subscription_id: The id: the header ``reply-to`` as it came.
        name: The name of the queue, which is created.

    Raises:
        ProtocolError: The id is in use, or a limit refuses the subscription.
    """
    destination = broker.destination(name)
    if not any(each.session is session for each in destination.queue.consumers if destination.queue is not None):  # type: ignore[union-attr]
        broker.take_all(add(broker, session, SubscribeHeaders(subscription_id, parse_list(name))), destination)


def replay_end(broker: Services, subscription: Subscription) -> None:
    """Send the ``replay-end`` message of a bounded replay, and end its subscription."""
    session = subscription.session
    ack_id = f"{subscription.tag}-{session.numbers.assign()}"
    headers = [
        ("subscription", subscription.id),
        ("message-id", ack_id),  # the message is in no log, and a client may acknowledge it by its message-id
        ("destination", subscription.patterns.text),
        ("replay-end", "true"),
    ]
    if subscription.ack != AUTO:
        headers.append(("ack", ack_id))
    headers.append(("content-length", "0"))
    session.outbox.add(encoder.encode("MESSAGE", headers, b"", session.version))
    leaving.unsubscribe(broker, subscription)
    session.subscriptions.note_replay_ended(subscription.id)
