"""What an open transaction has answered: those deliveries wait for its COMMIT.

Their time to be answered (``ack_timeout``) stands still meanwhile: who has said ACK has done the work. ABORT gives
them their time anew. If what COMMIT is to acknowledge is not held any more, nothing of the transaction happens: its
messages would be the fruit of work that somebody else does too.

Knows: transactions, subscriptions. Must not know: frames' headers, what a settled message means to its queue.
Invariants: a delivery is pledged to one transaction at most, the first; what is pledged does not time out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.broker.queues.ack_timeouts import restart
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Session, Subscription, Transaction
    from radiator.broker.queues.consumer import Number
    from radiator.broker.services import Services


def hold(
    broker: Services, transaction: Transaction, subscription: Subscription, number: Number, settles: bool
) -> Steps:
    """An answer to this delivery waits for COMMIT. ``settles``: it must not come again; else it is to go back, and if
    it does that before COMMIT, that was asked for."""
    for part in broker.budget.portions(subscription.covered(number)):
        timed = [each for each in part if each in subscription.in_flight and subscription.is_timed(each)]
        for each in timed:
            subscription.transactional.setdefault(each, transaction)
        if timed:
            transaction.transactional_in[subscription] = None
        yield True
    if settles:
        transaction.acked.append((subscription, number))
        if subscription.lost is not None and subscription.lost[0] < int(number):  # ``client``: it would cover that too
            transaction.note_late()


def ended(broker: Services, transaction: Transaction) -> Steps:
    """End the pledges of a transaction that was aborted or has happened: what is still held has its time anew."""
    while transaction.transactional_in:
        subscription, _ = transaction.transactional_in.popitem()
        for part in broker.budget.portions(list(subscription.transactional)):
            own = [number for number in part if subscription.transactional.get(number) is transaction]
            for number in own:
                del subscription.transactional[number]
            restart(subscription, own)
            yield True


def check(broker: Services, session: Session, transaction: Transaction) -> Steps:
    """Whether everything that COMMIT is to acknowledge is held, or was acknowledged before. Raises ProtocolError."""
    lost = transaction.late
    for part in broker.budget.portions(transaction.acked):
        lost = lost or any(_is_lost(session, *each) for each in part)
        yield True
    if lost:
        raise ProtocolError(
            "bad-ack",
            "COMMIT: a message that this transaction acknowledges is not held any more",
            "Its ack_timeout had run out before the ACK came, or its subscription has ended: it went back to its "
            "queue. Nothing of the transaction was done.",
        )


def _is_lost(session: Session, subscription: Subscription, number: Number) -> bool:
    delivery = subscription.in_flight.get(number)
    if delivery is not None:
        return subscription.closed and delivery[0] is not None  # it is about to go back, if there is somewhere
    return int(number) <= session.lost
