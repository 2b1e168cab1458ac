"""The entrance of a real broker: users file, plug-in, certificates, anonymous clients.

    a login is given    users are known: it is verified on a thread, by the file's hash or by the plug-in.
                        no users are known: there is nothing to compare it with; it counts as no login
    no login            the name in a verified certificate of the client, or else anonymous

A verified login is remembered (as an HMAC under a key of this process, so that no memory dump gives passcodes away), so
a storm of reconnects costs one hash per user; the same login that comes many times at once is verified once. Everything
remembered is dropped when the users file has changed. A user that is not there costs as much time as a wrong passcode,
and is told the same.

Knows: who may come in. Must not know: sessions, sockets, STOMP. On the loop, but for ``_verify``.
Invariants: no passcode is logged or kept beyond its verification; one verification at a time per thread; a try
waits for as long as its client does, and no longer.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from radiator.broker.access import Asking, Identity
from radiator.clock import NS_PER_SECOND
from radiator.config import AuthConfig
from radiator.errors import ProtocolError
from radiator.routing.rights import EVERYTHING
from radiator.server import passwords, users
from radiator.server.addresses import host_of, is_local, neighbourhood
from radiator.server.guesses import Guesses
from radiator.server.turns import Turns
from radiator.server.users_watch import UsersWatch

if TYPE_CHECKING:
    from radiator.broker.session import Session

log = logging.getLogger("radiator.auth")

REMEMBERED_MAX: Final = 10_000  # logins that were right: 100 bytes each
PLUGIN_TRUST_NS: Final = 60 * NS_PER_SECOND  # how long a plug-in's answer holds for the same login
FOR_EVER_NS: Final = 1 << 62
WAITING_MAX: Final = 10_000  # different logins that wait to be verified
PLUGIN_THREADS: Final = 4  # a plug-in may wait for other machines
PLUGIN_STOP_SECONDS: Final = 1.0  # how long a stop waits for each
LOGGED_CHARS_MAX: Final = 100

Submit = Callable[[Callable[[], Any], Callable[[Any], None]], None]
DENIED: Final = ProtocolError(
    "denied", "the login was refused", "Expected a login and its passcode that are known here."
)

GUESSED: Final = ProtocolError(
    "too-many",
    "too many wrong logins have come from this address",
    "This one was not looked at. Wait for some seconds; who goes on waits longer.",
)


class _Try:
    """One login that is to be verified, and all who wait for it."""

    __slots__ = ("asking", "key", "may_start", "origin")

    def __init__(self, key: bytes, asking: Asking) -> None:
        self.key = key
        self.asking = [asking]
        self.origin = neighbourhood(asking.address)  # of who asked first
        self.may_start = False  # it has waited as long as earlier failures demand


class Entrance:
    """``broker.access.entrance``. ``threads`` run ``work()`` and then, on the loop, ``then(result)``; ``later(seconds,
    what)`` calls back on the loop; ``changed`` is told that users were read anew; ``look`` runs
    that. Raises ConfigError."""

    def __init__(
        self,
        config: AuthConfig,
        threads: Sequence[Submit],
        later: Callable[[float, Callable[[], None]], object],
        now_ns: Callable[[], int],
        changed: Callable[[], None],
        look: Submit | None = None,
    ) -> None:
        self._config = config
        self._idle = list(threads)
        self._later = later
        self._now_ns = now_ns
        self._changed = changed
        self._users = UsersWatch(config.users_file, look, now_ns(), self._new_users)
        self._plugin = None if config.plugin is None else users.load_plugin(config.plugin)
        self._secret = secrets.token_bytes(32)
        self._guesses = Guesses()
        self._right: OrderedDict[bytes, tuple[int, Identity]] = OrderedDict()  # until when, who
        self._tries: dict[bytes, _Try] = {}
        self._queue: Turns[_Try] = Turns()

    # --- who comes in -------------------------------------------------------------------------------------------------

    def __call__(self, asking: Asking) -> None:
        if self._config.has_users and (asking.login or asking.passcode):
            self._look_up(asking)
        elif asking.certificate_name:
            asking.decide(self._by_certificate(asking.certificate_name))
        else:
            asking.decide(self._anonymous(asking))

    def identity(self, session: Session) -> Identity | None:
        """Who an open session belongs to by what is known now; None: it may not go on."""
        known = session.identity
        if known.source == "anonymous":
            now = self._anonymous(session)
        elif known.source == "certificate":
            now = self._by_certificate(known.user)
        elif known.source == "plugin":
            return known
        elif known.user in self._users.table.rights:
            return Identity(known.user, self._users.table.rights[known.user], known.source)
        else:
            return None
        return None if isinstance(now, ProtocolError) else now

    def _by_certificate(self, name: str) -> Identity | ProtocolError:
        if not self._config.has_users:
            return Identity(name, EVERYTHING, "certificate")
        rights = self._users.table.certificates.get(name)
        if rights is None:
            detail = f"Expected {name[:200]!r} under certificates: in the users file (auth.users_file), or a login."
            return ProtocolError("denied", "the certificate is good, but its name is not known here", detail)
        return Identity(name, rights, "certificate")

    def _anonymous(self, asking: Asking | Session) -> Identity | ProtocolError:
        policy = self._config.anonymous
        if policy == "never" or (policy == "loopback" and not is_local(asking.address)):
            who = "nobody without a login is let in" if policy == "never" else "only from this machine without a login"
            how = "users in auth.users_file" if not self._config.has_users else "a login and a passcode"
            detail = f"auth.anonymous in the YAML file is {policy} ({who}). Expected {how}, or auth.anonymous: always."
            return ProtocolError("denied", "a login is needed here", detail)
        if not self._config.has_users:
            return Identity("", EVERYTHING, "anonymous")
        if self._users.table.anonymous.nothing:
            detail = "Expected a login and a passcode; who has none is let in by anonymous: in auth.users_file."
            return ProtocolError("denied", "a login is needed here", detail)
        return Identity("", self._users.table.anonymous, "anonymous")

    # --- logins -------------------------------------------------------------------------------------------------------

    def _look_up(self, asking: Asking) -> None:
        key = self._key(asking)
        remembered = self._remembered(key)
        if remembered is not None:
            origin = neighbourhood(asking.address)
            if not self._guesses.holds(asking.login, origin, self._now_ns()):  # or who guesses is told what was right
                asking.decide(remembered)
                return
        same = self._tries.get(key)
        if same is not None:
            same.asking.append(asking)
        elif len(self._tries) >= WAITING_MAX:
            asking.decide(ProtocolError("too-many", "too many logins wait to be verified", "Try again in a moment."))
        else:
            self._tries[key] = waiting = _Try(key, asking)
            self._queue.add(waiting.origin, waiting)
            self._go_on()

    def _remembered(self, key: bytes) -> Identity | None:
        remembered = self._right.get(key)
        if remembered is None or self._now_ns() >= remembered[0]:
            return None
        self._right.move_to_end(key)
        return remembered[1]

    def _key(self, asking: Asking) -> bytes:
        login = asking.login.encode()
        host = host_of(asking.address).encode() if self._plugin is not None else b""  # a plug-in may judge by it
        parts = (len(login).to_bytes(8, "big"), login, len(host).to_bytes(8, "big"), host, asking.passcode.encode())
        return hmac.digest(self._secret, b"".join(parts), "sha256")

    def _go_on(self) -> None:
        while self._queue and self._idle:
            trying = self._queue.take()
            trying.asking = [each for each in trying.asking if each.wanted]
            if not trying.asking:
                self._tries.pop(trying.key, None)
            elif self._may_start(trying):
                first = trying.asking[0]
                remembered = self._remembered(trying.key)
                if remembered is not None:  # it has waited for the wrong ones before it
                    self._guesses.succeeded(first.login, trying.origin)
                    self._answer(trying, remembered)
                    continue
                submit = self._idle.pop()
                work = partial(self._verify, self._users.table, first.login, first.passcode, first.address)
                submit(work, partial(self._verified, trying, self._users.table, submit))

    def _may_start(self, trying: _Try) -> bool:
        if trying.may_start:
            return True
        first = trying.asking[0]
        wait_ns = self._guesses.wait_ns(first.login, trying.origin, self._now_ns())
        trying.may_start = True
        if wait_ns is None:
            log.warning(
                "login of %r from %s not looked at: too many wrong ones before", _short(first.login), first.address
            )
            self._answer(trying, GUESSED)
        elif wait_ns > 0:
            self._later(wait_ns / NS_PER_SECOND, partial(self._waited, trying))
        return wait_ns == 0

    def _waited(self, trying: _Try) -> None:
        self._queue.again(trying.origin, trying)
        self._go_on()

    def _verify(self, table: users.UserTable, login: str, passcode: str, address: str) -> Any:
        """On a thread: the Identity, None if it is not to be let in."""
        try:
            hash_ = table.hashes.get(login)
            if hash_ is not None or self._plugin is None:
                right = passwords.verify(hash_ or table.dummy, passcode)
                return Identity(login, table.rights[login], "users") if right and hash_ is not None else None
            answer = self._plugin(login, passcode, address)
            if answer is None:
                return None
            user, rights = users.granted(answer, login)
            if rights is not None:
                return Identity(user, rights, "plugin")
            return Identity(user, table.rights[user], "users") if user in table.rights else None
        except BaseException as error:  # the plug-in's: time-outs of gevent and asyncio are no Exception
            log.exception("the plug-in failed on the login of %r: refused", _short(login))
            return error

    def _verified(self, trying: _Try, table: users.UserTable, thread: Submit, result: Any) -> None:
        self._idle.append(thread)
        first = trying.asking[0]
        if table is not self._users.table:  # the users file was read anew meanwhile: by that it is to be judged
            self._queue.again(trying.origin, trying)
        elif isinstance(result, Identity):
            self._guesses.succeeded(first.login, trying.origin)
            trust_ns = FOR_EVER_NS if self._plugin is None else PLUGIN_TRUST_NS
            self._right[trying.key] = (self._now_ns() + trust_ns, result)
            if len(self._right) > REMEMBERED_MAX:
                self._right.popitem(last=False)
            self._answer(trying, result)
        else:
            if result is None:
                self._guesses.failed(first.login, trying.origin, self._now_ns())
                log.warning("login of %r from %s refused", _short(first.login), first.address)
            self._answer(trying, DENIED)
        self._go_on()

    def _answer(self, trying: _Try, decision: Identity | ProtocolError) -> None:
        self._tries.pop(trying.key, None)
        for each in trying.asking:
            each.decide(decision)

    # --- the users file -----------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Look now and then whether the users file has changed."""
        self._users.tick(self._now_ns())

    def reload(self) -> None:
        """Read the users file anew."""
        self._users.reload()

    def _new_users(self) -> None:
        self._right.clear()
        self._changed()


def _short(login: str) -> str:
    return login[:LOGGED_CHARS_MAX]
