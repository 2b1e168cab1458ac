"""Dead letters, watched from outside: whoever leaves a queue for its dead letters is in one of the two places.

nothing is doubled     what stands in the dead-letter queue is settled where it was, and stands there once
nothing is lost        what is settled where it was, and nobody has acknowledged, stands in the dead-letter queue
"""

from __future__ import annotations

from typing import Any

from tests.simulation.checkers import CAPPED, DEAD, Checkers, Violation
from tests.storage.driving import read_all


def stored(store: Any, name: str) -> dict[int, bytes]:
    """The messages of a log, those that wait for room included."""
    partition = store.partitions.get(name)
    if partition is None:
        return {}
    found: dict[int, bytes] = read_all(partition, memory=False)
    for batch in getattr(partition, "postponed", ()):
        found.update(zip(batch.offsets, batch.bodies, strict=True))
    return found


def check(store: Any, checkers: Checkers) -> int:
    """After a start; returns how many dead letters there are."""
    dead = [body for body in stored(store, DEAD).values() if not checkers.lost_and_sent_again(body)]
    if len(dead) != len(set(dead)):
        raise Violation("a message was buried twice")
    buried = set(dead)
    for name in CAPPED:
        cursor = store.cursors.get(f"queue:{name}", name)
        for offset, body in stored(store, name).items():
            settled = cursor is not None and cursor.is_acked(offset)
            if body in buried and not settled:
                raise Violation(f"{name}@{offset} {body[:30]!r} was buried, and is still in its queue")
            acked = body in checkers.settled or body in checkers.maybe_settled or checkers.acked_in[body]
            if settled and not (acked or body in buried or checkers.lost_and_sent_again(body)):
                raise Violation(f"{name}@{offset} {body[:30]!r} is settled, by nobody, and was not buried")
    return len(buried)
