"""The budget of work of one turn.

A turn is one callback of the event loop: a visit of a connection's frames, a turn of the driver, a tick. While it runs
nobody else is served, so each turn has a budget. Whatever does work in proportion to how much exists (destinations,
patterns, waiting messages, frames of a transaction) spends units of it; what does not fit goes on in the next turn. A
command that may be long is a generator (``Steps``) that yields wherever the turn may end. ``Session.run`` runs it
until the budget is used up and then raises ``Unfinished``: the frame comes again and the command goes on where it
stopped, while the frames of the same session behind it wait.

A unit is about a microsecond on the reference machine of ``docs/performance.md``. Work of less than that per item is
summed up first. What a plain SEND or ACK costs is not counted; the time of a visit bounds how many of them it takes.

Knows: numbers. Must not know: clocks, sessions, what the units are spent on.
Invariant: a turn spends no more than ``most`` and one indivisible step.
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
SHARE_UNITS = 200  # of one in the background, before the next one has its turn

Item = TypeVar("Item")
Steps = Generator[bool, None, None]  # of a command: True where it may go on at once, False where it waits for others


class Unfinished(Exception):
    """The frame is to come again: the budget of this turn is used up, or something else has to be done first.

    Args:
        at_once: True if there is more to do in the next turn; False if the frame waits for the disk, or for others.
    """

    def __init__(self, at_once: bool = True) -> None:
        super().__init__()
        self.at_once = at_once


class Budget:
    """Units of work, of one broker: what is left of them in this turn, and the most that a turn has spent.

    Args:
        most: Units that a turn may spend; without it ``limits.TURN_WORK``.
    """

    __slots__ = ("_longest_ns", "_peak", "_unused", "left", "most")

    def __init__(self, most: int | None = None) -> None:
        self.most = limits.TURN_WORK if most is None else most
        self.left = self.most
        self._unused = 0  # given up by ``give_way``
        self._peak = 0
        self._longest_ns = 0

    def begin(self) -> None:
        """A turn begins: all of the budget is there again."""
        if self.left != self.most:
            self._peak = self.peak
            self.left = self.most
            self._unused = 0

    def spend(self, units: int) -> None:
        """Count ``units`` of work that was done or is about to be done."""
        self.left -= units

    def give_way(self) -> None:
        """Let this turn end after the frame that is being handled, however little was spent."""
        if self.left > 0:
            self._unused += self.left
            self.left = 0

    @property
    def exhausted(self) -> bool:
        """True once nothing more should be begun in this turn."""
        return self.left <= 0

    @property
    def spent(self) -> int:
        """Units spent in this turn."""
        return self.most - self.left - self._unused

    @property
    def peak(self) -> int:
        """The most units that a turn has spent since the start, this one included."""
        return max(self._peak, self.spent)

    def portions(self, items: Sequence[Item]) -> Iterator[Sequence[Item]]:
        """``items`` in portions, each of which is spent for when it is handed over: a few hundred deliveries or frames,
        say. Whoever asks yields behind each."""
        for first in range(0, len(items), PORTION):
            part = items[first : first + PORTION]
            self.spend((len(part) + PORTION_A_UNIT - 1) // PORTION_A_UNIT)
            yield part

    def took(self, duration_ns: int) -> None:
        """A turn took that long, by the monotonic clock. The shell measures it."""
        if duration_ns > self._longest_ns:
            self._longest_ns = duration_ns

    @property
    def longest_ns(self) -> int:
        """The longest turn since the start, in nanoseconds."""
        return self._longest_ns


class Background:
    """Work that no frame waits in line for: it goes on a little in each turn of the driver.

    Args:
        bugs: Catches what one of them raises; it is over then.
    """

    __slots__ = ("_budget", "_bugs", "_running", "waiting")

    def __init__(self, budget: Budget, internal_errors: InternalErrors) -> None:
        self._budget = budget
        self._bugs = internal_errors
        self._running = False
        self.waiting: deque[Steps] = deque()  # what there is to do

    def add(self, steps: Steps) -> None:
        """One more. What this turn's budget lets is done at once."""
        self.waiting.append(steps)
        self.go_on()

    def until(self, over: Callable[[], bool]) -> Steps:
        """Of a command: wait until that is so, and take part in the work meanwhile."""
        while not over():
            self.go_on()
            if not over():
                yield self._budget.left <= 0

    def go_on(self) -> None:
        """Do what this turn's budget lets, of each in turn."""
        if self._running:
            return  # a step has added something
        waiting, budget = self.waiting, self._budget
        self._running = True
        try:
            rounds = len(waiting)  # who waits for something else is asked once in a turn
            while waiting and budget.left > 0 and rounds > 0:
                steps, until = waiting.popleft(), budget.left - SHARE_UNITS
                over, before = True, budget.left
                with self._bugs:
                    while (at_once := next(steps, None)) is not None and at_once and budget.left > max(until, 0):
                        pass
                    over = at_once is None
                if not over:
                    waiting.append(steps)
                rounds = rounds - 1 if not over and budget.left == before else len(waiting)
        finally:
            self._running = False
