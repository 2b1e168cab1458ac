"""Former logs: those that a rule has stopped to name, in which a queue, or a name over topics, still has something.

Found at a start, from the cursors alone, so a restart or a kill in the middle goes on where it was. Each is one more
source of its queue, to which nothing is added: what is in it comes first, then what is in the logs that the rule names.
Once all is settled the source goes. Its cursor stays for as long as the log has records, and says that they are done
with, should the rule name the log again; the log itself is kept, or not, as the rule of its destination says.

    found at a start -> a source of the queue -> settled up to the end -> out of the queue, nothing is held back
                    \\-> stranded: nobody can read it; it is told, and nothing is removed

Knows: cursors, who reads by them, rules. Must not know: consumers, records.
Invariants: no cursor has two sources; nothing is removed that somebody has not settled; what cannot be drained is told
at every start, and in the figures.
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
    """Committed records that this cursor has not settled, others' in the same log among them."""
    floor = max(cursor.floor, partition.log_start_offset)
    settled = sum(max(0, stop - max(start, floor)) for start, stop in cursor.intervals)
    waiting: int = partition.high_watermark - floor - settled
    return max(0, waiting)


class Left:
    """What an earlier run has left in which log, before it is known who there is. ``concerns`` says whether something
    there belongs to a destination whose rule does not name the log, so that it must be there to hand it out, or to
    have what is settled removed."""

    __slots__ = ("_of_names", "_unsettled", "_there")

    def __init__(self, store: Store) -> None:
        self._there: set[tuple[str, str]] = set()
        self._unsettled: set[tuple[str, str]] = set()
        for name, where in store.cursors.names():
            cursor, partition = store.cursors.get(name, where), store.partitions.get(where)
            if cursor is not None and partition is not None:
                self._there.add((name, where))
                if unsettled(cursor, partition):
                    self._unsettled.add((name, where))
        self._of_names = {where for name, where in self._unsettled if name.startswith(NAMES)}

    def concerns(self, name: str, policy: Policy, partition: Any) -> bool:
        """See above."""
        large = partition.size_bytes >= min(limits.RECLAIM_ROLL_BYTES, policy.settings.segment_bytes)
        wanted = self._there if large or len(partition.segments) > 1 else self._unsettled
        queues = (name, *policy.fan_out) if policy.kind == "queue" else policy.fan_out
        if any((cursor_names.of_queue(each), partition.name) in wanted for each in queues):
            return True
        return policy.kind == "topic" and partition.name in self._of_names


class Stranded(NamedTuple):
    """Something unsettled that nobody can read, and why."""

    cursor: str
    partition: str
    position: int
    end: int
    lag: int
    why: str

    @property
    def row(self) -> dict[str, Any]:
        """As ``cursors ls`` has it."""
        reported = self._asdict() | {"stranded": self.why, "former": True, "stored": True}
        del reported["why"]
        reported["destination"] = self.cursor.partition(":")[2]
        return reported | {"in_flight": 0, "members": 0, "shared": False, "user": None, "used_ns": None}
