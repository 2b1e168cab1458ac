"""Where a broker is: ``host:port``, ``host``, ``stomp://[login:passcode@]host[:port]`` (IPv6 hosts in brackets), or
``unix:PATH`` for a broker on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from radiator.client.errors import BadAddress

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 61613
EXPECTED = "expected host:port, stomp://[login:passcode@]host[:port] or unix:PATH"


@dataclass(frozen=True)
class Address:
    """A broker's address, with the login that its URL may carry; ``path`` is that of a unix socket, else empty."""

    host: str
    port: int
    login: str | None = None
    passcode: str | None = None
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse(text: str) -> Address:
    """Read an address; BadAddress says what was expected and what came."""
    text = text.strip()
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        path = path.removeprefix("//") if path.startswith("///") else path
        if not path or path.startswith("//"):
            raise BadAddress(f"{EXPECTED}, got {text!r}")
        return Address(DEFAULT_HOST, 0, path=path)
    scheme, separator, _ = text.partition("://")
    if separator and scheme != "stomp":
        raise BadAddress(f"{EXPECTED}, got the scheme {scheme!r} in {text!r}")
    try:
        parts = urlsplit(text if separator else f"stomp://{text}")
        port = parts.port
    except ValueError as error:
        raise BadAddress(f"{EXPECTED}, got {text!r} ({error})") from None
    if not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment or port == 0:
        raise BadAddress(f"{EXPECTED}, got {text!r}")
    login = unquote(parts.username) if parts.username is not None else None
    passcode = unquote(parts.password) if parts.password is not None else None
    return Address(parts.hostname, port or DEFAULT_PORT, login, passcode)
