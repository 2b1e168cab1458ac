"""Transactional acknowledgements: deliveries that an open transaction has acknowledged, until its COMMIT.

The ``ack_timeout`` of such a delivery stands still, because the client has finished the work. ABORT restarts it. If a
delivery that COMMIT acknowledges is no longer in flight, the whole COMMIT is refused: another consumer may process the
same message, so the messages of the transaction would be duplicates.

This module knows transactions and subscriptions. It knows no headers, and not what settlement means to a queue.

Invariants: a delivery belongs to at most one transaction, the first; a delivery in a transaction does not time out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.broker.queues.ack_timeouts import restart
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Delivery, Session, Subscription, Transaction
    from radiator.broker.queues.consumer import Number
    from radiator.broker.services import Services


def mark(broker: Services, transaction: Transaction, delivery: Delivery, settles: bool) -> Steps:
    """Mark deliveries as acknowledged by a transaction, in steps.

    Args:
        broker: The services of the broker.
        transaction: The transaction.
        delivery: The delivery; under ``client`` it covers the earlier ones.
        settles: True for an ACK or a final NACK. False if the delivery returns to its queue: then a return before
            COMMIT does no harm.
    """
    subscription, number = delivery
    for part in broker.budget.portions(subscription.covered(number)):
        timed = [each for each in part if each in subscription.in_flight and subscription.is_timed(each)]
        for each in timed:
            subscription.transactional.setdefault(each, transaction)
        if timed:
            transaction.transactional_in[subscription] = None
        yield True
    if settles:
        transaction.acked.append(delivery)
        if subscription.lost is not None and subscription.lost[0] < int(number):  # ``client`` covers that one, too
            transaction.note_late()


def release(broker: Services, transaction: Transaction) -> Steps:
    """Release the deliveries of a transaction that has ended, in steps, and restart their ``ack_timeout``."""
    while transaction.transactional_in:
        subscription, _ = transaction.transactional_in.popitem()
        for part in broker.budget.portions(list(subscription.transactional)):
            own = [number for number in part if subscription.transactional.get(number) is transaction]
            for number in own:
                del subscription.transactional[number]
            restart(subscription, own)
            yield True


def check(broker: Services, session: Session, transaction: Transaction) -> Steps:
    """Check that every delivery that COMMIT acknowledges is in flight, or was acknowledged before, in steps.

    Raises:
        ProtocolError: ``bad-ack``, if one of them has returned to its queue.
    """
    lost = transaction.late
    for part in broker.budget.portions(transaction.acked):
        lost = lost or any(_is_lost(session, *each) for each in part)
        yield True
    if lost:
        raise ProtocolError(
            "bad-ack",
            "COMMIT: a message that this transaction acknowledges is no longer in flight",
            "Its ack_timeout expired before the ACK, or its subscription ended: the message returned to its queue. "
            "The transaction had no effect.",
        )


def _is_lost(session: Session, subscription: Subscription, number: Number) -> bool:
    delivery = subscription.in_flight.get(number)
    if delivery is not None:
        return subscription.closed and delivery[0] is not None  # a queue's message is about to return
    return int(number) <= session.numbers.lost
