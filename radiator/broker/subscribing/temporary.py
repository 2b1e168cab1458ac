"""Temporary queues: the names that belong to a connection, and how many it may have.

A queue has three spellings:

    /temp-queue/NAME                    what its connection says
    /temp-queue/NAME@SESSION            its name in the broker: in MESSAGE, lists and logs. It gives no access
    /temp-queue/NAME@SESSION~SECRET     its address, which ``reply-to`` of a message tells: who knows it may SEND to it

Making one takes no right, so their number is bounded for each connection; those that are empty and that it has let go
make room for new ones.

Knows: sessions, the registry. Must not know: frames.
Invariants: a connection has as many of them as it may have subscriptions, at most; no name of a destination has a
secret in it.
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
    """Of an address the name, which may be shown; any other text as it is."""
    if not text.startswith(TEMPORARY):
        return text
    name, at, owner = text.rpartition("@")
    return f"{name}@{owner.partition('~')[0]}" if at else text


def name_of(session: Session, text: str) -> str:
    """The name in the broker of the queue that this session means by any of the three spellings."""
    return without_secret(text) if "@" in text else f"{text}@{session.id}"


def address_of(session: Session, name: str) -> str:
    """The address of a queue of this session."""
    return f"{name}~{session.secret}"


def is_own(session: Session, text: str) -> bool:
    """Whether the queue belongs to this session."""
    return name_of(session, text).rpartition("@")[2] == session.id


def may_send(broker: Services, session: Session, text: str) -> bool:
    """Whether this session owns the queue, or has said its address."""
    if is_own(session, text):
        return True
    owner_id, _, secret = text.rpartition("@")[2].partition("~")
    owner = broker.sessions.get(owner_id)
    return owner is not None and compare_digest(owner.secret.encode(), secret.encode())


def own_if_temporary(broker: Services, session: Session, text: str) -> str:
    """What SUBSCRIBE means by an entry of its list. Raises ProtocolError."""
    if not text.startswith(TEMPORARY):
        return text
    return without_secret(text) if is_pattern(text) else own(broker, session, text)


def own(broker: Services, session: Session, text: str) -> str:
    """The name of a queue that this session subscribes to. Raises ProtocolError."""
    if not is_own(session, text):
        shown = without_secret(text)[:200]
        raise ProtocolError("denied", f"{shown!r} belongs to another connection", "Others may only SEND to it.")
    name = name_of(session, text)
    keep(broker, session, name)
    return name


def keep(broker: Services, session: Session, name: str) -> None:
    """One more, if it is not there yet. Raises ProtocolError if that is too many."""
    kept, most = session.temporary, session.limits.subscriptions
    if name in kept:
        return
    if len(kept) >= most:
        _drop_unused(broker, session)
    if len(kept) >= most:
        raise ProtocolError(
            "too-many",
            f"this connection has {len(kept)} temporary queues",
            f"limits.subscriptions in the YAML file is {most}; those that are empty and that it has unsubscribed from "
            "do not count.",
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
