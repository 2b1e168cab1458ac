"""The table of commands, the table of reserved destinations, and the commands that need no module of their own.

A SEND to a reserved destination is a request to the broker and no message. ``Broker.handle`` passes a SEND whose plan
is known to ``publishing.sending`` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from radiator.broker.admin import channel
from radiator.broker.admission import Wait
from radiator.broker.budget import Steps
from radiator.broker.clients import locating
from radiator.broker.committing import commit as committing
from radiator.broker.draining import WHILE_DRAINING, refusal
from radiator.broker.frames import acknowledging, audited
from radiator.broker.headers import subscribe
from radiator.broker.headers.values import flag
from radiator.broker.publishing import hooks, sending
from radiator.broker.settling import settlement
from radiator.broker.settling.settlement import receipt_now, receipt_settled
from radiator.broker.subscribing import leaving, subscribing
from radiator.broker.transactions import transactional_acks, transactions
from radiator.clock import Now
from radiator.errors import ProtocolError
from radiator.stomp import encoder
from radiator.stomp.spec import VERSIONS

if TYPE_CHECKING:
    from radiator.broker.clients.session import Session
    from radiator.broker.services import Services
    from radiator.stomp.frames import Frame


def dispatch(broker: Services, session: Session, frame: Frame, now: Now) -> None:
    """Process a frame that is no SEND with a known plan.

    Args:
        broker: The services of the broker.
        session: The session that the frame came from.
        frame: The frame.
        now: The current time.

    Raises:
        ProtocolError: The frame is refused.
    """
    command = frame.head.command
    if not session.connected and command not in ("CONNECT", "STOMP"):
        raise ProtocolError(
            "bad-command", f"{command[:50]} before CONNECT", "Expected CONNECT or STOMP as the first frame."
        )
    function = COMMANDS.get(command)
    if function is None:
        raise ProtocolError(
            "bad-command",
            f"unknown command {command[:50]!r}",
            f"Expected, in capital letters, one of: {', '.join(COMMANDS)}.",
        )
    steps = function(broker, session, frame, now)
    if steps is not None:
        session.command.run(broker.budget, steps)


def _required(frame: Frame, header: str) -> str:
    value = frame.head.headers.get(header)
    if not value:
        raise ProtocolError(
            "bad-header", f"{frame.head.command} needs a header {header}", f"Expected {header}:<value>, got none."
        )
    return value


def connect(broker: Services, session: Session, frame: Frame, now: Now) -> None:
    """Process a CONNECT or STOMP frame. ``ServerConnection`` has negotiated the version and the heart-beat before."""
    if session.connected:
        raise ProtocolError("bad-command", "this connection is connected already")
    assert session.version in VERSIONS
    headers = frame.head.headers
    stays = flag(headers, WHILE_DRAINING)
    if broker.draining.active and not stays:
        raise refusal()
    window = headers.get("max-in-flight")
    if window is not None:
        session.window.cap(subscribe.window(window, "max-in-flight", session.limits.in_flight))

    def welcome() -> None:
        if stays and session.rights.has("admin"):
            session.stay()
        elif broker.draining.active:
            broker.refuse(session, refusal(), frame.receipt)
            return
        session.welcome(headers.get("client-id", ""), now.wall)
        answer = [("server", broker.server_name), ("session", session.id), *_limits(broker)]
        if session.version == "1.0" and "accept-version" in headers:  # a client that names versions gets an answer
            answer.insert(0, ("version", "1.0"))
        session.outbox.add(encoder.connected(session.version, answer, session.heart_beat))

    broker.access.log_in(session, headers.get("login", ""), headers.get("passcode", ""), welcome, frame.receipt)


def _limits(broker: Services) -> list[tuple[str, str]]:
    """Return the headers of CONNECTED with the limits of one frame."""
    limits = broker.config.limits
    return [
        ("max-message-size", str(limits.message)),
        ("max-header-size", str(limits.headers)),
        ("max-header-count", str(limits.header_count)),
    ]


def send(broker: Services, session: Session, frame: Frame, now: Now) -> Steps | None:
    """Process a SEND without a known plan.

    Raises:
        Dropped: The message is dropped.
        ProtocolError: The message is refused.
        StorageError: The partition cannot be written.
        Wait: There is no room now; the frame is processed again later.
    """
    if audited.HEADER in frame.head.headers and audited.is_audited(frame):
        return audited.carry_out(broker, session, frame, partial(_send, broker, session, frame, now))
    return _send(broker, session, frame, now)


def _send(broker: Services, session: Session, frame: Frame, now: Now) -> Steps | None:
    request = RESERVED.get(frame.head.headers.get("destination", ""))
    if request is not None:
        return request(broker, session, frame, now)
    headers = sending.read_headers(broker, session, frame.head)
    if broker.hooks and frame is not broker.throttle.passed:
        passed = hooks.pass_through(broker, session, frame)
        if passed is not frame:
            frame = passed
            headers = sending.read_headers(broker, session, frame.head)
    if headers.transaction is not None:
        transactions.add(broker, session, headers.transaction, frame)
        if frame.receipt is not None:
            session.receipts.now(frame.receipt)
        return None
    plan = sending.plan_for(broker, session, frame.head, headers)
    try:
        sending.send(broker, session, plan, frame, now)
    except Wait as wait:
        wait.hold(frame)  # middleware has run on it
        raise
    return None


def touch(broker: Services, session: Session, frame: Frame, now: Now) -> Steps:
    """Process a SEND that restarts ``ack_timeout`` for a delivery."""
    return settlement.touch(broker, session, locating.locate(session, frame), frame.receipt)


def disconnect(broker: Services, session: Session, frame: Frame, now: Now) -> Steps:
    """Process a DISCONNECT. Its RECEIPT is sent once unacknowledged messages are returned and all is stored."""
    held = list(session.subscriptions.by_id.values())
    leaving.release(broker, session)
    yield from broker.background.until(lambda: broker.stopping or all(each.left for each in held))
    receipt_settled(broker, session, frame)
    session.begin_closing()


def unsubscribe(broker: Services, session: Session, frame: Frame, now: Now) -> Steps:
    """Process an UNSUBSCRIBE by id, by destination (1.0 only), or by a durable name.

    The last deletes the durable subscription.
    """
    headers = frame.head.headers
    destination = headers.get("destination") if session.version == "1.0" and not headers.get("id") else None
    subscription_id = headers.get("id") or destination
    subscription = session.subscriptions.by_id.get(subscription_id) if subscription_id else None
    if subscription is None and destination is not None:
        subscription = next(
            (each for each in session.subscriptions.by_id.values() if each.patterns.text == destination), None
        )
    if (yield from leaving.unsubscribe_durable(broker, session, frame, subscription_id, subscription)):
        return
    if not subscription_id:
        raise ProtocolError("bad-header", "UNSUBSCRIBE needs a header id", "Expected the id given on SUBSCRIBE.")
    if subscription is None and session.subscriptions.forget_replay(subscription_id):  # the client had not seen its end
        receipt_now(session, frame)
        return
    if subscription is None:
        raise ProtocolError("bad-subscription", f"no subscription {subscription_id[:200]!r} on this connection")
    leaving.unsubscribe(broker, subscription)
    yield from broker.background.until(lambda: subscription.left)
    receipt_settled(broker, session, frame)


def begin(broker: Services, session: Session, frame: Frame, now: Now) -> None:
    """Process a BEGIN."""
    transactions.begin(broker, session, _required(frame, "transaction"))
    receipt_now(session, frame)


def abort(broker: Services, session: Session, frame: Frame, now: Now) -> Steps:
    """Process an ABORT: discard the transaction's frames."""
    transaction = transactions.end(broker, session, _required(frame, "transaction"))
    yield from transactional_acks.release(broker, transaction)
    transactions.free(broker, transaction)
    receipt_now(session, frame)


def commit(broker: Services, session: Session, frame: Frame, now: Now) -> Steps:
    """Process a COMMIT. Its RECEIPT is sent once all effects are stored."""
    steps = committing.commit(broker, session, frame, _required(frame, "transaction"))
    return audited.carry_out(broker, session, frame, lambda: steps) if audited.is_audited(frame) else steps


COMMANDS: dict[str, Callable[[Services, Session, Frame, Now], Steps | None]] = {
    "CONNECT": connect,
    "STOMP": connect,
    "SEND": send,
    "SUBSCRIBE": subscribing.subscribe,
    "UNSUBSCRIBE": unsubscribe,
    "ACK": acknowledging.ack,
    "NACK": acknowledging.nack,
    "BEGIN": begin,
    "COMMIT": commit,
    "ABORT": abort,
    "DISCONNECT": disconnect,
}

RESERVED: dict[str, Callable[[Services, Session, Frame, Now], Steps]] = {
    settlement.TOUCH: touch,
    channel.DESTINATION: channel.ask,
}
