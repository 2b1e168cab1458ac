"""The Python client and the command line through TLS and WebSocket, with a real broker."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from radiator.client import ClientError, ConnectFailed, aio, connect
from radiator.client.errors import BadTls
from tests.certificates import Authority
from tests.running import BrokerProcess
from tests.tiers import sampled

ROOT = Path(__file__).parent.parent.parent
SCHEMES = ["stomp+tls", "ws", "wss"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[BrokerProcess]:
    cert, key = authority.issue("localhost", "127.0.0.1")
    urls = [f"{scheme}://127.0.0.1:0{'/stomp' if scheme[0] == 'w' else ''}" for scheme in SCHEMES]
    strict = f"{{url: 'stomp+tls://127.0.0.1:0', tls: {{client_ca: {authority.ca}}}}}"
    listen = ", ".join(["stomp://{address}", *(f"'{url}'" for url in urls), strict])
    config = f"tls: {{cert: {cert}, key: {key}}}\nlisten: [{listen}]\n"
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), config)
    process.start()
    yield process
    assert process.stop() == 0, process.text()
    assert "Traceback" not in process.text()


def url_of(broker: BrokerProcess, scheme: str) -> str:
    return f"{scheme}://127.0.0.1:{broker.port_of(scheme)}{'/stomp' if scheme[0] == 'w' else ''}"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_messages_of_every_size_pass_through(broker: BrokerProcess, authority: Authority, scheme: str) -> None:
    with connect(url_of(broker, scheme), ca=authority.ca) as connection:
        jobs = connection.subscribe(f"/queue/{scheme}", ack="auto")
        for size in (0, 1, 65_535, 65_536, 65_537, 4_194_304):
            body = os.urandom(size)
            connection.send(f"/queue/{scheme}", body)
            message = jobs.fetch(timeout=20)
            assert message is not None and message.body == body


@pytest.mark.parametrize("scheme", sampled(SCHEMES, 1))
def test_messages_of_the_asyncio_client_pass_through(broker: BrokerProcess, authority: Authority, scheme: str) -> None:
    async def work() -> None:
        async with asyncio.timeout(60), aio.connect(url_of(broker, scheme), ca=authority.ca) as client:
            jobs = client.subscribe(f"/queue/aio-{scheme}", ack="auto")
            for size in (0, 65_536, 4_194_304):
                body = os.urandom(size)
                await client.send(f"/queue/aio-{scheme}", body)
                message = await jobs.fetch(timeout=20)
                assert message is not None and message.body == body

    asyncio.run(work())


def test_the_asyncio_client_refuses_an_unknown_authority(broker: BrokerProcess) -> None:
    async def work() -> None:
        await aio.connect(url_of(broker, "stomp+tls"))

    with pytest.raises(BadTls):
        asyncio.run(work())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_many_threads_send_and_receive_at_once(broker: BrokerProcess, authority: Authority, scheme: str) -> None:
    destination = f"/topic/many-{scheme.replace('+', '-')}"
    with connect(url_of(broker, scheme), ca=authority.ca, heart_beat=(100, 100)) as connection:
        heard = connection.subscribe(destination)
        body = b"x" * 5_000
        threads = [threading.Thread(target=connection.send_many, args=([(destination, body)] * 400,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        got = [heard.fetch(timeout=30) for _ in range(1_600)]
        for thread in threads:
            thread.join()
        assert {len(message.body) for message in got if message is not None} == {5_000}


def test_the_issuer_of_the_certificate_is_checked(broker: BrokerProcess, authority: Authority, tmp_path: Path) -> None:
    url = url_of(broker, "stomp+tls")
    with pytest.raises(ConnectFailed, match="the certificate is not accepted"):
        connect(url)
    with pytest.raises(ConnectFailed, match="the certificate is not accepted"):
        connect(url, ca=Authority(tmp_path).ca)
    with pytest.raises(ConnectFailed, match="cannot read the file"):
        connect(url, ca=str(tmp_path / "none"))
    with pytest.raises(BadTls, match="file of our own certificate: .*none: cannot read the file"):
        connect(url, ca=authority.ca, cert=str(tmp_path / "none"))
    with pytest.raises(BadTls, match="file of its key: .*none: cannot read the file"):
        connect(url, ca=authority.ca, cert=authority.ca, key=str(tmp_path / "none"))
    connect(url.replace("127.0.0.1", "localhost"), ca=authority.ca).close()


def test_a_client_shows_its_certificate_where_one_is_asked_for(broker: BrokerProcess, authority: Authority) -> None:
    strict = broker.text().rsplit("stomp+tls://127.0.0.1:", 1)[1].split(",")[0]
    cert, key = authority.issue("clients.example", to="client", person="worker-7")
    connect(f"stomp+tls://127.0.0.1:{strict}", ca=authority.ca, cert=cert, key=key).close()
    with pytest.raises(ClientError, match="client_ca|closed the connection"):
        connect(f"stomp+tls://127.0.0.1:{strict}", ca=authority.ca)


@pytest.mark.parametrize(
    ("wrong", "right", "told"),
    [
        ("stomp+tls", "stomp", "handshake failure; is it a port without TLS"),
        ("ws", "stomp", "HTTP 400: .*STOMP client"),
        ("stomp", "stomp+tls", "STOMP port with TLS"),
        ("stomp", "ws", "STOMP port over WebSocket"),
        ("wss", "ws", "TLS"),
        ("ws", "wss", "HTTP 400: .*this port is encrypted"),
    ],
)
def test_the_wrong_scheme_for_a_port_is_reported(
    broker: BrokerProcess, authority: Authority, wrong: str, right: str, told: str
) -> None:
    with pytest.raises(ClientError, match=told):
        connect(f"{wrong}://127.0.0.1:{broker.port_of(right)}", ca=authority.ca, connect_timeout=10)


def test_a_wrong_path_is_reported(broker: BrokerProcess) -> None:
    with pytest.raises(ConnectFailed, match="HTTP 404: .* is at /stomp"):
        connect(f"ws://127.0.0.1:{broker.port_of('ws')}/other")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_command_line_goes_the_same_ways(broker: BrokerProcess, authority: Authority, scheme: str) -> None:
    def radiator(*words: str) -> str:
        command = [sys.executable, "-m", "radiator", *words, "--url", url_of(broker, scheme), "--ca", authority.ca]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    radiator("send", f"/queue/cli-{scheme}", "hello")
    assert "hello" in radiator("tail", f"/queue/cli-{scheme}", "--count", "1", "--consume")
