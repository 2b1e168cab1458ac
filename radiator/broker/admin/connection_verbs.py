"""Verbs that end connections: ``clients.disconnect`` one of them, ``broker.drain`` all of them.

This module reads the arguments. ``Draining`` chooses the sessions and ends them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from radiator import limits
from radiator.broker.admin import suggestions
from radiator.broker.admin.request import bad_request
from radiator.errors import ProtocolError, printable

if TYPE_CHECKING:
    from radiator.broker.admin.request import Request, Work
    from radiator.broker.services import Services

REASON_CHARS_MAX: Final = 500
WAITING_MAX: Final = 100  # requests that wait for the end of a drain


def disconnect(broker: Services, request: Request) -> Work:
    """End the connection ``session`` with an ERROR ``disconnected``, in steps (``clients.disconnect``).

    Raises:
        ProtocolError: There is no such client, or it is the one that asks.
    """
    name, reason = request.text("session"), printable(request.text("reason", "")[:REASON_CHARS_MAX])
    session = broker.sessions.get(name)
    if session is None or session.closing:
        raise (yield from suggestions.not_found(broker, "client", name, broker.sessions))
    if session is request.session:
        raise bad_request("a client cannot disconnect itself", "DISCONNECT ends a connection.")
    text = "an administrator ended this connection"
    broker.refuse(session, ProtocolError("disconnected", text, reason or "No reason was given."))
    return {"disconnected": name}


def drain(broker: Services, request: Request) -> dict[str, Any] | None:
    """Begin or cancel a drain, and return its state; with ``wait`` later, when it has ended (``broker.drain``).

    Without ``seconds``, a drain that has begun continues unchanged.
    """
    draining, now_ns = broker.draining, request.now.mono
    if request.flag("cancel"):
        draining.cancel()
        return _drain_state(broker)
    wait = request.flag("wait")
    if wait and draining.waiting >= WAITING_MAX:
        raise ProtocolError("too-many", f"{WAITING_MAX} requests wait for the end of the drain", "Leave out wait.")
    if "seconds" in request.args or not draining.active:
        draining.begin(request.number("seconds", limits.DRAIN_SECONDS, 0, limits.DRAIN_SECONDS_MAX), now_ns)
    if wait and not draining.done:
        draining.when_done(lambda: request.answer(_drain_state(broker)))
        return None
    return _drain_state(broker)


def _drain_state(broker: Services) -> dict[str, Any]:
    """Return the fields of the answer."""
    draining = broker.draining
    seconds = (
        math.ceil(draining.seconds_left(broker.timing.now.mono)) if draining.active and not draining.done else None
    )
    return {"draining": draining.active, "ends_in_seconds": seconds, "connections": draining.left}
