"""A queue in which those of one origin stand behind one another, and the origins take turns."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """First come, first served within an origin; who sends a thousand waits for its own thousand only."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[T]] = OrderedDict()  # none of them empty; the first is next

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, origin: str, item: T) -> None:
        self._queues.setdefault(origin, deque()).append(item)

    def put_back(self, origin: str, item: T) -> None:
        """Its turn had come: it has it before all others."""
        self._queues.setdefault(origin, deque()).appendleft(item)
        self._queues.move_to_end(origin, last=False)

    def take(self) -> T:
        origin, queue = self._queues.popitem(last=False)
        item = queue.popleft()
        if queue:
            self._queues[origin] = queue
        return item

    def take_all(self) -> list[T]:
        """Everything that waits, origin by origin."""
        return self.keep(lambda item: False)

    def keep(self, wanted: Callable[[T], bool]) -> list[T]:
        """Remove and return what is not wanted any more; the rest keeps its order."""
        removed: list[T] = []
        for origin, queue in list(self._queues.items()):
            remaining: deque[T] = deque()
            for item in queue:
                (remaining if wanted(item) else removed).append(item)
            if remaining:
                self._queues[origin] = remaining
            else:
                del self._queues[origin]
        return removed
