"""The window that the subscriptions of a session share, and the order in which they are served from it.

Without max-in-flight, the subscriptions to queues without a window of their own share it. With max-in-flight (a
*capped* window), all subscriptions of the session do, those to topics too (``docs/protocol.md``, "Flow control").

Invariant: ``held`` is never below zero and never above ``size``.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

from radiator.broker.queues.consumer import Consumer

if TYPE_CHECKING:
    from radiator.broker.queues.queue import Queue

DEFAULT_SIZE = 1

Member = TypeVar("Member", bound=Consumer)
Reader = TypeVar("Reader")


class QueueRing(Generic[Member]):
    """The queues that share a session's window, in the order in which they are served.

    Queues that were never served come first, in the order in which they were added, then the least recently served one.
    Each entry is a subscription and one of its queues.

    Attributes:
        only: The queue, if there is a single entry; otherwise None.
    """

    __slots__ = ("_latest", "_new", "_served", "only")

    def __init__(self) -> None:
        self._new: dict[tuple[Member, Queue], None] = {}
        self._served: OrderedDict[tuple[Member, Queue], None] = OrderedDict()
        self._latest: tuple[Member, Queue] | None = None  # the last entry of _served
        self.only: Queue | None = None

    def __len__(self) -> int:
        return len(self._new) + len(self._served)

    def entries(self) -> list[tuple[Member, Queue]]:
        """Return all entries in the order in which they are served."""
        return [*self._new, *self._served]

    def add(self, subscription: Member, queue: Queue) -> None:
        """Add an entry that was never served."""
        self._new[subscription, queue] = None
        self._changed()

    def remove(self, subscription: Member, queue: Queue) -> None:
        """Remove an entry; without effect if it does not exist."""
        entry = (subscription, queue)
        self._new.pop(entry, None)
        self._served.pop(entry, None)
        if entry == self._latest:
            self._latest = None
        self._changed()

    def _changed(self) -> None:
        if len(self) == 1:
            ((_, self.only),) = self._new or self._served
        else:
            self.only = None

    def served(self, subscription: Member, queue: Queue) -> None:
        """Move an entry to the end; without effect if it does not exist."""
        latest = self._latest
        if latest is not None and latest[0] is subscription and latest[1] is queue:
            return
        entry = (subscription, queue)
        if entry in self._new:
            del self._new[entry]
        elif entry not in self._served:
            return
        self._served[entry] = None
        self._served.move_to_end(entry)
        self._latest = entry


class SharedWindow(Generic[Member]):
    """How many messages a client may hold unacknowledged, over all subscriptions that share the window.

    Attributes:
        size: The number of messages.
        capped: True if the client has set max-in-flight: every subscription shares the window.
        held: The number of messages that count against ``size``.
        queues: The queues that share the window.
    """

    __slots__ = ("_topic_served", "_topics_turn", "capped", "held", "queues", "size")

    def __init__(self) -> None:
        self.size = DEFAULT_SIZE
        self.capped = False
        self.held = 0
        self.queues: QueueRing[Member] = QueueRing()
        self._topic_served: object = None  # the reader that was served last
        self._topics_turn = False

    def cap(self, size: int) -> None:
        """Let every subscription share the window: the client has set max-in-flight."""
        self.size = size
        self.capped = True

    def take(self, count: int) -> None:
        """Count messages that were delivered."""
        self.held += count
        assert self.held <= self.size

    def give_back(self, count: int) -> None:
        """Count messages less: they were acknowledged or returned."""
        self.held -= count
        assert self.held >= 0

    def topics_first(self) -> bool:
        """Return True every other time: then topics come before queues in a capped window."""
        turn, self._topics_turn = self._topics_turn, not self._topics_turn
        return turn

    def topic_served(self, reader: object) -> None:
        """Serve the readers behind this one first the next time."""
        self._topic_served = reader

    def in_turn(self, readers: list[Reader]) -> list[Reader]:
        """Return readers of topics in the order in which a capped window serves them: behind the last served one."""
        last = self._topic_served
        first = readers.index(last) + 1 if last in readers else 0
        return readers[first:] + readers[:first]
