"""Who may come in, and what follows when that changes.

Every CONNECT is put to the *entrance*, which decides at once or later: the shell gives one that knows users and hashes
and does its work elsewhere; without one everybody may do everything. Until it has decided, nothing that the client sent
behind its CONNECT is acted upon. What a session may do from then on is its ``rights``.

Knows: sessions, rights. Must not know: passcodes (it hands them on and keeps none), users, files.
Invariants: a session without a decision has no rights; a session is decided once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from radiator.broker.clients.identity import Identity
from radiator.errors import ProtocolError, printable
from radiator.routing.rights import EVERYTHING

if TYPE_CHECKING:
    from radiator.broker.clients.session import Session, Subscription
    from radiator.broker.core import Core
    from radiator.broker.durable.subscriptions import DurableSubscriptions

log = logging.getLogger("radiator.broker")
login_log = logging.getLogger("radiator.auth")

LOGGED_CHARS_MAX: Final = 100  # of a login


Decision = Identity | ProtocolError
END_UNITS: Final = 40  # of work: one session ends
LEAVE_UNITS: Final = 20  # one of its subscriptions does
LESS: Final = ProtocolError(
    "denied",
    "the rights of this user have changed, and a subscription is not permitted any more",
    "The broker's users file was changed.",
)


class Login:
    """One CONNECT before the entrance: what the client says of itself, and what its connection says of it."""

    __slots__ = ("_answered", "_decided", "_session", "address", "certificate_name", "login", "passcode")

    def __init__(self, session: Session, login: str, passcode: str, decided: Callable[[Decision], None]) -> None:
        self._session = session
        self._answered = False
        self._decided = decided
        self.login = login
        self.passcode = passcode
        self.address = session.address
        self.certificate_name = session.certificate_name

    @property
    def wanted(self) -> bool:
        """False if nobody waits for a decision any more."""
        return self._session.undecided and not self._answered

    def decide(self, decision: Decision) -> None:
        """Once; what comes later does nothing."""
        if self._session.undecided and not self._answered:
            self._answered = True
            self._decided(decision)


Authenticator = Callable[[Login], None]


def open_to_all(asking: Login) -> None:
    """The entrance of a broker that nobody has given another."""
    asking.decide(Identity("", EVERYTHING, "anonymous"))


class Access:
    """``broker.access``: see the top of the file."""

    __slots__ = ("_core", "_ended", "_names", "_release", "authenticator")

    def __init__(self, core: Core, names: DurableSubscriptions, release: Callable[[Session], None]) -> None:
        self._core = core
        self._names = names
        self._release = release
        self._ended: deque[Session] = deque()  # that ``changed`` has ended, and that still hold what they held
        self.authenticator: Authenticator = open_to_all

    def use(self, authenticator: Authenticator) -> None:
        """Have ``entrance`` decide on logins from now on."""
        self.authenticator = authenticator

    def log_in(
        self, session: Session, login: str, passcode: str, welcome: Callable[[], None], receipt: bytes | None = None
    ) -> None:
        """Ask who this is. ``welcome`` is called once it is known, unless the session has ended meanwhile; ``receipt``
        is that of CONNECT, for its ERROR."""
        core = self._core
        session.begin_login()

        def decided(decision: Decision) -> None:
            if isinstance(decision, ProtocolError):
                core.stats.count(logins_refused=1)
                core.peer_log.line(
                    logging.WARNING,
                    f"refused logins ({decision.code})",
                    session.origin,
                    "login of %r from %s refused: %s",
                    login[:LOGGED_CHARS_MAX],
                    session.address,
                    decision.message,
                    logger=login_log,
                )
                core.end(session, decision, receipt)
                return
            session.identify(decision)
            welcome()

        self.authenticator(Login(session, login, passcode, decided))
        if session.undecided:
            core.budget.give_way()

    def changed(self, identity: Callable[[Session], Decision]) -> None:
        """Users were changed: sessions go on with what they may do now. Those that ``identity`` refuses, and those that
        are subscribed to what they may not read any more, are answered ERROR and given nothing more at once; what they
        hold goes back by ``release_some``.

        Args:
            identity: who an open session belongs to by what is known now, or the ERROR that it ends with.
        """
        for session in list(self._core.sessions.values()):
            if not session.connected or session.closing:
                continue
            now = identity(session)
            if isinstance(now, ProtocolError):
                self._refuse(session, now)
                continue
            session.identify(now)
            for subscription in session.subscriptions.values():
                subscription.permit(now.rights)
                self._names.permit(subscription)
            if not all(map(_permitted, session.subscriptions.values())):
                self._refuse(session, LESS)

    def _refuse(self, session: Session, error: ProtocolError) -> None:
        user = printable(session.user) or "anonymous"
        log.warning("session %s %s: %s: %s", session.id, session.address, user, error.message)
        self._core.stats.count(refused=1)
        session.fail(error)
        self._ended.append(session)

    def release_some(self) -> bool:
        """Give back what sessions hold that ``changed`` has ended, as many as the budget of a turn lets.

        Returns:
            True if there are more: to be called again in the next turn.
        """
        budget = self._core.budget
        budget.begin()
        while self._ended and not budget.exhausted:
            session = self._ended.popleft()
            budget.spend(END_UNITS + LEAVE_UNITS * len(session.subscriptions))
            self._release(session)
        return bool(self._ended)


def _permitted(subscription: Subscription) -> bool:
    """Whether it may go on: what a wildcard shows of topics narrows by itself, but a queue would be consumed on."""
    may, right = subscription.session.rights.may, subscription.right
    consumed = [queue.name for queue in subscription.queues if queue.filter.owned]  # others follow topics under a name
    return all(may(right, name) for name in (*subscription.asked.names, *consumed))


def too_late(session: Session) -> ProtocolError:
    """What a client is told that is not connected when its time is over."""
    where = "limits.connect_timeout in the YAML file says how soon."
    if session.undecided:
        detail = f"Too many others log in, or have failed to; {where}"
        return ProtocolError("timeout", "the login could not be verified in time", detail)
    return ProtocolError("timeout", "no CONNECT frame came in time", f"Expected CONNECT or STOMP; {where}")
