"""The wall clock over the admin channel: ``clock`` shows whether it is trusted, ``clock.accept`` confirms a step.

Knows: the trusted clock. Must not know: who may ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from radiator.clock import NS_PER_SECOND

if TYPE_CHECKING:
    from radiator.broker.admin.request import Request
    from radiator.broker.services import Services


def show(broker: Services, request: Request) -> dict[str, Any]:
    """``clock``: what the wall clock shows, the trusted time, and when a step forward is confirmed by itself."""
    return facts(broker)


def accept(broker: Services, request: Request) -> dict[str, Any]:
    """``clock.accept``: trust the wall clock as it is now. ``accepted_ns``: how far it was ahead."""
    return {"accepted_ns": broker.timing.clock.accept(), **facts(broker)}


def facts(broker: Services) -> dict[str, Any]:
    """The state of the trusted clock; times in nanoseconds since 1970. ``ahead_ns`` is 0 if the wall clock is right."""
    timing = broker.timing
    clock = timing.clock
    return {
        "wall_ns": timing.shown_ns,
        "trusted_ns": timing.shown_ns - clock.ahead_ns,
        "ahead_ns": clock.ahead_ns,
        "confirmed_in_ns": clock.confirmed_in_ns(timing.now.mono),
    }


def held_back(broker: Services) -> list[str]:
    """What an unconfirmed step forward holds back, in words; nothing if the wall clock is trusted."""
    clock = broker.timing.clock
    if not clock.ahead_ns:
        return []
    ahead, left = clock.ahead_seconds, round(clock.confirmed_in_ns(broker.timing.now.mono) / NS_PER_SECOND)
    what = f"the wall clock has stepped forward by {ahead} s: nothing expires or is removed by age because of that"
    return [f"{what} until the step is confirmed, in {left} s or by `radiator clock --accept`"]
