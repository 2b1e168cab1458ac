"""Authenticate clients by the users file, a plug-in, a token, a certificate, or as anonymous.

    with a login     If users are configured, a thread verifies the login against the hash in the users file, or calls
                     the plug-in. If no users are configured, the login is ignored.
    with a token     If ``auth.jwt`` is configured, the passcode of a login that has no hash is a JSON Web
                     Token (``jwt``), which the threads of the plug-in verify. A session ends when its token expires.
    without a login  The name in the verified certificate of the client counts, else the client is anonymous.

One thread verifies hashes, other threads call the plug-in. Each kind has a queue of its own, so a plug-in that hangs
does not delay users of the file. A call of the plug-in has ``auth.plugin_timeout``; then its login is refused. While no
call returns, further logins for the plug-in are refused at once.

Verified logins are cached, so reconnecting clients cost one hash per user. The cache key is an HMAC under a random key
of this process, so a memory dump contains no passcode. Attempts with the same login and passcode share one
verification. A changed users file clears the cache. An unknown user takes as long as a wrong passcode, and gets the
same answer.

Runs on the event loop, except ``_verify`` and ``_call_plugin``. Must not import sockets or STOMP.

Invariants: no passcode is logged, or stored after its verification; a thread does one verification at a time; an
attempt is dropped when its clients have gone.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from radiator import clock, limits
from radiator.broker.access import Decision, Login
from radiator.broker.clients.identity import Identity
from radiator.broker.peer_log import PeerLog
from radiator.clock import NS_PER_SECOND, MonoNs, WallNs
from radiator.config import AuthConfig
from radiator.errors import ProtocolError, printable
from radiator.routing.rights import EVERYTHING, RIGHTS, Rights
from radiator.server import users
from radiator.server.addresses import host_of, is_local, neighbourhood
from radiator.server.fair_queue import FairQueue
from radiator.server.jwt import Refusal, TokenVerifier
from radiator.server.login_throttle import LoginThrottle
from radiator.server.users_watch import UsersWatch

if TYPE_CHECKING:
    from radiator.broker.clients.session import Session

log = logging.getLogger("radiator.auth")

REMEMBERED_MAX: Final = 10_000  # verified logins: 100 bytes each
PLUGIN_CACHE_NS: Final = 60 * NS_PER_SECOND  # how long the answer of a plug-in is cached
FOR_EVER_NS: Final = 1 << 62
LOGGED_CHARS_MAX: Final = 100
TOKEN_LOGIN: Final = "jwt"  # a client without a login of its own may send this beside a token

Submit = Callable[[Callable[[], Any], Callable[[Any], None]], None]
DENIED: Final = ProtocolError("denied", "the login was refused", "Expected a known login and its passcode.")

CHANGED: Final = ProtocolError(
    "denied",
    "the passcode of this user has changed",
    "The broker's users file was changed. Log in again with the new passcode.",
)
REMOVED: Final = ProtocolError("denied", "this user may no longer connect", "The broker's users file was changed.")
THROTTLED: Final = ProtocolError(
    "too-many",
    "too many wrong logins have come from this address",
    "This login was not verified. Wait for some seconds; further attempts extend the wait.",
)


class _Attempt:
    """One login to verify, and all CONNECTs that wait for the result."""

    __slots__ = ("asking", "key", "may_start", "origin", "overdue", "queue")

    def __init__(self, key: bytes, asking: Login, queue: _VerificationQueue) -> None:
        self.key = key
        self.asking = [asking]
        self.queue = queue
        self.origin = neighbourhood(asking.address)  # of the first client
        self.may_start = False  # the delay for earlier failures is over
        self.overdue = False  # refused, because the call of the plug-in exceeds its time limit

    def drop_closed(self) -> None:
        """Drop the CONNECTs whose clients have gone."""
        self.asking = [each for each in self.asking if each.wanted]


class _VerificationQueue:
    """The threads that verify one kind of login, and the attempts that wait for them.

    Args:
        threads: A ``Submit`` function per thread.
    """

    __slots__ = ("attempts", "idle", "threads", "waiting")

    def __init__(self, threads: Sequence[Submit]) -> None:
        self.threads = len(threads)
        self.idle = list(threads)
        self.waiting: FairQueue[_Attempt] = FairQueue()
        self.attempts: dict[bytes, _Attempt] = {}  # waiting, delayed, or on a thread


class Authenticator:
    """Decide on every CONNECT: the ``entrance`` of ``broker.access``.

    Args:
        config: The keys of ``auth:`` in the YAML file.
        threads: A ``Submit`` per thread that verifies hashes: it runs ``work()``, then ``then(result)`` on the event
            loop.
        plugin_threads: The same for calls of the plug-in.
        later: ``later(seconds, function)`` calls the function on the event loop.
        now_ns: The monotonic clock.
        changed: Called when the users file was read again.
        look: The thread that reads the users file.
        peer_log: The log of events that peers cause.
        wall_ns: The trusted wall clock.

    Raises:
        ConfigError: The users file or the plug-in cannot be read.
    """

    def __init__(
        self,
        config: AuthConfig,
        threads: Sequence[Submit],
        plugin_threads: Sequence[Submit],
        later: Callable[[float, Callable[[], None]], object],
        now_ns: Callable[[], MonoNs],
        changed: Callable[[], None],
        look: Submit | None = None,
        *,
        peer_log: PeerLog,
        wall_ns: Callable[[], WallNs] = clock.now_ns,
    ) -> None:
        self._config = config
        self._later = later
        self._now_ns = now_ns
        self._changed = changed
        self._peer_log = peer_log
        self._users = UsersWatch(config.users_file, look, now_ns(), self._new_users)
        self._plugin = None if config.plugin is None else users.load_plugin(config.plugin)
        self._tokens = None if config.jwt is None else TokenVerifier(config.jwt, wall_ns, now_ns)
        self._wall_ns = wall_ns
        self._by_roles: dict[tuple[str, ...], Rights] = {}  # the same roles have the same object
        self._secret = secrets.token_bytes(32)
        self._throttle = LoginThrottle()
        self._verified_logins: OrderedDict[bytes, tuple[int, Identity]] = OrderedDict()  # key: (expiry, identity)
        self._file_queue, self._plugin_queue = _VerificationQueue(threads), _VerificationQueue(plugin_threads)
        self._calls: list[tuple[int, _Attempt]] = []  # of the plug-in: when overdue, attempt
        self._overdue = 0  # calls of the plug-in that exceed the time limit
        self._slow_logged = False  # a slow call was logged
        self._hang_logged = False  # that no call returns was logged

    # --- decisions ----------------------------------------------------------------------------------------------------

    def __call__(self, asking: Login) -> None:
        """Decide on a CONNECT, at once or later."""
        if self._config.has_users and (asking.login or asking.passcode):
            self._authenticate(asking)
        elif asking.certificate_name:
            asking.decide(self._by_certificate(asking.certificate_name))
        else:
            asking.decide(self._anonymous(asking))

    def identity(self, session: Session) -> Decision:
        """Return the identity of an open session by the present users, or the ERROR to end the session with.

        A session that logged in with a passcode of the users file ends if its hash has changed or was removed. The
        answer of a plug-in stays valid; the plug-in is not called again.
        """
        known, table = session.identity, self._users.table
        if known.source == "anonymous":
            now = self._anonymous(session)
        elif known.source == "certificate":
            now = self._by_certificate(known.user)
        elif known.source == "plugin":
            return known
        elif known.source == "jwt":
            rights = self._rights_of_token(self._users.table, known.user, known.roles)
            return REMOVED if rights is None else known._replace(rights=rights)
        elif known.hash and known.user in table.rights and table.hashes.get(known.user) != known.hash:
            return CHANGED
        elif known.user in table.rights:
            return known._replace(rights=table.rights[known.user])
        else:
            return REMOVED
        return REMOVED if isinstance(now, ProtocolError) else now

    def _by_certificate(self, name: str) -> Identity | ProtocolError:
        if not self._config.has_users:
            return Identity(name, EVERYTHING, "certificate")
        rights = self._users.table.certificates.get(name)
        if rights is None:
            detail = f"Expected {name[:200]!r} under certificates: in the users file (auth.users_file), or a login."
            return ProtocolError("denied", "the certificate is valid, but its name is unknown", detail)
        return Identity(name, rights, "certificate")

    def _anonymous(self, asking: Login | Session) -> Identity | ProtocolError:
        policy = self._config.anonymous
        if policy == "never" or (policy == "loopback" and not is_local(asking.address)):
            who = "a login is always needed" if policy == "never" else "only clients on this machine need no login"
            how = "users in auth.users_file" if not self._config.has_users else "a login and a passcode"
            detail = f"auth.anonymous in the YAML file is {policy} ({who}). Expected {how}, or auth.anonymous: always."
            return ProtocolError("denied", "a login is needed here", detail)
        if not self._config.has_users:
            return Identity("", EVERYTHING, "anonymous")
        if self._users.table.anonymous.nothing:
            detail = "Expected a login and a passcode, or rights under anonymous: in auth.users_file."
            return ProtocolError("denied", "a login is needed here", detail)
        return Identity("", self._users.table.anonymous, "anonymous")

    # --- logins -------------------------------------------------------------------------------------------------------

    def _authenticate(self, asking: Login) -> None:
        key = self._key(asking)
        remembered = self._remembered(key)
        if remembered is not None:
            origin = neighbourhood(asking.address)
            # a delayed origin gets no fast answer, which would confirm a guessed passcode
            if not self._throttle.is_delayed(asking.login, origin, self._now_ns()):
                asking.decide(remembered)
                return
        queue = self._queue_for(asking.login)
        same = queue.attempts.get(key)
        if same is not None and same.overdue:
            asking.decide(self._overdue_error())
        elif same is not None:
            same.asking.append(asking)
        elif queue is self._plugin_queue and self._hangs:
            asking.decide(self._overdue_error())
        elif len(queue.attempts) >= limits.LOGINS_WAITING_MAX:
            asking.decide(
                ProtocolError("too-many", "too many logins are waiting for verification", "Try again in a moment.")
            )
        else:
            queue.attempts[key] = waiting = _Attempt(key, asking, queue)
            queue.waiting.add(waiting.origin, waiting)
            self._start_attempts(queue)

    def _queue_for(self, login: str) -> _VerificationQueue:
        """Return the queue of a login: of the users file if that has a hash of the user, else of the plug-in."""
        if (self._plugin is None and self._tokens is None) or login in self._users.table.hashes:
            return self._file_queue
        return self._plugin_queue

    def _remembered(self, key: bytes) -> Identity | None:
        remembered = self._verified_logins.get(key)
        if remembered is None or self._now_ns() >= remembered[0]:
            return None
        if remembered[1].expires_ns and self._wall_ns() >= remembered[1].expires_ns:
            return None
        self._verified_logins.move_to_end(key)
        return remembered[1]

    def _key(self, asking: Login) -> bytes:
        login = asking.login.encode()
        host = host_of(asking.address).encode() if self._plugin is not None else b""  # a plug-in may decide by it
        parts = (len(login).to_bytes(8, "big"), login, len(host).to_bytes(8, "big"), host, asking.passcode.encode())
        return hmac.digest(self._secret, b"".join(parts), "sha256")

    def _start_attempts(self, queue: _VerificationQueue) -> None:
        while queue.waiting and queue.idle:
            attempt = queue.waiting.take()
            attempt.drop_closed()
            if not attempt.asking:
                self._remove(attempt)
            elif self._queue_for(attempt.asking[0].login) is not queue:  # the users file has changed
                self._remove(attempt)
                for each in attempt.asking:
                    self._authenticate(each)
            elif self._may_start(attempt):
                first = attempt.asking[0]
                remembered = self._remembered(attempt.key)
                if remembered is not None:  # it was verified while this attempt was delayed
                    self._throttle.succeeded(first.login, attempt.origin)
                    self._answer(attempt, remembered)
                    continue
                submit, table = queue.idle.pop(), self._users.table
                verify = self._verify
                if queue is self._plugin_queue:
                    verify = self._verify_token if self._plugin is None else self._call_plugin
                    self._calls.append((self._now_ns() + self._config.plugin_timeout_ns, attempt))
                work = partial(verify, table, first.login, first.passcode, first.address)
                submit(work, partial(self._finish, attempt, first, table, submit))

    def _may_start(self, attempt: _Attempt) -> bool:
        if attempt.may_start:
            return True
        first = attempt.asking[0]
        wait_ns = self._throttle.wait_ns(first.login, attempt.origin, self._now_ns())
        attempt.may_start = True
        if wait_ns is None:
            self._answer(attempt, THROTTLED)
        elif wait_ns > 0:
            self._later(wait_ns / NS_PER_SECOND, partial(self._waited, attempt))
        return wait_ns == 0

    def _waited(self, attempt: _Attempt) -> None:
        attempt.queue.waiting.put_back(attempt.origin, attempt)
        self._start_attempts(attempt.queue)

    def _verify(self, table: users.UserTable, login: str, passcode: str, address: str) -> Any:
        """Return the identity by the users file, or None if the login is refused. Runs on a thread."""
        from radiator.server import passwords  # loaded with the users file, if there is one

        try:
            hash_ = table.hashes.get(login)
            right = passwords.verify(hash_ or table.dummy, passcode)
            return Identity(login, table.rights[login], "users", hash_) if right and hash_ is not None else None
        except Exception as error:
            return error

    def _call_plugin(self, table: users.UserTable, login: str, passcode: str, address: str) -> Any:
        """Return the identity by the plug-in, or None if the login is refused. Runs on a thread."""
        assert self._plugin is not None
        try:
            answer = self._plugin(login, passcode, address)
            if answer is None:
                return None
            user, rights = users.granted(answer, login)
            if rights is not None:
                return Identity(user, rights, "plugin")
            return Identity(user, table.rights[user], "users") if user in table.rights else None
        except BaseException as error:  # time-outs of gevent are not derived from Exception
            return error

    def _verify_token(self, table: users.UserTable, login: str, passcode: str, address: str) -> Any:
        """Return the identity by the token, or a Refusal. Runs on a thread."""
        assert self._tokens is not None
        try:
            token = self._tokens(passcode)
            if isinstance(token, Refusal):
                return token
            if login not in ("", TOKEN_LOGIN, token.user):
                return Refusal(f"the login is {_short(login)!r}, and the token is of {token.user!r}")
            rights = self._rights_of_token(table, token.user, token.roles)
            if rights is None:
                who = f"no role of {', '.join(token.roles)[:200]!r}" if self._has_roles else f"no user {token.user!r}"
                return Refusal(f"{who} in the users file")
            return Identity(token.user, rights, "jwt", "", token.expires_ns, token.roles)
        except Exception as error:
            return error

    @property
    def _has_roles(self) -> bool:
        return self._config.jwt is not None and self._config.jwt.roles_from is not None

    def _rights_of_token(self, table: users.UserTable, user: str, roles: tuple[str, ...]) -> Rights | None:
        """Return the rights of a token's user, or None if the users file has neither the user nor a role."""
        if not self._has_roles:
            return table.rights.get(user)
        known = tuple(role for role in roles if role in table.roles)
        if not known:
            return None
        rights = self._by_roles.get(known) if table is self._users.table else None
        if rights is None:
            rights = Rights({right: [each for role in known for each in table.roles[role][right]] for right in RIGHTS})
            if table is self._users.table:
                self._by_roles[known] = rights
        return rights

    def _finish(self, attempt: _Attempt, first: Login, table: users.UserTable, thread: Submit, result: Any) -> None:
        queue = attempt.queue
        queue.idle.append(thread)
        if queue is self._plugin_queue:
            self._returned(attempt)
        if table is not self._users.table and not attempt.overdue:  # verify again with the new users file
            queue.waiting.put_back(attempt.origin, attempt)
        elif isinstance(result, Identity):
            self._throttle.succeeded(first.login, attempt.origin)
            if table is self._users.table:
                cache_ns = FOR_EVER_NS if queue is self._file_queue and self._plugin is None else PLUGIN_CACHE_NS
                self._verified_logins[attempt.key] = (self._now_ns() + cache_ns, result)
                if len(self._verified_logins) > REMEMBERED_MAX:
                    self._verified_logins.popitem(last=False)
            self._answer(attempt, result)
        else:
            if result is None:
                self._throttle.failed(first.login, attempt.origin, self._now_ns())
            elif isinstance(result, Refusal):  # nobody can guess a token, and many users may share login and address
                self._peer_log.line(
                    logging.WARNING,
                    "refused tokens",
                    attempt.origin,
                    "token from %s refused: %s",
                    first.address,
                    printable(result.reason),
                    logger=log,
                )
            else:
                what = "the plug-in failed" if queue is self._plugin_queue else "the verification failed"
                self._peer_log.line(
                    logging.ERROR,
                    "logins that could not be verified",
                    attempt.origin,
                    "%s on the login of %r: refused",
                    what,
                    _short(first.login),
                    logger=log,
                    error=result,
                )
            self._answer(attempt, DENIED)
        self._start_attempts(queue)

    def _remove(self, attempt: _Attempt) -> None:
        attempt.queue.attempts.pop(attempt.key, None)

    def _answer(self, attempt: _Attempt, decision: Identity | ProtocolError) -> None:
        self._remove(attempt)
        self._decide(attempt, decision)

    def _decide(self, attempt: _Attempt, decision: Identity | ProtocolError) -> None:
        asking, attempt.asking = attempt.asking, []
        for each in asking:
            each.decide(decision)

    # --- a plug-in that hangs -----------------------------------------------------------------------------------------

    @property
    def _hangs(self) -> bool:
        """True if every thread of the plug-in is in a call that has exceeded its time limit."""
        return self._overdue == self._plugin_queue.threads > 0

    def _returned(self, attempt: _Attempt) -> None:
        if attempt.overdue:
            if self._hang_logged:
                log.warning("a call of the plug-in has returned: its logins are verified again")
            self._overdue -= 1
            self._hang_logged = False
        else:
            self._calls = [call for call in self._calls if call[1] is not attempt]
            self._slow_logged = False

    def _check_calls(self) -> None:
        """Refuse logins whose calls exceed the time limit, and all waiting ones if no call returns."""
        now_ns = self._now_ns()
        while self._calls and self._calls[0][0] <= now_ns:
            _, attempt = self._calls.pop(0)
            attempt.overdue = True
            self._overdue += 1
            if not self._slow_logged:
                self._slow_logged = True
                log.error("a call of the plug-in has taken longer than %s (auth.plugin_timeout)", self._timeout)
            self._decide(attempt, self._overdue_error())
        if self._hangs:
            if not self._hang_logged:
                self._hang_logged = True
                log.error("no call of the plug-in returns: its logins are refused; users of the file are not affected")
            for waiting in self._plugin_queue.waiting.take_all():
                self._answer(waiting, self._overdue_error())

    @property
    def _timeout(self) -> str:
        return f"{self._config.plugin_timeout_ns / NS_PER_SECOND:g} s"

    def _overdue_error(self) -> ProtocolError:
        if self._hangs:
            message = "the login was not verified: earlier logins still wait for an answer after too long a time"
        else:
            message = "the login could not be verified in time"
        detail = f"The verification may take {self._timeout} (auth.plugin_timeout). Try again later."
        return ProtocolError("timeout", message, detail)

    # --- the users file -----------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Check the users file, the calls of the plug-in, and which clients have gone. Called often."""
        self._users.tick(self._now_ns())
        self._check_calls()
        for queue in (self._file_queue, self._plugin_queue):
            for attempt in queue.attempts.values():
                attempt.drop_closed()
            for attempt in queue.waiting.keep(lambda each: bool(each.asking)):
                self._remove(attempt)

    def reload(self) -> None:
        """Read the users file again."""
        self._users.reload()

    def _new_users(self) -> None:
        self._verified_logins.clear()
        self._by_roles.clear()
        self._changed()


def _short(login: str) -> str:
    return login[:LOGGED_CHARS_MAX]
