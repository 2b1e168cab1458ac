"""Draining on the admin channel: ``broker.drain`` begins, shows and cancels it.

This module changes only ``broker.draining``, which does the work. It does not know rights.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from radiator import limits
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.admin.request import Request
    from radiator.broker.services import Services

WAITING_MAX: Final = 100  # requests that wait for the end of a drain


def drain(broker: Services, request: Request) -> dict[str, Any] | None:
    """Begin or cancel a drain, and return its state; with ``wait`` later, when it has ended (``broker.drain``).

    Without ``seconds``, a drain that has begun continues unchanged.
    """
    draining, now_ns = broker.draining, request.now.mono
    if request.flag("cancel"):
        draining.cancel()
        return state(broker)
    wait = request.flag("wait")
    if wait and draining.waiting >= WAITING_MAX:
        raise ProtocolError("too-many", f"{WAITING_MAX} requests wait for the end of the drain", "Leave out wait.")
    if "seconds" in request.args or not draining.active:
        draining.begin(request.number("seconds", limits.DRAIN_SECONDS, 0, limits.DRAIN_SECONDS_MAX), now_ns)
    if wait and not draining.done:
        draining.when_done(lambda: request.answer(state(broker)))
        return None
    return state(broker)


def state(broker: Services) -> dict[str, Any]:
    """Return the fields of the answer."""
    draining = broker.draining
    seconds = (
        math.ceil(draining.seconds_left(broker.timing.now.mono)) if draining.active and not draining.done else None
    )
    return {"draining": draining.active, "ends_in_seconds": seconds, "connections": draining.left}


def reason(broker: Services) -> str:
    """Return why a draining broker is not ready."""
    draining = broker.draining
    if draining.done:
        return "the broker is drained: all clients are disconnected"
    left, seconds = draining.left, math.ceil(draining.seconds_left(broker.timing.now.mono))
    what = "1 connection ends" if left == 1 else f"{left} connections end"
    return f"the broker is draining: {what} within {seconds} s"
