"""A heap of timers on one clock.

A timer belongs to a key. Each key has at most one timer: the earliest that was set since it last fired. A heap has the
timers of one clock, the wall clock or the monotonic clock, and is compared with the present time of that clock. So a
step of the wall clock changes no timer.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Generic, TypeVar

NEVER_NS: Final = 1 << 63
STALE_MAX: Final = 64  # entries of timers that were cancelled or set anew: fewer are not worth a clean-up

Moment = TypeVar("Moment", bound=int)
Key = TypeVar("Key")


class _Timer(Generic[Moment, Key]):
    """A timer in the heap.

    A timer that was cancelled or replaced stays in the heap until its time or the next clean-up. It loses its key at
    once, because a key may hold megabytes.
    """

    __slots__ = ("due_ns", "key")

    def __init__(self, due_ns: Moment, key: Key) -> None:
        self.due_ns = due_ns
        self.key: Key | None = key


class Timers(Generic[Moment, Key]):
    """Timers by key, on the clock that ``Moment`` names (``MonoNs`` or ``WallNs``).

    Attributes:
        next_ns: The earliest time; ``NEVER_NS`` if no timer is set. An attribute is faster to read than a property, and
            each turn reads it several times.
    """

    __slots__ = ("_due", "_heap", "_numbers", "next_ns")

    def __init__(self) -> None:
        self._due: dict[Key, _Timer[Moment, Key]] = {}
        self._heap: list[tuple[Moment, int, _Timer[Moment, Key]]] = []
        self._numbers = count()  # of equal moments the timer that was set first fires first
        self.next_ns: Moment = NEVER_NS  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._due)

    def at(self, due_ns: Moment, key: Key) -> None:
        """Set the timer of ``key``, unless it has an earlier one."""
        before = self._due.get(key)
        if before is not None:
            if before.due_ns <= due_ns:
                return
            before.key = None
        timer = self._due[key] = _Timer(due_ns, key)
        heappush(self._heap, (due_ns, next(self._numbers), timer))
        if due_ns < self.next_ns:
            self.next_ns = due_ns
        self._clean()

    def forget(self, key: Key) -> None:
        """Cancel the timer of ``key``, if there is one."""
        timer = self._due.pop(key, None)
        if timer is not None:
            timer.key = None
            if timer.due_ns == self.next_ns:
                self._find_next()
            self._clean()

    def due(self, now_ns: Moment) -> list[Key]:
        """Remove the timers up to ``now_ns``, and return their keys, the earliest first."""
        found = []
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            key = heappop(heap)[2].key
            if key is not None:
                del self._due[key]
                found.append(key)
        if self.next_ns <= now_ns:
            self._find_next()
        return found

    def _find_next(self) -> None:
        heap = self._heap
        while heap and heap[0][2].key is None:
            heappop(heap)
        self.next_ns = heap[0][0] if heap else NEVER_NS  # type: ignore[assignment]

    def _clean(self) -> None:
        if len(self._heap) > 2 * len(self._due) + STALE_MAX:
            self._heap = [entry for entry in self._heap if entry[2].key is not None]
            heapify(self._heap)
