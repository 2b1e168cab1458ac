"""What each client frame does. One function a command, one table; ``send`` is the hot path.

A SEND's headers are understood once: the result, a *plan*, is left in ``head.memo``, and heads are shared by all frames
with the same header block (``radiator.stomp.parser``). So a repeated SEND costs one attribute look-up, an append to the
open batch and a place in the line of receipts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from radiator import limits
from radiator.broker import subscribing, transactions
from radiator.broker.positions import parse_time
from radiator.broker.subscription import AUTO, InFlight, Subscription, by_source
from radiator.errors import ProtocolError
from radiator.routing.pattern import is_pattern
from radiator.routing.rules import TEMP_QUEUE_PREFIX
from radiator.stomp import encoder
from radiator.stomp.headers import stored_block
from radiator.stomp.spec import VERSIONS

if TYPE_CHECKING:
    from radiator.broker.broker import Broker
    from radiator.broker.destination import Destination
    from radiator.broker.feed import Feed
    from radiator.broker.session import Session
    from radiator.stomp.frames import Frame, Head

RESERVED_PREFIX = "/radiator/"


class Plan:
    """What the header block of a SEND means, under one generation of the rules."""

    __slots__ = ("block", "destination", "event_ns", "feed", "generation", "name", "special", "sync", "transmit_ns")

    def __init__(self, generation: int, destination: Destination, head: Head) -> None:
        headers = head.headers
        self.generation = generation
        self.destination = destination
        self.name = destination.name
        self.feed: Feed | None = destination.choose(headers)
        self.block = stored_block(head)
        self.event_ns = _time(headers, "event-time")
        self.transmit_ns = _time(headers, "transmit-time")
        self.sync = headers.get("durability") == "fsync"
        policy = destination.policy
        # Anything beyond "append, maybe receipt" takes the slow path.
        self.special = (
            self.sync or "mandatory" in headers or policy.max_messages is not None or policy.max_bytes is not None
        )


def send(broker: Broker, session: Session, frame: Frame, now_ns: int) -> None:
    """SEND: append to the open batch of its partition; the receipt waits for that batch."""
    head = frame.head
    plan = head.memo
    if plan is None or plan.generation != broker.generation:
        if not session.connected:
            raise _not_connected("SEND")
        plan = _plan(broker, session, frame)
        if plan is None:
            return
    if plan.special and not _admit(broker, plan, frame):
        return
    feed = plan.feed or plan.destination.next_feed()
    partition = feed.partition
    body = frame.body
    offset = partition.append(plan.name, plan.block, body, now_ns, plan.event_ns, plan.transmit_ns)
    size = len(body)
    stats = broker.stats
    stats.messages_in += 1
    stats.body_bytes_in += size
    broker.pending_bytes += size + len(plan.block)
    if plan.sync:
        partition.open_batch.sync_requested = True
    if frame.receipt is not None:
        session.receipts.stored(frame.receipt, offset, partition.open_batch, plan.destination.receipt_suffix(feed))


def _plan(broker: Broker, session: Session, frame: Frame) -> Plan | None:
    """Understand a SEND's headers; None if the frame was dealt with here."""
    head = frame.head
    headers = head.headers
    name = headers.get("destination")
    if not name:
        raise ProtocolError("bad-destination", "SEND needs a destination", "Expected a header destination:<name>.")
    transaction = headers.get("transaction")
    if transaction is not None:
        _check_send(broker, name, headers)
        transactions.add(session, transaction, frame)
        if frame.receipt is not None:
            session.receipts.now(frame.receipt)
        return None
    return _plan_for(broker, session, frame, name)


def _plan_for(broker: Broker, session: Session, frame: Frame, name: str) -> Plan | None:
    head = frame.head
    _check_send(broker, name, head.headers)
    temporary = name.startswith(TEMP_QUEUE_PREFIX)
    reply_to = head.headers.get("reply-to", "")
    if temporary:
        name = broker.temporary_name(session, name)
        if name not in broker.destinations and name.rpartition("@")[2] != session.id:
            broker.stats.late_replies += 1
            if frame.receipt is not None:
                session.receipts.now(frame.receipt)
            return None
        if name not in broker.destinations:
            session.temporary[name] = None
    plan = Plan(broker.generation, broker.destination(name), head)
    if reply_to.startswith(TEMP_QUEUE_PREFIX):
        own = subscribing.own_reply_queue(broker, session, reply_to)
        plan.block = _replace_header(plan.block, "reply-to", own)
    elif not temporary and "transaction" not in head.headers:
        head.memo = plan
    return plan


