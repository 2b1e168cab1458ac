"""Heart-beats over real sockets, at the shortest interval: who is busy is never cut, who is dead is found.

No test looks at a clock. Beside the client in question there is one that has promised the same and says nothing: once
it is cut, so much time has passed that the other one would have been. Who is to be kept beats from a thread of its own,
as clients do: what a test does meanwhile may take long on a busy machine.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running import BrokerProcess
from tests.server.wire import Wire

StartBroker = Callable[..., BrokerProcess]
T, Q = "/topic/beats", "/queue/beats"
BEATS = "heart_beat: {send: 100ms, expect: 100ms, grace: 8}\ndefaults: {fsync: never}"
MIB = 1 << 20
MESSAGES = 24  # of 4 MiB: more than the broker takes while the disk is behind, and both sockets


class Deadline:
    """Set once a client that had promised beats, and sent none, was cut."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.silent = Wire(broker).open(heart_beat="100,0")
        self.end = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()

    def _watch(self) -> None:
        self.frames = self.silent.rest()
        self.end.set()

    def passed(self, seconds: float = 0.02) -> bool:
        """Whether it has passed; waits a little if not."""
        return self.end.wait(seconds)

    def close(self) -> None:
        self._watcher.join()
        self.silent.close()


class Beating:
    """Beats for connections beside whatever else is done with them, as long as in ``with``."""

    def __init__(self, *wires: Wire) -> None:
        self._wires = list(wires)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat)

    def add(self, wire: Wire) -> Wire:
        self._wires.append(wire)
        return wire

    def _beat(self) -> None:
        while not self._over.wait(0.02):
            for wire in list(self._wires):
                with contextlib.suppress(OSError):  # that it was cut is for the test to find
                    wire.send(b"\n")

    def __enter__(self) -> Beating:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(BEATS)


def test_beats_go_both_ways_while_others_load_the_broker(broker: BrokerProcess) -> None:
    load = Wire(broker).open()
    with Wire(broker) as wire, Wire(broker) as reader:
        wire.open(heart_beat="100,100")
        with Beating(wire):
            reader.open().say("SUBSCRIBE", destination=T, id="0")
            deadline = Deadline(broker)
            sent = 0
            while not deadline.passed():
                for _ in range(50):
                    load.say("SEND", b"x" * 1_000, destination=T)
                sent += 50
            wire.barrier()
            while wire.beats < 3:
                assert wire.more()
        assert len(reader.hear_many("MESSAGE", sent)) == sent
        deadline.close()
    load.close()


def test_a_silent_client_gets_an_error_and_is_disconnected(broker: BrokerProcess) -> None:
    deadline = Deadline(broker)
    deadline.close()
    (frame,) = deadline.frames
    assert frame.headers["error-code"] == "timeout"
    assert b"800 ms" in frame.body and b"heart_beat.grace" in frame.body


@pytest.mark.thorough
def test_a_peer_is_given_up_after_its_own_interval_and_not_after_that_of_another(start_broker: StartBroker) -> None:
    broker = start_broker("heart_beat: {expect: 100ms, grace: 1.5}")
    order: list[str] = []
    wires = {name: Wire(broker).open(heart_beat=f"{name},0") for name in ("1500", "100")}

    def watch(name: str) -> None:
        wires[name].rest()
        order.append(name)

    threads = [threading.Thread(target=watch, args=(name,)) for name in wires]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert order == ["100", "1500"]
    for wire in wires.values():
        wire.close()


