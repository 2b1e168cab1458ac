"""Which web pages may connect. A browser lets any page open a WebSocket to any address and says in ``Origin`` whose it
is, so a page of a stranger could speak, with the visitor's means, to a broker that only the visitor's machine reaches.

Let in by default (``OWN``): who sends no Origin (no browser); pages of the loopback; pages of the very host that is
connected to, if that is an IP address or came by TLS. A host *name* without TLS proves nothing: its owner may have it
point here. Origins that the configuration lists replace this: then exactly those pages are let in.

An origin is ``scheme://host[:port]`` and nothing else: no user, no path, no query.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, Literal, NamedTuple

from radiator.tunnels.http import Head

OWN: Final = "own"
ANY: Final = "any"
Origins = tuple[str, ...] | Literal["own", "any"]

PORTS: Final = {"http": 80, "https": 443}
PORT_MAX: Final = 65_535

_AUTHORITY = r"(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
_HOST = re.compile(_AUTHORITY)
_ORIGIN = re.compile(rf"(?P<scheme>https?)://{_AUTHORITY}")


class Origin(NamedTuple):
    """A web page's origin, or the same of a Host header with the scheme ``""``. ``host`` is in lower case and has no
    brackets; ``port`` None: the scheme's own."""

    scheme: str
    host: str
    port: int | None

    @property
    def address(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        """The host, if it is an IP address."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    @property
    def loopback(self) -> bool:
        """Whether the host is this machine for every browser."""
        address = self.address
        return (
            self.host == "localhost"
            or self.host.endswith(".localhost")
            or (address is not None and address.is_loopback)
        )

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + (f":{self.port}" if self.port is not None else "")


def origin_of(text: str) -> Origin | None:
    """Read an ``Origin`` header; None if it is no ``http(s)://host[:port]``."""
    return _read(_ORIGIN.fullmatch(text.lower()))


def host_of(text: str) -> Origin | None:
    """Read a ``Host`` header; None if it is no ``host[:port]``."""
    return _read(_HOST.fullmatch(text.lower()))


def _read(found: re.Match[str] | None) -> Origin | None:
    if found is None:
        return None
    parts = found.groupdict()
    scheme, port = parts.get("scheme") or "", parts["port"]
    number = None if port is None or int(port) == PORTS.get(scheme) else int(port)
    if number is not None and number > PORT_MAX:
        return None
    return Origin(scheme, parts["host"].strip("[]"), number)


def let_in(head: Head, origins: Origins, secure: bool) -> bool:
    """Whether the page that sent this request may connect.

    Args:
        head: the request.
        origins: as ``origins:`` of the listener says: ``OWN``, ``ANY``, or the only ones that may.
        secure: the request came by TLS.
    """
    text = head.headers.get("origin")
    if text is None or origins == ANY:
        return True
    page = origin_of(text)
    if origins != OWN:
        return (text if page is None else str(page)) in origins
    here = host_of(head.headers.get("host", ""))
    if page is None:
        return False
    return page.loopback or (here is not None and page.host == here.host and (secure or page.address is not None))
