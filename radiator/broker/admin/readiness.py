"""Readiness and metrics of the broker: whether it is ready, and its counters.

This module changes nothing, and runs on the event loop. It does not know how the answers are sent.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Any

from radiator.broker.admin import gauges, lag
from radiator.clock import NS_PER_SECOND

if TYPE_CHECKING:
    from radiator.broker.services import Services

STOPPED_SHOWN = 100  # queues that have reached the limit of messages skipped by selector
CURSORS_SHOWN = 100  # cursors with the largest lag


def reasons(broker: Services) -> list[str]:
    """Return sentences that say why a message or an ACK would be refused now or soon; none if the broker is ready.

    Damage that a start has found does not count, because all other data is served.
    """
    found = ["the broker is stopping"] if broker.stopping else []
    if broker.draining.active:
        found.append(drain_reason(broker))
    for why in (broker.displaced, broker.files_refused):
        if why is not None:
            found.append(f"{why.message}: {why.detail}")
    return found + broker.store.failures()


def drain_reason(broker: Services) -> str:
    """Return why a draining broker is not ready."""
    draining = broker.draining
    if draining.done:
        return "the broker is drained: all clients are disconnected"
    left, seconds = draining.left, math.ceil(draining.seconds_left(broker.timing.now.mono))
    what = "1 connection ends" if left == 1 else f"{left} connections end"
    return f"the broker is draining: {what} within {seconds} s"


def held_back(broker: Services) -> list[str]:
    """Return sentences that say what has to wait now though nothing is refused."""
    found = clock_held_back(broker)
    if ahead := broker.future_logs.text(broker.timing.now.wall):
        found.append(ahead)
    found += [source.why_stopped for source in islice(broker.timing.skipped.stopped, STOPPED_SHOWN)]
    if why := broker.delivery_log.why_full():
        found.append(why)
    if full := broker.memory.full:
        used = f"limits.memory ({broker.config.limits.memory} bytes) is used up"
        found.append(f"{used} for {', '.join(full)}: clients that need more must wait; consumers are still served")
    return found


def clock_held_back(broker: Services) -> list[str]:
    """Return sentences about the effects of an unconfirmed step forward; none if the wall clock is trusted."""
    clock = broker.timing.clock
    if not clock.ahead_ns:
        return []
    ahead, left = clock.ahead_seconds, round(clock.confirmed_in_ns(broker.timing.now.mono) / NS_PER_SECOND)
    what = f"the wall clock has stepped forward by {ahead} s: expiry and retention by age ignore the step"
    return [f"{what} until it is confirmed, in {left} s or by `radiator clock --accept`"]


def figures(broker: Services) -> dict[str, Any]:
    """Return the counters, the current values, and the cursors that are furthest behind (docs/metrics.md)."""
    steps = lag.furthest_behind(broker, CURSORS_SHOWN)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return {**numbers(broker), "cursors": end.value}


def numbers(broker: Services) -> dict[str, Any]:
    """Return the counters and the current values (docs/metrics.md)."""
    return {
        "stats": broker.stats.as_dict(),
        "now": gauges.now(broker),
        "store": broker.store.facts(),
        "histograms": gauges.histograms(broker),
    }
