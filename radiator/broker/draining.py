"""Drain the broker: refuse new clients, and disconnect the others over a period.

A session passes through two steps. When its turn has come it gets no more messages. As soon as it has nothing in flight
and no open transaction, at the latest after GRACE of the period, it gets an ERROR behind its last receipts. So a
consumer that acknowledges what it has causes no second delivery, and a publisher knows what is stored.

Sessions of administrators that have sent ``while-draining:true`` on CONNECT stay, and only such are accepted meanwhile.

This module knows sessions and time. It does not know who asks for a drain, and opens or closes no socket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

from radiator.clock import NS_PER_SECOND, MonoNs
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.budget import Background, Budget, Steps
    from radiator.broker.clients.session import Session, Subscription

GRACE: Final = 1 / 3  # of the period: time of the last session to acknowledge what it has
LOOKED_AT_MAX: Final = 1_000  # sessions of a tick
SESSIONS_A_UNIT: Final = 10  # looked at
END_UNITS: Final = 50  # to end a session
WHILE_DRAINING: Final = "while-draining"  # header of CONNECT
HINT: Final = "Connect to another broker, or to this one after its restart."


def refusal() -> ProtocolError:
    """Return the ERROR for a new client."""
    return ProtocolError("draining", "the broker is going down and accepts no new clients", HINT)


class Draining:
    """Whether the broker is being drained, and which sessions are left.

    Args:
        sessions: The sessions of the broker.
        background: The background work of turns.
        budget: The budget of turns.
        refuse: Sends an ERROR to a session and ends it.
        credit: Called with a subscription that may get messages again.

    Attributes:
        active: True from the beginning of a drain until it is cancelled, also when all sessions have ended.
    """

    def __init__(
        self,
        sessions: Mapping[str, Session],
        background: Background,
        budget: Budget,
        refuse: Callable[[Session, ProtocolError], None],
        credit: Callable[[Subscription], None],
    ) -> None:
        self.active = False
        self._sessions = sessions
        self._background = background
        self._budget = budget
        self._refuse = refuse
        self._credit = credit
        self._begun_ns = self._ends_ns = MonoNs(0)
        self._order: list[Session] = []
        self._next = 0  # index in _order of the next session whose turn comes
        self._leaving: dict[Session, MonoNs] = {}  # sessions that get no messages, with the end of their grace
        self._on_done: list[Callable[[], None]] = []

    def begin(self, seconds: float, now_ns: MonoNs) -> None:
        """Begin to drain, or spread the sessions that are left over another period."""
        self.active = True
        self._begun_ns = now_ns
        self._ends_ns = MonoNs(now_ns + int(seconds * NS_PER_SECOND))
        self._leaving = leaving = {each: min(until, self._ends_ns) for each, until in self._leaving.items()}
        self._order = [each for each in self._sessions.values() if self._ends(each) and each not in leaving]
        self._next = 0
        self._budget.spend(len(self._sessions) // SESSIONS_A_UNIT)
        self._pause_due(now_ns)

    def cancel(self) -> None:
        """Accept new clients, and deliver to all sessions that are left."""
        self.active = False
        leaving, self._leaving = self._leaving, {}
        self._order, self._next = [], 0
        self._background.add(self._resume(leaving))
        self._report_done()

    def when_done(self, then: Callable[[], None]) -> None:
        """Call ``then`` when all sessions have ended, or the drain is cancelled. The caller has checked ``done``."""
        self._on_done.append(then)

    @property
    def waiting(self) -> int:
        """The number of calls that ``when_done`` will make."""
        return len(self._on_done)

    @property
    def done(self) -> bool:
        """True if no session is left to end."""
        return self._next == len(self._order) and not self._leaving

    @property
    def left(self) -> int:
        """The number of sessions that are left to end."""
        return len(self._leaving) + sum(map(self._ends, islice(self._order, self._next, None)))

    def seconds_left(self, now_ns: MonoNs) -> float:
        """Return the seconds until the end of the period; 0 after it."""
        return max(self._ends_ns - max(now_ns, self._begun_ns), 0) / NS_PER_SECOND

    def tick(self, now_ns: MonoNs) -> None:
        """Stop deliveries to the sessions whose turn has come, and end those that are ready."""
        if not self.active:
            return
        self._pause_due(now_ns)
        ready = []
        for session in list(islice(self._leaving, LOOKED_AT_MAX)):
            until_ns = self._leaving.pop(session)
            if now_ns >= until_ns or session.holds_nothing:
                ready.append(session)
            elif not session.closing:
                self._leaving[session] = until_ns
        if ready:
            self._background.add(self._end(ready))
        if self.done:
            self._report_done()

    def _pause_due(self, now_ns: MonoNs) -> None:
        """Stop deliveries to the sessions whose turn has come. The first has its turn at once."""
        period_ns, elapsed_ns = self._ends_ns - self._begun_ns, now_ns - self._begun_ns
        spread_ns, count = int(period_ns * (1 - GRACE)), len(self._order)
        due = count if elapsed_ns >= spread_ns else min(count, 1 + count * elapsed_ns // spread_ns)
        grace_ns = period_ns - spread_ns
        for session in self._order[self._next : due]:
            if self._ends(session):
                session.outbox.pause_deliveries()
                self._leaving[session] = MonoNs(min(now_ns + grace_ns, max(self._ends_ns, now_ns)))
        self._next = max(self._next, due)

    def _end(self, sessions: Iterable[Session]) -> Steps:
        for session in sessions:
            if not session.closing:
                self._refuse(session, ProtocolError("draining", "the broker is going down", HINT))
            self._budget.spend(END_UNITS)
            yield True

    def _resume(self, sessions: Iterable[Session]) -> Steps:
        for session in sessions:
            waiting = session.outbox.resume_deliveries()
            for subscription in waiting:
                self._credit(subscription)
            self._budget.spend(1 + len(waiting))
            yield True

    def _report_done(self) -> None:
        waiting, self._on_done = self._on_done, []
        for then in waiting:
            then()

    @staticmethod
    def _ends(session: Session) -> bool:
        return session.connected and not session.closing and not session.stays
