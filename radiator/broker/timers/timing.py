"""The present time of one broker, and its timers.

A *subject* is an object with timers: a queue with scheduled messages, deliveries with a deadline, a queue whose first
message expires. A subject sets a timer with ``at`` (monotonic clock), ``at_wall`` (trusted wall clock) or ``at_shown``
(wall clock as shown, trusted or not). ``due`` of the subject is called when the timer fires. Timers are in heaps, so
no subject is scanned, and ``Broker.next_deadline_ns`` returns the earliest one.

The module knows times, but not messages or stores. Callers pass the time: the module reads no clock.
Invariant: ``due`` is never called before the time of a timer, by the clock of that timer. A subject with two timers
decides itself which of them has fired.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from radiator import limits
from radiator.broker.skipping import SkippedTotals
from radiator.broker.stats import Traffic
from radiator.broker.timers.trusted import TrustedClock
from radiator.clock import BEFORE, NS_PER_MS, MonoNs, Now, WallNs
from radiator.timers import NEVER_NS, Timers

STEADY_NS: Final = NS_PER_MS  # a smaller change of the offset between the clocks needs no check
NOT_STEADY_NS: Final = -NEVER_NS  # no real offset is that large


class Subject(Protocol):
    """An object with timers."""

    def due(self, now: Now) -> None:
        """Handle a timer that has fired and is not set any more."""


class Outcomes(Protocol):
    """Handles messages whose time has come. ``outcomes.redelivery.Returns`` is the implementation.

    ``source`` is the cursor of a queue (``queues.queue.QueueSource``).
    """

    @property
    def crowded(self) -> bool:
        """True if more dead letters wait than one turn moves. A caller with more dead letters should wait."""

    def due(self, source: Any, offsets: list[int]) -> None:
        """Return scheduled messages to their places in the queue: their delay is over."""

    def expired(self, source: Any, offset: int, deliveries: int) -> None:
        """Remove an expired message that was delivered ``deliveries`` times."""

    def ended(self, source: Any, offsets: list[int], reason: str) -> None:
        """Deliver these messages no more, for this reason."""

    def timed_out(self, source: Any, subscription: Any, numbers: list[str]) -> None:
        """Return deliveries that the subscription did not acknowledge in time."""


class Timing:
    """The present time, the timers, and the memory totals of scheduled and skipped messages.

    Args:
        wake: Called with a queue that has messages to deliver again.
        on_error: Called with an unexpected exception of a subject. That subject waits for its next timer; the other
            subjects are called.
        skipped: The totals of messages skipped by selector.
        traffic: The messages of each rule.
        recorder: The rows about deliveries that are not stored yet (``queues.recorder``).

    Attributes:
        now: The present time; its wall time is the trusted one.
        shown_ns: The wall time as the clock shows it, trusted or not.
        deferred: The number of scheduled messages that queues store by offset.
        noted: The number of other scheduled messages that queues only count.
    """

    __slots__ = (
        "_mono",
        "_on_error",
        "_shown",
        "_steady_ns",
        "_waiting_for_room",
        "_wall",
        "clock",
        "deferred",
        "noted",
        "now",
        "outcomes",
        "recorder",
        "shown_ns",
        "skipped",
        "traffic",
        "wake",
    )

    def __init__(
        self,
        wake: Callable[[Any], None],
        on_error: Callable[[Exception], None],
        skipped: SkippedTotals[Any],
        traffic: Traffic,
        recorder: Any = None,
    ) -> None:
        self.wake = wake
        self._on_error = on_error
        self.outcomes: Outcomes
        self.skipped = skipped
        self.traffic = traffic
        self.recorder = recorder
        self.clock = TrustedClock()
        self._steady_ns = NOT_STEADY_NS  # wall time minus monotonic time when the wall clock was last trusted
        self.now = BEFORE
        self.shown_ns = BEFORE.wall
        self.deferred = 0
        self.noted = 0
        self._mono: Timers[MonoNs, Subject] = Timers()
        self._wall: Timers[WallNs, Subject] = Timers()
        self._shown: Timers[WallNs, Subject] = Timers()
        self._waiting_for_room: list[Callable[[], None]] = []

    def __len__(self) -> int:
        """Return the number of timers that are set."""
        return len(self._mono) + len(self._wall) + len(self._shown)

    def see(self, now: Now) -> Now:
        """Set the present time from both clocks and return it with the trusted wall time."""
        self.shown_ns = wall_ns = now.wall
        offset_ns = wall_ns - now.mono
        if -STEADY_NS < offset_ns - self._steady_ns < STEADY_NS:
            self.now = now
            return now
        self.now = trusted = self.clock.see(now)
        self._steady_ns = offset_ns if trusted is now else NOT_STEADY_NS
        return trusted

    def after(self, pause_ns: int, subject: Subject) -> None:
        """Call ``subject.due`` after ``pause_ns``, or earlier if an earlier timer is set."""
        self._mono.at(MonoNs(self.now.mono + pause_ns), subject)

    def at(self, due_ns: MonoNs, subject: Subject) -> None:
        """Call ``subject.due`` at a monotonic time, or earlier if an earlier timer is set."""
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
        """The monotonic time of the next timer if no clock steps; NEVER_NS without timers."""
        now, next_ns = self.now, self._mono.next_ns
        if (wall_ns := self._wall.next_ns) != NEVER_NS:
            next_ns = min(next_ns, MonoNs(wall_ns - now.wall + now.mono))
        if (shown_ns := self._shown.next_ns) != NEVER_NS:
            next_ns = min(next_ns, MonoNs(shown_ns - self.shown_ns + now.mono))
        return next_ns

    def fire_due(self) -> None:
        """Call ``due`` of every subject with a timer that has fired, once each."""
        now = self.now
        due = [*self._mono.due(now.mono), *self._wall.due(now.wall), *self._shown.due(self.shown_ns)]
        for subject in dict.fromkeys(due):
            try:
                subject.due(now)
            except Exception as error:
                self._on_error(error)

    # --- memory limit of scheduled messages -------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """True if no more scheduled messages can be stored in memory."""
        return self.deferred >= limits.DEFERRED_MAX

    def decide_by(self, outcomes: Outcomes) -> None:
        """Set the handler of messages whose time has come. The broker calls this once."""
        self.outcomes = outcomes

    def count(self, deferred: int = 0, noted: int = 0) -> None:
        """Add to the totals of scheduled messages: ``deferred`` are stored by offset, ``noted`` only counted."""
        self.deferred += deferred
        self.noted += noted

    def await_room(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` once another scheduled message can be stored."""
        self._waiting_for_room.append(resume)

    def freed(self, number: int) -> None:
        """Subtract ``number`` from the stored scheduled messages and resume the callers of ``await_room``."""
        self.deferred -= number
        if self._waiting_for_room:
            waiting, self._waiting_for_room = self._waiting_for_room, []
            for resume in waiting:
                resume()
