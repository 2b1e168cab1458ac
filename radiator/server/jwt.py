"""Verify JSON Web Tokens (RFC 7519) that clients send as their passcode.

    header    the algorithm is one of ``auth.jwt.algorithms``, which are all asymmetric: "none" and the confusion of a
              public key with a shared secret are impossible
    key       from a file, or from a JWKS URL (RFC 7517) by the ``kid`` of the token
    claims    ``aud`` and ``iss`` as configured; ``exp``, ``nbf`` and ``iat`` by the trusted clock, with ``leeway``

The key set is fetched when a token needs it, and again when it is older than REFRESH_NS or has no key with that
``kid``; at most once in FETCH_EVERY_NS. If the fetch fails, the keys known so far are used for STALE_NS.

Everything but the constructor runs on a thread of the authenticator. Must not import sessions or STOMP.
Invariant: no token is logged or stored.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from radiator.clock import NS_PER_SECOND, MonoNs, WallNs, monotonic_ns
from radiator.errors import ConfigError

if TYPE_CHECKING:
    from radiator.config.model import JwtConfig

FETCH_SECONDS: Final = 3.0  # of one fetch, for each wait of its socket
FETCH_NS_MAX: Final = 10 * NS_PER_SECOND  # of one fetch, from the connection to the end of the body
FETCH_BYTES_MAX: Final = 1 << 20
READ_BYTES: Final = 65_536
FETCH_EVERY_NS: Final = 10 * NS_PER_SECOND  # clients choose the kid of a token
REFRESH_NS: Final = 600 * NS_PER_SECOND
STALE_NS: Final = 86_400 * NS_PER_SECOND
USER_CHARS_MAX: Final = 200
ROLES_MAX: Final = 200


class Token(NamedTuple):
    """The contents of a valid token.

    Attributes:
        user: The value of the claim ``auth.jwt.user_claim``.
        roles: The values of the claim ``auth.jwt.roles_claim``, sorted.
        expires_ns: The wall time at which the token, with the leeway, is no longer valid.
    """

    user: str
    roles: tuple[str, ...]
    expires_ns: WallNs


class Refusal(NamedTuple):
    """A token that is not valid. ``reason`` is for the log of the broker; the client does not get it."""

    reason: str


class _Refused(Exception):
    pass


def fetch(url: str) -> bytes:
    """Return the body of a URL.

    Args:
        url: The URL.

    Raises:
        OSError: The server cannot be reached, or its answer is an error, a redirect, or too large.
    """
    from http.client import HTTPException  # slow to load, as the next one, and only key sets need them
    from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

    class NoRedirect(HTTPRedirectHandler):
        def redirect_request(self, *args: Any, **kwargs: Any) -> None:
            pass  # a redirect might lead to a server that is not authenticated

    class Http(HTTPHandler):
        def do_open(self, http_class: Any, *args: Any, **more: Any) -> Any:
            return super().do_open(deadline.watched(http_class), *args, **more)

    class Https(HTTPSHandler):
        def do_open(self, http_class: Any, *args: Any, **more: Any) -> Any:
            return super().do_open(deadline.watched(http_class), *args, **more)

    request = Request(url, headers={"Accept": "application/json", "User-Agent": "radiator"})
    data = bytearray()
    with _Deadline(FETCH_NS_MAX) as deadline:
        try:
            with build_opener(NoRedirect, Http, Https).open(request, timeout=FETCH_SECONDS) as answer:
                while len(data) <= FETCH_BYTES_MAX and not deadline.over and (more := answer.read1(READ_BYTES)):
                    data += more
        except (OSError, HTTPException) as error:
            if not deadline.over:
                raise OSError(f"{url}: {type(error).__name__}: {error}") from None
    if len(data) > FETCH_BYTES_MAX:
        raise OSError(f"{url}: the answer has more than {FETCH_BYTES_MAX} bytes")
    if deadline.over:
        raise OSError(f"{url}: the answer took more than {FETCH_NS_MAX // NS_PER_SECOND} s")
    return bytes(data)


class _Deadline:
    """Ends the connections of one fetch when its time is over, whatever the server sends: a handshake, headers, a body.

    Args:
        most_ns: The time.
    """

    def __init__(self, most_ns: int) -> None:
        self._end_ns = monotonic_ns() + most_ns
        self._timer = threading.Timer(most_ns / NS_PER_SECOND, self._end)
        self._timer.daemon = True
        self._sockets: list[socket.socket] = []  # copies, as TLS takes over the socket itself
        self._lock = threading.Lock()

    def __enter__(self) -> _Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            while self._sockets:
                self._sockets.pop().close()

    @property
    def over(self) -> bool:
        """True if the time is over."""
        return monotonic_ns() >= self._end_ns

    def watched(self, http_class: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that makes the connections of a class of ``http.client``, and notes their sockets."""

        def make(*args: Any, **more: Any) -> Any:
            connection = http_class(*args, **more)
            connection._create_connection = self._connect
            return connection

        return make

    def _connect(self, *args: Any, **more: Any) -> socket.socket:
        sock = socket.create_connection(*args, **more)
        with self._lock:
            self._sockets.append(sock.dup())
        return sock

    def _end(self) -> None:
        with self._lock:
            for each in self._sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


