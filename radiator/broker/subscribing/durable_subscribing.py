"""SUBSCRIBE and UNSUBSCRIBE with a durable name or group: their effect on the session, and their RECEIPT.

This module knows frames, sessions and the table of durable subscriptions. It knows no cursors.

Invariant: the RECEIPT of a SUBSCRIBE is sent once the definition and the start position are stored.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from radiator.broker.clients.session import subscriptions_of
from radiator.broker.durable.subscription_names import SubscriptionName, named_in
from radiator.broker.headers.values import flag
from radiator.broker.subscribing import leaving
from radiator.clock import WallNs
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Session, Subscription
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.durable.subscription import DurableSubscription
    from radiator.broker.headers.positions import Position
    from radiator.broker.services import Services
    from radiator.errors import StorageError
    from radiator.stomp.frames import Frame


def subscribe(
    broker: Services,
    subscription: Subscription,
    asked: SubscriptionName,
    topics: list[Destination],
    position: Position | None,
    frame: Frame,
    now_ns: WallNs,
) -> Steps:
    """Let a subscription use a durable subscription or group, in steps.

    Args:
        broker: The services of the broker.
        subscription: The subscription; it has joined nothing yet.
        asked: The name.
        topics: The topics that exist, match and are permitted.
        position: The start position; None for the default.
        frame: The SUBSCRIBE.
        now_ns: The current time, in nanoseconds since 1970.

    Raises:
        ProtocolError: The name cannot be used.
    """
    session = subscription.session
    reset = flag(frame.head.headers, "reset") is True
    durable = yield from broker.durable.subscribe(subscription, asked, topics, position, reset, now_ns)
    waiting: list[Any] = []
    if frame.receipt is not None:
        session.receipts.after(frame.receipt, [waiting, broker.store.cursors.waiters])
    durable.position_lookups.settled(partial(_settled, broker, session, durable, waiting))


def _settled(
    broker: Services, session: Session, durable: DurableSubscription, waiting: list[Any], error: StorageError | None
) -> None:
    """Store the definition once all positions are known, or refuse the session if a look-up has failed."""
    if durable.deleted:
        for group in waiting:
            group.settle()
        return
    if error is None:
        broker.durable.store(durable, waiting)
        return
    failure = ProtocolError("storage", "the position could not be looked up", str(error))
    for group in waiting:
        group.settle(failure)
    if not session.closing:
        broker.refuse(session, failure)
    broker.durable.delete_if_new(durable)
    if not durable.deleted:
        broker.durable.store_once_settled(durable)


def unsubscribe(
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
    asked = named_in(session, frame.head.headers, subscription_id)
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
        leaving.unsubscribe(broker, each)
    yield from broker.background.until(lambda: all(each.left for each in own))
    waited: list[list[Any]] = []
    if not durable.active:
        broker.durable.delete(durable)
        yield from broker.durable.wait_unlocked(asked.key)
        waited = broker.durable.waiters
    if frame.receipt is not None:
        session.receipts.after(frame.receipt, waited + broker.dead_letters.waiter_lists())
    return True
