"""The commands ACK and NACK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.broker.budget import PORTION
from radiator.broker.headers.subscribe import INDIVIDUAL
from radiator.broker.headers.values import flag
from radiator.broker.settling import settlement
from radiator.broker.transactions import transactional_acks, transactions
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Session
    from radiator.broker.services import Services
    from radiator.clock import Now
    from radiator.stomp.frames import Frame


def ack(broker: Services, session: Session, frame: Frame, now: Now) -> Steps | None:
    """Process an ACK. Its RECEIPT is sent once the cursor is stored as the rule says."""
    if frame.receipt is None and _ack_one(broker, session, frame.head.headers):
        return None
    if flag(frame.head.headers, "touch"):
        return settlement.touch(broker, session, frame)
    if "transaction" in frame.head.headers:
        return _hold(broker, session, frame)
    return _ack(broker, session, frame)


def _ack(broker: Services, session: Session, frame: Frame) -> Steps:
    late = True
    for subscription, keys in settlement.answered(broker, settlement.locate(session, frame)):
        late = not settlement.settle(broker, subscription, keys) and late
        if frame.receipt is not None and len(keys) == PORTION:  # later turns may settle more
            session.receipts.silently_after(broker.cursor_waiters(False))
        yield True
    if frame.receipt is not None:
        session.receipts.after(frame.receipt, broker.cursor_waiters(late))


def _ack_one(broker: Services, session: Session, headers: Mapping[str, str]) -> bool:
    """Process the common ACK: one unacknowledged delivery, named by its ack id, or by subscription and message id.

    Returns:
        False if the frame is another kind of ACK; then nothing has changed.
    """
    if "transaction" in headers or "touch" in headers:
        return False
    name, number = headers.get("id"), None
    if name:
        tag, _, number = name.rpartition("-")
        subscription = session.tags.get(tag)
    else:
        subscription = session.subscriptions.get(headers.get("subscription", ""))
    if subscription is None or subscription.ack != INDIVIDUAL:
        return False
    if number is None:
        number = subscription.find(headers.get("message-id", ""))
    delivery = None if number is None else subscription.take_one(number)
    if delivery is None:
        return False
    source, offset, _ = delivery
    if source is not None:
        source.settle([offset])
    broker.stats.add_acks(1)
    broker.ready.credit(subscription)
    return True


def nack(broker: Services, session: Session, frame: Frame, now: Now) -> Steps:
    """Process a NACK: return the message to its place in the queue. A message of a topic is settled."""
    if "transaction" in frame.head.headers:
        yield from _hold(broker, session, frame)
        return
    for subscription, keys in settlement.answered(broker, settlement.locate(session, frame)):
        broker.returns.refused(
            subscription, settlement.take_refused(broker, subscription, keys), settlement.refusal(frame)
        )
        if frame.receipt is not None:
            session.receipts.silently_after(broker.cursor_waiters(False) + broker.dead_letters.waiter_lists())
        yield True
    settlement.receipt_now(session, frame)  # the receipts added above hold it back


def _hold(broker: Services, session: Session, frame: Frame) -> Steps:
    """Store an ACK or NACK in its transaction until COMMIT, and mark its deliveries as acknowledged by the transaction.

    If a delivery has returned to its queue already, that is noted for COMMIT.
    """
    transaction = transactions.add(broker, session, frame.head.headers["transaction"], frame)
    try:
        found = settlement.locate(session, frame, transaction.answered)
        durable = found or settlement.locate(session, frame)  # answered before: it must be in flight all the same
    except ProtocolError as error:
        transaction.answers.append(error)
    else:
        transaction.answers.append(found)
        settles = frame.head.command == "ACK" or not settlement.refusal(frame).requeue
        if found is not None:
            transaction.answered.add(found)
        if durable is not None:
            yield from transactional_acks.add(broker, transaction, *durable, settles)
        elif settles and session.may_have_lost(frame.head.headers.get("id") or frame.head.headers["message-id"]):
            transaction.note_late()
    settlement.receipt_now(session, frame)
