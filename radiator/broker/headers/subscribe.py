"""The headers of a SUBSCRIBE, parsed once to a value that never changes, and the names in an UNSUBSCRIBE.

Names of durable subscriptions and consumer groups have the headers of several brokers:

    subscription-name, durable-subscription-name,
    durable-subscriber-name, activemq.subscriptionName    a durable subscription
    durable:true without any of these                     the name is the id, after the connection's client-id
    group                                                 a consumer group

A queue stores one position for all its consumers, so it accepts ``durable`` and a name and ignores both.

This module knows headers, patterns and rules. It knows no sessions, no destinations and no subscriptions.
Invariant: the headers in a ``SubscribeHeaders`` are well-formed and do not contradict each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from radiator import limits
from radiator.broker.headers import positions, values
from radiator.broker.headers.positions import END, NEXT, Position
from radiator.broker.logs import cursor_names
from radiator.broker.logs.selection import Selection
from radiator.clock import NS_PER_MS
from radiator.errors import ProtocolError
from radiator.routing.pattern import PatternSet, parse_subscribed
from radiator.routing.regex import RegexSet
from radiator.routing.rules import TEMPORARY
from radiator.storage.layout import parse_message_id

if TYPE_CHECKING:
    from radiator.clock import WallNs
    from radiator.routing.rules import Rules
    from radiator.stomp.frames import Head

AUTO, CLIENT, INDIVIDUAL = "auto", "client", "client-individual"
ACK_MODES = (AUTO, CLIENT, INDIVIDUAL)
START_HEADERS, STOP_HEADERS = ("start-position", "x-stream-offset"), ("stop-position",)
EXCLUSIVE_HEADERS = ("exclusive", "activemq.exclusive")
PREFETCH_HEADERS = ("prefetch-count", "activemq.prefetchSize", "credit")
NAME_HEADERS = (
    "subscription-name",
    "durable-subscription-name",
    "durable-subscriber-name",
    "activemq.subscriptionName",
)
GROUP = "group"
EXPIRES_MS_MAX = 2**32 - 1  # 49 days, as RabbitMQ has it
SELECTOR_CHAR_BYTES = 20  # memory per character of a compiled selector, measured


class SubscriptionName(NamedTuple):
    """The name of a durable subscription or group.

    Attributes:
        prefix: The prefix of its cursors (``cursor_names``).
        name: The name that the client gave.
        by_id: True if the name was made of the id.
    """

    prefix: str
    name: str
    by_id: bool = False

    @property
    def key(self) -> str:
        """The name of its cursors, which is unique."""
        return self.prefix + self.name

    @property
    def is_group(self) -> bool:
        """True for a consumer group."""
        return self.prefix == cursor_names.GROUP

    def __str__(self) -> str:
        return f"{'group' if self.is_group else 'subscription-name'} {self.name[:200]!r}"


@dataclass(frozen=True, slots=True)
class SubscribeHeaders:
    """The headers of one SUBSCRIBE.

    Attributes:
        id: The id of the subscription.
        patterns: The destinations, with the broker's names of temporary ones.
        ack: The ack mode.
        prefetch: The window that the client requests: 0 means no limit, None that there is no such header.
        name: The name of a durable subscription or group, or None.
        start: The start position, or None.
        starts: Start offsets by partition (``start-at``), which take precedence over ``start``.
        stop: The stop position, or None.
        since_ns: The start time if that is in the future, else 0. Earlier messages are not delivered.
        browser: True if messages of queues are shown and not consumed.
        reset: True if an existing durable subscription is set to ``start``.
        exclusive: True for an exclusive consumer.
        auto_delete: True if a queue that the SUBSCRIBE creates is removed with its last consumer.
        expires_ns: After this time without use such a queue is removed; None: its rule decides.
        selection: The selector; None: all messages.
        size_bytes: The memory of the headers.
    """

    id: str
    patterns: PatternSet
    ack: str = AUTO
    prefetch: int | None = None
    name: SubscriptionName | None = None
    start: Position | None = None
    starts: Mapping[str, int] = field(default_factory=dict)
    stop: Position | None = None
    since_ns: int = 0
    browser: bool = False
    reset: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    expires_ns: int | None = None
    selection: Selection | None = None
    size_bytes: int = 0

    @property
    def history(self) -> bool:
        """True if messages that were sent before the SUBSCRIBE are delivered without being consumed."""
        return self.start not in (None, NEXT) or bool(self.starts) or self.stop is not None or self.browser

    @property
    def right(self) -> str:
        """The right that each destination requires."""
        return "browse" if self.history and self.name is None else "read"

    @property
    def browses(self) -> bool:
        """True if the subscription consumes no queue. Readers of topics consume nothing in any case."""
        return self.name is None and (self.browser or self.start is not None or self.stop is not None)


def parse_subscribe(
    head: Head, client_id: str, own_name: Callable[[str], str], rules: Rules, in_flight_max: int, now_ns: WallNs
) -> SubscribeHeaders:
    """Parse all headers of a SUBSCRIBE.

    Args:
        head: The head of the frame.
        client_id: The client-id of the connection, or the empty string.
        own_name: Returns the broker's name of a temporary destination that the client names.
        rules: The rules of destinations.
        in_flight_max: ``limits.in_flight``, the largest window.
        now_ns: The present wall time.

    Raises:
        ProtocolError: A header is missing or malformed, or headers contradict each other.
    """
    headers = head.headers
    destination = headers.get("destination", "").strip(" ")
    if not destination:
        raise ProtocolError("bad-destination", "SUBSCRIBE needs a destination", "Expected a header destination:<name>.")
    subscription_id = headers.get("id") or (destination if head.version == "1.0" else None)
    if not subscription_id:
        raise ProtocolError("bad-header", "SUBSCRIBE needs a header id", "Expected an id unique on this connection.")
    ack = headers.get("ack", AUTO)
    if ack not in ACK_MODES:
        raise ProtocolError("bad-header", f"header ack: expected {', '.join(ACK_MODES)}, got {ack[:100]!r}")
    patterns = _patterns(destination, headers.get("match"), own_name, rules)
    windows = [window(headers[each], each, in_flight_max, 0) for each in PREFETCH_HEADERS if each in headers]
    name = _durable_name(headers, client_id, subscription_id, patterns, rules)
    browser, reset = values.flag(headers, "browser") is True, values.flag(headers, "reset") is True
    exclusive = [values.flag(headers, each) for each in EXCLUSIVE_HEADERS]
    starting = [positions.parse_position(each, headers[each], now_ns) for each in START_HEADERS if each in headers]
    stopping = [positions.parse_position(each, headers[each], now_ns) for each in STOP_HEADERS if each in headers]
    try:
        starts = dict(parse_message_id(each.strip()) for each in headers.get("start-at", "").split(",") if each.strip())
    except ValueError as error:
        detail = "Expected message-ids of earlier deliveries, with commas between them."
        raise ProtocolError("bad-position", f"header start-at: {error}"[:500], detail) from None
    selector = headers.get("selector", "")
    start = starting[0] if starting else NEXT if starts else None
    return SubscribeHeaders(
        id=subscription_id,
        patterns=patterns,
        ack=ack,
        prefetch=windows[0] if windows else None,
        name=name,
        start=start,
        starts=starts,
        stop=stopping[0] if stopping else END if browser and start is None else None,
        since_ns=start.value if start is not None and start.kind == "time" and start.value > now_ns else 0,
        browser=browser,
        reset=reset,
        exclusive=any(exclusive),
        auto_delete=values.flag(headers, "auto-delete") is True,
        expires_ns=_expires_ns(headers.get("x-expires")),
        selection=Selection(selector) if selector.strip() else None,
        size_bytes=len(head.raw) + SELECTOR_CHAR_BYTES * len(selector),
    )


def _expires_ns(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 12 or not 1 <= int(text) <= EXPIRES_MS_MAX:
        raise ProtocolError(
            "bad-header",
            f"header x-expires: expected milliseconds from 1 to {EXPIRES_MS_MAX}, got {text[:100]!r}",
            "An unused queue is removed after this time.",
        )
    return int(text) * NS_PER_MS


def window(text: str, header: str, most: int, least: int = 1) -> int:
    """Return a window size from the value of a header.

    Args:
        text: The value.
        header: The name of the header, for the error.
        most: The highest value allowed.
        least: The lowest value allowed.

    Raises:
        ProtocolError: The value is not a number in this range (bad-header).
    """
    if not (text.isascii() and text.isdigit()) or len(text) > 12 or not least <= int(text) <= most:
        raise ProtocolError(
            "bad-header",
            f"header {header}: expected a number from {least} to {most}, got {text[:100]!r}",
            f"limits.in_flight in the YAML file is {most}.",
        )
    return int(text)


def name_in(headers: Mapping[str, str], client_id: str, subscription_id: str | None) -> SubscriptionName | None:
    """Return the name of a durable subscription or group in the headers of a SUBSCRIBE or UNSUBSCRIBE.

    Args:
        headers: The headers.
        client_id: The client-id of the connection, or the empty string.
        subscription_id: The id of the subscription.

    Returns:
        None if the headers have no name.

    Raises:
        ProtocolError: ``bad-header``, for several names or a bad one.
    """
    durable = values.flag(headers, "durable")
    given = {headers[each]: each for each in reversed(NAME_HEADERS) if each in headers}
    group = headers.get(GROUP)
    if len(given) + (group is not None) > 1:
        texts = [f"{header}:{name[:100]}" for name, header in given.items()]
        raise ProtocolError(
            "bad-header",
            "expected one name of a subscription, got several",
            ", ".join([*texts, *([f"group:{group[:100]}"] if group is not None else [])]),
        )
    if group is not None:
        header, name = GROUP, group
    elif given:
        if durable is False:
            raise ProtocolError(
                "bad-header", "a subscription with a name is durable", "Leave durable:false or the name out."
            )
        name, header = next(iter(given.items()))
    elif durable and subscription_id:
        header, name = "id", f"{client_id}.{subscription_id}" if client_id else subscription_id
    else:
        return None
    size = len(name.encode())
    if not 1 <= size <= limits.SUBSCRIPTION_NAME_BYTES_MAX or "\0" in name:
        raise ProtocolError(
            "bad-header",
            f"header {header}: expected a name of 1 to {limits.SUBSCRIPTION_NAME_BYTES_MAX} bytes without NUL",
            f"Got {size} bytes: {name[:100]!r}.",
        )
    prefix = cursor_names.GROUP if group is not None else cursor_names.SUBSCRIPTION
    return SubscriptionName(prefix, name, by_id=header == "id")


def _durable_name(
    headers: Mapping[str, str], client_id: str, subscription_id: str, patterns: PatternSet, rules: Rules
) -> SubscriptionName | None:
    """Return the name in the headers of a SUBSCRIBE; None if there is none, or if it is for queues and has no effect.

    Raises:
        ProtocolError: The name is bad, or does not go with the other headers or with a queue.
    """
    name = name_in(headers, client_id, subscription_id)
    if name is None:
        return None
    queues = [each for each in patterns.names if rules.policy_for(each).kind == "queue"]
    if queues and not name.is_group and len(queues) == len(patterns.patterns):
        return None
    if queues:
        raise ProtocolError(
            "bad-destination",
            f"{name} is for topics, and {queues[0][:200]!r} is a queue",
            "Subscribe to the queue without a name: its consumers share its messages, and its cursor is stored.",
        )
    for header in ("stop-position", "start-at"):
        if header in headers:
            raise ProtocolError(
                "bad-header",
                f"header {header} is not for a subscription with a name",
                "Expected start-position, or none.",
            )
    if values.flag(headers, "browser"):
        raise ProtocolError(
            "bad-header", "a subscription with a name does not browse", "Leave browser or the name out."
        )
    if "match" in headers:
        detail = f"{name} is stored with its patterns: use names, *, > and #, without the header match."
        raise ProtocolError("bad-header", "a durable subscription cannot have a regular expression", detail)
    return name


def _patterns(destination: str, match: str | None, own_name: Callable[[str], str], rules: Rules) -> PatternSet:
    """Return the destinations of a SUBSCRIBE.

    Args:
        destination: The header ``destination``.
        match: The header ``match``, or None.
        own_name: Returns the broker's name of a temporary destination.
        rules: The rules of destinations.

    Raises:
        ProtocolError: A pattern or expression is bad or not allowed.
    """
    if match not in (None, "regex"):
        raise ProtocolError(
            "bad-header",
            f"header match: expected regex, or no such header, got {match[:100]!r}",
            "Without it a destination is a name, or a pattern with *, > and #.",
        )
    if match is not None:
        if not rules.config.regex_subscriptions:
            raise ProtocolError(
                "denied",
                "regular expressions on SUBSCRIBE are switched off",
                "regex_subscriptions: true in the YAML file allows them; *, > and # need no key.",
            )
        return RegexSet(destination)
    if any(prefix in destination for prefix in TEMPORARY):
        destination = ",".join([own_name(each.strip(" ")) for each in destination.split(",")])
    patterns = parse_subscribed(destination)
    for name in patterns.names:
        if name.startswith("/radiator/"):
            raise ProtocolError("bad-destination", f"{name[:200]!r} is reserved")
    return patterns
