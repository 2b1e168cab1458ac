"""A queue that serves origins in turn."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Serve the origins in turn, and the items of an origin in order.

    So a long queue of one origin delays no other.
    """

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[T]] = OrderedDict()  # no empty ones; the first is next

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, origin: str, item: T) -> None:
        """Append an item to the queue of its origin."""
        self._queues.setdefault(origin, deque()).append(item)

    def put_back(self, origin: str, item: T) -> None:
        """Put an item that was taken at the head: it is the next one to be taken."""
        self._queues.setdefault(origin, deque()).appendleft(item)
        self._queues.move_to_end(origin, last=False)

    def take(self) -> T:
        """Remove and return the next item."""
        origin, queue = self._queues.popitem(last=False)
        item = queue.popleft()
        if queue:
            self._queues[origin] = queue
        return item

    def take_all(self) -> list[T]:
        """Remove and return all items, origin by origin."""
        return self.keep(lambda item: False)

    def keep(self, wanted: Callable[[T], bool]) -> list[T]:
        """Remove and return the items for which ``wanted`` is False; the others keep their order."""
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
