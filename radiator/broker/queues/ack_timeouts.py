"""Ack timeouts: deliveries of one source that must be acknowledged in time (``ack_timeout``).

All deliveries of a source have the same timeout, so the order of delivery is the order of the deadlines, and only the
first one is examined. A delivery that is extended moves to the end.

Invariants: a settled or returned delivery is not here. A delivery that is here and not in flight is about to be settled
by a COMMIT and is left alone, as is one that an open transaction has answered.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from radiator.broker.timers.timing import Timing
from radiator.clock import MonoNs, Now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from radiator.broker.queues.consumer import Consumer, Number

DUE_MAX = 4_096  # per call of due(): a few milliseconds


class Timeouts:
    """The deadlines of the deliveries of one source.

    Args:
        timing: The timers.
        timeout_ns: The time to acknowledge, in nanoseconds.
        on_overdue: Called with a consumer and the delivery numbers that it has not acknowledged in time.
        before: Timeouts with another ``timeout_ns`` that these replace. Their deliveries get the new timeout, counted
            from their delivery.
    """

    __slots__ = ("_deadlines", "_on_overdue", "_timing", "timeout_ns")

    def __init__(
        self,
        timing: Timing,
        timeout_ns: int,
        on_overdue: Callable[[Consumer, list[Number]], None],
        before: Timeouts | None = None,
    ) -> None:
        self._on_overdue = on_overdue
        self._timing = timing
        self.timeout_ns = timeout_ns
        self._deadlines: OrderedDict[int, tuple[MonoNs, Consumer, Number]] = OrderedDict()
        if before is not None:
            longer_ns = timeout_ns - before.timeout_ns
            for offset, (deadline_ns, subscription, number) in before._deadlines.items():
                self._deadlines[offset] = (MonoNs(deadline_ns + longer_ns), subscription, number)
            self._plan()

    def __len__(self) -> int:
        return len(self._deadlines)

    def start(self, subscription: Consumer, offsets: Iterable[int], numbers: Iterable[Number]) -> None:
        """Start the timeout of deliveries, or restart it because the consumer is still at work.

        Args:
            subscription: The consumer.
            offsets: The offsets of the messages.
            numbers: The delivery numbers.
        """
        deadline_ns = MonoNs(self._timing.now.mono + self.timeout_ns)
        deadlines = self._deadlines
        for offset, number in zip(offsets, numbers, strict=False):
            deadlines[offset] = (deadline_ns, subscription, number)
            deadlines.move_to_end(offset)
        self._timing.at(deadline_ns, self)

    def forget(self, offsets: Iterable[int]) -> None:
        """Remove deliveries that were answered."""
        deadlines = self._deadlines
        for offset in offsets:
            deadlines.pop(offset, None)

    def _plan(self) -> None:
        if self._deadlines:
            self._timing.at(next(iter(self._deadlines.values()))[0], self)

    def due(self, now: Now) -> None:
        """Report the deliveries that timed out."""
        deadlines = self._deadlines
        overdue: dict[Consumer, list[Number]] = {}
        for _ in range(min(DUE_MAX, len(deadlines))):
            offset = next(iter(deadlines))
            deadline_ns, subscription, number = deadlines[offset]
            if deadline_ns > now.mono:
                break
            del deadlines[offset]
            overdue.setdefault(subscription, []).append(number)
        self._plan()
        for subscription, numbers in overdue.items():
            self._on_overdue(subscription, numbers)


def restart(subscription: Consumer, numbers: Iterable[Number]) -> None:
    """Restart the timeouts of those of these deliveries that are in flight and have one."""
    groups: dict[Timeouts, tuple[list[int], list[Number]]] = {}
    for number in numbers:
        source, offset, _ = subscription.in_flight.get(number, (None, 0, b""))
        if source is not None and source.timeouts is not None:
            offsets, theirs = groups.setdefault(source.timeouts, ([], []))
            offsets.append(offset)
            theirs.append(number)
    for timeouts, (offsets, theirs) in groups.items():
        timeouts.start(subscription, offsets, theirs)
