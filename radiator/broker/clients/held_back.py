"""Sessions whose frames wait (``clients.throttle``): since when, for what, and when to try again.

Invariants: a session waits for one thing at a time; the time that a frame has waited counts from its first try; a
session that has ended waits for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.broker.throttle import Hold
from radiator.timers import Timers

if TYPE_CHECKING:
    from radiator.broker.clients.session import Session
    from radiator.broker.stats import Stats
    from radiator.broker.throttle import Wait
    from radiator.clock import MonoNs
    from radiator.stomp.frames import Frame


class Throttle:
    """All of one broker."""

    __slots__ = ("_stats", "_timers", "held", "passed")

    def __init__(self, stats: Stats) -> None:
        self.held: dict[Session, Hold] = {}
        self.passed: Frame | None = None  # the frame that is tried again has been through the hooks
        self._stats = stats
        self._timers: Timers[MonoNs, Session] = Timers()

    def lets(self, session: Session, hold: Hold, now_ns: MonoNs) -> bool:
        """Whether what this session waits for has come, or its time is over: then it waits no more."""
        if not (hold.due_ns <= now_ns or hold.wait.over()):
            return False
        self.passed = hold.wait.frame
        session.wait_for(None)
        del self.held[session]
        return True

    def hold(self, session: Session, wait: Wait, before: Hold | None, now_ns: MonoNs) -> bool:
        """Let the session wait. False if its frame, which was held ``before``, has waited for as long as it may."""
        since_ns = now_ns if before is None else before.since_ns
        if before is None:
            self._stats.count(**{wait.counter: 1})
        if wait.timeout_ns is not None and now_ns - since_ns >= wait.timeout_ns:
            return False
        hold = self.held[session] = Hold(wait, since_ns)
        session.wait_for(hold)
        self._timers.at(hold.due_ns, session)
        return True

    def forget(self, session: Session) -> None:
        """It has ended."""
        if session.hold is not None:
            session.wait_for(None)
            del self.held[session]
        self._timers.forget(session)

    @property
    def next_ns(self) -> MonoNs:
        """When the next one is to be tried again."""
        return self._timers.next_ns

    def meet(self, now_ns: MonoNs) -> None:
        """The time has come for some of them: they are tried in this turn, and the others are planned for."""
        for session in self._timers.due(now_ns):
            if session.hold is not None and session.hold.due_ns > now_ns:
                self._timers.at(session.hold.due_ns, session)
