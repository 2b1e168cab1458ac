"""What the broker says of itself to those who watch it: whether it is ready, and its figures.

Knows: where the facts are. Must not know: how they are asked for. Reads only; on the hub.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from radiator.broker.named import lag

if TYPE_CHECKING:
    from radiator.broker.broker import Broker

CURSORS_SHOWN = 100  # those that are furthest behind


def reasons(broker: Broker) -> list[str]:
    """Why some message or ACK would be refused now, in words; nothing if none would. What a start has found damaged
    does not count: what is there is served."""
    found = ["the broker is being stopped"] if broker.stopping else []
    if broker.disk_full is not None:
        found.append(f"{broker.disk_full.message}: {broker.disk_full.detail}")
    return found + broker.store.failures()


def held_back(broker: Broker) -> list[str]:
    """Who has to wait now though nothing is refused yet, in words."""
    if not broker.store.memory_is_full:
        return []
    used = f"limits.memory ({broker.config.limits.memory} bytes) is used up"
    return [f"{used}: who sends to a memory partition waits; consumers and acknowledgements go on"]


def figures(broker: Broker) -> dict[str, Any]:
    """Counters and facts."""
    now = {
        "sessions": len(broker.sessions),
        "destinations": len(broker.destinations),
        "named_subscriptions": len(broker.names.by_key),
        "held_back": len(broker.throttle.held),  # sessions whose frames wait: on_full: block, rate_limit, limits.memory
        **broker.former.figures,
        "memory_full": broker.store.memory_is_full,
        "outbox_bytes": sum(session.outbox_bytes for session in broker.sessions.values()),
    }
    cursors = lag.furthest_behind(broker, CURSORS_SHOWN)
    return {"stats": broker.stats.as_dict(), "now": now, "store": broker.store.facts(), "cursors": cursors}
