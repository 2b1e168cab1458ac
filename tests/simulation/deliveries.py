"""Rows about deliveries: after each start there is one final row for each settled message, and none for any other.

Of durable subscriptions and groups each message with a final row is settled, and has no other one. What they have
settled without a row, because they began behind it or a selector excludes it, is not known here. One that was deleted
and begins again settles its messages again: it is not checked from then on.

Every fourth history has ``record: deliveries`` in its rules, except for queues in memory. Logs under a weaker
``fsync`` are not checked: a power cut takes messages, and their offsets are given to others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from radiator.broker.durable.subscription import DurableSubscription
from radiator.broker.durable.subscriptions import DurableSubscriptions
from radiator.broker.logs import cursor_names
from tests.broker.recorded import disagreement, rows_of_log
from tests.simulation.checkers import Checkers, Violation


@contextmanager
def noting_deletions(deleted: set[str]) -> Iterator[None]:
    """Add the names of durable subscriptions that are deleted: by a client, or because they could not be stored."""
    delete = DurableSubscriptions.delete

    def noted(self: DurableSubscriptions, durable: DurableSubscription) -> None:
        deleted.add(cursor_names.shown(durable.key))
        delete(self, durable)

    with patch.object(DurableSubscriptions, "delete", noted):
        yield


def recording(config: str) -> str:
    """The same rules, with the key."""
    config = config.replace("store: memory", "store: memory, record: none")
    if "defaults: {" in config:
        return config.replace("defaults: {", "defaults: {record: deliveries, ")
    return config.replace("defaults:\n", "defaults:\n  record: deliveries\n")


def check(store: Any, checkers: Checkers, deleted: set[str]) -> int:
    """Check after a start, and return the number of rows. ``checkers`` knows which logs are strong."""
    wrong = disagreement(store, checkers.strong, lambda subscription: subscription not in deleted)
    if wrong:
        raise Violation(wrong)
    return len(rows_of_log(store))
