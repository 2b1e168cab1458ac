"""Messages of one source that are not due: sent with a delay, or refused and to be tried again later.

Only their offsets are kept, ordered by the moment; at that moment they join ``QueueSource.returned`` and take their
original places. What they are due for is judged again when they are handed out, so being called too often does no harm.

Where the rule gives up the oldest (``drop_oldest``), it may be one of these: ``lowest`` knows them by their offsets as
well, from the first time that it is asked.

Invariants: what is here is unsettled, in nobody's hands and not in ``returned``; ``Timing.deferred`` counts it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from radiator import limits
from radiator.broker.due.timing import NEVER_NS, Timing

if TYPE_CHECKING:
    from radiator.broker.queues.source import QueueSource

DUE_MAX = 4_096  # in one visit: 2 ms; the others follow a moment later


class Deferred:
    """See the top of the file."""

    __slots__ = ("_heap", "_offsets", "_order", "_source", "_timing", "wake_ns")

    def __init__(self, source: QueueSource, timing: Timing) -> None:
        self._source = source
        self._timing = timing
        self._heap: list[tuple[int, int, bool]] = []  # when, which, and whether that is a pause from some moment on
        self._offsets: set[int] | None = None  # what is here; the heaps may have what was given up, or has left, too
        self._order: list[int] = []
        self.wake_ns = NEVER_NS

    def __len__(self) -> int:
        return len(self._heap) if self._offsets is None else len(self._offsets)

    def add(self, due_ns: int, offset: int, pause: bool = False) -> None:
        """Keep this one until then: a moment of the wall clock, or the end of a ``pause`` that has just begun."""
        heappush(self._heap, (due_ns, offset, pause))
        if self._offsets is not None:
            self._offsets.add(offset)
            heappush(self._order, offset)
        self._timing.deferred += 1
        self._timing.at(due_ns, self)

    def lowest(self) -> int | None:
        """The lowest offset of all; None if there is none."""
        if not len(self):
            return None
        offsets, order = self._offsets, self._order
        if offsets is None or len(order) > 2 * len(offsets) + DUE_MAX:
            self._know({entry[1] for entry in self._heap} if offsets is None else offsets)
            offsets, order = self._offsets, self._order
        assert offsets is not None
        while order[0] not in offsets:
            heappop(order)
        return order[0]

    def take(self, offset: int) -> None:
        """The lowest one, which is given up: it does not come back."""
        assert self._offsets is not None
        self._offsets.remove(offset)
        if len(self._heap) > 2 * len(self._offsets) + DUE_MAX:
            self._heap = [entry for entry in self._heap if entry[1] in self._offsets]
            heapify(self._heap)
        self._timing.freed(1)

    def _know(self, offsets: set[int]) -> None:
        self._offsets, self._order = offsets, sorted(offsets)

    @property
    def full(self) -> bool:
        """True if no more of this source may be kept."""
        return self._timing.full and len(self) >= limits.DEFERRED_OWN

    @property
    def refuses(self) -> bool:
        """True if no more may be kept that a consumer has refused."""
        most = limits.DEFERRED_MAX * limits.DEFERRED_REFUSED_PART
        return self._timing.deferred >= most and len(self) >= limits.DEFERRED_OWN

    def due(self, now_ns: int) -> None:
        """These are due now."""
        heap = self._heap
        offsets: list[int] = []
        while heap and heap[0][0] <= now_ns and len(offsets) < DUE_MAX:
            offset = heappop(heap)[1]
            if self._offsets is None:
                offsets.append(offset)
            elif offset in self._offsets:
                self._offsets.remove(offset)
                offsets.append(offset)
        if heap:
            self._timing.at(heap[0][0], self)
        self._timing.freed(len(offsets))
        self._timing.returns.due(self._source, offsets)

    def clock_went_back(self, by_ns: int) -> None:
        """Who was refused waits for what is left of its pause, and not for the hour that the clock repeats."""
        if any(pause for _, _, pause in self._heap):
            self._heap = [(due - by_ns if pause else due, offset, pause) for due, offset, pause in self._heap]
            heapify(self._heap)
            self._timing.at(self._heap[0][0], self)

    def close(self) -> None:
        """The source is gone."""
        freed = len(self)
        self._heap, self._offsets, self._order = [], None, []
        self._timing.forget(self)
        self._timing.freed(freed)
        del self._source  # no circle is left for the collector, which comes by seldom

    def remove(self, start: int, stop: int) -> list[int]:
        """The log has lost these offsets, or they are settled undelivered; which of them were here."""
        known = self._offsets
        here = [each for each in self._heap if known is None or each[1] in known]
        removed = [offset for _, offset, _ in here if start <= offset < stop]
        if removed:
            self._heap = [each for each in here if not start <= each[1] < stop]
            heapify(self._heap)
            if known is not None:
                self._know({entry[1] for entry in self._heap})
            self._timing.freed(len(removed))
        return removed
