"""TLS listeners of a real broker: who gets in, who is told what, and certificates that change while it runs."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.running import BrokerProcess
from tests.server.wire import WAIT_SECONDS, Wire

StartBroker = Callable[..., BrokerProcess]
OPTIONS = ["--listen", "stomp+tls://127.0.0.1:0"]


class Secure:
    """A broker with a TLS listener, and how to reach it."""

    def __init__(self, start: StartBroker, authority: Authority, config: str) -> None:
        self.authority = authority
        self.broker = start(config, OPTIONS)
        self.port = self.broker.port_of("stomp+tls")

    def stop(self) -> None:
        assert self.broker.stop() == 0, self.broker.text()
        assert "Traceback" not in self.broker.text()

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), WAIT_SECONDS)

    def connect(self, context: ssl.SSLContext | None = None) -> TlsWire:
        return TlsWire(self.port, context or self.authority.trusting())


class TlsWire(Wire):
    """A wire through TLS, by the standard library's own wrapper."""

    def __init__(self, port: int, context: ssl.SSLContext, name: str = "127.0.0.1") -> None:
        plain = socket.create_connection(("127.0.0.1", port), WAIT_SECONDS)
        super().__init__(context.wrap_socket(plain, server_hostname=name))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def config_of(files: tuple[str, str], more: str = "") -> str:
    return f"tls: {{cert: {files[0]}, key: {files[1]}{more}}}\nlimits: {{connect_timeout: 2s}}\n"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Secure]:
    """One broker for all tests that leave its certificate as it is."""

    def start(config: str, options: list[str]) -> BrokerProcess:
        broker = BrokerProcess(tmp_path_factory.mktemp("broker"), config, options)
        broker.start()
        return broker

    found = Secure(start, authority, config_of(authority.issue("127.0.0.1", to="shared")))
    yield found
    found.stop()


@pytest.fixture
def renewable(start_broker: StartBroker, authority: Authority) -> Iterator[Secure]:
    """A broker of its own for a test that changes the certificate."""
    found = Secure(start_broker, authority, config_of(authority.issue("127.0.0.1")))
    yield found
    found.stop()


# --- who gets in ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_messages_of_every_size_pass_through_tls(secure: Secure, version: ssl.TLSVersion) -> None:
    context = secure.authority.trusting()
    context.minimum_version = context.maximum_version = version
    destination = f"/queue/{version.name}"
    with secure.connect(context).open() as wire, Wire(secure.broker).open() as plain:
        wire.say("SUBSCRIBE", destination=destination, id="0", ack="auto")
        for size in (0, 1, 16_384, 16_385, 1_000_000, 4_194_304):
            body = os.urandom(size)
            wire.say("SEND", body, destination=destination, receipt="r", content_length=size)
            plain.say("SEND", body[::-1], destination=destination, receipt="r", content_length=size)
            assert {wire.hear("MESSAGE").body, wire.hear("MESSAGE").body} == {body, body[::-1]}
            wire.hear("RECEIPT")
            plain.hear("RECEIPT")
        wire.say("DISCONNECT", receipt="bye")
        assert wire.rest()[-1].headers["receipt-id"] == "bye"


def test_older_versions_of_tls_are_refused(secure: Secure) -> None:
    context = secure.authority.trusting()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, OSError)):
        secure.connect(context)
    secure.connect().open().close()
    assert secure.broker.logs("does not support TLS 1.2 or newer")


def test_a_slow_reader_through_tls_gets_everything_and_the_broker_holds_little(secure: Secure) -> None:
    body = os.urandom(32_768)
    with secure.connect().open() as slow, Wire(secure.broker).open() as sender:
        slow.say("SUBSCRIBE", destination="/topic/slow", id="0", receipt="s")
        slow.hear("RECEIPT")
        for _ in range(300):
            sender.say("SEND", body, destination="/topic/slow", receipt="r", content_length=len(body))
            sender.hear("RECEIPT")
        found = [int(slow.hear("MESSAGE").headers["offset"]) for _ in range(300)]
        assert found == list(range(300))


