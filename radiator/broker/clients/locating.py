"""Which delivery an ACK or NACK names.

In every version of STOMP, ``id`` or ``message-id`` (with or without ``subscription``) may hold an ack id or a message
id, because clients differ. A message id names the oldest delivery of the message that is in flight, if possible one
that the transaction of the frame has not answered yet.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING

from radiator import limits
from radiator.broker.headers.subscribe import AUTO
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.clients.session import Delivery, Session, Subscription
    from radiator.stomp.frames import Frame


def locate(session: Session, frame: Frame) -> Delivery | None:
    """Return the delivery that an ACK or NACK names.

    Args:
        session: The session that the frame came from.
        frame: The frame.

    Returns:
        The subscription and the delivery number; None if the frame is late or repeated.

    Raises:
        ProtocolError: ``bad-ack``, if the message was never delivered to this connection; ``bad-header``, if the
            frame names nothing.
    """
    headers = frame.head.headers
    name = headers.get("id") or headers.get("message-id")
    if not name:
        wanted = "id" if session.version == "1.2" else "message-id"
        raise ProtocolError(
            "bad-header", f"{frame.head.command} needs a header {wanted}", "Expected the value in the MESSAGE."
        )
    tag, _, number = name.rpartition("-")
    subscription = session.subscriptions.by_tag.get(tag)
    if subscription is not None and number in subscription.in_flight:
        return subscription, number
    if "@" in name and (delivery := _find(session, name, headers)) is not None:
        return delivery
    if session.numbers.was_delivered(name) and not _is_of_another(session, name, headers):
        return None
    raise ProtocolError(
        "bad-ack",
        f"{frame.head.command}: {name[:200]!r} is not an unacknowledged delivery of this connection",
        "Expected the ack header (or the message-id) of a MESSAGE delivered to this connection under an ack mode "
        f"other than {AUTO}.",
    )


def may_have_lost(session: Session, frame: Frame) -> bool:
    """Return True if the delivery of a late ACK or NACK may have been returned without an answer.

    Returns:
        False if the delivery was acknowledged, or was one of a topic.
    """
    headers = frame.head.headers
    return session.numbers.may_have_lost(headers.get("id") or headers["message-id"])


def _find(session: Session, message_id: str, headers: Mapping[str, str]) -> Delivery | None:
    """Return the oldest delivery of a message in flight; None if there is none."""
    subscriptions = _named(session, headers)
    transaction = session.transactions.by_name.get(headers.get("transaction", ""))
    answered: list[Container[Delivery]] = [()] if transaction is None else [transaction.answered, ()]
    for left_out in answered:
        for subscription in subscriptions:
            number = subscription.find(message_id, left_out)
            if number is not None and number in subscription.in_flight:
                return subscription, number
    return None


def _named(session: Session, headers: Mapping[str, str]) -> list[Subscription]:
    """Return the subscription that an ACK or NACK names; all if it names none."""
    subscriptions, named = session.subscriptions.by_id, headers.get("subscription")
    if named is None:
        return list(subscriptions.values())
    return [subscriptions[named]] if named in subscriptions else []


def _is_of_another(session: Session, message_id: str, headers: Mapping[str, str]) -> bool:
    """Return True if another connection has the message in flight after its only delivery.

    Then it was never delivered here, unless a subscription to a topic has received it: bound queues have the
    message ids of their topic. The search ends after ``ACK_SEARCH_MAX`` queues or deliveries, with False.
    """
    log, _, offset = message_id.rpartition("@")
    if not log:
        return False
    prefix, number = f"{log}@".encode(), int(offset)
    subscriptions = _named(session, headers)
    if not all(each.queues for each in subscriptions):
        return False
    queues = (queue for each in subscriptions for queue in each.queues)
    sources = ((queue, source) for queue in queues for source in queue.sources)
    for queue, source in islice(sources, limits.ACK_SEARCH_MAX):
        if source.feed.wire.id_prefix == prefix and not source.cursor.is_acked(number):
            others = (each.in_flight.values() for each in queue.consumers if each.session is not session)
            held = islice(chain.from_iterable(others), limits.ACK_SEARCH_MAX)
            return source.deliveries(number) == 1 and any((each[0], each[1]) == (source, number) for each in held)
    return False
