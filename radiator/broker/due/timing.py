"""Time, as the queues of one broker see it: what it is now, and what is to happen when.

Whoever waits for a moment (messages that are not due, deliveries that have a deadline, a queue whose first message will
expire) is a *subject*: it says with ``at`` when it wants ``due`` to be called. ``Broker.next_deadline_ns`` tells the
shell the earliest moment, so nothing here is scanned, and without deadlines it costs nothing.

Knows: moments. Must not know: messages, stores, clocks: the time comes in with each call of the broker.
Invariants: ``due`` is never called early; a subject's ``wake_ns`` is the moment that counts, other entries of it in the
heap are passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from radiator import limits

if TYPE_CHECKING:
    from radiator.broker.queues.queue import Queue
    from radiator.broker.queues.returning import Returns
    from radiator.broker.queues.source import QueueSource

NEVER_NS = 1 << 63
LEFT_MAX = 1_000  # entries that count no more: not worth a look


class Subject(Protocol):
    """Who waits for a moment."""

    wake_ns: int

    def due(self, now_ns: int) -> None:
        """The moment has come; whatever else is to come has to be said again."""

    def clock_went_back(self, by_ns: int) -> None:
        """The clock was set back: what was counted from the time before is due so much earlier."""


class Timing:
    """``wake`` is told of queues that have something to hand out again; ``returns`` decides what becomes of messages
    whose time is over: set once, by the broker. ``on_error`` is called with what nobody foresaw: the subject that
    raised it has to wait for what it says next, and the others are met."""

    __slots__ = ("_heap", "_left", "_numbers", "_on_error", "_stuck", "deferred", "noted", "now_ns", "returns", "wake")

    def __init__(self, wake: Callable[[Queue], None], on_error: Callable[[Exception], None]) -> None:
        self.wake = wake
        self._on_error = on_error
        self.returns: Returns
        self.now_ns = 0
        self.deferred = 0  # messages that are not due yet and are remembered by their offsets
        self.noted = 0  # others of which is known that they are not, for those who count (``Ahead``)
        self._heap: list[tuple[int, int, Any]] = []
        self._numbers = count()
        self._left = 0  # entries that count no more: of subjects that are gone, or have said an earlier moment
        self._stuck: list[QueueSource] = []

    def see(self, now_ns: int) -> None:
        """What the time is. A wall clock may be set back."""
        if now_ns < self.now_ns:
            by_ns = self.now_ns - now_ns
            self.now_ns = now_ns
            for subject in {id(entry[2]): entry[2] for entry in self._heap}.values():
                try:
                    subject.clock_went_back(by_ns)
                except Exception as error:
                    self._on_error(error)
        self.now_ns = now_ns

    def at(self, due_ns: int, subject: Subject) -> None:
        """Call its ``due`` at that moment, or before it if it said so already."""
        if due_ns < subject.wake_ns:
            if subject.wake_ns != NEVER_NS:
                self._leave()
            subject.wake_ns = due_ns
            heappush(self._heap, (due_ns, next(self._numbers), subject))

    def forget(self, subject: Subject) -> None:
        """It waits for nothing any more. What it leaves here goes before it is much, however far ahead it is."""
        if subject.wake_ns == NEVER_NS:
            return
        subject.wake_ns = NEVER_NS
        self._leave()

    def _leave(self) -> None:
        """One entry more does not count. Where these prevail, each subject keeps the one that does."""
        self._left += 1
        if self._left > LEFT_MAX and 2 * self._left > len(self._heap):
            self._heap = list({id(entry[2]): entry for entry in self._heap if entry[2].wake_ns == entry[0]}.values())
            heapify(self._heap)
            self._left = 0

    @property
    def next_ns(self) -> int:
        """The earliest moment that something is planned for."""
        return self._heap[0][0] if self._heap else NEVER_NS

    def meet(self) -> None:
        """Call everybody whose moment has come."""
        heap, now_ns = self._heap, self.now_ns
        later = []
        while heap and heap[0][0] <= now_ns:
            due_ns, _, subject = heappop(heap)
            if subject.wake_ns == due_ns:
                subject.wake_ns = NEVER_NS
                later.append(subject)
            elif self._left:
                self._left -= 1
        for subject in later:  # each once: what it plans for now is for the next visit
            try:
                subject.due(now_ns)
            except Exception as error:
                self._on_error(error)

    # --- room for messages that are not due -------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """True if no more of them can be remembered."""
        return self.deferred >= limits.DEFERRED_MAX

    def stuck(self, source: QueueSource) -> None:
        """This one met a message that is not due, and there is no room to remember it."""
        self._stuck.append(source)

    def freed(self, number: int) -> None:
        """So many of them are not remembered any more."""
        self.deferred -= number
        if self._stuck:
            stuck, self._stuck = self._stuck, []
            for source in stuck:
                source.stuck = False
                self.wake(source.queue)
