"""Opening and closing: time-outs, heart-beats, signals, sockets, and who else may be knocking."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from radiator.server.transport import UNSENT_SECONDS_MAX
from radiator.stomp.frames import Frame
from tests.running import BrokerProcess
from tests.server.wire import Wire

StartBroker = Callable[..., BrokerProcess]
BrokerWith = Callable[[str], BrokerProcess]
T, Q = "/topic/a", "/queue/a"
BEATS = "heart_beat: {send: 100ms, expect: 100ms, grace: 3.0}"


# --- who is knocking --------------------------------------------------------------------------------------------------


def test_a_browser_gets_an_http_answer_that_this_is_no_web_server(shared_broker: BrokerProcess) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://{shared_broker.address}/", timeout=30)
    assert caught.value.code == 400
    assert b"STOMP" in caught.value.read()


def test_a_tls_client_gets_a_tls_alert(shared_broker: BrokerProcess) -> None:
    context = ssl.create_default_context()
    with (
        socket.create_connection(("127.0.0.1", shared_broker.port), timeout=30) as sock,
        pytest.raises(ssl.SSLError) as caught,
    ):
        context.wrap_socket(sock, server_hostname="localhost")
    assert "HANDSHAKE_FAILURE" in str(caught.value).upper().replace(" ", "_")


def test_the_log_says_what_was_knocking(start_broker: StartBroker) -> None:
    broker = start_broker()
    with Wire(broker) as wire:
        wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert wire.more().startswith(b"HTTP/1.1 400")
    broker.stop()
    assert broker.logs("HTTP")


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["the broker", "the client"])
def test_a_connection_ends_with_a_disconnect_without_a_receipt(shared_broker: BrokerProcess, first: str) -> None:
    """At once, and not when the time is over in which a closing connection has to take its last bytes."""
    with Wire(shared_broker) as wire:
        wire.open().say("DISCONNECT")
        if first == "the client":
            wire.socket.shutdown(socket.SHUT_WR)
        wire.socket.settimeout(UNSENT_SECONDS_MAX / 2)
        assert wire.rest() == []


# --- time-outs and heart-beats ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", b"CONN", b"\n\n\n", b"CONNECT\naccept-version:1.2\n"])
def test_a_connection_without_connect_is_closed_with_an_error(broker_with: BrokerWith, said: bytes) -> None:
    broker = broker_with("limits: {connect_timeout: 200ms}")
    with Wire(broker) as wire:
        wire.send(said)
        (error,) = wire.rest()
    assert error.headers["error-code"] == "timeout"
    assert b"connect_timeout" in error.body


def test_a_connection_that_has_opened_may_be_silent(broker_with: BrokerWith) -> None:
    broker = broker_with("limits: {connect_timeout: 100ms}")
    with Wire(broker) as quiet, Wire(broker) as clock:
        quiet.open()
        assert clock.rest()[0].headers["error-code"] == "timeout"  # so much time has passed
        quiet.barrier()


def test_the_broker_beats_for_clients_that_asked_for_it(broker_with: BrokerWith) -> None:
    broker = broker_with(BEATS)
    with Wire(broker) as wire:
        wire.open(heart_beat="0,100")
        while wire.beats < 3:
            assert wire.more()
        wire.barrier()


def test_a_client_that_promised_beats_and_falls_silent_gives_back_what_it_held(broker_with: BrokerWith) -> None:
    broker = broker_with(BEATS)
    with Wire(broker) as silent, Wire(broker) as other:
        silent.open(heart_beat="100,0")
        other.open()
        silent.say("SUBSCRIBE", destination=Q, id="0", ack="client")
        silent.say("SEND", b"m", destination=Q)
        assert silent.hear("MESSAGE").body == b"m"
        other.say("SUBSCRIBE", destination=Q, id="0", ack="client")
        message = other.hear("MESSAGE")
        assert message.headers["redelivered"] == "true"
        silent.rest()
        assert silent.eof


def test_a_client_that_keeps_its_promise_stays(broker_with: BrokerWith) -> None:
    broker = broker_with(BEATS)
    with Wire(broker) as beating, Wire(broker) as silent:
        beating.open(heart_beat="100,100")
        silent.open(heart_beat="100,0")
        gone = threading.Event()

        def watch() -> None:
            silent.rest()
            gone.set()

        watcher = threading.Thread(target=watch)
        watcher.start()
        while not gone.wait(0.02):
            beating.send(b"\n")
        watcher.join()
        beating.barrier()


@pytest.mark.thorough
def test_a_connect_that_came_in_time_is_taken_by_a_broker_that_was_late(start_broker: StartBroker) -> None:
    broker = start_broker("limits: {connect_timeout: 2s}")
    with Wire(broker) as late, Wire(broker) as known:
        known.open().barrier()  # both are accepted
        os.kill(broker.pid, signal.SIGSTOP)
        late.say("CONNECT", accept_version="1.2", host="x")
        time.sleep(2.5)  # longer than the time-out
        os.kill(broker.pid, signal.SIGCONT)
        late.hear("CONNECTED")


def test_version_1_0_knows_no_beats(broker_with: BrokerWith) -> None:
    broker = broker_with(BEATS)
    with Wire(broker, "1.0") as old, Wire(broker) as silent:
        old.open(heart_beat="100,100")
        silent.open(heart_beat="100,0").rest()  # so much time has passed
        old.barrier()
        assert old.beats == 0


# --- signals ----------------------------------------------------------------------------------------------------------


def test_a_clean_stop_answers_what_is_open_and_says_goodbye(start_broker: StartBroker) -> None:
    broker = start_broker()
    with Wire(broker) as wire, Wire(broker) as idle, Wire(broker):
        wire.open()
        idle.open()
        for number in range(500):
            wire.say("SEND", b"m", destination=T, receipt=str(number))
        wire.hear("RECEIPT", receipt_id="0")
        assert broker.stop() == 0, broker.text()
        frames = wire.rest()
        receipts = [frame for frame in frames if frame.command == "RECEIPT"]
        assert frames[-1].headers["error-code"] == "shutting-down"
        assert [frame.headers["error-code"] for frame in idle.rest()] == ["shutting-down"]
    broker.start()
    with Wire(broker) as wire:
        wire.open().say("SUBSCRIBE", destination=T, id="0", start_position="first", stop_position="end")
        kept = 0
        while "replay-end" not in wire.hear("MESSAGE").headers:
            kept += 1
        assert kept >= len(receipts) + 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_does_not_wait_for_producers_to_pause(start_broker: StartBroker, number: int) -> None:
    broker = start_broker()
    assert broker.process is not None
    wires = [Wire(broker).open() for _ in range(4)]
    stop = threading.Event()

    def load(wire: Wire) -> None:
        frame = b"SEND\ndestination:/topic/a\nreceipt:r\n\n%b\0" % (b"x" * 500)
        try:
            while not stop.is_set():
                wire.send(frame * 50)
                wire.more()
        except OSError:
            pass

    threads = [threading.Thread(target=load, args=(wire,)) for wire in wires]
    for thread in threads:
        thread.start()
    try:
        with Wire(broker) as wire:
            wire.open().barrier()
        broker.process.send_signal(number)
        assert broker.process.wait(20) == 0, broker.text()
    finally:
        stop.set()
        for wire in wires:
            wire.close()
        for thread in threads:
            thread.join()


def test_a_late_reader_still_gets_its_frames_at_a_stop(start_broker: StartBroker) -> None:
    broker = start_broker()
    assert broker.process is not None
    with Wire(broker, receive_bytes=4_096) as wire, Wire(broker) as other:
        wire.open()
        for number in range(3_000):
            wire.say("SEND", destination=T, receipt=f"{number}".ljust(1_000, "r"))
        wire.say("SEND", destination="/topic/end")
        other.open().say("SUBSCRIBE", destination="/topic/end", id="0", start_position="first")
        other.hear("MESSAGE")
        broker.process.send_signal(signal.SIGTERM)
        assert [frame.headers["error-code"] for frame in other.rest()] == ["shutting-down"]
        frames = wire.rest()
        assert [frame.headers["receipt-id"].rstrip("r") for frame in frames[:-1]] == list(map(str, range(3_000)))
        assert frames[-1].headers["error-code"] == "shutting-down"
        assert broker.process.wait(20) == 0


class Loaded(threading.Thread):
    """A client that is never idle, and reads what it is sent to the end. ``heard``: all of its frames but messages."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__()
        self.wire = Wire(broker).open()
        self.heard: list[Frame] = []
        self.busy = threading.Event()  # much is under way

    def run(self) -> None:
        while self.wire.more():
            frames, self.wire.inbox = self.wire.inbox, []
            for frame in frames:
                if frame.command == "MESSAGE":
                    self.got(frame)
                else:
                    self.heard.append(frame)
                    self.busy.set()

    def say(self, command: str, body: bytes = b"", /, **headers: str) -> bool:
        """False when the broker listens no more."""
        try:
            self.wire.say(command, body, **headers)
        except OSError:
            return False
        return True

    def got(self, message: Frame) -> None:
        """A message has come."""

    @property
    def receipts(self) -> set[str]:
        return {frame.headers["receipt-id"] for frame in self.heard if frame.command == "RECEIPT"}


