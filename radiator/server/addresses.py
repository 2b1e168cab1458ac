"""Classify the address of a peer: its host, its origin, and whether it is on this machine."""

from __future__ import annotations

import ipaddress
from typing import Final

SUBNET_BITS: Final = 64  # of IPv6: what one household or one server is given, with addresses without end


def host_of(address: str) -> str:
    """Return the host of ``HOST:PORT``, or the path of a unix socket."""
    host, colon, port = address.rpartition(":")
    return host if colon and port.isdigit() else address


def neighbourhood(address: str) -> str:
    """Return the origin of an address: an IPv4 address, an IPv6 subnet, or a unix socket.

    Limits apply per origin. An IPv6 host owns a whole subnet, so single IPv6 addresses are useless for limits.
    """
    host = host_of(address)
    try:
        ip = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(ip) >> SUBNET_BITS << SUBNET_BITS, SUBNET_BITS)))


def is_public(host: str) -> bool:
    """Return True if other machines can reach a listener on this host."""
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def is_local(address: str) -> bool:
    """Return True if the peer is on this machine: it has a loopback address, or uses a unix socket."""
    host = host_of(address)
    try:
        ip = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return True  # the path of a unix socket
    mapped = getattr(ip, "ipv4_mapped", None)
    return (mapped or ip).is_loopback
