"""What an address says: which host, which neighbourhood, whether it is of this machine."""

from __future__ import annotations

import pytest

from radiator.server.addresses import host_of, is_local, is_public, neighbourhood


@pytest.mark.parametrize(
    ("address", "host", "local"),
    [
        ("127.0.0.1:5", "127.0.0.1", True),
        ("127.9.9.9:5", "127.9.9.9", True),
        ("::1:5", "::1", True),
        ("::ffff:127.0.0.1:5", "::ffff:127.0.0.1", True),
        ("10.0.0.1:5", "10.0.0.1", False),
        ("2001:db8::1:5", "2001:db8::1", False),
        ("fe80::1%eth0:5", "fe80::1%eth0", False),
        ("./run/radiator.sock", "./run/radiator.sock", True),
    ],
)
def test_an_address_is_of_this_machine_or_not(address: str, host: str, local: bool) -> None:
    assert host_of(address) == host
    assert is_local(address) is local


def test_a_host_is_public_unless_only_this_machine_reaches_it() -> None:
    assert [is_public(host) for host in ("127.0.0.1", "::1", "localhost")] == [False] * 3
    assert [is_public(host) for host in ("0.0.0.0", "::", "10.0.0.1", "broker.example")] == [True] * 4


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("10.0.0.1:5", "10.0.0.1"),
        ("::ffff:10.0.0.1:5", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6:77", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1:77", "2001:db8:1:2::/64"),
        ("fe80::1%eth0:5", "fe80::/64"),
        ("./run/radiator.sock", "./run/radiator.sock"),
    ],
)
def test_an_origin_is_an_address_or_a_subnet(address: str, origin: str) -> None:
    assert neighbourhood(address) == origin
