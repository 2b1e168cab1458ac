"""Names of durable subscriptions and consumer groups in SUBSCRIBE and UNSUBSCRIBE, in the headers of several brokers.

    subscription-name, durable-subscription-name,
    durable-subscriber-name, activemq.subscriptionName    a durable subscription
    durable:true without any of these                     the name is the id, after the connection's client-id
    group                                                 a consumer group

A queue keeps one position for all its consumers, so it accepts ``durable`` and a name and ignores both.

This module knows headers. It does not know durable subscriptions themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from radiator import limits
from radiator.broker.headers.values import flag
from radiator.broker.logs import cursor_names
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.clients.session import Session
    from radiator.routing.pattern import PatternSet
    from radiator.routing.rules import Rules

NAME_HEADERS = (
    "subscription-name",
    "durable-subscription-name",
    "durable-subscriber-name",
    "activemq.subscriptionName",
)
GROUP = "group"


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


def named_in(session: Session, headers: Mapping[str, str], subscription_id: str | None) -> SubscriptionName | None:
    """Return the name of a durable subscription or group in these headers.

    Args:
        session: The session, for its client-id.
        headers: The headers of a SUBSCRIBE or UNSUBSCRIBE.
        subscription_id: The id of the subscription.

    Returns:
        None if the headers have no name.

    Raises:
        ProtocolError: ``bad-header``, for several names or a bad one.
    """
    durable = flag(headers, "durable")
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
        return SubscriptionName(cursor_names.GROUP, _checked(GROUP, group))
    if given and durable is False:
        raise ProtocolError(
            "bad-header", "a subscription with a name is durable", "Leave durable:false or the name out."
        )
    for name, header in given.items():
        return SubscriptionName(cursor_names.SUBSCRIPTION, _checked(header, name))
    if durable and subscription_id:
        name = f"{session.client_id}.{subscription_id}" if session.client_id else subscription_id
        return SubscriptionName(cursor_names.SUBSCRIPTION, _checked("id", name), by_id=True)
    return None


def asked_for(
    rules: Rules, session: Session, headers: Mapping[str, str], subscription_id: str, patterns: PatternSet
) -> SubscriptionName | None:
    """Return the name of a durable subscription or group that a SUBSCRIBE uses.

    Args:
        rules: The rules of destinations.
        session: The session, for its client-id.
        headers: The headers of the SUBSCRIBE.
        subscription_id: The id of the subscription.
        patterns: The destinations of the SUBSCRIBE.

    Returns:
        None for an ordinary subscription.

    Raises:
        ProtocolError: The name is bad, or does not go with the other headers or with a queue.
    """
    asked = named_in(session, headers, subscription_id)
    if asked is None:
        return None
    queues = [name for name in patterns.names if rules.policy_for(name).kind == "queue"]
    if queues and not asked.is_group and len(queues) == len(patterns.patterns):
        return None
    if queues:
        raise ProtocolError(
            "bad-destination",
            f"{asked} is for topics, and {queues[0][:200]!r} is a queue",
            "Subscribe to the queue without a name: its consumers share its messages, and its cursor is stored.",
        )
    for header in ("stop-position", "start-at"):
        if header in headers:
            raise ProtocolError(
                "bad-header",
                f"header {header} is not for a subscription with a name",
                "Expected start-position, or none.",
            )
    if flag(headers, "browser"):
        raise ProtocolError(
            "bad-header", "a subscription with a name does not browse", "Leave browser or the name out."
        )
    return asked


def _checked(header: str, name: str) -> str:
    size = len(name.encode())
    if not 1 <= size <= limits.SUBSCRIPTION_NAME_BYTES_MAX or "\0" in name:
        raise ProtocolError(
            "bad-header",
            f"header {header}: expected a name of 1 to {limits.SUBSCRIPTION_NAME_BYTES_MAX} bytes without NUL",
            f"Got {size} bytes: {name[:100]!r}.",
        )
    return name