class Producer(Loaded):
    """Sends without a pause: a thread of its own, so that it never waits for answers."""

    def start(self) -> None:
        self.sender = threading.Thread(target=self.send)
        self.sender.start()
        super().start()

    def send(self) -> None:
        number = 0
        while self.say(
            "SEND", b"x" * 4_000, destination=Q, name_=f"{self.name}-{number}", receipt=f"{self.name}-{number}"
        ):
            number += 1

    def join(self, timeout: float | None = None) -> None:
        self.sender.join(timeout)
        super().join(timeout)


class Consumer(Loaded):
    """Acknowledges all it gets; every eighth time it asks whether that is stored."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(broker)
        self.acked: list[str] = []
        self.say("SUBSCRIBE", destination=Q, id="0", ack="client-individual", prefetch_count="100")

    def got(self, message: Frame) -> None:
        headers = {"receipt": str(len(self.acked))} if len(self.acked) % 8 == 7 else {}
        self.say("ACK", id=message.headers["ack"], **headers)
        self.acked.append(message.headers["name"])

    @property
    def settled(self) -> set[str]:
        """What was certainly acknowledged: the frames before the last of its receipts."""
        return set(self.acked[: max(map(int, self.receipts), default=-1) + 1])


class Watch(Loaded):
    """Looks at everything in the queue."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(broker)
        self.left = 500
        self.say("SUBSCRIBE", destination=Q, id="0", ack="auto", start_position="first")

    def got(self, message: Frame) -> None:
        self.left -= 1
        if not self.left:
            self.busy.set()


