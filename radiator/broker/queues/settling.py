"""ACK and NACK: which delivery is meant, and what becomes of it.

A delivery is settled at most once. An ack that comes late or twice is counted and otherwise ignored, since an ERROR
would cost the client its connection (what it means to a transaction is in ``pledges``); one that names something never
delivered here is an ERROR. That needs no memory of past deliveries: they are numbered, and a number that was given out
and is not in flight was settled or went back.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from radiator import limits
from radiator.broker import transactions
from radiator.broker.budget import PORTION
from radiator.broker.due.timeouts import start_anew
from radiator.broker.flags import flag
from radiator.broker.publishing.scheduling import delay_ms
from radiator.broker.queues import pledges
from radiator.broker.queues.returning import Refusal
from radiator.broker.subscriptions.subscription import (
    AUTO,
    INDIVIDUAL,
    Delivery,
    InFlight,
    Number,
    by_source,
)
from radiator.clock import NS_PER_MS, Now
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.broker import Broker
    from radiator.broker.budget import Steps
    from radiator.broker.session import Session
    from radiator.broker.subscriptions.subscription import Subscription
    from radiator.stomp.frames import Frame


TOUCH = "/radiator/touch"


def ack(broker: Broker, session: Session, frame: Frame, now: Now) -> Steps | None:
    """ACK: settle for ever; with a receipt, once the cursor is stored as the rule says."""
    if frame.receipt is None and _ack_one(broker, session, frame.head.headers):
        return None
    if flag(frame.head.headers, "touch"):
        return touch(broker, session, frame)
    if "transaction" in frame.head.headers:
        return _hold(broker, session, frame)
    return _ack(broker, session, frame)


def _ack(broker: Broker, session: Session, frame: Frame) -> Steps:
    late = True
    for subscription, keys in answered(broker, locate(session, frame)):
        late = not settle(broker, subscription, keys) and late
        if frame.receipt is not None and len(keys) == PORTION:  # more may come, in later turns
            session.receipts.silently_after(broker.cursor_waiters(False))
        yield True
    if frame.receipt is not None:
        session.receipts.after(frame.receipt, broker.cursor_waiters(late))


def _ack_one(broker: Broker, session: Session, headers: Mapping[str, str]) -> bool:
    """How nearly every ACK is: of one delivery that is held, named by its ack id, or by its subscription and message
    id. False: it is another kind."""
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
    broker.stats.acks += 1
    broker.ready.credit(subscription)
    return True


def answered(broker: Broker, delivery: Delivery | None) -> Iterator[tuple[Subscription, Sequence[Number]]]:
    """The deliveries that an ACK or NACK answers, in portions, the oldest first; none if it comes late, which is
    counted."""
    if delivery is None or delivery[0].closed or delivery[1] not in delivery[0].in_flight:
        broker.stats.late_acks += 1
        return
    subscription, number = delivery
    for keys in broker.budget.portions(subscription.covered(number)):
        if subscription.closed:
            return
        yield subscription, keys


def settle(broker: Broker, subscription: Subscription, keys: Sequence[Number]) -> bool:
    """These deliveries are acknowledged. False if none of them is held."""
    settled = take_acked(broker, subscription, keys)
    for source, offsets in by_source(settled).items():
        source.settle(offsets)
    return bool(settled)


def take_acked(broker: Broker, subscription: Subscription, keys: Sequence[Number]) -> list[InFlight]:
    """Take acknowledged deliveries out of their window. The caller settles them."""
    settled = subscription.take(keys)
    broker.stats.acks += len(settled)
    broker.ready.credit(subscription)
    return settled


def nack(broker: Broker, session: Session, frame: Frame, now: Now) -> Steps:
    """NACK: back to the queue, in the original place; a topic has nowhere to put it back, so there it settles."""
    if "transaction" in frame.head.headers:
        yield from _hold(broker, session, frame)
        return
    for subscription, keys in answered(broker, locate(session, frame)):
        broker.returns.refused(subscription, take_refused(broker, subscription, keys), refusal(frame))
        if frame.receipt is not None:
            session.receipts.silently_after(broker.cursor_waiters(False) + broker.dead_letters.waited())
        yield True
    receipt_now(session, frame)  # behind all that


def take_refused(broker: Broker, subscription: Subscription, keys: Sequence[Number]) -> list[InFlight]:
    """Take refused deliveries out of their window. The caller gives them back."""
    refused = subscription.take(keys)
    broker.stats.nacks += len(refused)
    return refused


def refusal(frame: Frame) -> Refusal:
    """What a NACK asks for. Raises ProtocolError (bad-header)."""
    headers = frame.head.headers
    requeue, delay = flag(headers, "requeue") is not False, headers.get("delay")
    return Refusal(requeue, None if delay is None else delay_ms("delay", delay) * NS_PER_MS)


def touch(broker: Broker, session: Session, frame: Frame) -> Steps:
    """ACK with ``touch:true``, or a SEND to TOUCH: whoever holds the delivery is still at work on it, and has its time
    (``ack_timeout``) anew from now. It settles nothing and takes part in no transaction."""
    found = locate(session, frame)
    if found is None:
        broker.stats.late_acks += 1
    else:
        subscription, number = found
        for keys in broker.budget.portions(subscription.covered(number)):
            start_anew(subscription, keys)
            yield True
    receipt_now(session, frame)


def _hold(broker: Broker, session: Session, frame: Frame) -> Steps:
    """The frame waits for the COMMIT of its transaction, and so do the deliveries that it names; or they are gone
    already, which COMMIT has to know."""
    transaction = transactions.add(broker, session, frame.head.headers["transaction"], frame)
    try:
        found = locate(session, frame, transaction.answered)
        named = found or locate(session, frame)  # answered before in this transaction: it has to be held all the same
    except ProtocolError as error:
        transaction.answers.append(error)
    else:
        transaction.answers.append(found)
        settles = frame.head.command == "ACK" or not refusal(frame).requeue
        if found is not None:
            transaction.answered.add(found)
        if named is not None:
            yield from pledges.pledge(broker, transaction, *named, settles)
        elif settles and session.may_have_lost(frame.head.headers.get("id") or frame.head.headers["message-id"]):
            transaction.late = True
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
        named = headers.get("subscription")
        for candidate in session.subscriptions.values():
            if (named is None or candidate.id == named) and (found := candidate.find(name, answered)) is not None:
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


def receipt_settled(broker: Broker, session: Session, frame: Frame) -> None:
    """The RECEIPT of a frame that gave messages back: some of them may have been dropped, or be dead letters now."""
    if frame.receipt is not None:
        session.receipts.after(frame.receipt, broker.cursor_waiters(False) + broker.dead_letters.waited())