class TokenVerifier:
    """Verifies tokens. Any thread may call it.

    Args:
        config: The keys of ``auth.jwt:``.
        wall_ns: The trusted wall clock.
        mono_ns: The monotonic clock.
        fetch: Returns the body of a URL, or raises OSError.

    Raises:
        ConfigError: PyJWT is not installed, or the key cannot be read.
    """

    def __init__(
        self,
        config: JwtConfig,
        wall_ns: Callable[[], WallNs],
        mono_ns: Callable[[], MonoNs],
        fetch: Callable[[str], bytes] = fetch,
    ) -> None:
        try:
            import cryptography.x509  # noqa: F401
            import jwt  # an optional package
            import jwt.api_jwk
        except ImportError:
            raise ConfigError("auth.jwt needs more packages: pip install 'radiator-broker[jwt]'") from None
        self._jwt = jwt
        self._config = config
        self._wall_ns = wall_ns
        self._mono_ns = mono_ns
        self._fetch = fetch
        self._key = None if config.key_file is None else load_key(config.key_file)
        self._lock = threading.Lock()  # of a fetch and of what follows
        self._keys: Mapping[str, Any] = {}  # by kid
        self._fetched_ns: MonoNs | None = None  # the last success
        self._tried_ns: MonoNs | None = None  # the last attempt
        self._failure = ""

    def __call__(self, token: str) -> Token | Refusal:
        """Verify a token."""
        try:
            return self._verified(token)
        except _Refused as refused:
            return Refusal(str(refused))
        except self._jwt.PyJWTError as error:
            return Refusal(f"{type(error).__name__}: {error}")

    def _verified(self, token: str) -> Token:
        config = self._config
        header = self._jwt.get_unverified_header(token)
        if header.get("alg") not in config.algorithms:
            raise _Refused(f"algorithm {str(header.get('alg'))[:20]!r}, expected {', '.join(config.algorithms)}")
        if "crit" in header:
            raise _Refused("critical header parameters, of which none is known")
        key = self._key if self._key is not None else self._key_of(header)
        claims = self._jwt.decode(
            token,
            key,
            algorithms=list(config.algorithms),
            audience=list(config.audience),
            issuer=config.issuer,
            options={
                "require": ["exp", "aud", "iss", config.user_from],
                "verify_exp": False,  # by the trusted clock, below
                "verify_nbf": False,
                "verify_iat": False,
                "verify_sub": False,
            },
        )
        expires_ns = self._check_times(claims)
        user = claims[config.user_from]
        if not isinstance(user, str) or not 1 <= len(user) <= USER_CHARS_MAX or not user.isprintable():
            raise _Refused(f"claim {config.user_from}: expected 1 to {USER_CHARS_MAX} printable characters")
        return Token(user, self._roles(claims), expires_ns)

    def _check_times(self, claims: Mapping[str, Any]) -> WallNs:
        """Check the times of a token. Return when it expires, with the leeway."""
        now_ns, leeway_ns = self._wall_ns(), self._config.leeway_ns
        for name in ("nbf", "iat"):
            if name in claims and _time_ns(claims, name) > now_ns + leeway_ns:
                raise _Refused(f"claim {name}: in the future")
        expires_ns = _time_ns(claims, "exp") + leeway_ns
        if expires_ns <= now_ns:
            raise _Refused("the token has expired")
        return WallNs(expires_ns)

    def _roles(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        wanted = self._config.roles_from
        if wanted is None:
            return ()
        found: Any = claims.get(wanted)
        if found is None:  # realm_access.roles is a claim within a claim
            found = claims
            for part in wanted.split("."):
                found = found.get(part) if isinstance(found, Mapping) else None
        if isinstance(found, str):
            found = found.split()
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found) or len(found) > ROLES_MAX:
            raise _Refused(f"claim {wanted}: expected a list of at most {ROLES_MAX} roles")
        return tuple(sorted(set(found)))

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _key_of(self, header: Mapping[str, Any]) -> Any:
        """Return the key of the key set that a token names."""
        kid = header.get("kid")
        with self._lock:
            now_ns = self._mono_ns()
            age_ns = None if self._fetched_ns is None else now_ns - self._fetched_ns
            wanted = age_ns is None or age_ns > REFRESH_NS or (kid is not None and kid not in self._keys)
            if wanted and (self._tried_ns is None or now_ns - self._tried_ns >= FETCH_EVERY_NS):
                self._refresh()
                age_ns = None if self._fetched_ns is None else self._mono_ns() - self._fetched_ns
            if age_ns is None or age_ns > STALE_NS:
                raise _Refused(f"no key set: {self._failure or 'it was not fetched'}")
            keys = self._keys
        if kid is None and len(keys) == 1:
            (key,) = keys.values()
        elif isinstance(kid, str) and kid in keys:
            key = keys[kid]
        else:
            raise _Refused(f"no key {str(kid)[:100]!r} in the key set{self._failure and f'; {self._failure}'}")
        if key.algorithm_name != header["alg"]:
            raise _Refused(f"the key is for {key.algorithm_name}, and the token has {header['alg']}")
        return key

    def _refresh(self) -> None:
        url = self._config.jwks_url
        assert url is not None
        self._tried_ns = self._mono_ns()
        try:
            listed = json.loads(self._fetch(url))["keys"]
            keys = {}
            for number, each in enumerate(listed):
                if each.get("use", "sig") != "sig":
                    continue
                try:
                    key = self._jwt.PyJWK(each)
                except (self._jwt.PyJWTError, NotImplementedError, TypeError, ValueError):
                    continue  # malformed, or of a kind that is not known here
                if key.algorithm_name in self._config.algorithms:
                    keys[str(each.get("kid", f" {number}"))] = key
            self._keys = keys
            self._fetched_ns = self._mono_ns()
            self._failure = ""
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self._failure = f"{url}: {type(error).__name__}: {error}"


def load_key(path: str) -> Any:
    """Return the public key in a PEM file: a public key, or a certificate.

    Raises:
        ConfigError: It cannot be read.
    """
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from cryptography.x509 import load_pem_x509_certificate

    try:
        with open(path, "rb") as file:
            data = file.read(FETCH_BYTES_MAX)
        if b"BEGIN CERTIFICATE" in data:
            return load_pem_x509_certificate(data).public_key()
        return load_pem_public_key(data)
    except OSError as error:
        raise ConfigError(f"auth.jwt.key_file: {path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"auth.jwt.key_file: {path}: expected a public key or a certificate in PEM") from None


def _time_ns(claims: Mapping[str, Any], name: str) -> int:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e11 <= value <= 1e11:  # or NaN
        raise _Refused(f"claim {name}: expected seconds since 1970")
    return int(value * NS_PER_SECOND)
