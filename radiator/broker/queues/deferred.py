"""The order of the deferred messages of one source: sent with a delay, or refused and delayed before their redelivery.

``QueueMessages`` has the states; here offsets are ordered by time. A delay ends at a time of the wall clock, a pause at
a time of the monotonic clock. Then the messages join ``QueueMessages.returned`` and take their original places. A
delivery checks the time of the message again, so an early end of a delay does no harm.

``drop_oldest`` needs the lowest offset. After the first call of ``lowest`` the offsets are ordered by offset too.

Invariants: the heaps have every deferred message once, and some that are not deferred any more. ``Timing.deferred``
counts the deferred ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import TypeVar

from radiator import limits
from radiator.broker.queues.message_states import State
from radiator.broker.timers.timing import Timing
from radiator.clock import MonoNs, Now, WallNs

DUE_MAX = 2_048  # per call of due(): 3 ms; the others follow a moment later
Moment = TypeVar("Moment", bound=int)


class Deferred:
    """The deferred messages of one source, in the order of their times.

    Args:
        timing: The timers.
        states: The state of each message, by offset.
        on_due: Called with the offsets whose delay or pause has ended.
    """

    __slots__ = ("_count", "_delays", "_order", "_pauses", "_on_due", "_states", "_timing")

    def __init__(self, timing: Timing, states: Mapping[int, State], on_due: Callable[[list[int]], None]) -> None:
        self._on_due = on_due
        self._timing = timing
        self._states = states
        self._count = 0
        self._delays: list[tuple[WallNs, int]] = []  # heaps: time and offset
        self._pauses: list[tuple[MonoNs, int]] = []
        self._order: list[int] | None = None  # a heap of offsets

    def __len__(self) -> int:
        return self._count

    def offsets(self) -> list[int]:
        """Return the offsets, in no particular order."""
        return [offset for offset, state in self._states.items() if state is State.DEFERRED]

    def delay(self, due_ns: WallNs, offset: int) -> None:
        """Add a message that waits until the wall clock shows ``due_ns``."""
        heappush(self._delays, (due_ns, offset))
        self._add(offset)
        self._timing.at_shown(due_ns, self)

    def pause(self, pause_ns: int, offset: int) -> None:
        """Add a message that waits for ``pause_ns`` nanoseconds."""
        due_ns = MonoNs(self._timing.now.mono + pause_ns)
        heappush(self._pauses, (due_ns, offset))
        self._add(offset)
        self._timing.at(due_ns, self)

    def _add(self, offset: int) -> None:
        self._count += 1
        if self._order is not None:
            heappush(self._order, offset)
        self._timing.count(deferred=1)

    def lowest(self) -> int | None:
        """Return the lowest offset; None if there is none."""
        if not self._count:
            return None
        order = self._order
        if order is None or len(order) > 2 * self._count + DUE_MAX:
            order = self._order = sorted(self.offsets())
        while self._states.get(order[0]) is not State.DEFERRED:
            heappop(order)
        return order[0]

    def take(self, number: int) -> None:
        """Note that ``number`` messages are not deferred any more."""
        self._count -= number
        if len(self._delays) + len(self._pauses) > 2 * self._count + DUE_MAX:
            self._delays = [entry for entry in self._delays if self._states.get(entry[1]) is State.DEFERRED]
            self._pauses = [entry for entry in self._pauses if self._states.get(entry[1]) is State.DEFERRED]
            heapify(self._delays)
            heapify(self._pauses)
        self._timing.freed(number)

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
        """Report the messages whose delay or pause has ended."""
        offsets: list[int] = []
        self._take_due(self._pauses, now.mono, offsets)
        self._take_due(self._delays, self._timing.shown_ns, offsets)
        if self._pauses:
            self._timing.at(self._pauses[0][0], self)
        if self._delays:
            self._timing.at_shown(self._delays[0][0], self)
        self._on_due(offsets)

    def _take_due(self, heap: list[tuple[Moment, int]], now_ns: Moment, offsets: list[int]) -> None:
        while heap and heap[0][0] <= now_ns and len(offsets) < DUE_MAX:
            offset = heappop(heap)[1]
            if self._states.get(offset) is State.DEFERRED:
                offsets.append(offset)

    def close(self) -> None:
        """Remove all messages: the source is gone."""
        freed, self._count = self._count, 0
        self._delays, self._pauses, self._order = [], [], None
        self._timing.forget(self)
        self._timing.freed(freed)
        del self._on_due  # no reference circle is left for the collector, which seldom runs