def _check_send(broker: Broker, name: str, headers: Mapping[str, str]) -> None:
    if is_pattern(name):
        raise ProtocolError(
            "bad-destination",
            f"a message cannot be sent to a pattern: {name[:200]!r}",
            "Expected one concrete name; *, > and # as whole segments, and commas, are for SUBSCRIBE.",
        )
    if name.startswith(RESERVED_PREFIX):
        raise ProtocolError("bad-destination", f"{name[:200]!r} is reserved", "Names under it are the broker's own.")
    if "\0" in name:
        raise ProtocolError("bad-destination", "a destination cannot contain NUL")
    durability = headers.get("durability")
    if durability not in (None, "fsync"):
        raise ProtocolError("bad-header", f"header durability: expected fsync, got {durability[:100]!r}")


def _admit(broker: Broker, plan: Plan, frame: Frame) -> bool:
    """The checks that only some destinations or messages need. False: counted and dropped, as the rule says."""
    destination = plan.destination
    if frame.head.headers.get("mandatory") == "true" and destination.subscribers == 0:
        raise ProtocolError(
            "no-route",
            f"nobody is subscribed to {destination.name}",
            "The message has mandatory:true and was not stored.",
        )
    policy = destination.policy
    queue = destination.queue
    if queue is None or (policy.max_messages is None and policy.max_bytes is None):
        return True
    waiting = queue.backlog
    over_count = policy.max_messages is not None and waiting >= policy.max_messages
    stored = sum(feed.partition.size_bytes for feed in destination.feeds)
    over_bytes = policy.max_bytes is not None and stored + len(frame.body) > policy.max_bytes
    if not (over_count or over_bytes):
        return True
    if policy.on_full == "drop_newest":
        broker.stats.dropped_newest += 1
        return False
    key, limit, got = (
        ("max_messages", policy.max_messages, waiting) if over_count else ("max_bytes", policy.max_bytes, stored)
    )
    raise ProtocolError(
        "full",
        f"{destination.name} is full",
        f"{key}: {limit} is set on line {policy.rule.line} of the configuration; it holds {got}.",
    )


def _time(headers: Mapping[str, str], header: str) -> int | None:
    text = headers.get(header)
    if text is None:
        return None
    time_ns = parse_time(text)
    if time_ns is None:
        raise ProtocolError(
            "bad-time",
            f"header {header}: not a time: {text[:100]!r}",
            "Expected nanoseconds since 1970-01-01 UTC in decimal, or RFC 3339 such as 2013-01-01T05:15:00Z.",
        )
    return time_ns


def _replace_header(block: bytes, name: str, value: str) -> bytes:
    from radiator.stomp.headers import escape

    head = name.encode() + b":"
    line = head + escape(value, "1.2").encode()
    return b"\n".join([line if each.startswith(head) else each for each in block.split(b"\n")])


# --- the other commands ---------------------------------------------------------------------------------------------


def dispatch(broker: Broker, session: Session, frame: Frame, now_ns: int) -> None:
    """Every command but SEND."""
    command = frame.head.command
    if not session.connected and command not in ("CONNECT", "STOMP"):
        raise _not_connected(command)
    function = COMMANDS.get(command)
    if function is None:
        raise ProtocolError(
            "bad-command", f"unknown command {command[:50]!r}", f"Expected one of: {', '.join(['SEND', *COMMANDS])}."
        )
    function(broker, session, frame, now_ns)


def _not_connected(command: str) -> ProtocolError:
    return ProtocolError(
        "bad-command", f"{command[:50]} before CONNECT", "Expected CONNECT or STOMP as the first frame."
    )


def _receipt(session: Session, frame: Frame) -> None:
    if frame.receipt is not None:
        session.receipts.now(frame.receipt)


def _required(frame: Frame, header: str) -> str:
    value = frame.head.headers.get(header)
    if not value:
        raise ProtocolError(
            "bad-header", f"{frame.head.command} needs a header {header}", f"Expected {header}:<value>, got none."
        )
    return value


