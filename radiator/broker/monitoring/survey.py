"""The survey: what is wrong with queues and consumers, found by looking at all of them every few seconds.

A survey looks at every destination, durable subscription and session. With very many of them it takes longer, because
each tick spends at most ``TICK_UNITS``. The result of a survey is valid until the next one has ended. The numbers are
those of cursors and logs, so nothing is counted per message.

How long a consumer has held a delivery is a lower bound: deliveries of a session are numbered, and a survey notes the
number and the time. A delivery whose number was given out at an earlier survey is at least as old as that survey.

This module changes nothing in the broker. It does not know who may see the result.
Invariant: the memory of a survey is bounded by ``TRACKED_MAX``, ``PROBLEMS_MAX`` and the number of sessions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from radiator.broker.destinations import orphaned
from radiator.broker.monitoring import figures
from radiator.clock import NS_PER_SECOND, MonoNs
from radiator.errors import printable
from radiator.routing import dead_letter
from radiator.routing.rules import TEMPORARY
from radiator.words import counted

if TYPE_CHECKING:
    from radiator.broker.clients.session import Session, Subscription
    from radiator.broker.core import Core
    from radiator.broker.durable.subscriptions import DurableSubscriptions
    from radiator.routing.pattern import PatternSet

EVERY_NS: Final = 5 * NS_PER_SECOND  # between the starts of two surveys
TICK_UNITS: Final = 1_500  # of a budget of 2,000 units for one tick
QUEUE_UNITS: Final = 3
BACKLOG_UNITS: Final = 6  # more for a queue with ready messages
BACKLOG_NS: Final = 60 * NS_PER_SECOND  # messages wait for longer without a consumer: a problem
HELD_NS: Final = 300 * NS_PER_SECOND  # a consumer holds a message for longer: a problem
GROWS_EVERY_NS: Final = 60 * NS_PER_SECOND
GROWS_TIMES: Final = 5  # a backlog that has grown in each of so many minutes in a row: a problem
TRACKED_MAX: Final = 10_000  # queues with a backlog whose history is stored
PROBLEMS_MAX: Final = 10_000  # of one survey
CHECKPOINTS_MAX: Final = 64  # of one session


class Problem(NamedTuple):
    """One thing that is wrong.

    Attributes:
        severity: ``error`` or ``warning``.
        kind: A word that does not change between versions (docs/protocol.md).
        text: A sentence for people.
        destination: The destination that it concerns, if it is one.
        value: The number that makes it a problem, if there is one.
    """

    severity: str
    kind: str
    text: str
    destination: str | None = None
    value: float | None = None


class _Growth(NamedTuple):
    """How the backlog of a queue develops."""

    since: MonoNs  # of ``lag``
    lag: int
    times: int  # in a row that it has grown
    first: int  # the backlog before that


class Survey:
    """The surveys of one broker.

    Args:
        core: The core of the broker.
        durable: Its durable subscriptions.

    Attributes:
        problems: What the last survey has found.
        ready: The number of ready messages in all queues at the last survey; None before the first.
    """

    def __init__(self, core: Core, durable: DurableSubscriptions) -> None:
        self._core = core
        self._durable = durable
        self._templates = dead_letter.templates(core.config)
        self._steps: Iterator[int] | None = None
        self._next_ns = MonoNs(0)
        self._alone: dict[str, MonoNs] = {}  # since when a queue has a backlog and no consumer
        self._growth: dict[str, _Growth] = {}
        self._checkpoints: dict[str, list[tuple[MonoNs, int]]] = {}  # by session: time, and deliveries until then
        self.problems: list[Problem] = []
        self.ready: int | None = None

    def tick(self) -> None:
        """Begin a survey if it is time, or continue the present one."""
        now_ns = self._core.timing.now.mono
        if self._steps is None:
            if now_ns < self._next_ns:
                return
            self._next_ns = MonoNs(now_ns + EVERY_NS)
            self._steps = self._survey()
        spent = 0
        for units in self._steps:
            spent += units
            if spent >= TICK_UNITS:
                break
        else:
            self._steps = None
        self._core.budget.spend(spent)

    def seconds_held(self, session: Session, number: str) -> float | None:
        """Return for how many seconds, at least, a delivery has been in flight; None if no survey has met it.

        Args:
            session: The session of the consumer.
            number: The delivery number.
        """
        since = self._held_since(session, int(number))
        return None if since is None else (self._core.timing.now.mono - since) / NS_PER_SECOND

    def _held_since(self, session: Session, number: int) -> MonoNs | None:
        found = self._checkpoints.get(session.id, ())
        return next((time for time, deliveries in found if deliveries > number), None)

    # --- one survey -------------------------------------------------------------------------------------------------

    def _survey(self) -> Iterator[int]:
        """Look at everything; yields the units that each step has cost."""
        problems: list[Problem] = []
        alone: dict[str, MonoNs] = {}
        growth: dict[str, _Growth] = {}
        ready = 0
        core = self._core
        for destination in list(core.destinations.values()):
            queue, name = destination.queue, destination.name
            if queue is None or name.startswith(TEMPORARY):
                yield 1
                continue
            yield QUEUE_UNITS * len(queue.sources)
            waiting = figures.ready(queue, core.timing.shown_ns)
            if not waiting:
                continue
            yield BACKLOG_UNITS
            ready += waiting
            if any(dead_letter.is_dead_letter(each, name) for each in self._templates):
                text = f"{counted(waiting, 'dead letter')} in {_shown(name)}"
                problems.append(Problem("warning", "dead_letters", text, name, waiting))
            elif queue.consumers:
                self._grows(problems, growth, name, name, waiting)
            elif len(alone) < TRACKED_MAX:
                since = alone[name] = self._alone.get(name, core.timing.now.mono)
                if core.timing.now.mono - since >= BACKLOG_NS:
                    text = f"{counted(waiting, 'message')} in {_shown(name)}, and no consumer"
                    problems.append(Problem("warning", "backlog_without_consumer", text, name, waiting))
            del problems[PROBLEMS_MAX:]
        for key, durable in list(self._durable.by_key.items()):
            lag = 0
            for source in list(durable.queue.sources):
                yield QUEUE_UNITS
                lag += max(0, orphaned.unsettled(source.cursor, source.feed.partition) - source.unflushed)
            if lag and durable.active:
                self._grows(problems, growth, key, _only(durable.patterns), lag)
        yield from self._sessions(problems)
        self._alone, self._growth, self.ready = alone, growth, ready
        self.problems = problems[:PROBLEMS_MAX]

    def _grows(
        self, problems: list[Problem], growth: dict[str, _Growth], key: str, destination: str | None, lag: int
    ) -> None:
        """Note the backlog of a queue that has consumers."""
        if len(growth) >= TRACKED_MAX:
            return
        now_ns = self._core.timing.now.mono
        before = self._growth.get(key)
        if before is None:
            before = _Growth(now_ns, lag, 0, lag)
        elif now_ns - before.since >= GROWS_EVERY_NS:
            grown = lag > before.lag
            before = _Growth(now_ns, lag, before.times + 1 if grown else 0, before.first if grown else lag)
        growth[key] = before
        if before.times >= GROWS_TIMES:
            minutes = before.times * GROWS_EVERY_NS // (60 * NS_PER_SECOND)
            grew = f"grew from {before.first:,} to {counted(lag, 'message')} in {minutes} minutes"
            text = f"the backlog of {_shown(key)} {grew}, although it has consumers"
            problems.append(Problem("warning", "lag_grows", text, destination, lag))

    def _sessions(self, problems: list[Problem]) -> Iterator[int]:
        checkpoints: dict[str, list[tuple[MonoNs, int]]] = {}
        for session in list(self._core.sessions.values()):
            oldest: dict[Subscription, int] = {}
            for subscription in list(session.subscriptions.by_id.values()):
                yield 1
                if subscription.in_flight:
                    oldest[subscription] = int(next(iter(subscription.in_flight)))
            yield 1
            if not oldest:
                continue
            now_ns = self._core.timing.now.mono
            found = [each for each in self._checkpoints.get(session.id, ()) if each[1] > min(oldest.values())]
            if not found or found[-1][1] != session.numbers.next:
                found.append((now_ns, session.numbers.next))
            if len(found) > CHECKPOINTS_MAX:
                del found[1:-1:2]
            self._checkpoints[session.id] = checkpoints[session.id] = found
            for subscription, number in oldest.items():
                since = self._held_since(session, number)
                if since is not None and now_ns - since >= HELD_NS:
                    problems.append(self._stalled(session, subscription, str(number), now_ns - since))
        self._checkpoints = checkpoints

    def _stalled(self, session: Session, subscription: Subscription, number: str, held_ns: int) -> Problem:
        source = subscription.in_flight[number][0]
        name = None if source is None else source.queue_name
        if name not in self._core.destinations:
            name = _only(subscription.asked)
        who = f"{printable(session.user)} ({session.id})" if session.user else session.id
        of = "" if name is None else f" of {_shown(name)}"
        seconds = held_ns / NS_PER_SECOND
        text = f"{who} has held a message{of} for {seconds / 60:.0f} min without an acknowledgement"
        return Problem("warning", "stalled_consumer", text, name, round(seconds, 1))


def _only(patterns: PatternSet) -> str | None:
    """Return the only destination of a subscription; None if it may have several."""
    return patterns.text if patterns.is_literal and len(patterns.names) == 1 else None


def _shown(name: str) -> str:
    return printable(name[:200])
