"""Scheduled messages of one source: sent with a delay, or refused and delayed before their redelivery.

Only offsets are stored, ordered by time. A delay ends at a time of the wall clock, a pause at a time of the monotonic
clock. Then the messages join ``QueueSource.returned`` and take their original places. A delivery checks the time of
the message again, so an early end of a delay does no harm.

``drop_oldest`` may remove a message from here. After the first call of ``lowest`` the offsets are indexed too.

Invariants: a message here is unsettled, not in flight, and not in ``returned``. ``Timing.deferred`` counts it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TypeVar

from radiator import limits
from radiator.broker.timers.timing import Timing
from radiator.clock import MonoNs, Now, WallNs

DUE_MAX = 4_096  # per call of due(): 2 ms; the others follow a moment later
Moment = TypeVar("Moment", bound=int)


class Deferred:
    """The scheduled messages of one source.

    Args:
        timing: The timers.
        on_due: Called with the offsets whose delay or pause has ended.
    """

    __slots__ = ("_delays", "_offsets", "_order", "_pauses", "_on_due", "_timing")

    def __init__(self, timing: Timing, on_due: Callable[[list[int]], None]) -> None:
        self._on_due = on_due
        self._timing = timing
        self._delays: list[tuple[WallNs, int]] = []  # heaps: time and offset
        self._pauses: list[tuple[MonoNs, int]] = []
        self._offsets: set[int] | None = None  # the offsets; the heaps may have removed ones too
        self._order: list[int] = []

    def __len__(self) -> int:
        return len(self._delays) + len(self._pauses) if self._offsets is None else len(self._offsets)

    def delay(self, due_ns: WallNs, offset: int) -> None:
        """Store a message until the wall clock shows ``due_ns``."""
        heappush(self._delays, (due_ns, offset))
        self._add(offset)
        self._timing.at_shown(due_ns, self)

    def pause(self, pause_ns: int, offset: int) -> None:
        """Store a message for ``pause_ns`` nanoseconds."""
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
        """Return the lowest offset; None if there is none."""
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
        """Remove the lowest offset, which is dropped."""
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
        """True if the source may not store more messages."""
        return self._timing.full and len(self) >= limits.DEFERRED_OWN

    @property
    def refuses(self) -> bool:
        """True if the source may not store more messages that a consumer has refused."""
        most = limits.DEFERRED_MAX * limits.DEFERRED_REFUSED_PART
        return self._timing.deferred >= most and len(self) >= limits.DEFERRED_OWN

    def due(self, now: Now) -> None:
        """Return the messages whose delay or pause has ended."""
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
        """Remove all messages: the source is gone."""
        freed = len(self)
        self._delays, self._pauses, self._offsets, self._order = [], [], None, []
        self._timing.forget(self)
        self._timing.freed(freed)
        del self._on_due  # no reference circle is left for the collector, which seldom runs

    def remove(self, start: int, stop: int) -> list[int]:
        """Remove and return the offsets in [start, stop), which the log has lost or which are settled."""
        here = self._here() if self._offsets is None else self._offsets
        removed = sorted(offset for offset in here if start <= offset < stop)
        if removed:
            left = here.difference(removed)
            self._keep(left)
            if self._offsets is not None:
                self._know(left)
            self._timing.freed(len(removed))
        return removed
