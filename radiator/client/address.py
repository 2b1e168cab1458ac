"""Parse the address of a broker.

An address has one of three forms:

* ``host:port`` or ``host``;
* a URL with a scheme of ``PORTS`` and ``[login:passcode@]host[:port]``. IPv6 hosts are in brackets, and a WebSocket URL
  may have a path;
* ``unix:PATH``, the path of a unix socket on this machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    """The address of a broker.

    Attributes:
        host: The host name or IP address, without brackets.
        port: The TCP port; 0 for a unix socket.
        login: The login in the URL, percent-decoded, or None.
        passcode: The passcode in the URL, percent-decoded, or None.
        path: The path of the unix socket or of the WebSocket URL, else empty.
        scheme: A key of ``PORTS``, or ``unix``.
    """

    host: str
    port: int
    login: str | None = None
    passcode: str | None = None
    path: str = ""
    scheme: str = "stomp"

    @property
    def encrypted(self) -> bool:
        """True if the connection uses TLS."""
        return self.scheme in ("stomp+tls", "wss")

    @property
    def web(self) -> bool:
        """True if the connection uses WebSocket."""
        return self.scheme in ("ws", "wss")

    @property
    def place(self) -> str:
        """Host and port in the form that a URL has: IPv6 hosts are in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix:{self.path}"
        return self.place if self.scheme == "stomp" else f"{self.scheme}://{self.place}{self.path}"


def parse(text: str) -> Address:
    """Parse the address of a broker.

    Args:
        text: An address in one of the forms above. Surrounding white space is ignored.

    Returns:
        The address. A missing port is the default port of the scheme.

    Raises:
        BadAddress: The text has none of these forms. The message shows neither login nor passcode.

    Example:
        >>> parse("stomp+tls://ann:secret@[::1]").port
        61614
    """
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
        raise BadAddress(f"{EXPECTED}, got an unknown scheme in {shown(text)!r}")
    try:
        parts = urlsplit(f"stomp://{rest if separator else text}")
        port = parts.port
    except ValueError as error:
        why = "" if "@" in text else f" ({error})"  # the error may quote a passcode, which follows a colon
        raise BadAddress(f"{EXPECTED}, got {shown(text)!r}{why}") from None
    web = scheme in ("ws", "wss")
    if not parts.hostname or (parts.path.strip("/") and not web) or parts.query or parts.fragment or port == 0:
        raise BadAddress(f"{EXPECTED}, got {shown(text)!r}")
    login = unquote(parts.username) if parts.username is not None else None
    passcode = unquote(parts.password) if parts.password is not None else None
    return Address(parts.hostname, port or PORTS[scheme], login, passcode, parts.path if web else "", scheme)


def parse_all(text: str | Sequence[str]) -> list[Address]:
    """Parse the addresses of one or more brokers.

    Args:
        text: An address, several with commas between them, or a sequence of addresses. An address without a scheme has
            the scheme, the login and the passcode of the one before it. Commas before an ``@`` belong to a login or a
            passcode. A text that begins with ``unix:`` is one address.

    Returns:
        The addresses, at least one.

    Raises:
        BadAddress: An address has none of the forms above, or there is none.

    Example:
        >>> [str(each) for each in parse_all("stomp+tls://a,b:7000")]
        ['stomp+tls://a:61614', 'stomp+tls://b:7000']
    """
    if not isinstance(text, str):
        texts = [*text]
    elif text.strip().startswith("unix:"):
        texts = [text]
    else:
        texts = []
        for url in re.split(r",(?=\s*[a-z+]+://)", text):
            user, at, places = url.rpartition("@")
            first, *others = places.split(",")
            texts += [user + at + first, *others]
    found: list[Address] = []
    for each in texts:
        previous = found[-1] if found else None
        if previous is None or "://" in each or each.strip().startswith("unix:") or previous.scheme == "unix":
            found.append(parse(each))
            continue
        address = parse(f"{previous.scheme}://{each.strip()}")
        if address.login is None:
            address = replace(address, login=previous.login, passcode=previous.passcode)
        found.append(address)
    if not found:
        raise BadAddress(f"{EXPECTED}, got none")
    return found


def shown(text: str) -> str:
    """Return an address without the parts that may be secret, for error messages.

    Everything before the last ``@`` and the query of a URL are replaced by ``...``: they may contain a login, a
    passcode or a token.

    Args:
        text: An address as the user wrote it, valid or not.
    """
    head, at, rest = text.rpartition("@")
    scheme, separator, _ = (head or rest).partition("://")
    start = f"{scheme}://" if separator and scheme.replace("+", "").isalnum() else ""
    if any(delimiter in head for delimiter in "?#"):  # the @ may be part of the query
        return f"{start}..."
    place = re.split("[?#]", rest, maxsplit=1)
    public = place[0] + ("?..." if len(place) > 1 else "")
    return f"{start}...@{public}" if at else public