def connect(broker: Broker, session: Session, frame: Frame, now_ns: int) -> None:
    """CONNECT, STOMP: the version was negotiated by ``ServerConnection``; the shell set it and the heart-beat."""
    if session.connected:
        raise ProtocolError("bad-command", "this connection is connected already")
    assert session.version in VERSIONS
    headers = frame.head.headers
    window = headers.get("max-in-flight")
    if window is not None:
        session.window = subscribing.count(window, "max-in-flight", session.limits.in_flight)
        session.capped = True
    session.user = headers.get("login", "")
    session.connected = True
    answer = [("server", broker.server_name), ("session", session.id)]
    session.send(encoder.connected(session.version, answer, session.heart_beat))


def disconnect(broker: Broker, session: Session, frame: Frame, now_ns: int) -> None:
    """DISCONNECT: what is held goes back at once; the RECEIPT comes after all receipts before it."""
    broker.release(session)
    _receipt(session, frame)
    session.closing = True


def unsubscribe(broker: Broker, session: Session, frame: Frame, now_ns: int) -> None:
    """UNSUBSCRIBE by id (1.0: or by destination)."""
    headers = frame.head.headers
    subscription_id = headers.get("id") or (headers.get("destination") if session.version == "1.0" else None)
    if not subscription_id:
        raise ProtocolError("bad-header", "UNSUBSCRIBE needs a header id", "Expected the id given on SUBSCRIBE.")
    subscription = session.subscriptions.get(subscription_id)
    if subscription is None:
        raise ProtocolError("bad-subscription", f"no subscription {subscription_id[:200]!r} on this connection")
    broker.unsubscribe(subscription)
    _receipt(session, frame)


def ack(broker: Broker, session: Session, frame: Frame, now_ns: int) -> None:
    """ACK: settle for ever; with a receipt, once the cursor is stored as the rule says."""
    if _held(session, frame):
        return
    _ack(broker, session, frame)
    if frame.receipt is not None:
        session.receipts.after(frame.receipt, broker.cursor_waiters())


def _ack(broker: Broker, session: Session, frame: Frame) -> None:
    subscription, settled = _settled(broker, session, frame)
    if subscription is None:
        return
    broker.stats.acks += len(settled)
    if len(settled) == 1:
        source, offset = settled[0]
        if source is not None:
            source.settle([offset])
    else:
        for source, offsets in by_source(settled).items():
            source.settle(offsets)
    broker.credit(subscription)


def nack(broker: Broker, session: Session, frame: Frame, now_ns: int) -> None:
    """NACK: back to the queue, in the original place; a topic has nowhere to put it back, so there it settles."""
    if _held(session, frame):
        return
    _nack(broker, session, frame)
    _receipt(session, frame)


def _nack(broker: Broker, session: Session, frame: Frame) -> None:
    if frame.head.headers.get("requeue") == "false":
        raise ProtocolError("unsupported", "header requeue:false is not offered by this version")
    subscription, settled = _settled(broker, session, frame)
    if subscription is not None:
        broker.stats.nacks += len(settled)
        broker.give_back(subscription, settled)


def _held(session: Session, frame: Frame) -> bool:
    """True if the frame belongs to a transaction and waits for its COMMIT."""
    transaction = frame.head.headers.get("transaction")
    if transaction is None:
        return False
    transactions.add(session, transaction, frame)
    _receipt(session, frame)
    return True


