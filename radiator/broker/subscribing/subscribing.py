"""The command SUBSCRIBE: headers to subscriptions, patterns to destinations, positions to readers."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING

from radiator.broker.clients.joined import JOINED_BYTES
from radiator.broker.clients.session import ACK_MODES, AUTO, Subscription
from radiator.broker.clients.windows import asked_window, window_of, without_limit
from radiator.broker.destinations import fan_out
from radiator.broker.durable.subscription_names import asked_for
from radiator.broker.headers.positions import NEXT, Position, parse_position
from radiator.broker.headers.values import flag
from radiator.broker.logs.selection import selection_of
from radiator.broker.subscribing import durable_subscribing, leaving, regexes, searching, temporary
from radiator.broker.subscribing.joining import Joining
from radiator.clock import Now, WallNs
from radiator.errors import ProtocolError
from radiator.memory import SUBSCRIPTIONS
from radiator.routing.pattern import PatternSet, parse_list
from radiator.routing.rules import TEMPORARY
from radiator.stomp import encoder
from radiator.storage.layout import parse_message_id

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Session
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.services import Services
    from radiator.stomp.frames import Frame

SELECTOR_UNITS = 2  # per character of a selector that is parsed
START_HEADERS = ("start-position", "x-stream-offset")
TOPIC_UNITS = 2  # per topic of a durable subscription
SUBSCRIPTION_BYTES = 2_048  # measured, like the next two
PATTERN_BYTES = 512
SELECTOR_CHAR_BYTES = 20  # per character of a compiled selector
EXCLUSIVE_HEADERS = ("exclusive", "activemq.exclusive")


def subscribe(broker: Services, session: Session, frame: Frame, now: Now) -> Steps:
    """Process a SUBSCRIBE, in steps. All headers are checked before anything is changed.

    Raises:
        ProtocolError: A header, a right or a limit refuses it.
    """
    headers = frame.head.headers
    text = headers.get("destination", "").strip(" ")
    if not text:
        raise ProtocolError("bad-destination", "SUBSCRIBE needs a destination", "Expected a header destination:<name>.")
    subscription_id = headers.get("id") or (text if session.version == "1.0" else None)
    if not subscription_id:
        raise ProtocolError("bad-header", "SUBSCRIBE needs a header id", "Expected an id unique on this connection.")
    if subscription_id in session.subscriptions:
        raise ProtocolError("bad-subscription", f"id {subscription_id[:200]!r} is in use on this connection")
    ack = headers.get("ack", AUTO)
    if ack not in ACK_MODES:
        raise ProtocolError("bad-header", f"header ack: expected {', '.join(ACK_MODES)}, got {ack[:100]!r}")
    start, stop = _positions(headers, now.wall)
    starts = _starts(headers.get("start-at", ""))
    if starts and start is None:
        start = NEXT
    browser = browses = flag(headers, "browser") is True
    reset = flag(headers, "reset") is True
    alone = [flag(headers, each) for each in EXCLUSIVE_HEADERS]
    selection = selection_of(headers)
    if selection is not None:
        broker.budget.spend(SELECTOR_UNITS * len(selection.given))
    most = session.limits.in_flight
    prefetch = asked_window(headers, most)
    regex = regexes.asked_for(broker, session, headers, text)
    if regex is None and any(prefix in text for prefix in TEMPORARY):
        text = ",".join([temporary.own_if_temporary(broker, session, each.strip(" ")) for each in text.split(",")])
    patterns = regex or parse_list(text)
    _check_count(session, len(patterns.patterns))
    asked = asked_for(broker.rules, session, headers, subscription_id, patterns)
    if asked is not None and regex is not None:
        detail = f"{asked} is stored with its patterns: use names, *, > and #, without the header match."
        raise ProtocolError("bad-header", "a durable subscription cannot have a regular expression", detail)
    if asked is not None:
        broker.durable.check(session, asked, patterns, selection, reset)
    elif start is not None or stop is not None:
        browser = True  # only queues differ: readers of topics never consume
    only_news = start == NEXT and not starts and stop is None and not browses
    right = "browse" if browser and not only_news else "read"
    for name in patterns.names:
        if name.startswith("/radiator/"):
            raise ProtocolError("bad-destination", f"{name[:200]!r} is reserved")
        session.require(right, name)
    topics: list[Destination] = []
    if asked is not None:
        topics = yield from _topics(broker, session, patterns, right, start not in (None, NEXT))
        broker.durable.check(session, asked, patterns, selection, reset)
        if prefetch == 0:
            prefetch = without_limit(topics, asked.is_group, ack, most)
    group = None if asked is None else asked.is_group
    window = window_of(group, most if prefetch == 0 else prefetch, ack, topics, most)
    words = len(frame.head.raw) + SELECTOR_CHAR_BYTES * len(headers.get("selector", ""))
    broker.memory_watch.require_subscription(words + JOINED_BYTES * len(topics))
    subscription = add(broker, session, subscription_id, patterns, ack, window, right, words)
    since_ns = start.value if start is not None and start.kind == "time" and start.value > now.wall else 0
    subscription.ask(prefetch, browser, selection, any(alone), since_ns)
    if browser and start is None and stop is None:
        stop = Position("end")
    if asked is not None:
        yield from durable_subscribing.subscribe(broker, subscription, asked, topics, start, frame, now.wall)
        return
    joining = Joining(subscription, start, starts, stop, now.wall)
    yield from joining.steps(broker)
    subscription.limit_prefetch(most)
    if frame.receipt is not None:
        session.receipts.now(frame.receipt)
    if stop is not None and subscription.reading == 0:
        replay_end(broker, subscription)
    yield from joining.wake(broker)


def _topics(
    broker: Services, session: Session, patterns: PatternSet, right: str, history: bool
) -> Generator[bool, None, list[Destination]]:
    """Return the topics that exist, match and are permitted, for a durable subscription, in steps.

    The concrete names among the patterns are created.

    Args:
        broker: The services of the broker.
        session: The session.
        patterns: The destinations of the SUBSCRIBE.
        right: The right that the user needs, ``read`` or ``browse``.
        history: True if the subscription begins before the present, which needs the right ``browse``.

    Raises:
        ProtocolError: The user has no right, or a destination cannot be created.
    """
    found: dict[str, Destination] = {}
    rights, there = session.rights, broker.destinations
    with broker.creation.gathering(patterns) as late:
        for name in patterns.names:
            found[name] = broker.destination(name)
            yield True
        for match in searching.matching(broker, patterns) if not patterns.is_literal else ():
            if match is not None and match in there and not match.startswith(TEMPORARY):
                found[match] = there[match]
            yield True
        found.update((each.name, each) for each in late)
    topics = []
    for name, destination in found.items():
        fan_out.is_passed_over(destination, patterns, False)
        broker.budget.spend(TOPIC_UNITS)
        permitted = name in patterns.names or rights.covers_all(right) or rights.may(right, name)
        if permitted and destination.policy.kind == "topic" and there.get(name) is destination:
            if history:
                session.require("browse", name)
            topics.append(destination)
        yield True
    return topics


def add(
    broker: Services,
    session: Session,
    subscription_id: str,
    patterns: PatternSet,
    ack: str,
    window: int | None,
    right: str = "read",
    words: int = 0,
) -> Subscription:
    """Add a subscription that has joined nothing yet to a session.

    Args:
        broker: The services of the broker.
        session: The session.
        subscription_id: The id, unique in the session.
        patterns: The destinations.
        ack: The ack mode.
        window: The maximum number of messages in flight; None for the session's shared window.
        right: The right that each destination needs.
        words: The size of its headers beside the patterns, in bytes.

    Returns:
        The subscription.

    Raises:
        ProtocolError: ``limits.memory`` has no room for it.
    """
    size = SUBSCRIPTION_BYTES + PATTERN_BYTES * len(patterns.patterns) + words
    broker.memory_watch.require_subscription(size)
    memory = broker.memory.shares[SUBSCRIPTIONS]
    subscription = Subscription(session, subscription_id, session.new_tag(), patterns, ack, window, memory, right)
    subscription.charge(size)
    session.add(subscription)
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
    if any(each.session is session for each in destination.queue.consumers if destination.queue is not None):  # type: ignore[union-attr]
        return
    if subscription_id in session.subscriptions:
        raise ProtocolError("bad-subscription", f"id {subscription_id[:200]!r} is in use on this connection")
    _check_count(session, 1)
    broker.take_all(add(broker, session, subscription_id, parse_list(name), AUTO, None), destination)


def _check_count(session: Session, patterns: int) -> None:
    if session.patterns + patterns > session.limits.subscriptions:
        raise ProtocolError(
            "too-many",
            "too many subscriptions",
            f"limits.subscriptions in the YAML file is {session.limits.subscriptions}; "
            "each entry of a comma list counts as one.",
        )


def _positions(headers: Mapping[str, str], now_ns: WallNs) -> tuple[Position | None, Position | None]:
    start = next((parse_position(each, headers[each], now_ns) for each in START_HEADERS if each in headers), None)
    stop = parse_position("stop-position", headers["stop-position"], now_ns) if "stop-position" in headers else None
    return start, stop


def _starts(text: str) -> dict[str, int]:
    """Return the offsets by partition of the header ``start-at``."""
    starts = {}
    for each in filter(None, map(str.strip, text.split(","))):
        try:
            name, offset = parse_message_id(each)
        except ValueError as error:
            detail = "Expected message-ids of earlier deliveries, with commas between them."
            raise ProtocolError("bad-position", f"header start-at: {error}"[:500], detail) from None
        starts[name] = offset
    return starts


def replay_end(broker: Services, subscription: Subscription) -> None:
    """Send the ``replay-end`` message of a bounded replay, and end its subscription."""
    session = subscription.session
    ack_id = f"{subscription.tag}-{session.next_delivery()}"
    headers = [
        ("subscription", subscription.id),
        ("message-id", ack_id),  # the message is in no log, and a client may acknowledge it by its message-id
        ("destination", subscription.patterns.text),
        ("replay-end", "true"),
    ]
    if subscription.ack != AUTO:
        headers.append(("ack", ack_id))
    headers.append(("content-length", "0"))
    session.send(encoder.encode("MESSAGE", headers, b"", session.version))
    leaving.unsubscribe(broker, subscription)
    session.ended[subscription.id] = None
    if len(session.ended) > session.limits.subscriptions:
        del session.ended[next(iter(session.ended))]
