"""Who may come in, and what follows when that changes.

Every CONNECT is put to the *entrance*, which decides at once or later: the shell gives one that knows users and hashes
and does its work elsewhere; without one everybody may do everything. Until it has decided, nothing that the client sent
behind its CONNECT is acted upon. What a session may do from then on is its ``rights``.

Knows: sessions, rights. Must not know: passcodes (it hands them on and keeps none), users, files.
Invariants: a session without a decision has no rights; a session is decided once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from radiator.errors import ProtocolError, printable
from radiator.routing.rights import EVERYTHING, Rights

if TYPE_CHECKING:
    from radiator.broker.broker import Broker
    from radiator.broker.session import Session
    from radiator.broker.subscriptions.subscription import Subscription

log = logging.getLogger("radiator.broker")


class Identity(NamedTuple):
    """Whom a session belongs to, and who says so; ``user`` is empty for anonymous."""

    user: str
    rights: Rights
    source: str  # anonymous, users, certificate, plugin


Decision = Identity | ProtocolError


class Asking:
    """One CONNECT before the entrance: what the client says of itself, and what its connection says of it."""

    __slots__ = ("_decided", "_session", "address", "certificate_name", "login", "passcode")

    def __init__(self, session: Session, login: str, passcode: str, decided: Callable[[Decision], None]) -> None:
        self._session = session
        self._decided = decided
        self.login = login
        self.passcode = passcode
        self.address = session.address
        self.certificate_name = session.certificate_name

    @property
    def wanted(self) -> bool:
        """False if nobody waits for a decision any more."""
        return self._session.undecided and not self._session.closing

    def decide(self, decision: Decision) -> None:
        """Once; what comes later does nothing."""
        if self._session.undecided:
            self._session.undecided = False
            if not self._session.closing:
                self._decided(decision)


Entrance = Callable[[Asking], None]


def open_to_all(asking: Asking) -> None:
    """The entrance of a broker that nobody has given another."""
    asking.decide(Identity("", EVERYTHING, "anonymous"))


class Access:
    """``broker.access``: see the top of the file."""

    __slots__ = ("_broker", "entrance")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.entrance: Entrance = open_to_all

    def log_in(
        self, session: Session, login: str, passcode: str, welcome: Callable[[], None], receipt: bytes | None = None
    ) -> None:
        """Ask who this is. ``welcome`` is called once it is known, unless the session has ended meanwhile; ``receipt``
        is that of CONNECT, for its ERROR."""
        broker = self._broker
        session.undecided = True

        def decided(decision: Decision) -> None:
            if isinstance(decision, ProtocolError):
                broker.stats.logins_refused += 1
                broker.refuse(session, decision, receipt)
                return
            session.identity = decision
            session.user, session.rights = decision.user, decision.rights
            welcome()

        self.entrance(Asking(session, login, passcode, decided))
        if session.undecided:
            broker.give_way()

    def changed(self, identity: Callable[[Session], Identity | None]) -> None:
        """Users were changed: sessions go on with what they may do now. Whoever is no user any more, or is subscribed
        to what it may not read any more, is told and its connection ended."""
        for session in list(self._broker.sessions.values()):
            if not session.connected or session.closing:
                continue
            now = identity(session)
            if now is None:
                self._end(session, "this user may not connect any more")
                continue
            session.identity, session.rights = now, now.rights
            for subscription in session.subscriptions.values():
                subscription.permit(now.rights)
                self._broker.names.permit(subscription)
            if not all(map(_permitted, session.subscriptions.values())):
                self._end(session, "the rights of this user have changed, and a subscription is not permitted any more")

    def _end(self, session: Session, why: str) -> None:
        log.warning("session %s %s: %s: %s", session.id, session.address, printable(session.user) or "anonymous", why)
        self._broker.refuse(session, ProtocolError("denied", why, "The broker's users file was changed."))


def _permitted(subscription: Subscription) -> bool:
    """Whether it may go on: what a wildcard shows of topics narrows by itself, but a queue would be consumed on."""
    may, right = subscription.session.rights.may, subscription.right
    consumed = [queue.name for queue in subscription.queues if queue.claim.owned]  # others follow topics under a name
    return all(may(right, name) for name in (*subscription.asked.names, *consumed))


def too_late(session: Session) -> ProtocolError:
    """What a client is told that is not connected when its time is over."""
    where = "limits.connect_timeout in the YAML file says how soon."
    if session.undecided:
        detail = f"Too many others log in, or have failed to; {where}"
        return ProtocolError("timeout", "the login could not be verified in time", detail)
    return ProtocolError("timeout", "no CONNECT frame came in time", f"Expected CONNECT or STOMP; {where}")
