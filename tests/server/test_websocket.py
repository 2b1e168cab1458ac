"""STOMP over WebSocket with a real broker, spoken by somebody else's implementation (websocket-client)."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from radiator.client import connect
from radiator.client.admin import ask
from radiator.stomp.connection import ClientConnection
from radiator.stomp.encoder import encode
from radiator.stomp.frames import Frame
from tests.certificates import Authority
from tests.running import BrokerProcess
from tests.server.wire import WAIT_SECONDS, Wire, rss_kib

websocket = pytest.importorskip("websocket")
StartBroker = Callable[..., BrokerProcess]
PROTOCOLS = ["v10.stomp", "v11.stomp", "v12.stomp"]


class Page:
    """What a web page has: a WebSocket, and one message at a time."""

    def __init__(self, url: str, *, binary: bool = False, **options: Any) -> None:
        options.setdefault("subprotocols", PROTOCOLS)
        options.setdefault("suppress_origin", True)
        self.socket = websocket.create_connection(url, timeout=WAIT_SECONDS, **options)
        self.binary = binary
        self.end = ClientConnection()
        self.kinds: set[int] = set()
        self.inbox: list[Frame] = []

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        if self.binary:
            self.socket.send_binary(data)
        else:
            self.socket.send(data.decode())

    def say(self, command: str, body: bytes = b"", /, **headers: Any) -> None:
        pairs = [(name.replace("_", "-"), str(value)) for name, value in headers.items()]
        self.send(encode(command, pairs, body, "1.0" if command == "CONNECT" else "1.2"))

    def open(self) -> Page:
        self.say("CONNECT", accept_version="1.2", host="x", heart_beat="0,0")
        self.hear("CONNECTED")
        return self

    def hear(self, command: str) -> Frame:
        """The next frame of that command; every message of the broker must be whole frames."""
        while True:
            for frame in self.inbox:
                if frame.command == command:
                    self.inbox.remove(frame)
                    return frame
            opcode, data = self.socket.recv_data()
            assert opcode != websocket.ABNF.OPCODE_CLOSE, f"closed with {data!r} before {command}"
            self.kinds.add(opcode)
            self.inbox += self.end.receive(data)
            assert self.end.idle, "a message that ends inside a frame"

    def barrier(self) -> None:
        self.say("SEND", destination="/topic/barrier", receipt="barrier")
        self.hear("RECEIPT")

    def closed(self) -> tuple[list[str], int]:
        """The commands of all frames until the end, and the code of the Close frame."""
        heard = []
        while True:
            opcode, data = self.socket.recv_data()
            if opcode == websocket.ABNF.OPCODE_CLOSE:
                return heard, int.from_bytes(data[:2])
            heard += [frame.command for frame in self.end.receive(data)]


class Web:
    """A broker with ``ws://``, and with ``wss://`` too."""

    def __init__(self, start: StartBroker, authority: Authority, config: str = "") -> None:
        cert, key = authority.issue("127.0.0.1")
        options = ["--listen", "ws://127.0.0.1:0/stomp", "--listen", "wss://127.0.0.1:0/stomp"]
        self.broker = start(f"tls: {{cert: {cert}, key: {key}}}\n{config}", options)
        self.port, self.tls_port = self.broker.port_of("ws"), self.broker.port_of("wss")
        self.url = f"ws://127.0.0.1:{self.port}/stomp"
        self.tls_url = f"wss://127.0.0.1:{self.tls_port}/stomp"
        self.trust = {"sslopt": {"ca_certs": authority.ca, "cert_reqs": ssl.CERT_REQUIRED}}

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), WAIT_SECONDS)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Web]:
    def start(config: str, options: list[str]) -> BrokerProcess:
        broker = BrokerProcess(tmp_path_factory.mktemp("broker"), config, options)
        broker.start()
        return broker

    found = Web(start, authority, "limits: {connect_timeout: 2s}\n")
    yield found
    assert found.broker.stop() == 0, found.broker.text()
    assert "Traceback" not in found.broker.text()


