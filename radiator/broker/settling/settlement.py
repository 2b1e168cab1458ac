"""ACK and NACK: which delivery is meant, and what becomes of it.

A delivery is settled at most once. An ack that comes late or twice is counted and otherwise ignored, since an ERROR
would cost the client its connection (what it means to a transaction is in ``pledges``); one that names something never
delivered here is an ERROR. That needs no memory of past deliveries: they are numbered, and a number that was given out
and is not in flight was settled or went back.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from radiator import limits
from radiator.broker.clients.session import AUTO, Delivery, InFlight, by_source
from radiator.broker.headers.flags import flag
from radiator.broker.headers.scheduling import delay_ms
from radiator.broker.outcomes.returning import Refusal
from radiator.broker.queues.ack_timeouts import restart
from radiator.broker.queues.consumer import Number
from radiator.clock import NS_PER_MS
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Session, Subscription
    from radiator.broker.services import Services
    from radiator.stomp.frames import Frame


TOUCH = "/radiator/touch"


def answered(broker: Services, delivery: Delivery | None) -> Iterator[tuple[Subscription, Sequence[Number]]]:
    """The deliveries that an ACK or NACK answers, in portions, the oldest first; none if it comes late, which is
    counted."""
    if delivery is None or delivery[0].closed or delivery[1] not in delivery[0].in_flight:
        broker.stats.count(late_acks=1)
        return
    subscription, number = delivery
    for keys in broker.budget.portions(subscription.covered(number)):
        if subscription.closed:
            return
        yield subscription, keys


def settle(broker: Services, subscription: Subscription, keys: Sequence[Number]) -> bool:
    """These deliveries are acknowledged. False if none of them is held."""
    settled = take_acked(broker, subscription, keys)
    for source, offsets in by_source(settled).items():
        source.settle(offsets)
    return bool(settled)


def take_acked(broker: Services, subscription: Subscription, keys: Sequence[Number]) -> list[InFlight]:
    """Take acknowledged deliveries out of their window. The caller settles them."""
    settled = subscription.take(keys)
    broker.stats.add_acks(len(settled))
    broker.ready.credit(subscription)
    return settled


def take_refused(broker: Services, subscription: Subscription, keys: Sequence[Number]) -> list[InFlight]:
    """Take refused deliveries out of their window. The caller gives them back."""
    refused = subscription.take(keys)
    broker.stats.count(nacks=len(refused))
    return refused


def refusal(frame: Frame) -> Refusal:
    """What a NACK asks for. Raises ProtocolError (bad-header)."""
    headers = frame.head.headers
    requeue, delay = flag(headers, "requeue") is not False, headers.get("delay")
    return Refusal(requeue, None if delay is None else delay_ms("delay", delay) * NS_PER_MS)


def touch(broker: Services, session: Session, frame: Frame) -> Steps:
    """ACK with ``touch:true``, or a SEND to TOUCH: whoever holds the delivery is still at work on it, and has its time
    (``ack_timeout``) anew from now. It settles nothing and takes part in no transaction."""
    found = locate(session, frame)
    if found is None:
        broker.stats.count(late_acks=1)
    else:
        subscription, number = found
        for keys in broker.budget.portions(subscription.covered(number)):
            restart(subscription, keys)
            yield True
    receipt_now(session, frame)


def locate(session: Session, frame: Frame, answered: Container[Delivery] = ()) -> Delivery | None:
    """Which delivery of which subscription an ACK or NACK names; None if it is late or repeated, or all of that message
    are among those ``answered``.

    Accepts ``id`` or ``message-id`` (with or without ``subscription``), holding an ack id or a message id, in every
    version: clients differ. A message id means the oldest delivery of the message that is in flight. Raises
    ProtocolError (bad-ack) for what was never delivered here.
    """
    headers = frame.head.headers
    if frame.head.command == "NACK":
        refusal(frame)  # in a transaction: before any of it is applied
    name = headers.get("id") or headers.get("message-id")
    if not name:
        wanted = "id" if session.version == "1.2" else "message-id"
        raise ProtocolError(
            "bad-header", f"{frame.head.command} needs a header {wanted}", "Expected the value of the MESSAGE's header."
        )
    if "@" in name:
        durable = headers.get("subscription")
        for candidate in session.subscriptions.values():
            if (durable is None or candidate.id == durable) and (found := candidate.find(name, answered)) is not None:
                return candidate, found
    else:
        tag, _, number = name.rpartition("-")
        subscription = session.tags.get(tag)
        if subscription is not None and number in subscription.in_flight and (subscription, number) not in answered:
            return subscription, number
    if session.was_delivered(name) and not _is_of_another(session, name):
        return None
    raise ProtocolError(
        "bad-ack",
        f"{frame.head.command}: {name[:200]!r} is not a delivery that this connection holds",
        "Expected the ack header (or the message-id) of a MESSAGE delivered to this connection under an ack mode "
        f"other than {AUTO}.",
    )


def _is_of_another(session: Session, message_id: str) -> bool:
    """Return whether another connection holds the message of this id, and it was delivered only once: never here.

    False as well where that is not found out among ``ACK_SEARCH_MAX`` queues and deliveries."""
    log, _, offset = message_id.rpartition("@")
    if not log:
        return False
    prefix, number = f"{log}@".encode(), int(offset)
    queues = (queue for each in session.subscriptions.values() for queue in each.queues)
    sources = ((queue, source) for queue in queues for source in queue.sources)
    for queue, source in islice(sources, limits.ACK_SEARCH_MAX):
        if source.feed.wire.id_prefix == prefix and not source.cursor.is_acked(number):
            others = (each.in_flight.values() for each in queue.consumers if each.session is not session)
            held = islice(chain.from_iterable(others), limits.ACK_SEARCH_MAX)
            return source.deliveries(number) == 1 and any((each[0], each[1]) == (source, number) for each in held)
    return False


def receipt_now(session: Session, frame: Frame) -> None:
    """The RECEIPT of a frame whose effect is done."""
    if frame.receipt is not None:
        session.receipts.now(frame.receipt)


def receipt_settled(broker: Services, session: Session, frame: Frame) -> None:
    """The RECEIPT of a frame that gave messages back: some of them may have been dropped, or be dead letters now."""
    if frame.receipt is not None:
        session.receipts.after(frame.receipt, broker.cursor_waiters(False) + broker.dead_letters.waited())
