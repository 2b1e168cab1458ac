"""Readiness and metrics of the broker: whether it is ready, and its counters.

This module changes nothing, and runs on the event loop. It does not know how the answers are sent.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from radiator.broker.admin import clock_verbs, drain_verb, gauges, lag

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
        found.append(drain_verb.reason(broker))
    for why in (broker.displaced, broker.files_refused):
        if why is not None:
            found.append(f"{why.message}: {why.detail}")
    return found + broker.store.failures()


def held_back(broker: Services) -> list[str]:
    """Return sentences that say what has to wait now though nothing is refused."""
    found = clock_verbs.held_back(broker)
    if ahead := broker.future_logs.text(broker.timing.now.wall):
        found.append(ahead)
    found += [source.why_stopped for source in islice(broker.timing.skipped.stopped, STOPPED_SHOWN)]
    if why := broker.delivery_log.why_full():
        found.append(why)
    if full := broker.memory.full:
        used = f"limits.memory ({broker.config.limits.memory} bytes) is used up"
        found.append(f"{used} for {', '.join(full)}: clients that need more must wait; consumers are still served")
    return found


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
