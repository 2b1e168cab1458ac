"""The wall clock on the admin channel: ``clock`` shows whether it is trusted, ``clock.accept`` confirms a step.

This module knows the trusted clock. It does not know rights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from radiator.clock import NS_PER_SECOND

if TYPE_CHECKING:
    from radiator.broker.admin.request import Request
    from radiator.broker.services import Services


def show(broker: Services, request: Request) -> dict[str, Any]:
    """Return the answer to ``clock``: wall clock, trusted time, and when a step forward is confirmed."""
    return facts(broker)


def accept(broker: Services, request: Request) -> dict[str, Any]:
    """Trust the wall clock as it is now (``clock.accept``). ``accepted_ns`` in the answer is how far it was ahead."""
    return {"accepted_ns": broker.timing.clock.accept(), **facts(broker)}


def facts(broker: Services) -> dict[str, Any]:
    """Return the state of the trusted clock, in nanoseconds. ``ahead_ns`` is 0 if the wall clock is right."""
    timing = broker.timing
    clock = timing.clock
    return {
        "wall_ns": timing.shown_ns,
        "trusted_ns": timing.shown_ns - clock.ahead_ns,
        "ahead_ns": clock.ahead_ns,
        "confirmed_in_ns": clock.confirmed_in_ns(timing.now.mono),
    }


def held_back(broker: Services) -> list[str]:
    """Return sentences about the effects of an unconfirmed step forward; none if the wall clock is trusted."""
    clock = broker.timing.clock
    if not clock.ahead_ns:
        return []
    ahead, left = clock.ahead_seconds, round(clock.confirmed_in_ns(broker.timing.now.mono) / NS_PER_SECOND)
    what = f"the wall clock has stepped forward by {ahead} s: expiry and retention by age ignore the step"
    return [f"{what} until it is confirmed, in {left} s or by `radiator clock --accept`"]
