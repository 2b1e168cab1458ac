"""What an address says of a peer: its host, its neighbourhood, whether it is on this machine."""

from __future__ import annotations

import ipaddress
from typing import Final

SUBNET_BITS: Final = 64  # of IPv6: what one household or one server is given, with addresses without end


def host_of(address: str) -> str:
    """Of ``HOST:PORT``; of a unix socket its path."""
    host, colon, port = address.rpartition(":")
    return host if colon and port.isdigit() else address


def neighbourhood(address: str) -> str:
    """What counts as one origin: an IPv4 address, a subnet of IPv6, a unix socket."""
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
    """Whether other machines can reach a listener on this host."""
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def is_local(address: str) -> bool:
    """Whether a peer is on this machine: by a loopback address, or over a unix socket."""
    host = host_of(address)
    try:
        ip = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return True  # the path of a unix socket
    mapped = getattr(ip, "ipv4_mapped", None)
    return (mapped or ip).is_loopback
