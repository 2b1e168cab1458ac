"""The work budget of one turn.

A turn is one callback of the event loop: a visit of a connection's frames, a turn of the driver, a tick. No other work
is done while a turn runs, so each turn has a budget. Code whose cost is proportional to how much exists (destinations,
patterns, waiting messages, frames of a transaction) spends units of the budget and continues in the next turn when the
budget is used up. A command that may take long is a generator (``Steps``) that yields wherever the turn may end.
``LongCommand`` runs it until the budget is used up and then raises ``Unfinished``. The frame is handled again in the
next turn and the command continues where it stopped. Later frames of the same session wait.

A unit is about a microsecond on the reference machine of ``docs/performance.md``. Items that cost less are summed up
first. A plain SEND or ACK is not counted: the time of a visit bounds their number.

The module knows numbers, but not clocks, sessions, or the meaning of the units.
Invariant: a turn spends at most ``most`` and one indivisible step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from radiator import limits

if TYPE_CHECKING:
    from radiator.broker.internal_errors import InternalErrors

PORTION = 100
PORTION_A_UNIT = 2
SHARE_UNITS = 200  # of one background task before the next one runs

Item = TypeVar("Item")
Steps = Generator[bool, None, None]  # yields True to continue in the next turn, False to wait for other work


class Unfinished(Exception):
    """The command continues later: the budget is used up, or the command waits for other work.

    Args:
        at_once: True to continue in the next turn; False if the frame waits for the disk or for other sessions.
    """

    def __init__(self, at_once: bool = True) -> None:
        super().__init__()
        self.at_once = at_once


class Budget:
    """The work budget of one broker: the units left in this turn, and the highest use of a turn.

    Args:
        most: The units that a turn may spend; ``limits.TURN_WORK`` by default.
    """

    __slots__ = ("_longest_ns", "_peak", "_unused", "left", "most")

    def __init__(self, most: int | None = None) -> None:
        self.most = limits.TURN_WORK if most is None else most
        self.left = self.most
        self._unused = 0  # units given up by ``give_way``
        self._peak = 0
        self._longest_ns = 0

    def begin(self) -> None:
        """Begin a turn with the full budget."""
        if self.left != self.most:
            self._peak = self.peak
            self.left = self.most
            self._unused = 0

    def spend(self, units: int) -> None:
        """Count ``units`` of work, done or about to be done."""
        self.left -= units

    def give_way(self) -> None:
        """End this turn after the present frame, however little was spent."""
        if self.left > 0:
            self._unused += self.left
            self.left = 0

    @property
    def exhausted(self) -> bool:
        """True once the turn should begin no further work."""
        return self.left <= 0

    @property
    def spent(self) -> int:
        """Units spent in this turn."""
        return self.most - self.left - self._unused

    @property
    def peak(self) -> int:
        """The most units that a turn has spent since the start, including this turn."""
        return max(self._peak, self.spent)

    def portions(self, items: Sequence[Item]) -> Iterator[Sequence[Item]]:
        """Yield ``items`` in portions of ``PORTION``, and spend the cost of each: for deliveries or frames.

        The caller yields after each portion.
        """
        for first in range(0, len(items), PORTION):
            part = items[first : first + PORTION]
            self.spend((len(part) + PORTION_A_UNIT - 1) // PORTION_A_UNIT)
            yield part

    def took(self, duration_ns: int) -> None:
        """Note the duration of a turn by the monotonic clock, measured by the server."""
        if duration_ns > self._longest_ns:
            self._longest_ns = duration_ns

    @property
    def longest_ns(self) -> int:
        """The longest turn since the start, in nanoseconds."""
        return self._longest_ns


class LongCommand:
    """The command of a session that continues in another turn, if any. A *visit* is one call of ``Broker.handle``.

    Attributes:
        steps: The steps of the command; None if there is none, or it runs.
        at_once: True if the command continues in the next visit, False if it waits for other work.
    """

    __slots__ = ("at_once", "steps")

    def __init__(self) -> None:
        self.steps: Steps | None = None
        self.at_once = False

    def begin_visit(self) -> None:
        """Begin to handle frames."""
        self.at_once = False

    def end_visit(self, at_once: bool) -> None:
        """Continue the present command in the next visit: ``at_once``, or when its wait is over."""
        self.at_once = at_once

    def run(self, budget: Budget, steps: Steps) -> None:
        """Run the steps of a command until they end or the budget is used up.

        Args:
            budget: The budget of the turn.
            steps: The steps.

        Raises:
            Unfinished: There is more to do; ``self.steps`` has it.
        """
        self.steps = None
        for at_once in steps:
            if budget.left <= 0 or not at_once:
                self.steps = steps
                raise Unfinished(at_once)

    def close(self) -> None:
        """Stop the command."""
        if self.steps is not None:
            self.steps.close()
            self.steps = None


class Background:
    """Work that no frame waits for. Each turn of the driver does some of it.

    Args:
        budget: The budget of turns.
        internal_errors: Catches exceptions of a task, which ends then.
    """

    __slots__ = ("_budget", "_internal_errors", "_running", "waiting")

    def __init__(self, budget: Budget, internal_errors: InternalErrors) -> None:
        self._budget = budget
        self._internal_errors = internal_errors
        self._running = False
        self.waiting: deque[Steps] = deque()  # the unfinished tasks

    def add(self, steps: Steps) -> None:
        """Add a task and do as much of it as the budget of this turn allows."""
        self.waiting.append(steps)
        self.go_on()

    def until(self, over: Callable[[], bool]) -> Steps:
        """Yield until ``over`` returns True, and run background tasks meanwhile. For the steps of a command."""
        while not over():
            self.go_on()
            if not over():
                yield self._budget.left <= 0

    def go_on(self) -> None:
        """Run the tasks in turn, as far as the budget of this turn allows."""
        if self._running:
            return  # a running step has called add()
        waiting, budget = self.waiting, self._budget
        self._running = True
        try:
            rounds = len(waiting)  # a task that waits for other work runs once in a turn
            while waiting and budget.left > 0 and rounds > 0:
                steps, until = waiting.popleft(), budget.left - SHARE_UNITS
                over, before = True, budget.left
                with self._internal_errors:
                    while (at_once := next(steps, None)) is not None and at_once and budget.left > max(until, 0):
                        pass
                    over = at_once is None
                if not over:
                    waiting.append(steps)
                rounds = rounds - 1 if not over and budget.left == before else len(waiting)
        finally:
            self._running = False
