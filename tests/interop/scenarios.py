"""What every client must be able to do: one list, in the words of ``Connection``, whatever the client is.

A scenario is a function of a ``Stage``; its docstring is what it shows. Destinations are the scenario's own. What
takes no receipt (an ACK, an UNSUBSCRIBE) is followed by a message to a barrier with one, so that the broker has
certainly seen it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.interop.driver import Connection, DriverError, Endpoint

ALL_BYTES = bytes(range(256)) * 3
UNICODE = "grüße, 世界, \N{GRINNING FACE}, e\N{COMBINING ACUTE ACCENT}, שלום"
AWKWARD = {"1.0": "a b", "1.1": "a:b \\ ü\nc", "1.2": "a:b \\ ü\r\nc"}
BIG_BYTES = 4 * 1024 * 1024
BEAT_MS = 500
SEEN_SECONDS_MAX = 10.0
GRACE = 3.0  # of the broker of these tests: silent for three intervals is dead
PASSCODE = "open: sesame"


class Stage:
    """What a scenario has: a driver's connections, a name of its own, what is known of client and broker."""

    plain = False  # the client neither escapes nor unescapes headers
    beats = True  # it has heart-beats

    def __init__(
        self, connections: Callable[[str], Connection], endpoint: Endpoint, user: str, version: str, name: str
    ) -> None:
        self._connections = connections
        self.endpoint = endpoint
        self.user = user
        self.version = version
        self.name = name
        self._opened = self._ended = 0

    def open(self, passcode: str = PASSCODE, heart_beat: tuple[int, int] = (0, 0)) -> Connection:
        self._opened += 1
        connection = self._connections(f"{self.name}-{self._opened}")
        got = connection.do(
            "connect",
            endpoint=self.endpoint.as_json(), version=self.version,
            login=self.user, passcode=passcode, heart_beat=list(heart_beat),
        )  # fmt: skip
        assert got == self.version, f"asked for version {self.version} and got {got}"
        return connection

    def end(self, connection: Connection) -> None:
        """DISCONNECT, and the broker has seen it: a client may not wait for that, and the next one would come first."""
        connection.do("disconnect")
        self._ended += 1
        until = time.monotonic() + SEEN_SECONDS_MAX
        while self.endpoint.tap.alive > self._opened - self._ended and time.monotonic() < until:
            time.sleep(0.005)

    @property
    def queue(self) -> str:
        return f"/queue/{self.name}"

    @property
    def topic(self) -> str:
        return f"/topic/{self.name}"

    def settled(self, connection: Connection) -> None:
        """The broker has done all that this connection said so far."""
        connection.send(f"/topic/barrier.{self.name}", "x")


def connect(stage: Stage) -> None:
    """CONNECT and CONNECTED, in the version asked for; DISCONNECT."""
    stage.open().do("disconnect")


def send_with_receipt(stage: Stage) -> None:
    """SEND, and its RECEIPT is heard; the message is there."""
    one = stage.open()
    one.send(stage.queue, "hello", headers={"kind": "greeting"})
    one.subscribe(stage.queue)
    message = one.receive()
    assert message.body == b"hello"
    assert message.headers["destination"] == stage.queue
    assert message.headers["kind"] == "greeting"


def ack_auto(stage: Stage) -> None:
    """``ack:auto``: everything comes at once, and is settled."""
    one = stage.open()
    for number in range(5):
        one.send(stage.queue, f"m {number}")
    one.subscribe(stage.queue)
    assert one.bodies(5) == [f"m {number}" for number in range(5)]
    again = stage.open()
    again.subscribe(stage.queue)
    assert again.look() is None


def ack_client(stage: Stage) -> None:
    """``ack:client``: an ACK settles all that came before it in the subscription, and no more."""
    one = stage.open()
    for number in range(5):
        one.send(stage.queue, f"m {number}")
    one.subscribe(stage.queue, "client", prefetch_count="3")
    first = [one.receive() for _ in range(3)]
    assert one.look() is None, "more than the window allows"
    one.ack(first[1])
    assert one.bodies(2) == ["m 3", "m 4"]
    stage.end(one)
    again = stage.open()
    again.subscribe(stage.queue, prefetch_count="9")
    assert again.bodies(3) == ["m 2", "m 3", "m 4"]
    assert again.look() is None


def ack_client_individual(stage: Stage) -> None:
    """``ack:client-individual``: one at a time by default, each acknowledged for itself."""
    one = stage.open()
    for number in range(3):
        one.send(stage.queue, f"m {number}")
    one.subscribe(stage.queue, "client-individual")
    first = one.receive()
    assert one.look() is None, "more than the window of one"
    one.ack(first)
    assert one.receive().body == b"m 1"
    stage.end(one)
    again = stage.open()
    again.subscribe(stage.queue, "client-individual", prefetch_count="2")
    left = [again.receive() for _ in range(2)]
    assert [message.body for message in left] == [b"m 1", b"m 2"]
    assert left[0].headers["redelivered"] == "true"
    again.ack(left[1])
    stage.end(again)
    last = stage.open()
    last.subscribe(stage.queue)
    assert last.receive().body == b"m 1"
    assert last.look() is None


