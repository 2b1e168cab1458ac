"""Temporary queues: the names that belong to a connection, and how many it may have.

``/temp-queue/NAME`` of a connection is ``/temp-queue/NAME@SESSION`` for everybody else. Making one takes no right, so
their number is bounded for each connection; those that are empty and that it has let go make room for new ones.

Knows: sessions, the registry. Must not know: frames.
Invariant: a connection has as many of them as it may have subscriptions, at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.errors import ProtocolError
from radiator.routing.pattern import is_pattern
from radiator.routing.rules import TEMPORARY

if TYPE_CHECKING:
    from radiator.broker.broker import Broker
    from radiator.broker.session import Session


def full_name(session: Session, name: str) -> str:
    """The name, unique in the broker, of a session's own temporary queue; a name that has an owner stays as it is."""
    return name if "@" in name else f"{name}@{session.id}"


def own_if_temporary(broker: Broker, session: Session, name: str) -> str:
    return own(broker, session, name) if name.startswith(TEMPORARY) and not is_pattern(name) else name


def own(broker: Broker, session: Session, name: str) -> str:
    """The whole name of a queue that this session subscribes to. Raises ProtocolError."""
    found = full_name(session, name)
    if found.rpartition("@")[2] != session.id:
        raise ProtocolError("denied", f"{name[:200]!r} belongs to another connection", "Others may only SEND to it.")
    keep(broker, session, found)
    return found


def keep(broker: Broker, session: Session, name: str) -> None:
    """One more, if it is not there yet. Raises ProtocolError if that is too many."""
    kept, most = session.temporary, session.limits.subscriptions
    if name in kept:
        return
    if len(kept) >= most:
        _let_go(broker, session)
    if len(kept) >= most:
        raise ProtocolError(
            "too-many",
            f"this connection has {len(kept)} temporary queues",
            f"limits.subscriptions in the YAML file is {most}; those that are empty and that it has unsubscribed from "
            "do not count.",
        )
    kept[name] = None


def _let_go(broker: Broker, session: Session) -> None:
    asked = {name for subscription in session.subscriptions.values() for name in subscription.asked.names}
    for name in [each for each in session.temporary if each not in asked]:
        destination = broker.destinations.get(name)
        queue = None if destination is None else destination.queue
        sources = () if queue is None else queue.sources
        if all(source.cursor.floor >= source.feed.partition.next_offset for source in sources):
            broker.registry.drop_temporary(name)
            del session.temporary[name]
