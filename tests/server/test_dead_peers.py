"""Producers that die while they are held back and not read: what they were delivered goes to others all the same."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from radiator.server import listener
from tests.running import BrokerProcess
from tests.server.wire import Wire

StartBroker = Callable[..., BrokerProcess]
FULL, WORK = "/queue/full", "/queue/work"
CONFIG = f"destinations: [{{match: {FULL}, max_messages: 1, on_full: block, block_timeout: none}}]\n"
SLOW = "destinations: [{match: /queue/slow, rate_limit: {messages: 20/s, burst: 1}}]\n"
PROCESS = """
import select, socket, sys, time
from tests.server.wire import Wire
sock = socket.socket(socket.AF_UNIX if sys.argv[1].startswith("/") else socket.AF_INET)
sock.connect(sys.argv[1] if sys.argv[1].startswith("/") else ("127.0.0.1", int(sys.argv[1])))
wire = Wire(sock)
wire.open()
wire.say("SUBSCRIBE", destination="/queue/work", id="0", ack="client-individual", prefetch_count=2)
wire.hear_many("MESSAGE", 2)
wire.say("SUBSCRIBE", destination="/topic/noise", id="1", receipt="r")
wire.hear("RECEIPT")
for _ in range(3):
    wire.say("SEND", b"x", destination="/queue/full")
print("held back", flush=True)
select.select([sock], [], [])
print("unread", flush=True)
time.sleep(600)
"""


def filled(broker: BrokerProcess) -> Wire:
    """A consumer of nothing yet; two messages wait in the queue of work, and the other queue is full."""
    other = Wire(broker).open()
    other.say("SEND", b"full", destination=FULL)
    for body in (b"1", b"2"):
        other.say("SEND", body, destination=WORK, receipt=body.decode())
    other.hear_many("RECEIPT", 2)
    return other


def held_back(broker: BrokerProcess, target: BrokerProcess | str | None = None, **headers: str) -> Wire:
    """Holds both messages of the queue of work, and waits with a SEND."""
    wire = Wire(target or broker).open(**headers)
    wire.say("SUBSCRIBE", destination=WORK, id="0", ack="client-individual", prefetch_count=2)
    wire.hear_many("MESSAGE", 2)
    for number in range(3):
        wire.say("SEND", b"%d" % number, destination=FULL)
    return wire


def takes_over(other: Wire) -> None:
    other.say("SUBSCRIBE", destination=WORK, id="w", ack="client-individual", prefetch_count=2)
    messages = other.hear_many("MESSAGE", 2)
    assert [(each.body, each.headers["redelivered"]) for each in messages] == [(b"1", "true"), (b"2", "true")]


def holds_nothing_yet(other: Wire, seconds: float = 2.5) -> bool:
    """For longer than two looks at the sockets nothing comes: an absence can only be waited for."""
    other.say("SUBSCRIBE", destination=WORK, id="w", ack="client-individual", prefetch_count=2)
    other.socket.settimeout(seconds)
    try:
        return b"MESSAGE" not in other.more()
    except TimeoutError:
        return True
    finally:
        other.socket.settimeout(30)


def test_a_reset_is_noticed(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG)
    with filled(broker) as other:
        producer = held_back(broker)
        producer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        producer.close()
        takes_over(other)


@pytest.mark.parametrize("over", ["tcp", "unix"])
def test_a_process_that_is_killed_is_noticed(start_broker: StartBroker, tmp_path: Path, over: str) -> None:
    """Over TCP with something unread: that is a reset. Over a unix socket also if it has read all."""
    path = str(tmp_path / "r.sock")
    broker = start_broker(f"listen: ['stomp://{{address}}', 'unix:{path}']\n{CONFIG}")
    with filled(broker) as other:
        target = path if over == "unix" else str(broker.port)
        command = [sys.executable, "-c", PROCESS, target]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ}) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held back\n"
            if over == "tcp":
                other.say("SEND", b"unread", destination="/topic/noise")
                assert process.stdout.readline() == b"unread\n"
            process.send_signal(signal.SIGKILL)
        takes_over(other)


@pytest.mark.thorough
def test_a_client_that_has_closed_its_sending_side_may_still_read(start_broker: StartBroker) -> None:
    """It keeps what it holds, and everything that it sent is done once there is room."""
    broker = start_broker(CONFIG)
    with filled(broker) as other, held_back(broker) as producer:
        producer.say("SEND", b"last", destination="/queue/free", receipt="last")
        producer.socket.shutdown(socket.SHUT_WR)
        assert holds_nothing_yet(other)
        other.say("SUBSCRIBE", destination=FULL, id="f", ack="auto")
        messages = other.hear_many("MESSAGE", 6)
        assert [each.body for each in messages if each.headers["subscription"] == "f"] == [b"full", b"0", b"1", b"2"]
        assert [each.body for each in messages if each.headers["subscription"] == "w"] == [b"1", b"2"], (
            "it has ended now"
        )
        assert producer.hear("RECEIPT").headers["receipt-id"] == "last"


def test_but_not_if_it_has_agreed_to_beat(start_broker: StartBroker) -> None:
    broker = start_broker("heart_beat: {send: none, expect: 500ms, grace: 1.0}\n" + CONFIG)
    with filled(broker) as other, held_back(broker, heart_beat="500,0") as producer:
        producer.socket.shutdown(socket.SHUT_WR)
        takes_over(other)
        assert producer.hear("ERROR").headers["error-code"] == "timeout"


@pytest.mark.thorough
@pytest.mark.parametrize("over", ["tcp", "unix"])
def test_what_was_sent_and_forgotten_arrives(start_broker: StartBroker, tmp_path: Path, over: str) -> None:
    """A producer that holds nothing may leave while its messages are still let through one by one."""
    path = str(tmp_path / "r.sock")
    broker = start_broker(f"listen: ['stomp://{{address}}', 'unix:{path}']\n{SLOW}")
    with Wire(broker) as consumer:
        consumer.open()
        consumer.say("SUBSCRIBE", destination="/queue/slow", id="0", ack="auto")
        with Wire(path if over == "unix" else broker) as producer:
            producer.open()
            for number in range(50):
                producer.say("SEND", b"%d" % number, destination="/queue/slow")
        assert [each.body for each in consumer.hear_many("MESSAGE", 50)] == [b"%d" % number for number in range(50)]


def test_the_kernel_of_a_silent_peer_is_asked(start_broker: StartBroker) -> None:
    """What tells a dead process that had read all from one that only ended its side."""
    broker = start_broker()
    with Wire(broker) as client:
        client.open()
        ends = [f"0100007F:{port:04X}" for port in (broker.port, client.socket.getsockname()[1])]
        (line,) = [each.split() for each in Path("/proc/net/tcp").read_text().splitlines() if each.split()[1:3] == ends]
        timer, _, jiffies = line[5].partition(":")
        assert timer == "02", "the one of keep-alive"
        assert int(jiffies, 16) / os.sysconf("SC_CLK_TCK") <= listener.KEEPALIVE_IDLE_SECONDS == 60
