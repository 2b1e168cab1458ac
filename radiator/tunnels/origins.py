"""Which web pages may connect. A browser lets any page open a WebSocket to any address and says in ``Origin`` whose it
is, so a page of a stranger could speak, with the visitor's means, to a broker that only the visitor's machine reaches.

Let in: who sends no Origin (no browser); pages of the loopback; pages of the very host that is connected to, if that is
an IP address or came by TLS. A host *name* without TLS proves nothing: its owner may have it point here.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from radiator.tunnels.http import Head


def let_in(head: Head, origins: tuple[str, ...] | None, secure: bool) -> bool:
    """Whether the page that sent this request may connect; ``origins`` are those of the configuration, None: any."""
    origin = head.headers.get("origin")
    if origin is None or origins is None:
        return True
    plain = _without_default_port(origin.lower())
    if plain in origins:
        return True
    page, here = _host(origin), _host("//" + head.headers.get("host", ""))
    if not page:
        return False
    address = _address(page)
    if page == "localhost" or page.endswith(".localhost") or (address is not None and address.is_loopback):
        return True
    return page == here and (secure or address is not None)


def _without_default_port(origin: str) -> str:
    scheme, _, _ = origin.partition(":")
    return origin.removesuffix({"http": ":80", "https": ":443"}.get(scheme, "\0"))


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
