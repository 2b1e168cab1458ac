"""What an open transaction has answered: those deliveries wait for its COMMIT.

Their time to be answered (``ack_timeout``) stands still meanwhile: who has said ACK has done the work. ABORT gives
them their time anew. If what COMMIT is to acknowledge is not held any more, nothing of the transaction happens: its
messages would be the fruit of work that somebody else does too.

Knows: transactions, subscriptions. Must not know: frames' headers, what a settled message means to its queue.
Invariants: a delivery is pledged to one transaction at most, the first; what is pledged does not time out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.broker.subscriptions import returned
from radiator.broker.subscriptions.subscription import CLIENT, TWIN, Subscription, by_source
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.broker import Broker
    from radiator.broker.budget import Steps
    from radiator.broker.session import Session
    from radiator.broker.transactions import Transaction


def pledge(
    broker: Broker, transaction: Transaction, subscription: Subscription, message_id: bytes, settles: bool
) -> Steps:
    """An answer to this delivery waits for COMMIT. ``settles``: it must not come again; else it is to go back, and if
    it does that before COMMIT, that was asked for."""
    for part in broker.budget.portions(subscription.covered(message_id)):
        timed = [key for key in part if key in subscription.in_flight and subscription.is_timed(key)]
        for key in timed:
            subscription.pledged.setdefault(key, transaction)
        if timed:
            transaction.pledging[subscription] = None
        yield True
    if settles:
        transaction.acked.append((subscription, message_id))
        if subscription.ack == CLIENT and returned.misses_one_before(subscription, message_id.rstrip(TWIN)):
            transaction.late = True


def ended(broker: Broker, transaction: Transaction) -> Steps:
    """End the pledges of a transaction that was aborted or has happened: what is still held has its time anew."""
    while transaction.pledging:
        subscription, _ = transaction.pledging.popitem()
        for part in broker.budget.portions(list(subscription.pledged)):
            own = [key for key in part if subscription.pledged.get(key) is transaction]
            for key in own:
                del subscription.pledged[key]
            held = [subscription.in_flight[key] for key in own if key in subscription.in_flight]
            for source, offsets in by_source(held).items():
                if source.timeouts is not None:
                    source.timeouts.start(subscription, offsets)
            yield True


def check(broker: Broker, session: Session, transaction: Transaction) -> Steps:
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


def _is_lost(session: Session, subscription: Subscription, message_id: bytes) -> bool:
    delivery = subscription.in_flight.get(message_id)
    if delivery is not None:
        return subscription.closed and delivery[0] is not None  # it is about to go back, if there is somewhere
    return returned.is_late(session, subscription.tag, message_id.rstrip(TWIN))