def test_a_client_without_a_certificate_is_refused_where_one_is_asked_for(
    start_broker: StartBroker, authority: Authority
) -> None:
    files = authority.issue("127.0.0.1", to="mutual")
    secure = Secure(start_broker, authority, config_of(files, f", client_ca: {authority.ca}"))
    known = authority.trusting()
    known.load_cert_chain(*authority.issue("clients.example", to="client", person="worker-7"))
    secure.connect(known).open().close()
    with pytest.raises((ssl.SSLError, AssertionError, OSError)):  # with 1.3 it learns of it when it reads
        secure.connect().open()
    secure.connect(known).open().close()
    assert secure.broker.logs("the client sent no certificate, and tls.client_ca asks for one")


def test_a_certificate_of_a_stranger_is_refused(
    start_broker: StartBroker, authority: Authority, tmp_path: Path
) -> None:
    files = authority.issue("127.0.0.1", to="strict")
    secure = Secure(start_broker, authority, config_of(files, f", client_ca: {authority.ca}"))
    stranger = authority.trusting()
    stranger.load_cert_chain(*Authority(tmp_path / "other").issue("clients.example", to="client"))
    with pytest.raises((ssl.SSLError, AssertionError, OSError)):
        secure.connect(stranger).open()
    assert secure.broker.logs("the certificate is not accepted")


# --- who is told what -------------------------------------------------------------------------------------------------


def answer_to(secure: Secure, data: bytes) -> bytes:
    with secure.raw() as sock:
        sock.sendall(data)
        return b"".join(iter(lambda: sock.recv(4_096), b""))


@pytest.mark.parametrize(
    "opening", [b"CONNECT\naccept-version:1.2\nhost:x\n\n\0", b"\r\nSTOMP\r\naccept-version:1.2\n\n"]
)
def test_plain_stomp_on_a_tls_port_gets_a_plain_error(secure: Secure, opening: bytes) -> None:
    answer = answer_to(secure, opening)
    assert answer.startswith(b"ERROR\nmessage:this is a STOMP port with TLS\nerror-code:not-stomp\n")
    assert b"Switch TLS on in the client" in answer