@pytest.mark.thorough
@pytest.mark.parametrize("secure", [False, True], ids=["ws", "wss"])
@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_messages_of_every_size_pass_through_a_websocket(web: Web, secure: bool, binary: bool) -> None:
    more = web.trust if secure else {}
    with Page(web.tls_url if secure else web.url, binary=binary, **more) as page, Wire(web.broker).open() as plain:
        assert page.socket.subprotocol == "v12.stomp"
        page.open().say("SUBSCRIBE", destination="/queue/sizes", id="0", ack="auto")
        for size in (0, 1, 125, 126, 65_535, 65_536, 1_000_000, 4_194_304):
            body = os.urandom(size // 2).hex().encode().ljust(size, b"x")
            page.say("SEND", body, destination="/queue/sizes", receipt="r")
            page.hear("RECEIPT")
            assert page.hear("MESSAGE").body == body
        kind = websocket.ABNF.OPCODE_BINARY if binary else websocket.ABNF.OPCODE_TEXT
        assert page.kinds == {kind}
        plain.say("SEND", b"\xff\0", destination="/queue/sizes", content_length=2)
        assert page.hear("MESSAGE").body == b"\xff\0"  # not UTF-8: a binary message, whoever speaks
        assert page.kinds == {kind, websocket.ABNF.OPCODE_BINARY}
        page.say("DISCONNECT", receipt="bye")
        assert page.closed() == (["RECEIPT"], 1000)


def test_frames_may_be_cut_and_joined_over_messages(web: Web) -> None:
    frames = b"".join(
        encode("SEND", [("destination", "/topic/cut"), ("receipt", str(number))], b"x" * number, "1.2")
        for number in range(50)
    )
    with Page(web.url) as page:
        page.open()
        for at in range(0, len(frames), 7):
            page.send(frames[at : at + 7])
        page.send(frames + frames[:3])
        page.send(frames[3:])
        assert [page.hear("RECEIPT").headers["receipt-id"] for _ in range(150)] == [str(n) for n in range(50)] * 3


def test_a_run_of_messages_is_a_websocket_message_each(web: Web) -> None:
    with Page(web.url) as page, Wire(web.broker).open() as sender:
        page.open().say("SUBSCRIBE", destination="/topic/run", id="0", receipt="s")
        page.hear("RECEIPT")
        sender.send(
            b"".join(encode("SEND", [("destination", "/topic/run")], b"%d" % number, "1.2") for number in range(500))
        )
        for number in range(500):
            assert page.hear("MESSAGE").body == b"%d" % number
            assert not page.inbox, "two frames in one message"


def test_an_error_comes_before_the_close(web: Web) -> None:
    with Page(web.url) as page:
        page.open().say("SEND")
        heard, code = page.closed()
    assert heard == ["ERROR"] and code == 1000
    with Page(web.url) as page:
        page.send(b"NONSENSE\n\n\0")
        heard, code = page.closed()
    assert heard == ["ERROR"] and code == 1002


def test_a_page_that_closes_gives_back_what_it_held_and_is_answered(web: Web) -> None:
    with Page(web.url) as page, Page(web.url) as next_page:
        page.open().say("SUBSCRIBE", destination="/queue/held", id="0", ack="client")
        page.say("SEND", b"work", destination="/queue/held")
        page.hear("MESSAGE")
        page.socket.send_close(1000)
        assert page.closed() == ([], 1000)
        next_page.open().say("SUBSCRIBE", destination="/queue/held", id="0", ack="client")
        assert next_page.hear("MESSAGE").headers["redelivered"] == "true"


def test_what_was_sent_before_the_close_is_done_however_much_work_it_is(web: Web) -> None:
    born = [encode("SEND", [("destination", f"/topic/born.{number}")], b"", "1.2") for number in range(2_000)]
    work = [
        encode("SUBSCRIBE", [("destination", f"/queue/{number}.*"), ("id", str(number))], b"", "1.2")
        for number in range(200)
    ]
    last = encode("SEND", [("destination", "/queue/before-the-close")], b"last", "1.2")
    with Page(web.url) as page, Page(web.url) as other:
        other.open()
        page.open().send(b"".join(born))
        page.barrier()
        page.socket.sock.sendall(  # in one go, so that the farewell is there while work is left
            websocket.ABNF.create_frame(b"".join([*work, last]), websocket.ABNF.OPCODE_BINARY).format()
            + websocket.ABNF.create_frame((1000).to_bytes(2), websocket.ABNF.OPCODE_CLOSE).format()
        )
        other.say("SUBSCRIBE", destination="/queue/before-the-close", id="0", ack="auto")
        assert other.hear("MESSAGE").body == b"last"


def test_pings_are_answered_also_while_messages_come(web: Web) -> None:
    with Page(web.url) as page:
        page.open()
        page.socket.ping("are you there")
        opcode, data = page.socket.recv_data(control_frame=True)
        assert (opcode, data) == (websocket.ABNF.OPCODE_PONG, b"are you there")


def test_a_message_may_come_in_fragments_with_pings_between_them(web: Web) -> None:
    frame = encode("SEND", [("destination", "/topic/pieces"), ("receipt", "1")], b"x" * 10_000, "1.2").decode()
    with Page(web.url) as page:
        page.open()
        abnf = websocket.ABNF
        page.socket.send_frame(abnf(0, 0, 0, 0, abnf.OPCODE_TEXT, 1, frame[:10].encode()))
        page.socket.ping("x")
        page.socket.send_frame(abnf(0, 0, 0, 0, abnf.OPCODE_CONT, 1, frame[10:500].encode()))
        page.socket.send_frame(abnf(1, 0, 0, 0, abnf.OPCODE_CONT, 1, frame[500:].encode()))
        page.hear("RECEIPT")


def test_no_subprotocol_is_accepted_and_strangers_are_not(web: Web) -> None:
    with Page(web.url, subprotocols=[]) as page:
        page.open()
    with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
        Page(web.url, suppress_origin=False, origin="https://stranger.example")
    with Page(web.url, suppress_origin=False, origin="http://localhost:8080") as page:
        page.open()


def test_pages_that_the_configuration_names_are_let_in(start_broker: StartBroker) -> None:
    page = "{url: 'ws://127.0.0.1:0', origins: [https://app.example]}"
    broker = start_broker(f"listen: [stomp://{{address}}, {page}]\n")
    with Page(
        f"ws://127.0.0.1:{broker.port_of('ws')}/any", suppress_origin=False, origin="https://app.example"
    ) as page:
        page.open()
    assert broker.stop() == 0


def test_a_browser_that_visits_gets_a_page_of_text(web: Web) -> None:
    with web.raw() as sock:
        sock.sendall(b"GET /stomp HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n")
        answer = b"".join(iter(lambda: sock.recv(4_096), b""))
    assert answer.startswith(b"HTTP/1.1 426 ") and b"@stomp/stompjs" in answer


def test_stomp_on_a_websocket_port_is_answered_in_stomp(web: Web) -> None:
    with web.raw() as sock:
        sock.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        answer = b"".join(iter(lambda: sock.recv(4_096), b""))
    assert answer.startswith(b"ERROR\nmessage:this is a STOMP port over WebSocket\nerror-code:not-stomp\n")
    context = ssl.create_default_context(cafile=web.trust["sslopt"]["ca_certs"])
    with context.wrap_socket(
        socket.create_connection(("127.0.0.1", web.tls_port), WAIT_SECONDS), server_hostname="127.0.0.1"
    ) as sock:
        sock.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        answer = b"".join(iter(lambda: sock.recv(4_096), b""))
    assert b"this is a STOMP port over WebSocket" in answer


def test_tls_on_a_plain_websocket_port_is_answered_with_an_alert(web: Web) -> None:
    with pytest.raises((ssl.SSLError, OSError)):
        Page(f"wss://127.0.0.1:{web.port}/stomp", **web.trust)
    assert web.broker.logs("this is a WebSocket port without TLS")


@pytest.mark.thorough
def test_a_slow_upgrade_request_is_ended_by_the_connect_timeout_with_an_answer(web: Web) -> None:
    slow = [web.raw() for _ in range(30)]
    for sock in slow:
        sock.sendall(b"GET /stomp HTTP/1.1\r\nHost: x\r\n")
    with Page(web.url) as page:
        page.open()
    for sock in slow:
        assert b"".join(iter(lambda sock=sock: sock.recv(4_096), b"")).startswith(b"HTTP/1.1 408 ")
        sock.close()


@pytest.mark.thorough
def test_a_page_that_is_silent_after_the_upgrade_gets_an_error(web: Web) -> None:
    with Page(web.url) as page:
        assert page.closed()[0] == ["ERROR"]


@pytest.mark.thorough
def test_a_page_that_does_not_read_costs_no_memory(web: Web) -> None:
    body = b"x" * 32_768
    with (
        Page(web.url, sockopt=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)]) as stuck,
        Wire(web.broker).open() as sender,
    ):
        stuck.open().say("SUBSCRIBE", destination="/topic/slow", id="0", receipt="s")
        stuck.hear("RECEIPT")
        before = rss_kib(web.broker)
        for _ in range(60):
            for _ in range(32):
                sender.say("SEND", body, destination="/topic/slow", receipt="r")
            sender.hear_many("RECEIPT", 32)
        assert rss_kib(web.broker) - before < 80 * 1_024
        assert [int(stuck.hear("MESSAGE").headers["offset"]) for _ in range(1_920)] == list(range(1_920))