def _settled(broker: Broker, session: Session, frame: Frame) -> tuple[Subscription | None, list[InFlight]]:
    """The subscription and deliveries that an ACK or NACK names; (None, []) if it comes late.

    Accepts ``id`` or ``message-id`` (with or without ``subscription``), holding an ack id or a message id, in every
    version: clients differ. Raises ProtocolError (bad-ack) for what was never delivered here.
    """
    headers = frame.head.headers
    name = headers.get("id") or headers.get("message-id")
    if not name:
        wanted = "id" if session.version == "1.2" else "message-id"
        raise ProtocolError(
            "bad-header", f"{frame.head.command} needs a header {wanted}", "Expected the value of the MESSAGE's header."
        )
    tag, dash, rest = name.partition("-")
    subscription = session.tags.get(tag) if dash else None
    if subscription is not None:
        settled = subscription.take(rest.encode())
        if settled is not None:
            return subscription, settled
    message_id = name.encode()
    named = headers.get("subscription")
    for candidate in session.subscriptions.values():
        if named is None or candidate.id == named:
            settled = candidate.take(message_id)
            if settled is not None:
                return candidate, settled
    late = tag.isdigit() and dash and (tag not in session.tags and int(tag) < session.next_tag)
    if subscription is not None and subscription.was_delivered(rest.encode()):
        late = True
    if late or any(candidate.was_delivered(message_id) for candidate in session.subscriptions.values()):
        broker.stats.late_acks += 1
        return None, []
    raise ProtocolError(
        "bad-ack",
        f"{frame.head.command}: {name[:200]!r} is not a delivery that this connection holds",
        "Expected the ack header (or the message-id) of a MESSAGE delivered to this connection under an ack mode "
        f"other than {AUTO}.",
    )


def begin(broker: Broker, session: Session, frame: Frame, now_ns: int) -> None:
    """BEGIN."""
    transactions.begin(session, _required(frame, "transaction"))
    _receipt(session, frame)


def abort(broker: Broker, session: Session, frame: Frame, now_ns: int) -> None:
    """ABORT: forget the transaction's frames."""
    transactions.end(session, _required(frame, "transaction"))
    _receipt(session, frame)


def commit(broker: Broker, session: Session, frame: Frame, now_ns: int) -> None:
    """COMMIT: everything is checked before anything is applied; the RECEIPT waits for all of it."""
    name = _required(frame, "transaction")
    held = transactions.find(session, name).frames
    plans = [
        _plan_for(broker, session, each, each.head.headers["destination"]) if each.head.command == "SEND" else None
        for each in held
    ]
    for plan, each in zip(plans, held, strict=True):
        if plan is not None:
            _admit(broker, plan, each)
            plan.feed = plan.feed or plan.destination.next_feed()
            failed = plan.feed.partition.failed
            if failed is not None:
                raise ProtocolError("storage", "the transaction could not be stored", str(failed))
    transactions.end(session, name)
    waited: list[list[object]] = []
    for plan, each in zip(plans, held, strict=True):
        if each.head.command == "ACK":
            _ack(broker, session, each)
        elif each.head.command == "NACK":
            _nack(broker, session, each)
        elif plan is not None:
            assert plan.feed is not None
            partition = plan.feed.partition
            partition.append(plan.name, plan.block, each.body, now_ns, plan.event_ns, plan.transmit_ns)
            broker.stats.messages_in += 1
            broker.stats.body_bytes_in += len(each.body)
            broker.pending_bytes += len(each.body) + len(plan.block)
            if plan.sync:
                partition.open_batch.sync_requested = True
            waiters = partition.open_batch.waiters
            if not any(waiters is known for known in waited):
                waited.append(waiters)
    if frame.receipt is not None:
        session.receipts.after(frame.receipt, waited + broker.cursor_waiters())


def replay_end(broker: Broker, subscription: Subscription) -> None:
    """A bounded replay has delivered its last message: say so, and end the subscription."""
    session = subscription.session
    headers = [
        ("subscription", subscription.id),
        ("message-id", f"end-{subscription.tag}"),
        ("destination", subscription.patterns.text),
        ("replay-end", "true"),
    ]
    if subscription.ack != AUTO:
        headers.append(("ack", f"{subscription.tag}-end"))
    headers.append(("content-length", "0"))
    session.send(encoder.encode("MESSAGE", headers, b"", session.version))
    broker.unsubscribe(subscription)


COMMANDS: dict[str, Callable[[Broker, Session, Frame, int], None]] = {
    "CONNECT": connect,
    "STOMP": connect,
    "SUBSCRIBE": subscribing.subscribe,
    "UNSUBSCRIBE": unsubscribe,
    "ACK": ack,
    "NACK": nack,
    "BEGIN": begin,
    "COMMIT": commit,
    "ABORT": abort,
    "DISCONNECT": disconnect,
}

assert limits.TRANSACTION_BYTES_MAX <= limits.BATCH_BYTES_MAX
