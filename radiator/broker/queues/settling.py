"""ACK and NACK: which delivery is meant, and what becomes of it.

A delivery is settled at most once. An ack that comes late or twice is counted and otherwise ignored, since an ERROR
would cost the client its connection (what it means to a transaction is in ``pledges``); one that names something never
delivered here is an ERROR.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from radiator.broker import transactions
from radiator.broker.flags import flag
from radiator.broker.publishing.scheduling import delay_ms
from radiator.broker.queues import pledges
from radiator.broker.queues.returning import Refusal
from radiator.broker.subscriptions.delivered import decimal, delivered_in
from radiator.broker.subscriptions.returned import is_late
from radiator.broker.subscriptions.subscription import (
    AUTO,
    END_ID,
    INDIVIDUAL,
    TWIN,
    InFlight,
    Subscription,
    by_source,
)
from radiator.clock import NS_PER_MS
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.broker import Broker
    from radiator.broker.session import Session
    from radiator.broker.transactions import Transaction
    from radiator.stomp.frames import Frame


TOUCH = "/radiator/touch"


def ack(broker: Broker, session: Session, frame: Frame, now_ns: int) -> None:
    """ACK: settle for ever; with a receipt, once the cursor is stored as the rule says."""
    if frame.receipt is None and _ack_one(broker, session, frame.head.headers):
        return
    if flag(frame.head.headers, "touch"):
        touch(broker, session, frame)
        return
    if _held(session, frame):
        return
    late = not apply_ack(broker, session, frame)
    if frame.receipt is not None:
        session.receipts.after(frame.receipt, broker.cursor_waiters(late))


def _ack_one(broker: Broker, session: Session, headers: Mapping[str, str]) -> bool:
    """How nearly every ACK is: of one delivery that is held, named by its ack id. False: it is another kind."""
    if "transaction" in headers or "touch" in headers:
        return False
    tag, _, rest = headers.get("id", "").partition("-")
    subscription = session.tags.get(tag)
    if subscription is None or subscription.ack != INDIVIDUAL:
        return False
    delivery = subscription.take_one(rest.encode())
    if delivery is None:
        return False
    source, offset = delivery
    if source is not None:
        source.settle([offset])
    broker.stats.acks += 1
    broker.ready.credit(subscription)
    return True


def apply_ack(broker: Broker, session: Session, frame: Frame) -> bool:
    """Settle what an ACK names; False if it was late."""
    settled = take_acked(broker, session, frame)
    if len(settled) == 1:
        source, offset = settled[0]
        if source is not None:
            source.settle([offset])
    else:
        for source, offsets in by_source(settled).items():
            source.settle(offsets)
    return bool(settled)


def take_acked(broker: Broker, session: Session, frame: Frame) -> list[InFlight]:
    """Take what an ACK names out of its window; empty if it was late. The caller settles it."""
    subscription, settled = _settled(broker, session, frame)
    if subscription is not None:
        broker.stats.acks += len(settled)
        broker.ready.credit(subscription)
    return settled


def nack(broker: Broker, session: Session, frame: Frame, now_ns: int) -> None:
    """NACK: back to the queue, in the original place; a topic has nowhere to put it back, so there it settles."""
    if _held(session, frame):
        return
    apply_nack(broker, session, frame)
    receipt_settled(broker, session, frame)


def apply_nack(broker: Broker, session: Session, frame: Frame) -> None:
    subscription, settled = _settled(broker, session, frame)
    if subscription is not None:
        broker.stats.nacks += len(settled)
        broker.returns.refused(subscription, settled, refusal(frame))


def refusal(frame: Frame) -> Refusal:
    """What a NACK asks for. Raises ProtocolError (bad-header)."""
    headers = frame.head.headers
    requeue, delay = flag(headers, "requeue") is not False, headers.get("delay")
    return Refusal(requeue, None if delay is None else delay_ms("delay", delay) * NS_PER_MS)


def touch(broker: Broker, session: Session, frame: Frame) -> None:
    """ACK with ``touch:true``, or a SEND to TOUCH: whoever holds the delivery is still at work on it, and has its time
    (``ack_timeout``) anew from now. It settles nothing and takes part in no transaction."""
    found = locate(session, frame)
    if found is None:
        broker.stats.late_acks += 1
    else:
        subscription, message_id = found
        for source, offsets in by_source(subscription.up_to(message_id)).items():
            if source.timeouts is not None:
                source.timeouts.start(subscription, offsets)
    receipt_now(session, frame)


def _held(session: Session, frame: Frame) -> bool:
    """True if the frame belongs to a transaction and waits for its COMMIT."""
    transaction = frame.head.headers.get("transaction")
    if transaction is None:
        return False
    _pledge(session, transactions.add(session, transaction, frame), frame)
    receipt_now(session, frame)
    return True


def _pledge(session: Session, transaction: Transaction, frame: Frame) -> None:
    """The deliveries that the frame names wait for COMMIT; or they are gone already, which COMMIT has to know."""
    try:
        found = locate(session, frame)
    except ProtocolError:  # told at COMMIT
        return
    settles = frame.head.command == "ACK" or not refusal(frame).requeue
    if found is not None:
        pledges.pledge(transaction, *found, settles)
    elif settles and _came_late(session, frame.head.headers):
        transaction.late = True


def _came_late(session: Session, headers: Mapping[str, str]) -> bool:
    """Whether what an ACK names, which is not held, went back unanswered; else it is repeated."""
    name = headers.get("id") or headers["message-id"]
    tag, dash, rest = name.partition("-")
    if dash and is_late(session, tag, rest.encode().rstrip(TWIN)):
        return True
    message_id = name.encode()
    named = session.subscriptions.get(headers.get("subscription", ""))
    return is_late(session, named.tag if named is not None and named.was_delivered(message_id) else None, message_id)


def _settled(broker: Broker, session: Session, frame: Frame) -> tuple[Subscription | None, list[InFlight]]:
    """The subscription and deliveries that an ACK or NACK names; (None, []) if it comes late."""
    found = locate(session, frame)
    if found is None:
        broker.stats.late_acks += 1
        return None, []
    subscription, message_id = found
    return subscription, subscription.take(message_id)


def locate(session: Session, frame: Frame) -> tuple[Subscription, bytes] | None:
    """Which delivery of which subscription an ACK or NACK names; None if it is late or repeated.

    Accepts ``id`` or ``message-id`` (with or without ``subscription``), holding an ack id or a message id, in every
    version: clients differ. Raises ProtocolError (bad-ack) for what was never delivered here.
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
    tag, dash, rest = name.partition("-")
    subscription = session.tags.get(tag) if dash else None
    message_id, rest_id = name.encode(), rest.encode()
    if not headers.get("id"):  # a message id may look like the ack id of another message
        found = _by_message_id(session, message_id, headers.get("subscription"))
        if found is not None:
            return found
    if subscription is not None and rest_id in subscription.in_flight:
        return subscription, rest_id
    rest_id = rest_id.rstrip(TWIN)
    found = _by_message_id(session, message_id, headers.get("subscription"))
    if found is not None:
        return found
    number = decimal(tag) if dash else None
    ended = number is not None and number < session.next_tag and tag not in session.tags
    if ended and (rest == END_ID or delivered_in(session.past, rest_id) or session.forgetful):
        return None
    if subscription is not None and subscription.was_delivered(rest_id):
        return None
    if delivered_in(session.past, message_id):
        return None
    if any(candidate.was_delivered(message_id) for candidate in session.subscriptions.values()):
        return None
    raise ProtocolError(
        "bad-ack",
        f"{frame.head.command}: {name[:200]!r} is not a delivery that this connection holds",
        "Expected the ack header (or the message-id) of a MESSAGE delivered to this connection under an ack mode "
        f"other than {AUTO}.",
    )


def _by_message_id(session: Session, message_id: bytes, named: str | None) -> tuple[Subscription, bytes] | None:
    for candidate in session.subscriptions.values():
        if (named is None or candidate.id == named) and (key := candidate.find(message_id)) is not None:
            return candidate, key
    return None


def receipt_now(session: Session, frame: Frame) -> None:
    """The RECEIPT of a frame whose effect is done."""
    if frame.receipt is not None:
        session.receipts.now(frame.receipt)


def receipt_settled(broker: Broker, session: Session, frame: Frame) -> None:
    """The RECEIPT of a frame that gave messages back: some of them may have been dropped, or be dead letters now."""
    if frame.receipt is not None:
        session.receipts.after(frame.receipt, broker.cursor_waiters(False) + broker.dead_letters.waited())