@pytest.mark.thorough
def test_a_flood_of_pings_that_reads_no_pong_costs_no_memory(web: Web) -> None:
    with Page(web.url) as page, Wire(web.broker).open() as good:
        page.open()
        before = rss_kib(web.broker)
        ping = websocket.ABNF.create_frame(b"x" * 125, websocket.ABNF.OPCODE_PING).format() * 1_000
        page.socket.sock.settimeout(1.0)
        try:
            for _ in range(200):
                page.socket.sock.sendall(ping)
        except TimeoutError:
            pass
        good.barrier()
        assert rss_kib(web.broker) - before < 20 * 1_024


def test_a_stop_says_goodbye_with_a_code(start_broker: StartBroker, authority: Authority) -> None:
    web = Web(start_broker, authority)
    with Page(web.url) as page:
        page.open()
        os.kill(web.broker.pid, 15)
        assert page.closed() == (["ERROR"], 1001)
    assert web.broker.process is not None and web.broker.process.wait(20) == 0


@pytest.mark.thorough
def test_a_drained_page_gets_an_error_and_the_code_of_a_stop(start_broker: StartBroker, authority: Authority) -> None:
    web = Web(start_broker, authority)
    with connect(web.broker.address, headers={"while-draining": "true"}) as operator, Page(web.url) as page:
        page.open()
        ask(operator, "broker.drain", seconds=0)
        assert page.closed() == (["ERROR"], 1001)
    assert web.broker.stop() == 0


@pytest.mark.thorough
def test_one_connection_too_many_gets_an_http_answer(start_broker: StartBroker, authority: Authority) -> None:
    web = Web(start_broker, authority, "limits: {connections: 3}")
    pages: list[Page] = []
    with pytest.raises(websocket.WebSocketBadStatusException, match="503"):
        while len(pages) < 4:
            pages.append(Page(web.url).open())
    with pytest.raises(websocket.WebSocketBadStatusException, match="503"):
        Page(web.tls_url, **web.trust)
    for page in pages:
        page.socket.close()
