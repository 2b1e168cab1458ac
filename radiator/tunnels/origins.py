"""Decide which web pages may connect.

A browser lets any page open a WebSocket to any address and sends the page's origin in ``Origin``. So a page of an
attacker could reach a broker that only the user's machine can reach.

These may connect by default (``OWN``): clients without Origin, which are not browsers; pages of loopback hosts; pages
of the host of the listener, if that is an IP address or the connection uses TLS. A host name without TLS proves
nothing, because its owner can make it resolve to this machine. Configured origins replace these rules.

An origin is ``scheme://host[:port]``, without user, path and query.
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
    """The origin of a web page, or a Host header with an empty scheme.

    Attributes:
        scheme: ``http``, ``https``, or empty.
        host: The host in lower case, without brackets.
        port: The port; None is the default port of the scheme.
    """

    scheme: str
    host: str
    port: int | None

    @property
    def address(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        """The host as an IP address, or None if it is a name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    @property
    def loopback(self) -> bool:
        """True if the host is this machine for every browser."""
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
    """Return the origin in an ``Origin`` header, or None if it is not ``http(s)://host[:port]``."""
    return _read(_ORIGIN.fullmatch(text.lower()))


def host_of(text: str) -> Origin | None:
    """Return the host in a ``Host`` header, or None if it is not ``host[:port]``."""
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
    """Return True if the page that sent this request may connect.

    Args:
        head: The request.
        origins: The key ``origins:`` of the listener: ``OWN``, ``ANY``, or a list of origins.
        secure: True if the request came over TLS.
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
