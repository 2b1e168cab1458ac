"""Where a broker is: ``host:port``, ``host``, a URL of a scheme of ``PORTS`` with ``[login:passcode@]host[:port]``
(IPv6 hosts in brackets; those of WebSocket with a path), or ``unix:PATH`` for a broker on this machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from radiator.client.errors import BadAddress

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 61613
PORTS = {"stomp": DEFAULT_PORT, "stomp+tls": 61614, "ws": 15674, "wss": 15673}
ALIASES = {"stomps": "stomp+tls", "stomp+ssl": "stomp+tls"}
EXPECTED = (
    "expected host:port, stomp://[login:passcode@]host[:port], stomp+tls://..., ws://host[:port]/path, wss://... "
    "or unix:PATH"
)


@dataclass(frozen=True)
class Address:
    """A broker's address, with the login that its URL may carry; ``path`` is a unix socket's or a WebSocket's."""

    host: str
    port: int
    login: str | None = None
    passcode: str | None = None
    path: str = ""
    scheme: str = "stomp"  # one of PORTS, or unix

    @property
    def encrypted(self) -> bool:
        return self.scheme in ("stomp+tls", "wss")

    @property
    def web(self) -> bool:
        return self.scheme in ("ws", "wss")

    @property
    def place(self) -> str:
        """Host and port as they stand in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix:{self.path}"
        return self.place if self.scheme == "stomp" else f"{self.scheme}://{self.place}{self.path}"


def parse(text: str) -> Address:
    """Read an address; BadAddress says what was expected and what came."""
    text = text.strip()
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        path = path.removeprefix("//") if path.startswith("///") else path
        if not path or path.startswith("//"):
            raise BadAddress(f"{EXPECTED}, got {shown(text)!r}")
        return Address(DEFAULT_HOST, 0, path=path, scheme="unix")
    scheme, separator, rest = text.partition("://")
    scheme = ALIASES.get(scheme, scheme) if separator else "stomp"
    if scheme not in PORTS:
        raise BadAddress(f"{EXPECTED}, got another scheme in {shown(text)!r}")
    try:
        parts = urlsplit(f"stomp://{rest if separator else text}")
        port = parts.port
    except ValueError as error:
        why = "" if "@" in text else f" ({error})"  # it may quote what stands behind a colon
        raise BadAddress(f"{EXPECTED}, got {shown(text)!r}{why}") from None
    web = scheme in ("ws", "wss")
    if not parts.hostname or (parts.path.strip("/") and not web) or parts.query or parts.fragment or port == 0:
        raise BadAddress(f"{EXPECTED}, got {shown(text)!r}")
    login = unquote(parts.username) if parts.username is not None else None
    passcode = unquote(parts.password) if parts.password is not None else None
    return Address(parts.hostname, port or PORTS[scheme], login, passcode, parts.path if web else "", scheme)


def shown(text: str) -> str:
    """The same without what may be a login, a passcode or a token: all in front of the last @, and a query."""
    head, at, rest = text.rpartition("@")
    scheme, separator, _ = (head or rest).partition("://")
    start = f"{scheme}://" if separator and scheme.replace("+", "").isalnum() else ""
    if any(mark in head for mark in "?#"):  # the @ may be one of the query
        return f"{start}..."
    place = re.split("[?#]", rest, maxsplit=1)
    kept = place[0] + ("?..." if len(place) > 1 else "")
    return f"{start}...@{kept}" if at else kept
