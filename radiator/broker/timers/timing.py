"""The present time of one broker, and the timers of its queues.

A *subject* has something to do at a moment: messages that are not due yet, deliveries with a deadline, a queue whose
first message will expire. It sets a timer with ``at`` (monotonic), ``at_wall`` (the trusted wall clock) or ``at_shown``
(the wall clock as it is, trusted or not); ``due`` is called when that fires.
``Broker.next_deadline_ns`` tells the shell the earliest moment, so nothing here is scanned, and without timers it costs
nothing.

Knows: moments. Must not know: messages, stores, clocks: the time comes in with each call of the broker.
Invariant: ``due`` is never called before the moment of a timer, by the clock of that timer. A subject with two timers
may be called by either, and judges what is due itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from radiator import limits
from radiator.broker.skipping import SkippedTotals
from radiator.broker.timers.trusted import TrustedClock
from radiator.clock import BEFORE, NS_PER_MS, MonoNs, Now, WallNs
from radiator.timers import NEVER_NS, Timers

STEADY_NS: Final = NS_PER_MS  # clocks that were trusted, and have drifted apart by no more, need no judgement
NOT_STEADY_NS: Final = -NEVER_NS  # no clocks are that far apart


class Subject(Protocol):
    """An object with timers."""

    def due(self, now: Now) -> None:
        """A timer has fired, and is no longer set."""


class Outcomes(Protocol):
    """Decides what becomes of messages whose time is over. ``outcomes.redelivery.Returns`` is the one of a broker.

    ``source`` is the cursor of the queue (``queues.queue.QueueSource``).
    """

    @property
    def crowded(self) -> bool:
        """True if more dead letters wait than one turn moves: a caller with more of them should wait."""

    def due(self, source: Any, offsets: list[int]) -> None:
        """Messages whose delay is over take their places again."""

    def expired(self, source: Any, offset: int, deliveries: int) -> None:
        """A message has expired, after so many deliveries."""

    def ended(self, source: Any, offsets: list[int], reason: str) -> None:
        """Messages are delivered no more, for this reason."""

    def timed_out(self, source: Any, subscription: Any, numbers: list[str]) -> None:
        """Deliveries of a subscription were not answered in time."""


class Timing:
    """The present time, the timers, and the totals of what queues keep in memory about messages that wait.

    Args:
        wake: Called with a queue that has something to hand out again.
        on_error: Called with an unexpected exception of a subject. That subject waits for its next timer; the others
            are called.
        skipped: The totals of skipped messages.
    """

    __slots__ = (
        "_mono",
        "_on_error",
        "_shown",
        "_steady_ns",
        "_stuck",
        "_wall",
        "clock",
        "deferred",
        "noted",
        "now",
        "outcomes",
        "shown_ns",
        "skipped",
        "wake",
    )

    def __init__(
        self, wake: Callable[[Any], None], on_error: Callable[[Exception], None], skipped: SkippedTotals[Any]
    ) -> None:
        self.wake = wake
        self._on_error = on_error
        self.outcomes: Outcomes
        self.skipped = skipped
        self.clock = TrustedClock()
        self._steady_ns = NOT_STEADY_NS  # the wall clock less the monotonic one, when it was trusted last
        self.now = BEFORE  # its wall time is the trusted one
        self.shown_ns = BEFORE.wall  # what the wall clock shows, trusted or not
        self.deferred = 0  # messages that are not due yet and are remembered by their offsets
        self.noted = 0  # others of which is known that they are not, for those who count (``Ahead``)
        self._mono: Timers[MonoNs, Subject] = Timers()
        self._wall: Timers[WallNs, Subject] = Timers()
        self._shown: Timers[WallNs, Subject] = Timers()
        self._stuck: list[Callable[[], None]] = []

    def __len__(self) -> int:
        """How many timers are set."""
        return len(self._mono) + len(self._wall) + len(self._shown)

    def see(self, now: Now) -> Now:
        """Set the present time from what the clocks show. Returns it with the trusted wall time."""
        self.shown_ns = wall_ns = now.wall
        offset_ns = wall_ns - now.mono
        if -STEADY_NS < offset_ns - self._steady_ns < STEADY_NS:
            self.now = now
            return now
        self.now = trusted = self.clock.see(now)
        self._steady_ns = offset_ns if trusted is now else NOT_STEADY_NS
        return trusted

    def after(self, pause_ns: int, subject: Subject) -> None:
        """Call ``subject.due`` after a pause, or earlier if an earlier timer is set."""
        self._mono.at(MonoNs(self.now.mono + pause_ns), subject)

    def at(self, due_ns: MonoNs, subject: Subject) -> None:
        """Call ``subject.due`` at a monotonic moment, or earlier if an earlier timer is set."""
        self._mono.at(due_ns, subject)

    def at_wall(self, due_ns: WallNs, subject: Subject) -> None:
        """Call ``subject.due`` at a trusted wall time, or earlier if an earlier timer is set."""
        self._wall.at(due_ns, subject)

    def at_shown(self, due_ns: WallNs, subject: Subject) -> None:
        """Call ``subject.due`` when the wall clock shows ``due_ns``, trusted or not."""
        self._shown.at(due_ns, subject)

    def forget(self, subject: Subject) -> None:
        """Cancel the timers of ``subject``."""
        self._mono.forget(subject)
        self._wall.forget(subject)
        self._shown.forget(subject)

    @property
    def next_ns(self) -> MonoNs:
        """When the next timer fires, if no clock steps; NEVER_NS without timers."""
        now, next_ns = self.now, self._mono.next_ns
        if (wall_ns := self._wall.next_ns) != NEVER_NS:
            next_ns = min(next_ns, MonoNs(wall_ns - now.wall + now.mono))
        if (shown_ns := self._shown.next_ns) != NEVER_NS:
            next_ns = min(next_ns, MonoNs(shown_ns - self.shown_ns + now.mono))
        return next_ns

    def meet(self) -> None:
        """Call every subject with a timer whose moment has come, once."""
        now = self.now
        due = [*self._mono.due(now.mono), *self._wall.due(now.wall), *self._shown.due(self.shown_ns)]
        for subject in dict.fromkeys(due):
            try:
                subject.due(now)
            except Exception as error:
                self._on_error(error)

    # --- room for messages that are not due -------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """True if no more of them can be remembered."""
        return self.deferred >= limits.DEFERRED_MAX

    def decide_by(self, outcomes: Outcomes) -> None:
        """Have ``outcomes`` decide what becomes of messages whose time is over: called once, by the broker."""
        self.outcomes = outcomes

    def count(self, deferred: int = 0, noted: int = 0) -> None:
        """Count more messages that are not due: deferred ones, and others that are only noted (``DelaysAhead``)."""
        self.deferred += deferred
        self.noted += noted

    def await_room(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` once there is room to remember another message that is not due."""
        self._stuck.append(resume)

    def freed(self, number: int) -> None:
        """So many of them are not remembered any more."""
        self.deferred -= number
        if self._stuck:
            stuck, self._stuck = self._stuck, []
            for resume in stuck:
                resume()
