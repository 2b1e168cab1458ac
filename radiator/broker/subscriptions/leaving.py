"""The end of a subscription: it is taken out of everything that knows it, and what it holds goes back.

Invariant: afterwards no feed, queue, destination or session has it, and credit that it had shared is free again; also
if one of its parts raises what nobody foresaw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.broker.subscriptions import returned
from radiator.broker.subscriptions.subscription import by_source

if TYPE_CHECKING:
    from radiator.broker.broker import Broker
    from radiator.broker.subscriptions.subscription import Subscription


def leave(broker: Broker, subscription: Subscription) -> None:
    """What is in flight goes back to its queues, in the original places."""
    session, bugs = subscription.session, broker.bugs
    subscription.closed = True
    session.subscriptions.pop(subscription.id, None)
    session.tags.pop(subscription.tag, None)
    session.waiting.pop(subscription, None)
    session.patterns -= len(subscription.patterns.patterns)
    session.remember(subscription.seen)
    left = list(subscription.destinations)
    broker.work += len(left)
    for destination in left:
        destination.subscribers -= 1
    subscription.destinations.clear()
    for feed, reader in subscription.readers.items():
        feed.readers.pop(reader, None)
        broker.ready.forget_reader(reader)
    subscription.readers.clear()
    for queue in subscription.queues:
        with bugs:
            queue.leave(subscription)
            if queue.owners is not None:
                broker.ready.queue(queue)
            if not queue.consumers:
                for source in queue.sources:
                    source.batch = None
    if subscription.queues:
        remaining = [pair for pair in session.queue_ring if pair[0] is not subscription]
        session.queue_ring.clear()
        session.queue_ring.extend(remaining)
    subscription.queues.clear()
    for source, offsets in by_source(subscription.take_all()).items():
        with bugs:
            if not (session.closing or source.closed):
                returned.lost(subscription, source.feed.wire.id_prefix, offsets)
            broker.returns.left(source, offsets)
    for destination in left:
        with bugs:
            if destination.unused and broker.registry.drop_unused(destination):
                broker.generation += 1  # plans may still name it
    if not session.closing:
        broker.ready.credit_session(session)
