"""The unmodified stomp.py against a real broker, in its three versions: what its users do, done.

stomp.py is the client of most Python programs that speak STOMP, so every feature that it can reach is reached here.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.running import BrokerProcess

stomp = pytest.importorskip("stomp")

VERSIONS = ["1.0", "1.1", "1.2"]
WAIT_SECONDS = 30.0
AWKWARD = "a:b \\ ü"


class Listener(stomp.ConnectionListener):  # type: ignore[misc]
    """Everything that stomp.py hears, as queues and events."""

    def __init__(self) -> None:
        self.messages: queue.Queue[Any] = queue.Queue()
        self.receipts: queue.Queue[str] = queue.Queue()
        self.errors: queue.Queue[Any] = queue.Queue()
        self.disconnected = threading.Event()
        self.beats = threading.Semaphore(0)

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        self.errors.put(frame)

    def on_disconnected(self) -> None:
        self.disconnected.set()

    def on_heartbeat(self) -> None:
        self.beats.release()

    def message(self) -> Any:
        return self.messages.get(timeout=WAIT_SECONDS)

    def receipt(self) -> str:
        return self.receipts.get(timeout=WAIT_SECONDS)

    def error(self) -> Any:
        return self.errors.get(timeout=WAIT_SECONDS)


class User:
    """A connection and its listener; what differs between the versions is here."""

    def __init__(self, broker: BrokerProcess, version: str, **options: Any) -> None:
        kind = getattr(stomp, f"StompConnection{version.replace('.', '')}")
        self.version = version
        self.connection = kind([("127.0.0.1", broker.port)], **options)
        self.listener = Listener()
        self.connection.set_listener("", self.listener)
        self.connection.connect("me", "secret", wait=True)

    def subscribe(self, destination: str, ack: str = "auto", **headers: str) -> None:
        identity = {} if self.version == "1.0" else {"id": "sub-1"}
        self.connection.subscribe(destination, ack=ack, headers=headers, **identity)

    def unsubscribe(self, destination: str) -> None:
        if self.version == "1.0":
            self.connection.unsubscribe(destination)
        else:
            self.connection.unsubscribe("sub-1")

    def answer(self, frame: Any, how: str = "ack", **options: Any) -> None:
        function = getattr(self.connection, how)
        if self.version == "1.0":
            function(frame.headers["message-id"], **options)
        elif self.version == "1.1":
            function(frame.headers["message-id"], frame.headers["subscription"], **options)
        else:
            function(frame.headers["ack"], **options)

    def send(self, destination: str, body: Any, **options: Any) -> None:
        self.connection.send(destination, body, **options)

    def stored(self, destination: str, body: Any, **options: Any) -> None:
        """Send, and wait for the receipt."""
        self.send(destination, body, receipt="stored", **options)
        assert self.listener.receipt() == "stored"


UserOf = Callable[..., User]


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def user(shared_broker: BrokerProcess) -> Iterator[UserOf]:
    users: list[User] = []

    def connect(version: str, broker: BrokerProcess | None = None, **options: Any) -> User:
        users.append(User(broker or shared_broker, version, **options))
        return users[-1]

    yield connect
    for each in users:
        if each.connection.is_connected():
            each.connection.disconnect()


def test_a_topic_live(user: UserOf, version: str) -> None:
    reader, writer = user(version), user(version)
    topic = f"/topic/live.{version}"
    reader.subscribe(topic)
    reader.stored("/topic/barrier", "x")
    writer.send(topic, "grüße\n", content_type="text/plain", headers={"odd": AWKWARD, "tag-x": "y"})
    frame = reader.listener.message()
    assert frame.body == "grüße\n"
    assert frame.headers["destination"] == topic
    assert frame.headers["odd"] == AWKWARD
    assert frame.headers["tag-x"] == "y"
    assert frame.headers["content-type"] == "text/plain"


def test_bodies_with_nuls(user: UserOf, version: str) -> None:
    one = user(version, auto_decode=False)
    queue_name = f"/queue/nul.{version}"
    one.subscribe(queue_name)
    one.send(queue_name, b"\0a\0\xff\0")
    assert bytes(one.listener.message().body) == b"\0a\0\xff\0"


def test_a_work_queue_with_acks_and_a_window_of_one(user: UserOf, version: str) -> None:
    worker = user(version)
    queue_name = f"/queue/work.{version}"
    for number in range(5):
        worker.stored(queue_name, f"job {number}")
    worker.subscribe(queue_name, ack="client-individual" if version != "1.0" else "client")
    for number in range(5):
        frame = worker.listener.message()
        assert frame.body == f"job {number}"
        assert worker.listener.messages.empty()
        worker.answer(frame)
    worker.stored("/topic/barrier", "x")
    assert worker.listener.messages.empty()


def test_prefetch_and_cumulative_acks(user: UserOf, version: str) -> None:
    worker = user(version)
    queue_name = f"/queue/prefetch.{version}"
    for number in range(6):
        worker.stored(queue_name, f"{number}")
    worker.subscribe(queue_name, ack="client", **{"activemq.prefetchSize": "3"})
    frames = [worker.listener.message() for _ in range(3)]
    worker.stored("/topic/barrier", "x")
    assert worker.listener.messages.empty()
    worker.answer(frames[2])
    assert [worker.listener.message().body for _ in range(3)] == ["3", "4", "5"]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_refused_message_comes_back(user: UserOf, version: str) -> None:
    worker = user(version)
    queue_name = f"/queue/nack.{version}"
    worker.stored(queue_name, "job")
    worker.subscribe(queue_name, ack="client-individual")
    worker.answer(worker.listener.message(), "nack")
    frame = worker.listener.message()
    assert frame.body == "job"
    assert frame.headers["redelivered"] == "true"
    assert frame.headers["delivery-count"] == "2"


def test_what_a_lost_worker_held_goes_to_the_next(user: UserOf, version: str) -> None:
    lost, other = user(version), user(version)
    queue_name = f"/queue/lost.{version}"
    lost.stored(queue_name, "job")
    lost.subscribe(queue_name, ack="client")
    assert lost.listener.message().body == "job"
    other.subscribe(queue_name, ack="client")
    other.stored("/topic/barrier", "x")
    lost.connection.transport.disconnect_socket()
    assert other.listener.message().headers["redelivered"] == "true"


def test_receipts_on_everything(user: UserOf, version: str) -> None:
    one = user(version)
    queue_name = f"/queue/receipts.{version}"
    one.subscribe(queue_name, ack="client", receipt="r-subscribe")
    assert one.listener.receipt() == "r-subscribe"
    one.send(queue_name, "m", receipt="r-send")
    assert one.listener.receipt() == "r-send"
    one.answer(one.listener.message(), **({} if version == "1.0" else {"receipt": "r-ack"}))
    if version != "1.0":
        assert one.listener.receipt() == "r-ack"
    one.connection.disconnect(receipt="r-bye")
    assert one.listener.receipt() == "r-bye"
    assert one.listener.disconnected.wait(WAIT_SECONDS)


def test_transactions(user: UserOf, version: str) -> None:
    one = user(version)
    queue_name = f"/queue/transactions.{version}"
    one.subscribe(queue_name)
    for transaction, end in (("t-1", "abort"), ("t-2", "commit")):
        one.connection.begin(transaction)
        for number in range(3):
            one.send(queue_name, f"{transaction} {number}", transaction=transaction)
        getattr(one.connection, end)(transaction)
    one.stored("/topic/barrier", "x")
    assert [one.listener.message().body for _ in range(3)] == [f"t-2 {number}" for number in range(3)]
    assert one.listener.messages.empty()


def test_unsubscribe(user: UserOf, version: str) -> None:
    one = user(version)
    topic = f"/topic/unsubscribe.{version}"
    one.subscribe(topic)
    one.send(topic, "1")
    assert one.listener.message().body == "1"
    one.unsubscribe(topic)
    one.send(topic, "2")
    one.stored("/topic/barrier", "x")
    assert one.listener.messages.empty()


def test_wildcards_and_replay(user: UserOf, version: str) -> None:
    one = user(version)
    name = f"/topic/replay-{version}"
    for number in range(4):
        one.stored(f"{name}.{'ab'[number % 2]}", str(number))
    one.subscribe(f"{name}.*", **{"start-position": "first", "stop-position": "end"})
    found: dict[str, list[str]] = {}
    while "replay-end" not in (frame := one.listener.message()).headers:
        assert frame.headers["replayed"] == "true"
        found.setdefault(frame.headers["destination"][-1], []).append(frame.body)
    assert found == {"a": ["0", "2"], "b": ["1", "3"]}


def test_request_and_reply(user: UserOf, version: str) -> None:
    server, client = user(version), user(version)
    queue_name = f"/queue/requests.{version}"
    server.subscribe(queue_name)
    client.send(queue_name, "ping", headers={"reply-to": "/temp-queue/answers", "correlation-id": "7"})
    request = server.listener.message()
    server.send(request.headers["reply-to"], "pong", headers={"correlation-id": request.headers["correlation-id"]})
    reply = client.listener.message()
    assert (reply.body, reply.headers["correlation-id"]) == ("pong", "7")


def test_an_error_reaches_the_listener_with_its_text(user: UserOf, version: str) -> None:
    one = user(version)
    one.send("/topic/*", "m")
    frame = one.listener.error()
    assert frame.headers["error-code"] == "bad-destination"
    assert frame.headers["message"]
    assert one.listener.disconnected.wait(WAIT_SECONDS)


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_heart_beats_both_ways(start_broker: Callable[..., BrokerProcess], user: UserOf, version: str) -> None:
    broker = start_broker("heart_beat: {send: 100ms, expect: 100ms, grace: 5.0}")
    one = user(version, broker, heartbeats=(200, 200))
    for _ in range(5):
        assert one.listener.beats.acquire(timeout=WAIT_SECONDS)
    one.stored("/topic/barrier", "x")


def test_many_threads_on_one_connection(user: UserOf, version: str) -> None:
    """stomp.py's connections are used from several threads; nothing is lost or mixed up."""
    one, reader = user(version), user(version)
    queue_name = f"/queue/threads.{version}"
    reader.subscribe(queue_name)
    reader.stored("/topic/barrier", "x")

    def work(name: int) -> None:
        for number in range(50):
            one.send(queue_name, f"{name}:{number}")

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bodies = [reader.listener.message().body for _ in range(200)]
    for name in range(4):
        assert [body for body in bodies if body.startswith(f"{name}:")] == [f"{name}:{number}" for number in range(50)]


