r"""Orphaned partitions: logs that a rule does not name any more and that have unsettled messages.

The broker finds them at a start from the cursors alone, so a restart or a kill at any time is harmless. An orphaned
partition is one more source of its queue or durable subscription, without new messages: its messages are delivered
before those of the logs that the rule names. When all are settled, the source is removed. Its cursor stays for as long
as the log has records, so that they are not delivered again if the rule names the log again. Retention of the log
follows the rule of its destination.

    found at a start -> a source of the queue -> settled up to the end -> removed from the queue, holds nothing back
                    \-> unreadable: reported, and no record is removed

The module knows cursors, their readers, and rules, but not consumers or records.
Invariants: no cursor has two sources. No record is removed before it is settled. A log that cannot be drained is logged
at every start, and reported in lists and metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from radiator import limits
from radiator.broker.logs import cursor_names

if TYPE_CHECKING:
    from radiator.routing.policy import Policy
    from radiator.storage.cursor import Cursor
    from radiator.storage.store import Store

NAMES = (cursor_names.SUBSCRIPTION, cursor_names.GROUP)


def unsettled(cursor: Cursor, partition: Any) -> int:
    """Return the number of committed records that a cursor has not settled, including other destinations' records."""
    floor = max(cursor.floor, partition.log_start_offset)
    settled = sum(max(0, stop - max(start, floor)) for start, stop in cursor.intervals)
    waiting: int = partition.high_watermark - floor - settled
    return max(0, waiting)


class LastRunCursors:
    """The cursors of the last run and the unsettled messages they have, read before any destination is created.

    Args:
        store: The logs and cursors.
    """

    __slots__ = ("_of_subscriptions", "_unsettled", "_existing")

    def __init__(self, store: Store) -> None:
        self._existing: set[tuple[str, str]] = set()
        self._unsettled: set[tuple[str, str]] = set()
        for name, where in store.cursors.names():
            cursor, partition = store.cursors.get(name, where), store.partitions.get(where)
            if cursor is not None and partition is not None:
                self._existing.add((name, where))
                if unsettled(cursor, partition):
                    self._unsettled.add((name, where))
        self._of_subscriptions = {where for name, where in self._unsettled if name.startswith(NAMES)}

    def needs(self, name: str, policy: Policy, partition: Any) -> bool:
        """Return True if a destination has to be created because of a log that its rule does not name.

        The log has messages to deliver, or settled records to remove, for the destination or its bound queues.

        Args:
            name: The name of the destination.
            policy: Its policy.
            partition: The log.
        """
        large = partition.size_bytes >= min(limits.RECLAIM_ROLL_BYTES, policy.settings.segment_bytes)
        wanted = self._existing if large or len(partition.segments) > 1 else self._unsettled
        queues = (name, *policy.fan_out) if policy.kind == "queue" else policy.fan_out
        if any((cursor_names.of_queue(each), partition.name) in wanted for each in queues):
            return True
        return policy.kind == "topic" and partition.name in self._of_subscriptions


class UnreadablePartition(NamedTuple):
    """Unsettled messages of a cursor that no queue can read, and the reason."""

    cursor: str
    partition: str
    position: int
    end: int
    lag: int
    why: str

    @property
    def row(self) -> dict[str, Any]:
        """The row of ``cursors ls``."""
        reported = self._asdict() | {"undelivered": self.why, "orphaned": True, "stored": True}
        del reported["why"]
        reported["destination"] = self.cursor.partition(":")[2]
        return reported | {"in_flight": 0, "members": 0, "shared": False, "user": None, "used_ns": None}
