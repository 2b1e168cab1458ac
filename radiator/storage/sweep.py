"""Who is looked at now and then, and when: cursors move without telling, so what they held back is looked at again.

Every ten seconds a sweep begins: over the partitions of which something has moved since the last one, and over some of
the others, so that each has its turn in the end whatever nobody told. A tick takes only so many of them: the rest comes
with the ticks that follow, so that no number of partitions holds up the loop.

Knows: partitions. Must not know: what looking means. Hub only.
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
    def __init__(self, partitions: Mapping[str, Partition], agenda: Agenda) -> None:
        self._partitions = partitions
        self._agenda = agenda
        self._due_ns = MonoNs(0)
        self._todo: deque[Partition] = deque()
        self._others: deque[Partition] = deque()  # whose turn is still to come

    def take(self, now_ns: MonoNs) -> list[Partition]:
        """Those to look at in this tick."""
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
