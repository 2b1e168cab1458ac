"""The end of subscriptions: remove each from readers, queues and destinations, and return its messages.

A subscription may have joined a hundred thousand destinations, and a session may have a thousand subscriptions. A
subscription that ends is closed at once: it gets no more messages, and its session forgets it. The rest happens in the
background, for a small one in the same turn.

Invariants: once ``left`` is True, no partition reader, queue, destination or session refers to the subscription, and
its shared credit is free, also after an unexpected exception. A broker that stops skips all of this: the messages in
flight are unsettled, and the next start needs to know no more.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from radiator.broker.clients.session import by_source, subscriptions_of
from radiator.broker.headers.subscribe import name_in
from radiator.broker.transactions import transactions
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Session, Subscription
    from radiator.broker.services import Services
    from radiator.stomp.frames import Frame

LEAVE_UNITS = 2  # per destination, reader and queue
DROP_UNITS = 15  # per destination that is removed
CONSUMERS_A_UNIT = 64  # consumers of a queue that are searched for the one that leaves
RETURNED_TOGETHER = 100  # messages, a unit each


def unsubscribe(broker: Services, subscription: Subscription) -> None:
    """End a subscription in the background. Its messages are returned to their queues once ``left`` is True."""
    close(broker, subscription)
    broker.background.add(steps(broker, subscription))


def unsubscribe_durable(
    broker: Services, session: Session, frame: Frame, subscription_id: str | None, subscription: Subscription | None
) -> Generator[bool, None, bool]:
    """Delete the durable subscription that an UNSUBSCRIBE names, or let one of several group members leave, in steps.

    Args:
        broker: The services of the broker.
        session: The session.
        frame: The UNSUBSCRIBE.
        subscription_id: Its header ``id``.
        subscription: The subscription with this id; None if there is none.

    Returns:
        False if the frame names no durable subscription.

    Raises:
        ProtocolError: The name is unknown, belongs to another user, or is in use on another connection.
    """
    asked = name_in(frame.head.headers, session.client_id, subscription_id)
    if asked is None:
        return False
    if subscription is not None:
        here = broker.durable.used_by(subscription)
        if here is None:
            return False  # a queue's subscription ignores a name
        if asked.by_id:
            asked = here.asked
        elif asked.key != here.key:
            raise ProtocolError(
                "bad-subscription", f"the subscription with this id is {here.asked}, not {asked}", "Leave the id out."
            )
    durable = broker.durable.find(session, asked)
    own = [each for each in subscriptions_of(durable.queue) if each.session is session]
    if durable.active and not own:
        raise ProtocolError(
            "bad-subscription",
            f"{asked} is in use on another connection",
            "Unsubscribe it there first, or take it over: SUBSCRIBE with it here.",
        )
    for each in own:
        unsubscribe(broker, each)
    yield from broker.background.until(lambda: all(each.left for each in own))
    waited: list[list[Any]] = []
    if not durable.active:
        broker.durable.delete(durable)
        yield from broker.durable.wait_unlocked(asked.key)
        waited = broker.durable.waiters
    if frame.receipt is not None:
        session.receipts.after(frame.receipt, waited + broker.dead_letters.waiter_lists())
    return True


def close(broker: Services, subscription: Subscription) -> None:
    """Close a subscription at once; ``steps`` does the rest."""
    with broker.internal_errors:
        broker.creation.forget(subscription)
    subscription.close()
    subscription.session.remove(subscription)


def release(broker: Services, session: Session) -> None:
    """End everything that a session has. Its last bytes may still be sent."""
    session.command.close()
    if not broker.stopping:  # at a stop nothing needs to be done: messages in flight are unsettled
        broker.background.add(all_of(broker, session))
    broker.ready.forget_session(session)
    broker.throttle.forget(session)
    broker.access.forget(session)


def all_of(broker: Services, session: Session) -> Steps:
    """Close all subscriptions, transactions and temporary queues of a session, and return the steps that clean up."""
    subscriptions, names = list(session.subscriptions.by_id.values()), list(session.temporary.names)
    transactions_freed = transactions.discard(broker, session)
    session.temporary.names.clear()
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
    """Remove a closed subscription from everything that refers to it, and return its messages, in steps."""
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
        session.window.queues.remove(subscription, queue)
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
