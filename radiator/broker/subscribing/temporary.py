"""Temporary queues: the names that belong to a connection, and their number.

A queue has three spellings:

    /temp-queue/NAME                    in the frames of its connection
    /temp-queue/NAME@SESSION            its name in the broker: in MESSAGE, lists and logs. It gives no access
    /temp-queue/NAME@SESSION~SECRET     its address, in ``reply-to`` of a message: it allows to SEND to the queue

A client needs no right to create one, so their number is bounded per connection. New ones replace empty ones without a
subscription.

This module knows sessions and the registry. It knows no frames.

Invariants: a connection has at most as many temporary queues as it may have subscriptions; no destination name contains
a secret.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import TYPE_CHECKING

from radiator.errors import ProtocolError
from radiator.routing.pattern import is_pattern
from radiator.routing.rules import TEMPORARY

if TYPE_CHECKING:
    from radiator.broker.clients.session import Session
    from radiator.broker.services import Services


def without_secret(text: str) -> str:
    """Return the name in an address, which may be shown; return any other text unchanged."""
    if not text.startswith(TEMPORARY):
        return text
    name, at, owner = text.rpartition("@")
    return f"{name}@{owner.partition('~')[0]}" if at else text


def name_of(session: Session, text: str) -> str:
    """Return the broker's name of a temporary queue that this session means by any of the three spellings."""
    return without_secret(text) if "@" in text else f"{text}@{session.id}"


def address_of(session: Session, name: str) -> str:
    """Return the address of a queue of this session."""
    return f"{name}~{session.secret}"


def is_own(session: Session, text: str) -> bool:
    """Return True if the queue belongs to this session."""
    return name_of(session, text).rpartition("@")[2] == session.id


def may_send(broker: Services, session: Session, text: str) -> bool:
    """Return True if this session owns the queue or has given its address."""
    if is_own(session, text):
        return True
    owner_id, _, secret = text.rpartition("@")[2].partition("~")
    owner = broker.sessions.get(owner_id)
    return owner is not None and compare_digest(owner.secret.encode(), secret.encode())


def own_if_temporary(broker: Services, session: Session, text: str) -> str:
    """Return the destination that an entry of a SUBSCRIBE's list means.

    Raises:
        ProtocolError: It is a temporary queue of another connection, or there are too many.
    """
    if not text.startswith(TEMPORARY):
        return text
    return without_secret(text) if is_pattern(text) else own(broker, session, text)


def own(broker: Services, session: Session, text: str) -> str:
    """Return the broker's name of a temporary queue that this session subscribes to, and count the queue.

    Raises:
        ProtocolError: The queue belongs to another connection, or there are too many.
    """
    if not is_own(session, text):
        shown = without_secret(text)[:200]
        raise ProtocolError(
            "denied", f"{shown!r} belongs to another connection", "Other connections may only SEND to it."
        )
    name = name_of(session, text)
    keep(broker, session, name)
    return name


def keep(broker: Services, session: Session, name: str) -> None:
    """Count a temporary queue of this session, if it is new.

    Raises:
        ProtocolError: There are too many.
    """
    kept, most = session.temporary, session.limits.subscriptions
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
    asked = {name for subscription in session.subscriptions.values() for name in subscription.asked.names}
    for name in [each for each in session.temporary if each not in asked]:
        destination = broker.destinations.get(name)
        queue = None if destination is None else destination.queue
        sources = () if queue is None else queue.sources
        if all(source.cursor.floor >= source.feed.partition.next_offset for source in sources):
            broker.registry.drop_temporary(name)
            del session.temporary[name]
