"""Temporary queues: which one a frame means, and how many a connection may have.

``radiator.broker.clients.temporary_queues`` has the spellings of their names. A client needs no right to create one, so
their number is bounded per connection. New ones replace empty ones without a subscription.

This module knows sessions and the registry.

Invariant: a connection has at most as many temporary queues as it may have subscriptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.broker import admission
from radiator.broker.clients.temporary_queues import owner_of
from radiator.broker.headers.send import without_secret
from radiator.errors import ProtocolError
from radiator.routing.pattern import is_pattern
from radiator.routing.rules import TEMPORARY

if TYPE_CHECKING:
    from radiator.broker.clients.session import Session
    from radiator.broker.headers.send import SendHeaders
    from radiator.broker.services import Services


def receiver(broker: Services, session: Session, headers: SendHeaders) -> str:
    """Return the broker's name of the temporary queue that a SEND names. A new queue of this session is counted.

    Raises:
        Dropped: The queue does not exist, or belongs to a session that has not given its address.
        ProtocolError: The same for a mandatory message (no-route), or the session has too many queues.
    """
    name = session.temporary.name_of(headers.name)
    exists = name in broker.destinations
    if session.temporary.owns(name):
        if not exists:
            keep(broker, session, name)
        return name
    owner, secret = broker.sessions.get(owner_of(name)), headers.destination.rpartition("@")[2].partition("~")[2]
    if not exists or owner is None or not owner.temporary.is_secret(secret):
        raise admission.undelivered(headers.name, headers.mandatory)
    return name


def reply_queue(broker: Services, session: Session, name: str) -> str:
    """Return the broker's name of the temporary queue in which this session takes answers. A new queue is counted.

    Args:
        broker: The services of the broker.
        session: The session.
        name: The name that the client gave, without a secret.

    Returns:
        The empty string if the queue belongs to another connection.

    Raises:
        ProtocolError: The name is a pattern, or the session has too many queues.
    """
    if is_pattern(name):
        raise ProtocolError("bad-destination", f"header reply-to: a pattern is not a name: {name[:200]!r}")
    queue = session.temporary.name_of(name)
    if not session.temporary.owns(queue):
        return ""
    keep(broker, session, queue)
    return queue


def own_if_temporary(broker: Services, session: Session, text: str) -> str:
    """Return the destination that an entry of a SUBSCRIBE's list means.

    Raises:
        ProtocolError: It is a temporary queue of another connection, or there are too many.
    """
    if not text.startswith(TEMPORARY):
        return text
    name = without_secret(text)
    if is_pattern(name):
        return name
    queue = reply_queue(broker, session, name)
    if not queue:
        raise ProtocolError(
            "denied", f"{name[:200]!r} belongs to another connection", "Other connections may only SEND to it."
        )
    return queue


def keep(broker: Services, session: Session, name: str) -> None:
    """Count a temporary queue of this session, if it is new.

    Raises:
        ProtocolError: There are too many.
    """
    kept, most = session.temporary.names, session.limits.subscriptions
    if name in kept:
        return
    if len(kept) >= most:
        _drop_unused(broker, session)
    if len(kept) >= most:
        raise ProtocolError(
            "too-many",
            f"this connection has {len(kept)} temporary queues",
            f"limits.subscriptions in the YAML file is {most}; empty queues without a subscription do not count.",
        )
    kept[name] = None


def _drop_unused(broker: Services, session: Session) -> None:
    asked = {name for subscription in session.subscriptions.by_id.values() for name in subscription.asked.names}
    for name in [each for each in session.temporary.names if each not in asked]:
        destination = broker.destinations.get(name)
        queue = None if destination is None else destination.queue
        sources = () if queue is None else queue.sources
        if all(source.cursor.floor >= source.feed.partition.next_offset for source in sources):
            broker.registry.drop_temporary(name)
            del session.temporary.names[name]