def nack(stage: Stage) -> None:
    """NACK: the message comes again, marked and counted."""
    one = stage.open()
    one.send(stage.queue, "job")
    one.subscribe(stage.queue, "client-individual")
    one.nack(one.receive())
    message = one.receive()
    assert message.body == b"job"
    assert message.headers["redelivered"] == "true"
    assert message.headers["delivery-count"] == "2"
    one.ack(message)


def commit(stage: Stage) -> None:
    """A transaction: nothing is seen before COMMIT, then all of it, in order; an ACK can be part of it."""
    one, other = stage.open(), stage.open()
    one.send(stage.queue, "job")
    one.subscribe(stage.queue, "client-individual")
    other.subscribe(f"{stage.queue}.done")
    job = one.receive()
    one.do("begin", transaction="t1")
    for number in range(3):
        one.send(f"{stage.queue}.done", f"m {number}", stored=False, transaction="t1")
    one.ack(job, transaction="t1")
    stage.settled(one)
    assert other.look() is None, "seen before COMMIT"
    one.do("commit", transaction="t1")
    assert other.bodies(3) == ["m 0", "m 1", "m 2"]
    stage.end(one)
    again = stage.open()
    again.subscribe(stage.queue)
    assert again.look() is None, "the ACK of the transaction did not hold"


def abort(stage: Stage) -> None:
    """A transaction that is aborted has never been; its connection goes on."""
    one, other = stage.open(), stage.open()
    other.subscribe(stage.queue)
    stage.settled(other)
    one.do("begin", transaction="t1")
    one.send(stage.queue, "never", stored=False, transaction="t1")
    one.do("abort", transaction="t1")
    one.send(stage.queue, "after")
    assert other.receive().body == b"after"


def receipt_in_transaction(stage: Stage) -> None:
    """A SEND inside a transaction may ask for a receipt, and gets it before COMMIT."""
    one, other = stage.open(), stage.open()
    other.subscribe(stage.queue)
    one.do("begin", transaction="t1")
    one.send(stage.queue, "m", transaction="t1")
    assert other.look() is None
    one.do("commit", transaction="t1")
    assert other.receive().body == b"m"


def binary_body(stage: Stage) -> None:
    """Bodies of any bytes, NULs too, and empty ones."""
    one = stage.open()
    one.subscribe(stage.queue)
    for body in (ALL_BYTES, b"\0", b"\n\0\n\0", b""):
        one.send(stage.queue, body)
        assert one.receive().body == body


def unicode_body(stage: Stage) -> None:
    """Text beyond ASCII, in the body."""
    one = stage.open()
    one.subscribe(stage.queue)
    one.send(stage.queue, UNICODE, headers={"content-type": "text/plain;charset=utf-8"})
    message = one.receive()
    assert message.body.decode() == UNICODE
    assert message.headers["content-type"] == "text/plain;charset=utf-8"


def awkward_headers(stage: Stage) -> None:
    """Header values with whatever the version can say: colons, backslashes, line ends, text beyond ASCII."""
    one = stage.open()
    value = "a:b ü" if stage.plain else AWKWARD[stage.version]
    one.subscribe(stage.topic)
    stage.settled(one)
    one.send(stage.topic, "m", headers={"odd": value, "url": "http://h:80/a?b=c"})
    headers = one.receive().headers
    if stage.plain:  # what it hands out is what stood on the wire
        headers = {name: text.replace("\\c", ":") for name, text in headers.items()}
    assert (headers["odd"], headers["url"]) == (value, "http://h:80/a?b=c")


