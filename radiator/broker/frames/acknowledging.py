"""The commands ACK and NACK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.broker.clients import locating
from radiator.broker.headers import refusals
from radiator.broker.headers.subscribe import INDIVIDUAL
from radiator.broker.headers.values import flag
from radiator.broker.settling import settlement
from radiator.broker.transactions import transactions

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Session
    from radiator.broker.services import Services
    from radiator.clock import Now
    from radiator.stomp.frames import Frame


def ack(broker: Services, session: Session, frame: Frame, now: Now) -> Steps | None:
    """Process an ACK. Its RECEIPT is sent once the cursor is stored as the rule says.

    Raises:
        ProtocolError: ``bad-ack``, if the message was never delivered to this connection; ``bad-header``.
    """
    headers, delivery = frame.head.headers, locating.locate(session, frame)
    if delivery is not None and frame.receipt is None and "transaction" not in headers and "touch" not in headers:
        subscription, number = delivery
        if subscription.ack == INDIVIDUAL:  # the common ACK settles one delivery and needs no steps
            source, offset, _ = subscription.take_one(number)
            if source is not None:
                source.settle([offset])
                broker.stats.add_ack(source.traffic)
            else:
                broker.stats.add_acks(1)
            broker.ready.credit(subscription)
            return None
    if flag(headers, "touch"):
        return settlement.touch(broker, session, delivery, frame.receipt)
    if "transaction" not in headers:
        return settlement.settle(broker, session, delivery, frame.receipt)
    return transactions.hold(broker, session, frame, delivery, settles=True)


def nack(broker: Services, session: Session, frame: Frame, now: Now) -> Steps:
    """Process a NACK: return the message to its place in the queue. A message of a topic is settled.

    Raises:
        ProtocolError: As for an ACK.
    """
    delivery, refusal = locating.locate(session, frame), refusals.read_refusal(frame)
    if "transaction" not in frame.head.headers:
        return settlement.settle(broker, session, delivery, frame.receipt, refusal)
    return transactions.hold(broker, session, frame, delivery, settles=not refusal.requeue)
