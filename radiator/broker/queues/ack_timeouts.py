"""Deliveries of one source that have to be answered in time (``ack_timeout``).

All of a source have the same time, so the order of handing out is the order of their deadlines: only the first is ever
looked at. Who touches a delivery puts it at the end.

Invariants: what is settled or has gone back is not here; a delivery that is here and not in its subscription's window
is on its way to be settled (a COMMIT) and is left alone, as one is that an open transaction has answered.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from radiator.broker.timers.timing import Timing
from radiator.clock import MonoNs, Now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from radiator.broker.queues.consumer import Consumer, Number

DUE_MAX = 4_096  # in one visit: some milliseconds


class Timeouts:
    """See the top of the file.

    Args:
        timing: Where the timers are set.
        timeout_ns: The time to answer, in nanoseconds.
        on_overdue: Called with a consumer and the delivery numbers that it has not answered in time.
        before: The timeouts with another time that these replace: their deliveries get the new time from when they
            were handed out.
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
        """These have just been delivered with these numbers, or their consumer says that it is still at work."""
        deadline_ns = MonoNs(self._timing.now.mono + self.timeout_ns)
        deadlines = self._deadlines
        for offset, number in zip(offsets, numbers, strict=False):
            deadlines[offset] = (deadline_ns, subscription, number)
            deadlines.move_to_end(offset)
        self._timing.at(deadline_ns, self)

    def forget(self, offsets: Iterable[int]) -> None:
        """These are answered."""
        deadlines = self._deadlines
        for offset in offsets:
            deadlines.pop(offset, None)

    def _plan(self) -> None:
        if self._deadlines:
            self._timing.at(next(iter(self._deadlines.values()))[0], self)

    def due(self, now: Now) -> None:
        """Take back what was not answered in time."""
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
    """Give the whole time once more to those of these deliveries that are in flight and have to be answered in time."""
    groups: dict[Timeouts, tuple[list[int], list[Number]]] = {}
    for number in numbers:
        source, offset, _ = subscription.in_flight.get(number, (None, 0, b""))
        if source is not None and source.timeouts is not None:
            offsets, theirs = groups.setdefault(source.timeouts, ([], []))
            offsets.append(offset)
            theirs.append(number)
    for timeouts, (offsets, theirs) in groups.items():
        timeouts.start(subscription, offsets, theirs)
