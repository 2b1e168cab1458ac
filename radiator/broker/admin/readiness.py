"""What the broker says of itself to those who watch it: whether it is ready, and its figures.

Knows: where the facts are. Must not know: how they are asked for. Reads only; on the hub.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from radiator.broker.admin import clock_orders, lag
from radiator.clock import NS_PER_MS

if TYPE_CHECKING:
    from radiator.broker.services import Services

STOPPED_SHOWN = 100  # queues that look no further for the selectors of their consumers
CURSORS_SHOWN = 100  # those that are furthest behind


def reasons(broker: Services) -> list[str]:
    """Why some message or ACK would be refused, now or soon, in words; nothing if none would. What a start has
    found damaged does not count: what is there is served."""
    found = ["the broker is being stopped"] if broker.stopping else []
    for why in (broker.displaced, broker.files_refused):
        if why is not None:
            found.append(f"{why.message}: {why.detail}")
    return found + broker.store.failures()


def held_back(broker: Services) -> list[str]:
    """What has to wait now though nothing is refused, in words."""
    found = clock_orders.held_back(broker)
    if ahead := broker.future_logs.text(broker.timing.now.wall):
        found.append(ahead)
    found += [source.why_stopped for source in islice(broker.timing.skipped.stopped, STOPPED_SHOWN)]
    if full := broker.memory.full:
        used = f"limits.memory ({broker.config.limits.memory} bytes) is used up"
        found.append(f"{used} for {', '.join(full)}: clients that need more wait; consumers and acknowledgements go on")
    return found


def figures(broker: Services) -> dict[str, Any]:
    """Counters and facts."""
    now = {
        "sessions": len(broker.sessions),
        "destinations": len(broker.destinations),
        "named_subscriptions": len(broker.durable.by_key),
        "held_back": len(broker.throttle.held),  # sessions whose frames wait: on_full: block, rate_limit, limits.memory
        **broker.orphaned.figures,
        "stopped_by_selectors": len(broker.timing.skipped.stopped),
        "skipped_runs": broker.timing.skipped.runs,
        "memory_full": bool(broker.memory.full),
        "memory": broker.memory.figures(),
        "longest_turn_ms": broker.budget.longest_ns / NS_PER_MS,
        "turn_work_peak": broker.budget.peak,
        "clock_ahead_seconds": broker.timing.clock.ahead_seconds,  # of an unconfirmed step forward
        "logs_ahead": len(broker.future_logs.at(broker.timing.now.wall)),  # of the clock: wrong receive times
        "outbox_bytes": sum(session.outbox_bytes for session in broker.sessions.values()),
    }
    cursors = lag.furthest_behind(broker, CURSORS_SHOWN)
    return {"stats": broker.stats.as_dict(), "now": now, "store": broker.store.facts(), "cursors": cursors}