def four_mebibytes(stage: Stage) -> None:
    """A body as large as the limit allows, there and back."""
    one = stage.open()
    one.subscribe(stage.queue)
    body = (ALL_BYTES * (BIG_BYTES // len(ALL_BYTES) + 1))[:BIG_BYTES]
    one.send(stage.queue, body)
    assert one.receive().body == body


def big_text(stage: Stage) -> None:
    """A third of a mebibyte of text, which clients send in pieces."""
    one = stage.open()
    one.subscribe(stage.queue)
    body = "grüße, 世界; " * 20_000
    one.send(stage.queue, body)
    assert one.receive().body.decode() == body


def heart_beat(stage: Stage) -> None:
    """Silent for longer than the broker waits for a heart-beat, and still there: both sides beat."""
    one = stage.open(heart_beat=(BEAT_MS, BEAT_MS))
    one.do("rest", seconds=BEAT_MS / 1000 * (GRACE + 1.0))
    one.send(stage.queue, "still here")
    one.subscribe(stage.queue)
    assert one.receive().body == b"still here"


def replay(stage: Stage) -> None:
    """``start-position:first``: history in order, then live, on a topic that nobody was subscribed to."""
    one = stage.open()
    for number in range(3):
        one.send(stage.topic, f"m {number}")
    one.subscribe(stage.topic, start_position="first")
    history = [one.receive() for _ in range(3)]
    assert [message.body for message in history] == [b"m 0", b"m 1", b"m 2"]
    assert history[0].headers["replayed"] == "true"
    one.send(stage.topic, "m 3")
    live = one.receive()
    assert live.body == b"m 3"
    assert "replayed" not in live.headers


def named_subscription(stage: Stage) -> None:
    """A durable subscription, as ActiveMQ's users name it: what comes while nobody is there waits."""
    name = {"activemq.subscriptionName": stage.name}
    one, other = stage.open(), stage.open()
    one.subscribe(stage.topic, "client", **name)
    stage.settled(one)
    stage.end(one)
    other.send(stage.topic, "meanwhile")
    again = stage.open()
    again.subscribe(stage.topic, "client", **name)
    message = again.receive()
    assert message.body == b"meanwhile"
    again.ack(message)
    stage.settled(again)
    other.send(stage.topic, "live")
    assert again.receive().body == b"live"


def unsubscribe(stage: Stage) -> None:
    """After UNSUBSCRIBE nothing comes; what was held goes back."""
    one = stage.open()
    one.send(stage.queue, "job")
    one.subscribe(stage.queue, "client")
    assert one.receive().body == b"job"
    one.do("unsubscribe", destination=stage.queue, id="1")
    stage.settled(one)
    one.send(stage.queue, "more")
    assert one.look() is None
    other = stage.open()
    other.subscribe(stage.queue)
    assert other.bodies(2) == ["job", "more"]


def two_subscriptions(stage: Stage) -> None:
    """Two subscriptions on one connection keep apart; wildcards match."""
    one = stage.open()
    one.subscribe(f"{stage.topic}.*", id="1")
    one.subscribe(stage.queue, "client", id="2")
    stage.settled(one)
    one.send(f"{stage.topic}.a", "to all")
    assert one.receive().headers["destination"] == f"{stage.topic}.a"
    one.send(stage.queue, "to one")
    message = one.receive()
    assert message.headers["destination"] == stage.queue
    one.ack(message)
    stage.settled(one)


def request_and_reply(stage: Stage) -> None:
    """A temporary queue in ``reply-to`` leads back to the connection that asked."""
    server, client = stage.open(), stage.open()
    server.subscribe(stage.queue)
    client.subscribe("/temp-queue/answers")
    client.send(stage.queue, "ping", headers={"reply-to": "/temp-queue/answers", "correlation-id": "7"})
    request = server.receive()
    server.send(request.headers["reply-to"], "pong", headers={"correlation-id": request.headers["correlation-id"]})
    reply = client.receive()
    assert (reply.body, reply.headers["correlation-id"]) == (b"pong", "7")


def error(stage: Stage) -> None:
    """An ERROR is heard, with its words."""
    one = stage.open()
    one.send("/topic/*", "m", stored=False)
    assert "pattern" in one.do("failure", seconds=10.0)


def login_failure(stage: Stage) -> None:
    """A wrong password is an error that the client reports; the right one is taken before and after."""
    stage.open().do("disconnect")
    with pytest.raises(DriverError) as refused:
        stage.open(passcode="wrong")
    assert "no answer within" not in str(refused.value), "the client waits for ever"
    stage.open().do("disconnect")


def reconnect(stage: Stage) -> None:
    """The line breaks with a message in hand: the client comes back, and the message with it, marked."""
    one = stage.open(heart_beat=(BEAT_MS, BEAT_MS) if stage.beats else (0, 0))
    one.send(stage.queue, "job")
    one.subscribe(stage.queue, "client")
    assert one.receive().body == b"job"
    stage.endpoint.tap.cut()
    one.do("back", seconds=20.0)
    message = one.receive()
    assert (message.body, message.headers["redelivered"]) == (b"job", "true")
    one.ack(message)
    stage.settled(one)


SCENARIOS: tuple[Callable[[Stage], None], ...] = (
    connect,
    login_failure,
    send_with_receipt,
    ack_auto,
    ack_client,
    ack_client_individual,
    nack,
    commit,
    abort,
    receipt_in_transaction,
    binary_body,
    unicode_body,
    awkward_headers,
    four_mebibytes,
    big_text,
    heart_beat,
    replay,
    named_subscription,
    unsubscribe,
    two_subscriptions,
    request_and_reply,
    error,
    reconnect,
)
NAMES = tuple(scenario.__name__ for scenario in SCENARIOS)
