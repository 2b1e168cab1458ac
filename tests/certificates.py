"""Certificates for tests, made when they are needed: an authority, and files of what it signs."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

trustme = pytest.importorskip("trustme")


class Authority:
    """A CA whose files lie in ``directory``."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._ca = trustme.CA()
        self.ca = str(directory / "ca.pem")
        self._ca.cert_pem.write_to_path(self.ca)

    def issue(self, *names: str, to: str = "server", ends: datetime | None = None, person: str = "") -> tuple[str, str]:
        """The files of a certificate and its key. Issued again under the same name they are replaced."""
        leaf = self._ca.issue_cert(*names, common_name=person or None, not_after=ends)
        cert, key = self._directory / f"{to}.pem", self._directory / f"{to}.key"
        cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        key.write_bytes(leaf.private_key_pem.bytes())
        key.chmod(0o600)
        return str(cert), str(key)

    def trusting(self) -> ssl.SSLContext:
        """A client's context that trusts this authority."""
        context = ssl.create_default_context(cafile=self.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context


LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
