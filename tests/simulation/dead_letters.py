"""Checks of dead letters: a message that moves to a dead-letter queue is in exactly one of the two queues.

nothing is doubled     a message in the dead-letter queue is settled in its queue, and is there once
nothing is lost        a message that is settled in its queue, but not acknowledged, is in the dead-letter queue
"""

from __future__ import annotations

from typing import Any

from tests.simulation.checkers import CAPPED, DEAD, Checkers, Violation, stored


def check(store: Any, checkers: Checkers) -> int:
    """Check after a start, and return the number of dead letters."""
    logs = {name: stored(store.partitions[name]) for name in (*CAPPED, DEAD) if name in store.partitions}
    dead = [checkers.known_by(DEAD, offset, body) for offset, body in logs.get(DEAD, {}).items()]
    buried = set(dead)
    if len(dead) != len(buried):
        raise Violation("a message was buried twice")
    for name in CAPPED:
        cursor = store.cursors.get(f"queue:{name}", name)
        for offset, body in logs.get(name, {}).items():
            settled = cursor is not None and cursor.is_acked(offset)
            if body in buried and not settled:
                raise Violation(f"{name}@{offset} {body[:30]!r} was buried, and is still in its queue")
            acked = checkers.may_be_settled(body) or checkers.acked_in[body]
            if settled and not (acked or body in buried):
                raise Violation(f"{name}@{offset} {body[:30]!r} is settled, by nobody, and was not buried")
    return len(buried)
