"""A client is there or missing per transport, and the reason names what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import runs
from tests.interop.clients import CLIENTS, PERL_TLS, Client, forget_probes, why_missing
from tests.interop.runs import must_be_here

(NET_STOMP,) = [client for client in CLIENTS if client.name == "net-stomp"]


@pytest.fixture
def no_perl_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A machine that has Net::Stomp and not IO::Socket::SSL."""
    must_be_here(NET_STOMP, "tcp")
    module = tmp_path / "IO" / "Socket" / "SSL.pm"
    module.parent.mkdir(parents=True)
    module.write_text("die 'IO::Socket::SSL is hidden';")
    monkeypatch.setenv("PERL5LIB", str(tmp_path))
    forget_probes()
    yield NET_STOMP
    forget_probes()


def test_only_what_needs_the_missing_library_is_missing(no_perl_tls: Client) -> None:
    assert why_missing(no_perl_tls, "tcp") == ""
    told = why_missing(no_perl_tls, "tls")
    assert told.startswith(f"net-stomp over tls needs {PERL_TLS.package}; `make clients` installs it: ")
    assert "IO::Socket::SSL is hidden" in told or "BEGIN failed" in told


@pytest.mark.parametrize("required", [False, True])
def test_what_is_missing_is_skipped_by_name_or_a_failure(
    no_perl_tls: Client, required: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "REQUIRED", required)
    must_be_here(no_perl_tls, "tcp")
    with pytest.raises(pytest.fail.Exception if required else pytest.skip.Exception, match="net-stomp over tls needs"):
        must_be_here(no_perl_tls, "tls")
