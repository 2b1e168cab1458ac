"""The audit log: one line in ``radiator.audit`` for each request that changes something, carried out or refused.

Requests are those of the admin channel, and the frames of clients that ask for a line (``frames.audited``).

A line has the user, the address, the session, the verb, its arguments and the result, as text and as fields of the log
record. An argument is logged if it is a short number or a short text on one line. Of a longer one only the length is
logged, and of an object only the names in it, because a configuration or an environment may have secrets.

This module knows sessions and loggers. It does not know verbs.
"""

from __future__ import annotations

import json
import logging
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from radiator.errors import ProtocolError, printable

if TYPE_CHECKING:
    from radiator.broker.clients.session import Session
    from radiator.broker.peer_log import PeerLog

log = logging.getLogger("radiator.audit")

ARGUMENT_CHARS_MAX: Final = 300  # of one argument
ARGUMENTS_MAX: Final = 10  # of a request, and entries of one argument
NAME_CHARS_MAX: Final = 100  # of an argument
INTEGER_BITS_MAX: Final = 64
UNFINISHED: Final = "the connection ended before the request did"


def record(
    peer_log: PeerLog, session: Session, verb: str, args: dict[str, Any], error: ProtocolError | None = None
) -> None:
    """Write the line of one request.

    A client without the right can cause any number of refusals, and of audited frames. So those lines are limited, like
    all lines that clients cause without a right.

    Args:
        peer_log: Limits the lines of clients without the right.
        session: The session of the client.
        verb: The verb, or the command of a frame.
        args: Its arguments.
        error: Why the request was refused; None if it was carried out.
    """
    arguments = shortened(args)
    result = "ok" if error is None else "refused"
    reason = "" if error is None else f"{error.code}: {printable(error.message)}"
    text = f"{who(session)} {printable(verb)} {json.dumps(arguments)}: {result}{f' ({reason})' if reason else ''}"
    level = logging.INFO if error is None else logging.WARNING
    if error is not None and error.code == "denied":
        peer_log.line(level, "denied admin requests", session.origin, "%s", text, logger=log)
        return
    if not session.rights.has("admin"):
        peer_log.line(level, "audited frames", session.origin, "%s", text, logger=log, peer=session)
        return
    fields = {
        "user": session.user,
        "address": session.address,
        "session": session.id,
        "verb": verb,
        "arguments": arguments,
        "result": result,
        "reason": reason or None,
    }
    log.log(level, "%s", text, extra=fields)


def who(session: Session) -> str:
    """Return the user, the address and the session, for a line of the log."""
    return f"{printable(session.user) or 'anonymous'} at {session.address} ({session.id}):"


def shortened(args: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a request as they are logged: bounded, printable, without secrets."""
    return {_name(name): _value(value) for name, value in list(args.items())[:ARGUMENTS_MAX]}


def _value(value: Any, depth: int = 0) -> Any:
    if isinstance(value, int) and value.bit_length() > INTEGER_BITS_MAX:
        return f"({value.bit_length()} bits)"
    if isinstance(value, float) and not isfinite(value):
        return str(value)  # JSON has no NaN and no Infinity
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        short = len(value) <= ARGUMENT_CHARS_MAX and "\n" not in value
        return printable(value) if short else f"({len(value)} characters)"
    if depth:
        return "(...)"
    if isinstance(value, dict):
        return {_name(name): "(...)" for name in list(value)[:ARGUMENTS_MAX]}
    return [_value(each, depth + 1) for each in value[:ARGUMENTS_MAX]]


def _name(name: str) -> str:
    return printable(name[:NAME_CHARS_MAX])
