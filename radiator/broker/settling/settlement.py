"""Settlement: what ACK and NACK do to the deliveries that they name.

A delivery is settled at most once. A late or repeated ACK is counted and otherwise ignored, because an ERROR would
close the client's connection (``transactional_acks`` has the rule for transactions). An ACK for a message that was
never delivered to this connection is an ERROR (``radiator.broker.clients.locating``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from radiator.broker.clients.session import Delivery, InFlight, by_source
from radiator.broker.queues.ack_timeouts import restart
from radiator.broker.queues.consumer import Number

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Session, Subscription
    from radiator.broker.headers.refusals import Refusal
    from radiator.broker.services import Services
    from radiator.stomp.frames import Frame


TOUCH = "/radiator/touch"


def settle(
    broker: Services,
    session: Session,
    delivery: Delivery | None,
    receipt: bytes | None,
    refusal: Refusal | None = None,
) -> Steps:
    """Settle or return the deliveries that an ACK or NACK covers, in portions, the oldest first.

    Args:
        broker: The services of the broker.
        session: The session.
        delivery: The delivery that the frame names; None if it is not in flight any more: the frame is late.
        receipt: The receipt id of the frame; None without one.
        refusal: The request of a NACK; None for an ACK.
    """
    late = delivery is None or delivery[0].closed
    broker.stats.count(late_acks=late)
    if delivery is not None and not late:
        subscription, number = delivery
        for numbers in broker.budget.portions(subscription.covered(number)):
            if subscription.closed:
                break
            if refusal is None:
                for source, offsets in by_source(take_acked(broker, subscription, numbers)).items():
                    source.settle(offsets)
                    source.traffic.settled(len(offsets))
            else:
                broker.returns.refused(subscription, take_refused(broker, subscription, numbers), refusal)
            if receipt is not None:
                session.receipts.silently_after(broker.cursor_waiters(False) + broker.dead_letters.waiter_lists())
            yield True
    if receipt is not None:
        if late:
            session.receipts.silently_after(broker.cursor_waiters(True))
        session.receipts.now(receipt)  # it is sent when the waits above are over


def touch(broker: Services, session: Session, delivery: Delivery | None, receipt: bytes | None) -> Steps:
    """Restart ``ack_timeout`` for the deliveries that a frame covers: an ACK with ``touch:true``, or a SEND to TOUCH.

    It settles nothing and is part of no transaction. The arguments are as for ``settle``.
    """
    if delivery is None:
        broker.stats.count(late_acks=1)
    else:
        subscription, number = delivery
        for numbers in broker.budget.portions(subscription.covered(number)):
            restart(subscription, numbers)
            yield True
    if receipt is not None:
        session.receipts.now(receipt)


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


def receipt_now(session: Session, frame: Frame) -> None:
    """Send the RECEIPT of a frame that has taken effect."""
    if frame.receipt is not None:
        session.receipts.now(frame.receipt)


def receipt_settled(broker: Services, session: Session, frame: Frame) -> None:
    """Send the RECEIPT of a frame that returned messages, once drops and dead letters among them are stored."""
    if frame.receipt is not None:
        session.receipts.after(frame.receipt, broker.cursor_waiters(False) + broker.dead_letters.waiter_lists())
