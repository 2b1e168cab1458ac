"""Settlement: find the deliveries that an ACK or NACK names, and settle them.

A delivery is settled at most once. A late or repeated ACK is counted and otherwise ignored, because an ERROR would
close the client's connection (``transactional_acks`` has the rule for transactions). An ACK for a message that was
never delivered to this connection is an ERROR. No memory of past deliveries is necessary for that: deliveries are
numbered, and a number that was given out and is not in flight was settled or returned.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from radiator import limits
from radiator.broker.clients.session import Delivery, InFlight, by_source
from radiator.broker.headers.subscribe import AUTO
from radiator.broker.headers.values import delay_ms, flag
from radiator.broker.outcomes.redelivery import Refusal
from radiator.broker.queues.ack_timeouts import restart
from radiator.broker.queues.consumer import Number
from radiator.clock import NS_PER_MS
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Session, Subscription
    from radiator.broker.services import Services
    from radiator.stomp.frames import Frame


TOUCH = "/radiator/touch"


def answered(broker: Services, delivery: Delivery | None) -> Iterator[tuple[Subscription, Sequence[Number]]]:
    """Yield the deliveries that an ACK or NACK settles, in portions, the oldest first.

    A late ACK is counted and yields nothing.

    Args:
        broker: The services of the broker.
        delivery: The delivery that the frame names (``locate``).
    """
    if delivery is None or delivery[0].closed or delivery[1] not in delivery[0].in_flight:
        broker.stats.count(late_acks=1)
        return
    subscription, number = delivery
    for keys in broker.budget.portions(subscription.covered(number)):
        if subscription.closed:
            return
        yield subscription, keys


def settle(broker: Services, subscription: Subscription, keys: Sequence[Number]) -> bool:
    """Acknowledge deliveries.

    Returns:
        False if none of them is in flight.
    """
    settled = take_acked(broker, subscription, keys)
    for source, offsets in by_source(settled).items():
        source.settle(offsets)
    return bool(settled)


def take_acked(broker: Services, subscription: Subscription, keys: Sequence[Number]) -> list[InFlight]:
    """Take acknowledged deliveries out of their window. The caller settles them."""
    settled = subscription.take(keys)
    broker.stats.add_acks(len(settled))
    broker.ready.credit(subscription)
    return settled


def take_refused(broker: Services, subscription: Subscription, keys: Sequence[Number]) -> list[InFlight]:
    """Take refused deliveries out of their window. The caller returns them to their queue."""
    refused = subscription.take(keys)
    broker.stats.count(nacks=len(refused))
    return refused


def refusal(frame: Frame) -> Refusal:
    """Return the request of a NACK.

    Raises:
        ProtocolError: ``bad-header``.
    """
    headers = frame.head.headers
    requeue, delay = flag(headers, "requeue") is not False, headers.get("delay")
    return Refusal(requeue, None if delay is None else delay_ms("delay", delay) * NS_PER_MS)


def touch(broker: Services, session: Session, frame: Frame) -> Steps:
    """Restart ``ack_timeout`` for a delivery: an ACK with ``touch:true``, or a SEND to TOUCH.

    It settles nothing and is part of no transaction.

    Raises:
        ProtocolError: ``bad-ack``, as for an ACK.
    """
    found = locate(session, frame)
    if found is None:
        broker.stats.count(late_acks=1)
    else:
        subscription, number = found
        for keys in broker.budget.portions(subscription.covered(number)):
            restart(subscription, keys)
            yield True
    receipt_now(session, frame)


def locate(session: Session, frame: Frame, answered: Container[Delivery] = ()) -> Delivery | None:
    """Return the delivery that an ACK or NACK names.

    In every version of STOMP, ``id`` or ``message-id`` (with or without ``subscription``) may hold an ack id or a
    message id, because clients differ. A message id names the oldest delivery of the message that is in flight.

    Args:
        session: The session.
        frame: The ACK or NACK.
        answered: Deliveries to leave out, because the transaction of the frame has answered them.

    Returns:
        The subscription and the delivery number; None if the frame is late or repeated.

    Raises:
        ProtocolError: ``bad-ack``, if the message was never delivered to this connection; ``bad-header``.
    """
    headers = frame.head.headers
    if frame.head.command == "NACK":
        refusal(frame)  # checks its headers; for a transaction, before anything is applied
    name = headers.get("id") or headers.get("message-id")
    if not name:
        wanted = "id" if session.version == "1.2" else "message-id"
        raise ProtocolError(
            "bad-header", f"{frame.head.command} needs a header {wanted}", "Expected the value of the MESSAGE's header."
        )
    if "@" in name:
        durable = headers.get("subscription")
        for candidate in session.subscriptions.values():
            if (durable is None or candidate.id == durable) and (found := candidate.find(name, answered)) is not None:
                return candidate, found
    else:
        tag, _, number = name.rpartition("-")
        subscription = session.tags.get(tag)
        if subscription is not None and number in subscription.in_flight and (subscription, number) not in answered:
            return subscription, number
    if session.was_delivered(name) and not _is_of_another(session, name):
        return None
    raise ProtocolError(
        "bad-ack",
        f"{frame.head.command}: {name[:200]!r} is not an unacknowledged delivery of this connection",
        "Expected the ack header (or the message-id) of a MESSAGE delivered to this connection under an ack mode "
        f"other than {AUTO}.",
    )


def _is_of_another(session: Session, message_id: str) -> bool:
    """Return True if another connection has the message in flight after its only delivery.

    Then it was never delivered here. The search ends after ``ACK_SEARCH_MAX`` queues or deliveries, with False.
    """
    log, _, offset = message_id.rpartition("@")
    if not log:
        return False
    prefix, number = f"{log}@".encode(), int(offset)
    queues = (queue for each in session.subscriptions.values() for queue in each.queues)
    sources = ((queue, source) for queue in queues for source in queue.sources)
    for queue, source in islice(sources, limits.ACK_SEARCH_MAX):
        if source.feed.wire.id_prefix == prefix and not source.cursor.is_acked(number):
            others = (each.in_flight.values() for each in queue.consumers if each.session is not session)
            held = islice(chain.from_iterable(others), limits.ACK_SEARCH_MAX)
            return source.deliveries(number) == 1 and any((each[0], each[1]) == (source, number) for each in held)
    return False


def receipt_now(session: Session, frame: Frame) -> None:
    """Send the RECEIPT of a frame that has taken effect."""
    if frame.receipt is not None:
        session.receipts.now(frame.receipt)


def receipt_settled(broker: Services, session: Session, frame: Frame) -> None:
    """Send the RECEIPT of a frame that returned messages, once drops and dead letters among them are stored."""
    if frame.receipt is not None:
        session.receipts.after(frame.receipt, broker.cursor_waiters(False) + broker.dead_letters.waiter_lists())
