"""Files of TLS: what is wrong with them is said in words, and a change is taken up once it has settled."""

from __future__ import annotations

import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from radiator.config import Tls
from radiator.errors import ConfigError
from radiator.server.certificates import Certificate
from radiator.tunnels.certificates import server_context, validity
from radiator.tunnels.tls import Tls as TlsTunnel
from tests.certificates import LONG_AGO, Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def fault(cert: str, key: str, client_ca: str | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        server_context(cert, key, client_ca)
    return str(caught.value)


def test_a_file_that_is_not_there_is_named_with_its_key(authority: Authority) -> None:
    cert, key = authority.issue("localhost")
    assert fault("no.pem", key) == "tls.cert: no.pem: cannot read the file: No such file or directory"
    assert fault(cert, "no.key") == "tls.key: no.key: cannot read the file: No such file or directory"
    assert fault(cert, key, "no.ca") == "tls.client_ca: no.ca: cannot read the file: No such file or directory"


def test_files_with_other_contents_are_an_error(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue("localhost")
    other = tmp_path / "other.pem"
    other.write_text("something else")
    assert "expected a certificate in PEM" in fault(str(other), key)
    assert "expected a certificate in PEM" in fault(key, key)
    assert "expected a private key in PEM" in fault(cert, str(other))
    assert "expected certificates in PEM" in fault(cert, key, str(other))
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert f"{broken} and {key}: cannot be used" in fault(str(broken), key)


def test_a_key_of_another_certificate_is_an_error(authority: Authority) -> None:
    cert, _ = authority.issue("localhost")
    _, key = authority.issue("localhost", to="another")
    assert f"tls.key: {key}: expected the key of the certificate in {cert}, got another" in fault(cert, key)


def test_an_encrypted_key_is_an_error(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue("localhost")
    secret = str(tmp_path / "secret.key")
    subprocess.run(["openssl", "pkey", "-in", key, "-aes128", "-passout", "pass:x", "-out", secret], check=True)
    assert "the key is encrypted" in fault(cert, secret)


def test_certificate_and_key_may_stand_in_one_file(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue("localhost")
    both = tmp_path / "both.pem"
    both.write_bytes(Path(cert).read_bytes() + Path(key).read_bytes())
    server_context(str(both), str(both), None)


def test_the_dates_of_a_certificate_are_read(authority: Authority, tmp_path: Path) -> None:
    dates = validity(authority.issue("localhost", ends=LONG_AGO)[0])
    assert dates is not None and dates.ends_s == LONG_AGO.timestamp()
    far = datetime(2099, 12, 31, 23, 59, 59, tzinfo=UTC)  # from 2050 on another form of time
    dates = validity(authority.issue("localhost", ends=far)[0])
    assert dates is not None and dates.ends_s == far.timestamp()
    assert dates.begins_s < time.time()
    assert validity(str(tmp_path / "none.pem")) is None


def test_a_change_is_taken_up_once_it_has_been_the_same_for_two_looks(authority: Authority) -> None:
    kept = Certificate(Tls(cert=authority.issue("localhost")[0], key=authority.issue("localhost")[1]))
    kept.reload()
    before = kept.context
    kept.look()
    assert kept.context is before
    authority.issue("localhost")
    kept.look()
    assert kept.context is before
    kept.look()
    assert kept.context is not before


def test_a_change_that_cannot_be_used_is_reported_once_and_changes_nothing(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = authority.issue("localhost")
    kept = Certificate(Tls(cert=cert, key=key))
    before = kept.context
    Path(cert).unlink()
    for _ in range(5):
        kept.look()
    assert kept.context is before
    assert caplog.text.count("the old one stays in use") == 1
    authority.issue("localhost")
    kept.look()
    kept.look()
    assert kept.context is not before


def test_a_key_that_every_user_may_read_is_a_warning(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    cert, key = authority.issue("localhost")
    Path(key).chmod(0o644)
    Certificate(Tls(cert=cert, key=key))
    assert "every user of this machine can read it" in caplog.text


# --- who a peer is ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "person", "expected"),
    [(("worker.example",), "worker-7", "worker-7"), (("worker.example", "b.example"), "", "worker.example")],
)
def test_a_verified_certificate_gives_its_name(
    authority: Authority, names: tuple[str, ...], person: str, expected: str
) -> None:
    context = server_context(*authority.issue("localhost"), authority.ca)
    trusting = authority.trusting()
    trusting.load_cert_chain(*authority.issue(*names, to="client", person=person))
    server, client = TlsTunnel(context), TlsTunnel(trusting, "localhost")
    for _ in range(3):
        server.receive(client.outgoing())
        client.receive(server.outgoing())
    assert server.ready and client.ready
    assert server.certificate_name == expected
    assert server.receive(client.seal(b"hello")) == b"hello"


def test_a_client_does_not_take_the_certificate_of_another_host(authority: Authority) -> None:
    server = TlsTunnel(server_context(*authority.issue("other.example"), None))
    client = TlsTunnel(authority.trusting(), "localhost")
    server.receive(client.outgoing())
    client.receive(server.outgoing())
    assert client.refusal is not None and "Hostname mismatch" in client.refusal.detail


def test_a_tunnel_passes_on_any_cut_of_the_bytes(authority: Authority) -> None:
    server, client = (
        TlsTunnel(server_context(*authority.issue("localhost"), None)),
        TlsTunnel(authority.trusting(), "localhost"),
    )
    for _ in range(4):
        for byte in client.outgoing():
            assert server.receive(bytes([byte])) == b""
        for byte in server.outgoing():
            assert client.receive(bytes([byte])) == b""
    sealed = client.seal(bytes(range(256)) * 200)
    assert b"".join(server.receive(sealed[at : at + 1]) for at in range(len(sealed))) == bytes(range(256)) * 200
    assert client.receive(server.close(1000, "")) == b"" and client.ended


def test_files_that_could_not_be_read_are_tried_again_and_logged_once(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As when they come with the wrong owner, which is corrected afterwards."""
    cert, key = authority.issue("localhost")
    kept = Certificate(Tls(cert=cert, key=key))
    before = kept.context
    authority.issue("localhost")

    def unreadable(*_: object) -> None:
        raise ConfigError(f"tls.key: {key}: cannot read the file: Permission denied")

    with monkeypatch.context() as denied:
        denied.setattr("radiator.tunnels.certificates.server_context", unreadable)
        for _ in range(6):
            kept.look()
    assert caplog.text.count("Permission denied") == 1
    assert kept.context is before
    for _ in range(2):
        kept.look()
    assert kept.context is not before


def test_other_permissions_are_a_change(authority: Authority) -> None:
    cert, key = authority.issue("localhost")
    kept = Certificate(Tls(cert=cert, key=key))
    before = kept.context
    Path(key).chmod(0o400)
    kept.look()
    kept.look()
    assert kept.context is not before
