"""Sessions whose frames wait (``radiator.broker.admission``), and the times of their next attempts.

Invariants: a session waits for one thing at a time. The wait of a frame counts from its first attempt. A session that
has ended does not wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.broker.admission import Hold
from radiator.timers import Timers

if TYPE_CHECKING:
    from radiator.broker.admission import Wait
    from radiator.broker.clients.session import Session
    from radiator.broker.stats import Stats
    from radiator.clock import MonoNs
    from radiator.stomp.frames import Frame


class Throttle:
    """The waiting sessions of one broker.

    Args:
        stats: The counters of the broker.

    Attributes:
        held: The wait of each waiting session.
        passed: The frame of the present attempt, if middleware has run on it already.
    """

    __slots__ = ("_stats", "_timers", "held", "passed")

    def __init__(self, stats: Stats) -> None:
        self.held: dict[Session, Hold] = {}
        self.passed: Frame | None = None
        self._stats = stats
        self._timers: Timers[MonoNs, Session] = Timers()

    def lets(self, session: Session, hold: Hold, now_ns: MonoNs) -> bool:
        """Return True if a waiting session may try again: the wait is over, or the next attempt is due."""
        if not (hold.due_ns <= now_ns or hold.wait.over()):
            return False
        self.passed = hold.wait.frame
        session.wait_for(None)
        del self.held[session]
        return True

    def hold(self, session: Session, wait: Wait, before: Hold | None, now_ns: MonoNs) -> bool:
        """Let a session wait.

        Args:
            session: The session.
            wait: The reason.
            before: The wait that the same frame has had, if any.
            now_ns: The monotonic time.

        Returns:
            False if the frame has waited for its timeout already.
        """
        since_ns = now_ns if before is None else before.since_ns
        if before is None:
            self._stats.count(**{wait.counter: 1})
        if wait.timeout_ns is not None and now_ns - since_ns >= wait.timeout_ns:
            return False
        hold = self.held[session] = Hold(wait, since_ns)
        session.wait_for(hold)
        self._timers.at(hold.due_ns, session)
        return True

    def retry_all(self, now_ns: MonoNs) -> None:
        """Let all waiting sessions try again in the next turn: what they wait for has other limits."""
        for hold in self.held.values():
            hold.retry_at(now_ns)

    def forget(self, session: Session) -> None:
        """Remove a session that has ended."""
        if session.hold is not None:
            session.wait_for(None)
            del self.held[session]
        self._timers.forget(session)

    @property
    def next_ns(self) -> MonoNs:
        """The monotonic time of the next attempt."""
        return self._timers.next_ns

    def retry_due(self, now_ns: MonoNs) -> None:
        """Set new timers for sessions whose timer has fired too early; the others try again in this turn."""
        for session in self._timers.due(now_ns):
            if session.hold is not None and session.hold.due_ns > now_ns:
                self._timers.at(session.hold.due_ns, session)
