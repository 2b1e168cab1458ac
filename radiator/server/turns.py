"""A queue in which those of one origin stand behind one another, and the origins take turns."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """First come, first served within an origin; who sends a thousand waits for its own thousand only."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[T]] = OrderedDict()  # none of them empty; the first is next

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, origin: str, item: T) -> None:
        self._lines.setdefault(origin, deque()).append(item)

    def again(self, origin: str, item: T) -> None:
        """Its turn had come: it has it before all others."""
        self._lines.setdefault(origin, deque()).appendleft(item)
        self._lines.move_to_end(origin, last=False)

    def take(self) -> T:
        origin, line = self._lines.popitem(last=False)
        item = line.popleft()
        if line:
            self._lines[origin] = line
        return item

    def take_all(self) -> list[T]:
        """Everything that waits, origin by origin."""
        return self.keep(lambda item: False)

    def keep(self, wanted: Callable[[T], bool]) -> list[T]:
        """Remove and return what is not wanted any more; the rest keeps its order."""
        removed: list[T] = []
        for origin, line in list(self._lines.items()):
            kept: deque[T] = deque()
            for item in line:
                (kept if wanted(item) else removed).append(item)
            if kept:
                self._lines[origin] = kept
            else:
                del self._lines[origin]
        return removed
