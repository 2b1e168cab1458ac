"""Dead letters, watched from outside: whoever leaves a queue for its dead letters is in one of the two places.

nothing is doubled     what stands in the dead-letter queue is settled where it was, and stands there once
nothing is lost        what is settled where it was, and nobody has acknowledged, stands in the dead-letter queue
"""

from __future__ import annotations

from typing import Any

from tests.simulation.checkers import CAPPED, DEAD, Checkers, Violation, stored


def check(store: Any, checkers: Checkers) -> int:
    """After a start; returns how many dead letters there are."""
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
