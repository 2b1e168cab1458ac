"""What a connection was sent and lost again, unanswered: its time was over, or its subscription has ended.

An ACK of such a delivery comes late. Alone that is counted and ignored; what a transaction holds together with it must
not happen (``radiator.broker.queues.pledges``). A NACK is an answer: what it gives back is not here, nor is what an
ACK has settled, so that an ACK that is only repeated can be told from one that is late.

Knows: subscriptions, partitions' id prefixes, offsets. Must not know: frames, transactions.
Invariants: what was delivered again to the same subscription is not here; the memory of a session is bounded, and what
is not known any more counts as late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from radiator.broker.subscriptions.delivered import Delivered, delivered_in, place_of

if TYPE_CHECKING:
    from radiator.broker.session import Session
    from radiator.broker.subscriptions.subscription import Subscription

LOGS_MAX = 1_024  # subscriptions times partitions, of one session

Returned = dict[str, dict[bytes, Delivered]]  # by the subscription's tag and the partition's id prefix


def lost(subscription: Subscription, prefix: bytes, offsets: Sequence[int]) -> None:
    """These went back unanswered."""
    session = subscription.session
    logs = session.returned.setdefault(subscription.tag, {})
    if prefix not in logs:
        logs[prefix] = Delivered()
        if sum(map(len, session.returned.values())) > LOGS_MAX:
            oldest = next(iter(session.returned))
            del session.returned[oldest]
            session.unsure = True
            logs = session.returned.setdefault(subscription.tag, {})
            logs.setdefault(prefix, Delivered())
    logs[prefix].add(sorted(offsets))


def again(subscription: Subscription, prefix: bytes, offsets: Sequence[int]) -> None:
    """These are delivered to it once more."""
    logs = subscription.session.returned.get(subscription.tag)
    delivered = logs.get(prefix) if logs is not None else None
    if logs is None or delivered is None:
        return
    for offset in offsets:
        delivered.discard(offset)
    if not delivered:
        del logs[prefix]
        if not logs:
            del subscription.session.returned[subscription.tag]


def answered_for(subscription: Subscription) -> None:
    """An answer that stands for all that was delivered before has come."""
    subscription.session.returned.pop(subscription.tag, None)


def is_late(session: Session, tag: str | None, message_id: bytes) -> bool:
    """Whether this delivery was lost. ``tag`` None: by whichever subscription."""
    if place_of(message_id) is None:  # the end of a replay, say
        return False
    if session.unsure:
        return True
    logs = list(session.returned.values()) if tag is None else [session.returned.get(tag, {})]
    return any(delivered_in(each, message_id) for each in logs)


def misses_one_before(subscription: Subscription, message_id: bytes) -> bool:
    """Whether an answer that stands for all before it too comes late for one of these, in the same partition."""
    logs = subscription.session.returned.get(subscription.tag)
    place = place_of(message_id)
    if logs is None or place is None:
        return False
    delivered = logs.get(place[0])
    return delivered is not None and delivered.first < place[1]
