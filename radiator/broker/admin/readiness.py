"""Readiness and metrics of the broker: whether it is ready, and its counters.

This module changes nothing, and runs on the event loop. It does not know how the answers are sent.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from radiator.broker.admin import clock_verbs, lag
from radiator.clock import NS_PER_MS

if TYPE_CHECKING:
    from radiator.broker.services import Services

STOPPED_SHOWN = 100  # queues that have reached the limit of messages skipped by selector
CURSORS_SHOWN = 100  # cursors with the largest lag


def reasons(broker: Services) -> list[str]:
    """Return sentences that say why a message or an ACK would be refused now or soon; none if the broker is ready.

    Damage that a start has found does not count, because all other data is served.
    """
    found = ["the broker is stopping"] if broker.stopping else []
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
    if full := broker.memory.full:
        used = f"limits.memory ({broker.config.limits.memory} bytes) is used up"
        found.append(f"{used} for {', '.join(full)}: clients that need more must wait; consumers are still served")
    return found


def figures(broker: Services) -> dict[str, Any]:
    """Return the counters and the current state."""
    now = {
        "sessions": len(broker.sessions),
        "destinations": len(broker.destinations),
        "named_subscriptions": len(broker.durable.by_key),
        "held_back": len(broker.throttle.held),  # sessions that wait for on_full: block, rate_limit or limits.memory
        **broker.orphaned.figures,
        "stopped_by_selectors": len(broker.timing.skipped.stopped),
        "skipped_runs": broker.timing.skipped.runs,
        "memory_full": bool(broker.memory.full),
        "memory": broker.memory.figures(),
        "longest_turn_ms": broker.budget.longest_ns / NS_PER_MS,
        "turn_work_peak": broker.budget.peak,
        "clock_ahead_seconds": broker.timing.clock.ahead_seconds,  # the size of an unconfirmed step forward
        "logs_ahead": len(broker.future_logs.at(broker.timing.now.wall)),  # logs with receive times in the future
        "outbox_bytes": sum(session.outbox_bytes for session in broker.sessions.values()),
    }
    cursors = lag.furthest_behind(broker, CURSORS_SHOWN)
    return {"stats": broker.stats.as_dict(), "now": now, "store": broker.store.facts(), "cursors": cursors}