def test_the_versions_talk_to_one_another(user: UserOf) -> None:
    users = [user(version) for version in VERSIONS]
    for each in users:
        each.subscribe("/topic/versions")
        each.stored("/topic/barrier", "x")
    for each in users:
        each.send("/topic/versions", each.version, headers={"odd": AWKWARD})
    for each in users:
        frames = [each.listener.message() for _ in users]
        assert sorted(frame.body for frame in frames) == VERSIONS
        assert {frame.headers["odd"] for frame in frames} == {AWKWARD}


def test_a_broker_that_restarts_is_found_again(start_broker: Callable[..., BrokerProcess], user: UserOf) -> None:
    broker = start_broker()
    one = user("1.2", broker)
    one.stored("/queue/again", "kept")
    broker.kill()
    assert one.listener.disconnected.wait(WAIT_SECONDS)
    broker.start()
    two = user("1.2", broker)
    two.subscribe("/queue/again", ack="client")
    assert two.listener.message().body == "kept"


@pytest.mark.thorough
def test_a_drain_reaches_the_listener_and_what_was_acknowledged_stays_so(
    start_broker: Callable[..., BrokerProcess], user: UserOf
) -> None:
    broker = start_broker("drain: {on_stop: 500ms}\n")
    users = [user(version, broker) for version in VERSIONS]
    for each in users:
        each.subscribe(f"/queue/drain.{each.version}", ack="client")
        each.stored(f"/queue/drain.{each.version}", "once")
        each.answer(each.listener.message())
    assert broker.stop() == 0, broker.text()
    for each in users:
        error = each.listener.error()
        assert (error.headers["error-code"], error.headers["message"]) == ("draining", "the broker is going down")
        assert each.listener.disconnected.wait(WAIT_SECONDS)
    broker.start()
    again = user("1.2", broker)
    again.subscribe("/queue/drain.>")
    again.stored("/queue/drain.1.2", "twice")
    assert again.listener.message().body == "twice"
    again.connection.disconnect()
    assert broker.stop() == 0