@pytest.mark.thorough
@pytest.mark.parametrize("config", [None, "defaults: {fsync: 20ms}"], ids=["always", "interval"])
def test_a_stop_under_load_keeps_every_promise(start_broker: StartBroker, config: str | None) -> None:
    broker = start_broker(config)
    producers: list[Producer] = [Producer(broker) for _ in range(3)]
    consumers: list[Consumer] = [Consumer(broker) for _ in range(2)]
    clients: list[Loaded] = [*producers, *consumers, Watch(broker)]
    for client in clients:
        client.start()
    for client in clients:
        assert client.busy.wait(60)
    assert broker.stop() == 0, broker.text()
    for client in clients:
        client.join()
        assert [frame.headers["error-code"] for frame in client.heard if frame.command == "ERROR"] == ["shutting-down"]
        assert client.heard[-1].command == "ERROR"
        client.wire.close()
    promised = set().union(*(producer.receipts for producer in producers))
    settled = set().union(*(consumer.settled for consumer in consumers))
    acked = {name for consumer in consumers for name in consumer.acked}
    assert promised and settled
    broker.start()
    with Wire(broker) as wire:
        wire.open().say("SEND", b"the last", destination=Q)
        wire.say("SUBSCRIBE", destination=Q, id="0", ack="auto")
        left = []
        while not left or left[-1] != "the last":
            assert wire.more()
            left += [frame.headers.get("name", "the last") for frame in wire.inbox if frame.command == "MESSAGE"]
            wire.inbox.clear()
    assert len(left) == len(set(left))
    assert promised <= acked | set(left)
    assert not settled & set(left)
    assert "Traceback" not in broker.text()