def test_plain_http_on_a_tls_port_gets_an_http_answer(secure: Secure) -> None:
    answer = answer_to(secure, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"this port is encrypted" in answer


@pytest.mark.parametrize(
    "garbage", [b"\xff" * 5_000, b"\x16\x03\x01\xff\xff" + b"x" * 20_000, b"\n" * 1_000, b"SSH-2.0-x\r\n"]
)
def test_garbage_ends_only_its_own_connection(secure: Secure, garbage: bytes) -> None:
    with secure.connect().open() as good:
        with secure.raw() as sock:
            try:
                sock.sendall(garbage)
                while sock.recv(4_096):
                    pass
            except ConnectionResetError:
                pass
        good.barrier()


def test_a_browser_on_a_tls_port_gets_an_https_answer(secure: Secure) -> None:
    with secure.connect() as wire:
        wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert wire.socket.recv(4_096).startswith(b"HTTP/1.1 400")


@pytest.mark.thorough
def test_a_handshake_that_stalls_is_ended_by_the_connect_timeout(secure: Secure) -> None:
    stalled = [secure.raw() for _ in range(50)]
    for number, sock in enumerate(stalled):
        sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00"[: number % 8])
    with secure.connect().open() as wire:
        wire.barrier()
        for sock in stalled:
            try:
                while sock.recv(4_096):
                    pass
            except ConnectionResetError:
                pass
            sock.close()
        wire.barrier()


def test_a_connection_too_many_hears_so_in_tls_beside_a_crowd_that_says_nothing(
    start_broker: StartBroker, authority: Authority
) -> None:
    cert, key = authority.issue("127.0.0.1")
    secure = Secure(start_broker, authority, f"tls: {{cert: {cert}, key: {key}}}\nlimits: {{connections: 2}}\n")
    with secure.connect().open(), secure.connect().open():
        silent = [secure.raw() for _ in range(30)]
        with secure.connect() as one_more:
            one_more.send(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
            assert [frame.headers["error-code"] for frame in one_more.rest()] == ["too-many"]
        for sock in silent:
            sock.close()


@pytest.mark.thorough
def test_after_the_handshake_connect_must_still_come_in_time(secure: Secure) -> None:
    with secure.connect() as wire:
        frames = wire.rest()
    assert [frame.headers["error-code"] for frame in frames] == ["timeout"]


def test_a_session_may_be_piped_in_through_tls_and_ends_with_close_notify(secure: Secure) -> None:
    with secure.connect() as wire:
        wire.send(
            b"CONNECT\naccept-version:1.2\nhost:x\n\n\0SEND\ndestination:/queue/piped\nreceipt:1\n\nbody\0"
            b"DISCONNECT\nreceipt:bye\n\n\0"
        )
        names = [frame.headers.get("receipt-id") for frame in wire.rest()]  # a ragged end would raise
    assert names == [None, "1", "bye"]


# --- certificates that change -----------------------------------------------------------------------------------------


def serial_of(secure: Secure) -> str:
    with secure.connect() as wire:
        return str(wire.socket.getpeercert()["serialNumber"])


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_sighup_loads_the_new_certificate_and_drops_no_connection(renewable: Secure) -> None:
    with renewable.connect().open() as before:
        old = serial_of(renewable)
        renewable.authority.issue("127.0.0.1")
        os.kill(renewable.broker.pid, signal.SIGHUP)
        wait_for(lambda: serial_of(renewable) != old)
        before.barrier()
    text = renewable.broker.text()
    assert "loaded again; new connections use it" in text
    assert renewable.broker.logs("reload: nothing has changed")


@pytest.mark.thorough
def test_a_new_certificate_is_noticed_without_a_signal(renewable: Secure) -> None:
    old = serial_of(renewable)
    renewable.authority.issue("127.0.0.1")
    wait_for(lambda: serial_of(renewable) != old)


def test_a_broken_new_certificate_keeps_the_old_one_in_force(renewable: Secure) -> None:
    old = serial_of(renewable)
    cert, _ = renewable.authority.issue("127.0.0.1", to="another")
    Path(cert).rename(Path(cert).with_name("server.pem"))  # whose key is another
    os.kill(renewable.broker.pid, signal.SIGHUP)
    wait_for(lambda: "the old one stays in use" in renewable.broker.text())
    assert renewable.broker.logs("expected the key of the certificate")
    assert serial_of(renewable) == old


# --- at the start -----------------------------------------------------------------------------------------------------


def test_an_expired_certificate_is_a_warning(start_broker: StartBroker, authority: Authority) -> None:
    files = authority.issue("127.0.0.1", to="expired", ends=datetime.now(UTC) - timedelta(hours=1))
    secure = Secure(start_broker, authority, config_of(files))
    assert secure.broker.logs("the certificate expired on")
    careless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
    secure.connect(careless).open().close()


def test_the_name_in_a_certificate_has_the_rights_that_the_users_file_gives_it(
    start_broker: StartBroker, authority: Authority, tmp_path: Path
) -> None:
    users = tmp_path / "users.yaml"
    users.write_text("certificates: {worker-7: {write: /topic/a}}\nanonymous: {read: /topic/a}\n")
    files = authority.issue("127.0.0.1", to="named")
    config = config_of(files, f", client_ca: {authority.ca}") + f"auth: {{users_file: {users}}}\n"
    secure = Secure(start_broker, authority, config)
    known, stranger = authority.trusting(), authority.trusting()
    known.load_cert_chain(*authority.issue("clients.example", to="known", person="worker-7"))
    stranger.load_cert_chain(*authority.issue("clients.example", to="unknown", person="worker-8"))
    with secure.connect(known).open() as wire:
        wire.say("SEND", b"1", destination="/topic/a", receipt="r")
        wire.hear("RECEIPT")
        wire.say("SUBSCRIBE", destination="/topic/a", id="0")
        assert wire.hear("ERROR").headers["message"] == "user 'worker-7' has no read right over '/topic/a'"
    with secure.connect(stranger) as wire:
        wire.say("CONNECT", accept_version="1.2", host="test")
        assert "certificates:" in wire.hear("ERROR").body.decode()
