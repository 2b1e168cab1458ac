"""Messages of one source that are not due: sent with a delay, or refused and to be tried again later.

Only their offsets are kept, ordered by the moment: a delay ends at a moment of the wall clock, a pause at one of the
monotonic clock. At that moment they join ``QueueSource.returned`` and take their original places. What they are due for
is judged again when they are handed out, so being called too often does no harm.

Where the rule gives up the oldest (``drop_oldest``), it may be one of these: ``lowest`` knows them by their offsets as
well, from the first time that it is asked.

Invariants: what is here is unsettled, in nobody's hands and not in ``returned``; ``Timing.deferred`` counts it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TypeVar

from radiator import limits
from radiator.broker.timers.timing import Timing
from radiator.clock import MonoNs, Now, WallNs

DUE_MAX = 4_096  # in one visit: 2 ms; the others follow a moment later
Moment = TypeVar("Moment", bound=int)


class Deferred:
    """See the top of the file.

    Args:
        timing: Where the timers are set.
        on_due: Called with the offsets whose delay or pause is over.
    """

    __slots__ = ("_delays", "_offsets", "_order", "_pauses", "_on_due", "_timing")

    def __init__(self, timing: Timing, on_due: Callable[[list[int]], None]) -> None:
        self._on_due = on_due
        self._timing = timing
        self._delays: list[tuple[WallNs, int]] = []  # heaps: when, and which
        self._pauses: list[tuple[MonoNs, int]] = []
        self._offsets: set[int] | None = None  # what is here; the heaps may have what was given up, or has left, too
        self._order: list[int] = []

    def __len__(self) -> int:
        return len(self._delays) + len(self._pauses) if self._offsets is None else len(self._offsets)

    def delay(self, due_ns: WallNs, offset: int) -> None:
        """Keep this one until the wall clock shows ``due_ns``."""
        heappush(self._delays, (due_ns, offset))
        self._add(offset)
        self._timing.at_shown(due_ns, self)

    def pause(self, pause_ns: int, offset: int) -> None:
        """Keep this one for ``pause_ns``."""
        due_ns = MonoNs(self._timing.now.mono + pause_ns)
        heappush(self._pauses, (due_ns, offset))
        self._add(offset)
        self._timing.at(due_ns, self)

    def _add(self, offset: int) -> None:
        if self._offsets is not None:
            self._offsets.add(offset)
            heappush(self._order, offset)
        self._timing.count(deferred=1)

    def lowest(self) -> int | None:
        """The lowest offset of all; None if there is none."""
        if not len(self):
            return None
        offsets, order = self._offsets, self._order
        if offsets is None or len(order) > 2 * len(offsets) + DUE_MAX:
            self._know(self._here() if offsets is None else offsets)
            offsets, order = self._offsets, self._order
        assert offsets is not None
        while order[0] not in offsets:
            heappop(order)
        return order[0]

    def take(self, offset: int) -> None:
        """The lowest one, which is given up: it does not come back."""
        assert self._offsets is not None
        self._offsets.remove(offset)
        if len(self._delays) + len(self._pauses) > 2 * len(self._offsets) + DUE_MAX:
            self._keep(self._offsets)
        self._timing.freed(1)

    def _here(self) -> set[int]:
        return {offset for _, offset in (*self._delays, *self._pauses)}

    def _keep(self, offsets: set[int]) -> None:
        self._delays = [entry for entry in self._delays if entry[1] in offsets]
        self._pauses = [entry for entry in self._pauses if entry[1] in offsets]
        heapify(self._delays)
        heapify(self._pauses)

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

    def due(self, now: Now) -> None:
        """Give back those whose delay or pause is over."""
        offsets: list[int] = []
        self._take_due(self._pauses, now.mono, offsets)
        self._take_due(self._delays, self._timing.shown_ns, offsets)
        if self._pauses:
            self._timing.at(self._pauses[0][0], self)
        if self._delays:
            self._timing.at_shown(self._delays[0][0], self)
        self._timing.freed(len(offsets))
        self._on_due(offsets)

    def _take_due(self, heap: list[tuple[Moment, int]], now_ns: Moment, offsets: list[int]) -> None:
        while heap and heap[0][0] <= now_ns and len(offsets) < DUE_MAX:
            offset = heappop(heap)[1]
            if self._offsets is None:
                offsets.append(offset)
            elif offset in self._offsets:
                self._offsets.remove(offset)
                offsets.append(offset)

    def close(self) -> None:
        """The source is gone."""
        freed = len(self)
        self._delays, self._pauses, self._offsets, self._order = [], [], None, []
        self._timing.forget(self)
        self._timing.freed(freed)
        del self._on_due  # no circle is left for the collector, which comes by seldom

    def remove(self, start: int, stop: int) -> list[int]:
        """The log has lost these offsets, or they are settled undelivered; which of them were here."""
        here = self._here() if self._offsets is None else self._offsets
        removed = sorted(offset for offset in here if start <= offset < stop)
        if removed:
            left = here.difference(removed)
            self._keep(left)
            if self._offsets is not None:
                self._know(left)
            self._timing.freed(len(removed))
        return removed