def test_a_hang_up_changes_nothing(start_broker: StartBroker) -> None:
    broker = start_broker()
    with Wire(broker) as wire:
        wire.open()
        os.kill(broker.pid, signal.SIGHUP)
        wire.barrier()
        wire.barrier()
    assert broker.stop() == 0
    assert broker.logs("SIGHUP")


@pytest.mark.thorough
def test_acks_without_a_receipt_survive_a_clean_stop(start_broker: StartBroker) -> None:
    """They are gathered for a moment before they are written: a stop must not lose them."""
    broker = start_broker()
    for life in range(3):
        with Wire(broker) as wire:
            wire.open().say("SUBSCRIBE", destination=Q, id="0", ack="client-individual", prefetch_count="100")
            for number in range(50):
                wire.say("SEND", b"%d" % number, destination=Q)
            messages = wire.hear_many("MESSAGE", 50)
            assert [message.headers.get("redelivered") for message in messages] == [None] * 50, f"life {life}"
            for message in messages:
                wire.say("ACK", id=message.headers["ack"])
            wire.say("BEGIN", transaction="t", receipt="acted upon")
            wire.hear("RECEIPT", receipt_id="acted upon")
            assert broker.stop() == 0
        broker.start()


# --- addresses --------------------------------------------------------------------------------------------------------


def serve(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A broker that is expected not to start."""
    return subprocess.run(
        [sys.executable, "-m", "radiator", "serve", "--data", str(directory / "data2"), *options],
        capture_output=True, text=True, timeout=60, cwd=Path(__file__).parent.parent.parent,
    )  # fmt: skip


def test_a_unix_socket_is_for_its_owner_only_and_goes_with_the_broker(
    tmp_path: Path, start_broker: StartBroker
) -> None:
    path = tmp_path / "run" / "radiator.sock"
    broker = start_broker(None, ["--listen", f"unix:{path}"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_ISSOCK(path.stat().st_mode)
    with Wire(str(path)) as wire:
        wire.open().barrier()
    assert broker.stop() == 0
    assert not path.exists()


def test_a_socket_file_left_over_from_a_killed_broker_is_replaced(tmp_path: Path, start_broker: StartBroker) -> None:
    path = tmp_path / "radiator.sock"
    broker = start_broker(None, ["--listen", f"unix:{path}"])
    broker.kill()
    assert path.exists()
    broker.start()
    with Wire(str(path)) as wire:
        wire.open().barrier()


def test_a_socket_with_a_listener_is_left_alone(tmp_path: Path, start_broker: StartBroker) -> None:
    path = tmp_path / "radiator.sock"
    start_broker(None, ["--listen", f"unix:{path}"])
    second = serve(tmp_path, "--listen", f"unix:{path}")
    assert second.returncode == 2
    assert str(path) in second.stderr
    with Wire(str(path)) as wire:
        wire.open().barrier()


def test_a_busy_port_is_named_with_the_remedy(tmp_path: Path, shared_broker: BrokerProcess) -> None:
    second = serve(tmp_path, "--listen", f"stomp://{shared_broker.address}")
    assert second.returncode == 2
    assert str(shared_broker.port) in second.stderr
    assert "in use" in second.stderr
    assert "--listen" in second.stderr
    assert "Traceback" not in second.stderr


def test_several_addresses_are_one_broker(tmp_path: Path, start_broker: StartBroker) -> None:
    path = tmp_path / "radiator.sock"
    broker = start_broker(None, ["--listen", f"unix:{path}"])
    with Wire(str(path)) as one, Wire(broker) as two:
        one.open().say("SUBSCRIBE", destination=T, id="0", receipt="s")
        one.hear("RECEIPT")
        two.open().say("SEND", b"m", destination=T)
        assert one.hear("MESSAGE").body == b"m"