@pytest.mark.thorough
def test_the_bytes_of_a_large_body_that_comes_slowly_are_beats(broker: BrokerProcess) -> None:
    body = bytes(range(256)) * (4 * MIB // 256)
    head = b"SEND\ndestination:%b\nreceipt:r\ncontent-length:%d\n\n" % (T.encode(), len(body))
    with Wire(broker) as wire:
        wire.open(heart_beat="100,100")
        deadline = Deadline(broker)
        at = 0
        wire.send(head)
        while not deadline.passed():
            wire.send(body[at : at + 1_000])
            at += 1_000
        assert at < len(body)
        wire.send(body[at:] + b"\0")
        wire.hear("RECEIPT", receipt_id="r")
        deadline.close()


@pytest.mark.thorough
def test_a_client_that_beats_but_does_not_read_is_kept_and_loses_nothing(broker: BrokerProcess) -> None:
    with Wire(broker, receive_bytes=4_096) as slow, Wire(broker) as sender:
        slow.open(heart_beat="100,100")
        sender.open()
        slow.say("SUBSCRIBE", destination=T, id="0", receipt="s")
        slow.hear("RECEIPT")
        with Beating(slow):
            for number in range(300):  # 19 MiB: far more than its outbox and both sockets hold
                sender.say("SEND", b"%08d" % number + b"x" * 65_536, destination=T, receipt="r")
            sender.hear_many("RECEIPT", 300)
            Deadline(broker).close()
            assert [int(slow.hear("MESSAGE").body[:8]) for _ in range(300)] == list(range(300))


@pytest.mark.thorough
def test_a_client_that_only_reads_a_long_answer_is_kept_if_it_beats(broker: BrokerProcess) -> None:
    """And what it is sent counts for it: no beat is put between the frames."""
    with Wire(broker, receive_bytes=4_096) as slow, Wire(broker) as sender:
        slow.open(heart_beat="100,100")
        sender.open()
        with Beating(slow):
            for number in range(100):
                sender.say("SEND", b"%08d" % number + b"x" * 65_536, destination=T, receipt="r")
            sender.hear_many("RECEIPT", 100)
            slow.say("SUBSCRIBE", destination=T, id="0", start_position="first")
            deadline = Deadline(broker)
            while not deadline.passed():
                slow.more(2_000)
            heard = [int(slow.hear("MESSAGE").body[:8]) for _ in range(100)]
        assert heard == list(range(100))
        deadline.close()


@pytest.mark.thorough
def test_a_broker_that_was_suspended_disconnects_no_client_that_went_on_beating(broker: BrokerProcess) -> None:
    with Beating() as beating:
        wires = [beating.add(Wire(broker).open(heart_beat="100,0")) for _ in range(20)]
        broker.process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr]
        threading.Event().wait(2.0)
        broker.process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]
        for wire in wires:
            wire.barrier()
    for wire in wires:
        wire.close()


@pytest.mark.thorough
def test_a_producer_that_is_not_read_because_the_disk_is_slow_is_kept(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, "heart_beat: {send: 100ms, expect: 100ms, grace: 8}")
    broker.program = ["tests.server.failing_broker"]
    broker.start()
    stall = broker.data / "stall"
    try:
        with Wire(broker) as producer, Wire(broker) as other:
            producer.open(heart_beat="100,0")
            other.open()
            stall.touch()
            blocked = threading.Event()

            def produce() -> None:
                for number in range(MESSAGES):
                    producer.say("SEND", b"x" * (4 * MIB), destination=Q, receipt=number)
                blocked.set()

            thread = threading.Thread(target=produce)
            thread.start()
            silent = [Deadline(broker)]
            silent[0].close()
            assert not blocked.is_set(), "the broker reads on"
            silent.append(Deadline(broker))
            silent[1].close()
            stall.unlink()
            thread.join()
            with Beating(producer):  # nothing of it is unread any more, and the receipts may take a while
                assert len(producer.hear_many("RECEIPT", MESSAGES)) == MESSAGES
    finally:
        stall.unlink(missing_ok=True)
        assert broker.stop() == 0, broker.text()


def test_a_dead_peer_gives_back_what_it_held_at_once(broker: BrokerProcess) -> None:
    with Wire(broker) as other:
        other.open()
        dead = Wire(broker).open(heart_beat="100,0")
        with Beating(dead):
            dead.say("SUBSCRIBE", destination=Q, id="0", ack="client")
            dead.say("SEND", b"m", destination=Q)
            dead.hear("MESSAGE")
        other.say("SUBSCRIBE", destination=Q, id="0", ack="client")
        assert other.hear("MESSAGE").headers["redelivered"] == "true"
        dead.close()


@pytest.mark.thorough
def test_a_client_that_asked_for_no_beats_gets_none(broker: BrokerProcess) -> None:
    """There are parsers that take a line end between frames for the next command."""
    asked = ("100,0", "0,0", "")
    wires = [Wire(broker).open(**({"heart_beat": each} if each else {})) for each in asked]
    with Beating(wires[0]):
        Deadline(broker).close()
        for wire in wires:
            wire.barrier()
            assert wire.beats == 0
    for wire in wires:
        wire.close()
