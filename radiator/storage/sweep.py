"""Choose the partitions to check now and then: cursors move without a notification, and retention may then remove more.

Every ten seconds a sweep begins: over the partitions with changes since the last one, and over some of the others, so
that every partition has its turn. A tick takes only some of them, and the next ticks the rest, so that no number of
partitions blocks the event loop.

This module knows partitions. It does not know what is checked. The event loop owns it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from radiator.clock import MonoNs
from radiator.storage.partition import Agenda, Partition

EVERY_NS = 10_000_000_000
TICK_PARTITIONS_MAX = 1_000  # some milliseconds
OTHERS_MAX = 1_000  # a sweep: so 100,000 have all been looked at after a quarter of an hour


class Sweep:
    """The partitions that are still to be checked."""

    def __init__(self, partitions: Mapping[str, Partition], agenda: Agenda) -> None:
        self._partitions = partitions
        self._agenda = agenda
        self._due_ns = MonoNs(0)
        self._todo: deque[Partition] = deque()
        self._others: deque[Partition] = deque()  # partitions still to be swept

    def take(self, now_ns: MonoNs) -> list[Partition]:
        """Return the partitions to check in this tick."""
        if now_ns >= self._due_ns and not self._todo:
            self._due_ns = MonoNs(now_ns + EVERY_NS)
            self._begin()
        few = min(len(self._todo), TICK_PARTITIONS_MAX)
        found = [self._todo.popleft() for _ in range(few)]
        return [each for each in found if self._partitions.get(each.name) is each]

    def _begin(self) -> None:
        wanted = self._agenda.take_sweep_candidates()
        if not self._others:
            self._others.extend(self._partitions.values())
        for _ in range(min(len(self._others), OTHERS_MAX)):
            wanted[self._others.popleft()] = None
        self._todo.extend(wanted)
