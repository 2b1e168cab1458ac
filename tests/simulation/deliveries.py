"""Rows about deliveries: after each start there is one final row for each settled message, and none for any other.

Of durable subscriptions and groups each message with a final row is settled, and has no other one. What they have
settled without a row, because they began behind it or a selector excludes it, is not known here.

Every fourth history has ``record: deliveries`` in its rules, except for queues in memory. Logs under a weaker
``fsync`` are not checked: a power cut takes messages, and their offsets are given to others.
"""

from __future__ import annotations

from typing import Any

from tests.broker.recorded import disagreement, rows_of_log
from tests.simulation.checkers import Checkers, Violation

DELETED = "rivals"  # a durable subscription that is deleted now and then, and begins again


def recording(config: str) -> str:
    """The same rules, with the key."""
    config = config.replace("store: memory", "store: memory, record: none")
    if "defaults: {" in config:
        return config.replace("defaults: {", "defaults: {record: deliveries, ")
    return config.replace("defaults:\n", "defaults:\n  record: deliveries\n")


def check(store: Any, checkers: Checkers) -> int:
    """Check after a start, and return the number of rows. ``checkers`` knows which logs are strong."""
    wrong = disagreement(store, checkers.strong, DELETED.__ne__)
    if wrong:
        raise Violation(wrong)
    return len(rows_of_log(store))
