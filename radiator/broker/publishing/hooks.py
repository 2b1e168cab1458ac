"""Hooks of a rule, between a SEND and the log: the operator's middleware and a schema.

    SEND -> middleware of its rule, in order -> (the rule of its new destination, if that changed) -> schema -> log

Middleware comes first, because it may repair a message that a schema would refuse. Both run once per message; in a
transaction they run at the SEND and not again at COMMIT. A changed message is a new frame, because frames share heads.

This module knows messages and functions. It does not know files, JSON, or where the functions come from
(``radiator.server.hooks``).

Invariants: an exception of a hook is an ERROR to the sender and has no other effect; dropped messages are counted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from radiator.broker.admission import Dropped
from radiator.broker.rule_hooks import RuleHooks, Validate
from radiator.errors import ProtocolError
from radiator.middleware import DROP, Message, Reject
from radiator.stomp.frames import Frame, Head
from radiator.stomp.headers import join

if TYPE_CHECKING:
    from radiator.broker.clients.session import Session
    from radiator.broker.services import Services

log = logging.getLogger("radiator.broker")

HOPS_MAX = 8  # changes of destination for one message; more are taken for a circle


def pass_through(broker: Services, session: Session, frame: Frame) -> Frame:
    """Run the hooks of a SEND.

    Args:
        broker: The services of the broker.
        session: The session that sends, which may send to the destination.
        frame: The SEND.

    Returns:
        The same frame, or a new one with the changes of middleware, whose headers and right have to be checked.

    Raises:
        Dropped: Middleware dropped the message.
        ProtocolError: ``rejected``, by middleware or the schema, or because a hook failed.
    """
    message: Message | None = None
    name, hops = frame.head.headers["destination"], 0
    while (hooks := broker.hooks.get(broker.rules.policy_for(name).rule_index)) is not None:
        if hops == HOPS_MAX:
            broker.stats.count(rejected=1)
            raise ProtocolError(
                "rejected",
                f"the middleware redirected the message {HOPS_MAX} times, the last time to {name[:200]!r}",
                "The destinations of the middleware form a cycle; see middleware: in the YAML file.",
            )
        hops += 1
        if hooks.middleware:
            if message is None:
                message = Message(name, dict(frame.head.headers), frame.body, session.user, session.address)
            if not _run(broker, session.origin, hooks, message):
                raise Dropped("dropped_by_middleware")
            if message.destination != name:
                name = message.destination
                continue
        if hooks.validate is not None:
            body = frame.body if message is None else message.body
            complaint = _schema_error(broker, session.origin, hooks.validate, body, name)
            if complaint is not None:
                broker.stats.count(rejected=1)
                raise ProtocolError("rejected", f"the message does not fit the schema of {name[:200]}", complaint)
        break
    return frame if message is None else _changed_frame(broker, frame, message)


def _run(broker: Services, origin: str, hooks: RuleHooks, message: Message) -> bool:
    """Run the middleware of a rule on a message, up to the first change of its destination.

    Returns:
        False if a function drops the message.
    """
    for name, function in hooks.middleware:
        destination = message.destination
        try:
            answer = function(message)
            if answer is message:
                _check_message(message)
        except Reject as refusal:
            broker.stats.count(rejected=1)
            raise ProtocolError("rejected", f"{name} refuses the message", str(refusal)[:2_000]) from None
        except BaseException as error:  # gevent's timeouts and sys.exit() are no Exception; signals never arrive here
            broker.stats.count(middleware_failures=1)
            what = "middleware %s failed on a message to %s"
            _log(broker, f"failures of middleware {name}", origin, what, name, destination, error=error)
            raise _failed(name) from None
        if answer is DROP:
            return False
        if answer is not message:
            broker.stats.count(middleware_failures=1)
            what = "middleware %s: expected the message that it was given, or DROP, got %r"
            _log(broker, f"failures of middleware {name}", origin, what, name, answer)
            raise _failed(name)
        if message.destination != destination:
            return True
    return True


def _schema_error(broker: Services, origin: str, validate: Validate, body: bytes, destination: str) -> str | None:
    try:
        return validate(body)
    except BaseException as error:
        what = "the schema of %s failed on a message"
        _log(broker, "failures of schemas", origin, what, destination, error=error)
        return f"The body could not be validated: {type(error).__name__}."


def _log(
    broker: Services, kind: str, origin: str, text: str, *args: object, error: BaseException | None = None
) -> None:
    broker.peer_log.line(logging.ERROR, kind, origin, text, *args, logger=log, error=error)


def _failed(name: str) -> ProtocolError:
    return ProtocolError(
        "rejected", f"the middleware {name} failed; the message was not stored", "See the log of the broker."
    )


def _check_message(message: Message) -> None:
    """Check the fields of a message that a middleware function has returned.

    Raises:
        TypeError: A field has another type than before.
    """
    if not isinstance(message.destination, str) or not message.destination:
        raise TypeError(f"destination: expected a name, got {message.destination!r}")
    if not isinstance(message.body, bytes):
        raise TypeError(f"body: expected bytes, got {type(message.body).__name__}")
    for name, value in message.headers.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name or "\0" in name + value:
            raise TypeError(f"headers: expected text without NUL, got {name!r}: {value!r}")


def _changed_frame(broker: Services, frame: Frame, message: Message) -> Frame:
    """Return a new frame with the changes of middleware. ``receipt`` and ``transaction`` stay those of the SEND.

    Raises:
        ProtocolError: The body exceeds ``limits.message``.
    """
    most = broker.config.limits.message
    if len(message.body) > most:
        raise ProtocolError(
            "rejected",
            f"middleware made a body of {len(message.body)} bytes",
            f"limits.message in the YAML file is {most}.",
        )
    headers = {**message.headers, "destination": message.destination}
    transaction = frame.head.headers.get("transaction")
    headers.pop("transaction", None)
    if transaction is not None:
        headers["transaction"] = transaction
    headers.pop("content-length", None)
    raw = join(headers.items(), "1.2")[1:].encode()
    return Frame(Head("SEND", headers, raw, "1.2", len(message.body)), frame.receipt, message.body)
