"""Messages of one source that are not due: sent with a delay, or refused and to be tried again later.

Only their offsets are kept, ordered by the moment; at that moment they join ``QueueSource.returned`` and take their
original places. What they are due for is judged again when they are handed out, so being called too often does no harm.

Invariants: what is here is unsettled, in nobody's hands and not in ``returned``; ``Timing.deferred`` counts it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from radiator.broker.timing import NEVER_NS, Timing

if TYPE_CHECKING:
    from radiator.broker.source import QueueSource

DUE_MAX = 4_096  # in one visit: 2 ms; the others follow a moment later


class Deferred:
    """See the top of the file."""

    __slots__ = ("_heap", "_source", "_timing", "wake_ns")

    def __init__(self, source: QueueSource, timing: Timing) -> None:
        self._source = source
        self._timing = timing
        self._heap: list[tuple[int, int]] = []
        self.wake_ns = NEVER_NS

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, due_ns: int, offset: int) -> None:
        """Keep this one until then."""
        heappush(self._heap, (due_ns, offset))
        self._timing.deferred += 1
        self._timing.at(due_ns, self)

    def due(self, now_ns: int) -> None:
        """These are due now."""
        heap = self._heap
        offsets: list[int] = []
        while heap and heap[0][0] <= now_ns and len(offsets) < DUE_MAX:
            offsets.append(heappop(heap)[1])
        if heap:
            self._timing.at(heap[0][0], self)
        self._timing.freed(len(offsets))
        self._timing.returns.due(self._source, offsets)

    def clock_went_back(self, by_ns: int) -> None:
        """Judge all of them anew: who was refused need not wait for the hour that the clock repeats."""
        self._heap = [(self._timing.now_ns, offset) for _, offset in self._heap]
        heapify(self._heap)
        if self._heap:
            self._timing.at(self._timing.now_ns, self)

    def close(self) -> None:
        """The source is gone."""
        freed, self._heap = len(self._heap), []
        self._timing.forget(self)
        self._timing.freed(freed)

    def remove(self, start: int, stop: int) -> int:
        """The log has lost these offsets; how many of them were here."""
        kept = [entry for entry in self._heap if not start <= entry[1] < stop]
        removed = len(self._heap) - len(kept)
        if removed:
            heapify(kept)
            self._heap = kept
            self._timing.freed(removed)
        return removed
