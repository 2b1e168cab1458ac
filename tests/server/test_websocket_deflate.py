"""permessage-deflate with a real broker, and with the client of the library ``websockets``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from radiator.stomp.connection import ClientConnection as Stomp
from radiator.stomp.encoder import encode
from radiator.stomp.frames import Frame
from tests.running import BrokerProcess
from tests.server.wire import WAIT_SECONDS, Wire, rss_kib

StartBroker = Callable[..., BrokerProcess]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    config = (
        "logging: {level: debug}\nlimits: {message: 256KiB}\n"
        "listen: ['stomp://{address}', {url: 'ws://127.0.0.1:0/stomp', deflate: true}]"
    )
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"), config)
    broker.start()
    yield broker
    assert broker.stop() == 0, broker.text()
    assert "Traceback" not in broker.text()


class Page:
    """A STOMP client in a WebSocket that offers compression or not."""

    def __init__(self, broker: BrokerProcess, compression: str | None = "deflate") -> None:
        url = f"ws://127.0.0.1:{broker.port_of('ws')}/stomp"
        self._connect = connect(
            url, subprotocols=[Subprotocol("v12.stomp")], compression=compression, max_size=None, proxy=None
        )
        self.socket: ClientConnection = self._connect.__enter__()
        self.stomp = Stomp()
        self.inbox: list[Frame] = []
        self.say("CONNECT", accept_version="1.2", host="x", heart_beat="0,0")
        self.hear("CONNECTED")

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self._connect.__exit__(None, None, None)

    @property
    def compresses(self) -> bool:
        return bool(self.socket.protocol.extensions)

    def say(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
        self.socket.send(encode(command, pairs, body, "1.0" if command == "CONNECT" else "1.2"))

    def hear(self, command: str) -> Frame:
        while True:
            for frame in self.inbox:
                if frame.command == command:
                    self.inbox.remove(frame)
                    return frame
            data = self.socket.recv(WAIT_SECONDS)
            self.inbox += self.stomp.receive(data.encode() if isinstance(data, str) else data)


@pytest.mark.parametrize("size", [0, 1, 1_000, 200_000])
def test_compressed_messages_arrive_as_they_were_sent(broker: BrokerProcess, size: int) -> None:
    with Page(broker) as page, Page(broker, None) as plain, Wire(broker).open() as tcp:
        assert page.compresses and not plain.compresses
        for one in (page, plain):
            one.say("SUBSCRIBE", destination="/topic/deflate", id="0", receipt="s")
            one.hear("RECEIPT")
        tcp.say("SUBSCRIBE", destination="/topic/deflate", id="0", receipt="s")
        tcp.hear("RECEIPT")
        body = bytes(range(256)) * (size // 256) + b"\xff" * (size % 256)
        page.say("SEND", body, destination="/topic/deflate", receipt="r")
        page.hear("RECEIPT")
        for frame in (page.hear("MESSAGE"), plain.hear("MESSAGE"), tcp.hear("MESSAGE")):
            assert frame.body == body


def test_compressed_messages_may_come_in_fragments_with_pings_between_them(broker: BrokerProcess) -> None:
    with Page(broker) as page:
        frame = encode("SEND", [("destination", "/topic/fragments"), ("receipt", "r")], "é".encode() * 999, "1.2")
        page.socket.send([frame[:10], frame[10:500], frame[500:]])
        page.socket.ping().wait(WAIT_SECONDS)
        page.hear("RECEIPT")


def test_a_message_that_grows_beyond_the_limit_ends_its_connection_only(broker: BrokerProcess) -> None:
    with Page(broker) as page, Page(broker) as other:
        before = rss_kib(broker)
        page.socket.send(b"\0" * (64 << 20))
        with pytest.raises(ConnectionClosedError) as closed:
            page.socket.recv(WAIT_SECONDS)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
        assert rss_kib(broker) - before < 16 * 1024
        other.say("SEND", b"x", destination="/topic/deflate", receipt="r")
        other.hear("RECEIPT")


def test_a_listener_without_the_key_declines_compression(start_broker: StartBroker) -> None:
    broker = start_broker("listen: ['stomp://{address}', 'ws://127.0.0.1:0/stomp']")
    with Page(broker) as page:
        assert not page.compresses


def test_the_log_has_no_parts_of_messages_and_no_request_headers(broker: BrokerProcess) -> None:
    """At debug; the library logs frames and headers as it gets them."""
    with Page(broker) as page:
        page.say("SEND", b"a private body", destination="/queue/a", passcode="a-private-header", receipt="r")
        page.hear("RECEIPT")
        page.socket.ping("a private ping").wait(WAIT_SECONDS)
    with Wire(broker).open() as wire:  # its line comes after those of the page
        wire.say("BAD-COMMAND")
        wire.hear("ERROR")
    assert broker.logs("expected a STOMP command")
    assert not re.search("private|sec-websocket", broker.text(), re.IGNORECASE)
