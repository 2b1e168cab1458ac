"""The end of subscriptions: each is taken out of everything that refers to it, and what it holds goes back.

A subscription may have joined a hundred thousand destinations, and a session may have a thousand of them. When one ends
it is closed at once: nothing is delivered to it any more, and its session does not know it. The rest is done in the
background (``broker.budget``); for a small one that is the same turn.

Invariants: once ``left`` is True no feed, queue, destination or session has the subscription, and credit that it had
shared is free again, also if one of its parts raised what nobody foresaw. A broker that stops does nothing of it: what
its consumers held is not settled, and that is all the next start has to know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.broker.clients.session import by_source
from radiator.broker.transactions import transactions

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Session, Subscription
    from radiator.broker.services import Services

LEAVE_UNITS = 2  # of a destination, a reader, a log that was read
DROP_UNITS = 15  # of a destination of which nothing is left
CONSUMERS_A_UNIT = 64  # of a queue, among which the one that leaves is found
RETURNED_TOGETHER = 100  # messages, a unit each


def unsubscribe(broker: Services, subscription: Subscription) -> None:
    """End a subscription: what it holds goes back to its queues, in the original places, once ``left`` says so."""
    close(broker, subscription)
    broker.background.add(steps(broker, subscription))


def close(broker: Services, subscription: Subscription) -> None:
    """A subscription ends, now; ``steps`` does the rest."""
    with broker.internal_errors:
        broker.creation.forget(subscription)
    subscription.close()
    subscription.session.remove(subscription)


def release(broker: Services, session: Session) -> None:
    """Give back everything that a session holds; it may still have bytes to send."""
    session.close_steps()
    if not broker.stopping:  # then what its consumers held is not settled: that is all the next start has to know
        broker.background.add(all_of(broker, session))
    broker.ready.forget_session(session)
    broker.throttle.forget(session)


def all_of(broker: Services, session: Session) -> Steps:
    """Give back everything that a session holds, which ends."""
    subscriptions, names = list(session.subscriptions.values()), list(session.temporary)
    transactions_freed = transactions.discard(broker, session)
    session.temporary.clear()
    for subscription in subscriptions:
        close(broker, subscription)
    return _leaving(broker, subscriptions, transactions_freed, names)


def _leaving(broker: Services, subscriptions: list[Subscription], transactions_freed: Steps, names: list[str]) -> Steps:
    for subscription in subscriptions:
        yield from steps(broker, subscription)
    for name in names:
        with broker.internal_errors:
            broker.registry.drop_temporary(name)
        broker.budget.spend(DROP_UNITS)
        yield True
    yield from transactions_freed


def steps(broker: Services, subscription: Subscription) -> Steps:
    """Take a closed subscription out of everything, and give back what it holds."""
    session, internal_errors, budget = subscription.session, broker.internal_errors, broker.budget
    left = list(subscription.destinations)
    for destination in left:
        destination.count_subscribers(-1)
        budget.spend(LEAVE_UNITS)
        yield True
    subscription.destinations.clear()
    while subscription.readers:
        feed, reader = subscription.readers.popitem()
        feed.readers.pop(reader, None)
        broker.ready.forget_reader(reader)
        budget.spend(LEAVE_UNITS)
        yield True
    while subscription.queues:
        queue = subscription.queues.pop()
        session.queue_ring.remove(subscription, queue)
        budget.spend(LEAVE_UNITS + len(queue.consumers) // CONSUMERS_A_UNIT)
        with internal_errors:
            queue.leave(subscription)
            if queue.assignment is not None:
                broker.ready.queue(queue)
            if not queue.consumers:
                for source in queue.sources:
                    source.drop_batch()
        yield True
    while subscription.in_flight:
        for source, offsets in by_source(subscription.take_some(RETURNED_TOGETHER)).items():
            with internal_errors:
                broker.returns.left(source, offsets)
        budget.spend(RETURNED_TOGETHER)
        yield True
    broker.ready.released(subscription)
    for destination in left:
        with internal_errors:
            if broker.drop_unused(destination):
                budget.spend(DROP_UNITS)
        budget.spend(LEAVE_UNITS)
        yield True
    subscription.note_left()
    if not session.closing:
        broker.ready.credit_session(session)
