"""Login of clients, and changes of their rights.

Every CONNECT goes to the authenticator, which decides at once or later. The server passes an authenticator that checks
users and passcode hashes on another thread. Without one, every client may do everything. Until the decision no later
frame of the client is handled. From then on the ``rights`` of the session say what the client may do.

The module knows sessions and rights, but not users or files, and stores no passcode.
Invariants: a session has no rights before the decision. A session is decided once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from radiator.broker.clients.identity import Identity
from radiator.clock import Now, WallNs
from radiator.errors import ProtocolError, printable
from radiator.routing.rights import EVERYTHING

if TYPE_CHECKING:
    from radiator.broker.clients.session import Session, Subscription
    from radiator.broker.core import Core
    from radiator.broker.durable.subscriptions import DurableSubscriptions

log = logging.getLogger("radiator.broker")
login_log = logging.getLogger("radiator.auth")

LOGGED_CHARS_MAX: Final = 100  # longer logins are cut in the log


Decision = Identity | ProtocolError
END_UNITS: Final = 40  # cost of ending one session
LEAVE_UNITS: Final = 20  # cost of ending one of its subscriptions
RIGHTS_REDUCED: Final = ProtocolError(
    "denied",
    "the rights of this user have changed, and no longer permit a subscription",
    "The broker's users file was changed.",
)


EXPIRED: Final = ProtocolError("denied", "the token of this connection has expired", "Log in with a new token.")


class _Expiry:
    """Ends a session when its token expires."""

    __slots__ = ("_core", "_session")

    def __init__(self, core: Core, session: Session) -> None:
        self._core = core
        self._session = session

    def due(self, now: Now) -> None:
        """End the session, unless it is ending already."""
        if not self._session.closing:
            self._core.refuse(self._session, EXPIRED)


class Login:
    """One CONNECT that waits for the authenticator.

    Args:
        session: The session.
        login: The login that the client sent.
        passcode: The passcode that the client sent.
        decided: Called with the decision, unless the session has ended before.
    """

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
        """False if the decision is not needed any more."""
        return self._session.undecided and not self._answered

    def decide(self, decision: Decision) -> None:
        """Accept or refuse the login. Only the first call has an effect.

        Args:
            decision: The identity of the client, or the ERROR that refuses the login.
        """
        if self._session.undecided and not self._answered:
            self._answered = True
            self._decided(decision)


Authenticator = Callable[[Login], None]


def open_to_all(asking: Login) -> None:
    """Accept everybody as anonymous with all rights: the authenticator of a broker without users."""
    asking.decide(Identity("", EVERYTHING, "anonymous"))


class Access:
    """Login of clients and changes of their rights (``broker.access``).

    Args:
        core: The core of the broker.
        names: The durable subscriptions.
    """

    __slots__ = ("_core", "_ended", "_expiries", "_names", "authenticator")

    def __init__(self, core: Core, names: DurableSubscriptions) -> None:
        self._core = core
        self._names = names
        self._expiries: dict[Session, _Expiry] = {}
        self._ended: deque[Session] = deque()  # ended by ``changed``, not released yet
        self.authenticator: Authenticator = open_to_all

    def use(self, authenticator: Authenticator) -> None:
        """Let ``authenticator`` decide on logins from now on."""
        self.authenticator = authenticator

    def log_in(
        self, session: Session, login: str, passcode: str, welcome: Callable[[], None], receipt: bytes | None = None
    ) -> None:
        """Pass a login to the authenticator.

        Args:
            session: The session.
            login: The login that the client sent.
            passcode: The passcode that the client sent.
            welcome: Called when the login is accepted, unless the session has ended before.
            receipt: The receipt id of CONNECT, for its ERROR.
        """
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
                    peer=session,
                )
                core.end(session, decision, receipt)
                return
            session.identify(decision)
            if decision.expires_ns:
                expiry = self._expiries[session] = _Expiry(core, session)
                core.timing.at_wall(WallNs(decision.expires_ns), expiry)
            welcome()

        self.authenticator(Login(session, login, passcode, decided))
        if session.undecided:
            core.budget.give_way()

    def forget(self, session: Session) -> None:
        """Cancel the timer of a session that ends."""
        expiry = self._expiries.pop(session, None)
        if expiry is not None:
            self._core.timing.forget(expiry)

    def changed(self, identity: Callable[[Session], Decision]) -> None:
        """Apply changed users to open sessions.

        A session that is refused, or has a subscription that is not permitted any more, gets an ERROR and no further
        message. ``release_some`` returns its unacknowledged messages.

        Args:
            identity: Returns the present identity of an open session, or the ERROR that ends the session.
        """
        for session in list(self._core.sessions.values()):
            if not session.connected or session.closing:
                continue
            now = identity(session)
            if isinstance(now, ProtocolError):
                self._refuse(session, now)
                continue
            session.identify(now)
            for subscription in session.subscriptions.by_id.values():
                subscription.permit(now.rights)
                self._names.permit(subscription)
            if not all(map(_permitted, session.subscriptions.by_id.values())):
                self._refuse(session, RIGHTS_REDUCED)

    def _refuse(self, session: Session, error: ProtocolError) -> None:
        user = printable(session.user) or "anonymous"
        self._core.peer_log.line(
            logging.WARNING,
            "sessions ended by a change of the users",
            session.origin,
            "session %s %s: %s: %s",
            session.id,
            session.address,
            user,
            error.message,
            logger=log,
            peer=session,
        )
        self._core.stats.count(refused=1)
        session.fail(error)
        self._ended.append(session)

    def release_some(self) -> bool:
        """Release sessions that ``changed`` has ended, as many as the budget of this turn allows.

        Returns:
            True if there are more. The caller calls again in the next turn.
        """
        budget = self._core.budget
        budget.begin()
        while self._ended and not budget.exhausted:
            session = self._ended.popleft()
            budget.spend(END_UNITS + LEAVE_UNITS * len(session.subscriptions.by_id))
            self._core.release(session)
        return bool(self._ended)


def _permitted(subscription: Subscription) -> bool:
    """Return True if a subscription may go on.

    A wildcard over topics narrows by itself, but each consumed queue needs the right.
    """
    may, right = subscription.session.rights.may, subscription.right
    consumed = [queue.name for queue in subscription.queues if queue.filter.owned]  # not durable ones
    return all(may(right, name) for name in (*subscription.asked.names, *consumed))


def too_late(session: Session) -> ProtocolError:
    """Return the ERROR for a client that is not connected within ``limits.connect_timeout``."""
    where = "the limit is limits.connect_timeout in the YAML file."
    if session.undecided:
        detail = f"Too many other logins are in progress or have failed; {where}"
        return ProtocolError("timeout", "the login could not be verified in time", detail)
    return ProtocolError("timeout", "no CONNECT frame came in time", f"Expected CONNECT or STOMP; {where}")
