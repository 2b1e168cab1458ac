"""What the broker logs and prints is written in its order, and nobody ever waits for it to be written."""

from __future__ import annotations

import ast
import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from radiator.server import logs
from radiator.server.logs import Output
from tests.running import BrokerProcess
from tests.server.wire import Wire

StartBroker = Callable[..., BrokerProcess]
ROOT = Path(__file__).parent.parent.parent


# --- the queue --------------------------------------------------------------------------------------------------------


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def fill(writer: int) -> None:
    """Write to a pipe until it takes no more."""
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"-" * 4095 + b"\n")
    os.set_blocking(writer, True)


def lines_until(reader: int, end: bytes) -> list[bytes]:
    """Read up to a last line with that end; what filled the pipe is left out."""
    data = b""
    while not data.endswith(end + b"\n"):
        data += os.read(reader, 1 << 16)
    return [line for line in data.splitlines() if not line.startswith(b"---")]


def test_lines_of_many_threads_are_written_whole_and_in_the_order_of_each(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1])
    threads = [
        threading.Thread(target=lambda n=name: [output.put(b"%d %d\n" % (n, i)) for i in range(500)])
        for name in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    output.put(b"end\n")
    lines = [line.split() for line in lines_until(pipe[0], b"end")[:-1]]
    for name in range(4):
        assert [int(line[1]) for line in lines if int(line[0]) == name] == list(range(500))
    assert output.lines_dropped == 0


@pytest.mark.parametrize(("lines_max", "bytes_max"), [(1_000, 1 << 30), (1 << 30, 1_000 * 100)])
def test_lines_without_room_are_dropped_and_the_output_says_how_many(
    pipe: tuple[int, int], lines_max: int, bytes_max: int
) -> None:
    fill(pipe[1])
    output = Output(pipe[1], lines_max, bytes_max)
    for number in range(3_000):
        output.put(b"%099d\n" % number)
    assert output.lines_dropped == 2_000
    *lines, note = lines_until(pipe[0], b"fast enough")
    assert [int(line) for line in lines] == list(range(1_000))
    assert note == b"radiator: 2000 lines were dropped here: this output was not read fast enough"
    assert output.flush(30)
    output.put(b"next\n")  # from now on there is room
    assert lines_until(pipe[0], b"next") == [b"next"]
    assert output.lines_dropped == 2_000


def test_what_the_file_does_not_take_is_counted(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    output = Output(writer)
    output.put(b"one\ntwo\n")
    assert output.flush(30)
    assert output.lines_dropped == 2
    os.close(writer)


def test_a_descriptor_that_does_not_block_loses_nothing(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    output = Output(pipe[1])
    for number in range(1_000):
        output.put(b"%0999d\n" % number)
    output.put(b"end\n")
    assert len(lines_until(pipe[0], b"end")) == 1_001


# --- a broker whose output nobody reads -------------------------------------------------------------------------------


class Unread(BrokerProcess):
    """A broker whose stdout and stderr are a pipe that is full from the start."""

    def spawn(self) -> None:
        self.reader, writer = os.pipe()
        fill(writer)
        more = ["--listen", f"stomp://{self.address}", "--data", str(self.data)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", *self.program, "serve", *more],
            stdin=subprocess.DEVNULL, stdout=writer, stderr=writer, cwd=ROOT,
        )  # fmt: skip
        os.close(writer)

    def text(self) -> str:
        return "(nobody reads it)"


@pytest.fixture
def unread(tmp_path: Path) -> Iterator[Unread]:
    broker = Unread(tmp_path)
    broker.start()
    yield broker
    if broker.running:
        broker.kill()
    os.close(broker.reader)


def knock(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=30) as sock:
        sock.sendall(b"GET /xxx HTTP/1.1\r\n\r\n")
        assert sock.recv(1)


@pytest.mark.thorough
def test_a_broker_whose_output_is_not_read_serves_and_ends(unread: Unread) -> None:
    with Wire(unread) as wire:
        wire.open()
        for _ in range(500):
            knock(unread)
        wire.barrier()
    assert unread.stop() == 0


def test_the_last_lines_of_a_broker_are_written(start_broker: StartBroker) -> None:
    broker = start_broker()
    assert broker.stop() == 0
    lines = broker.text().splitlines()
    assert "stopped" in lines[-1] and "stopping" in lines[-2]


def test_the_last_line_has_only_the_counters_that_counted(start_broker: StartBroker) -> None:
    broker = start_broker()
    knock(broker)
    assert broker.stop() == 0
    counters = ast.literal_eval(broker.text().splitlines()[-1].partition("stopped: ")[2])
    assert counters["not_stomp"] == 1
    assert 0 not in counters.values()


def test_with_json_the_log_is_json_too(start_broker: StartBroker) -> None:
    broker = start_broker(options=["--json"])
    knock(broker)
    assert broker.stop() == 0
    lines = [json.loads(line) for line in broker.text().splitlines()]
    assert any(line.get("ready") for line in lines)
    last = lines[-1]
    assert (last["level"], last["logger"], last["counters"]["not_stomp"]) == ("info", "radiator.server", 1)
    assert last["time"].endswith("Z")


def test_a_traceback_is_a_field_of_a_json_line() -> None:
    try:
        raise KeyError("unforeseen")
    except KeyError:
        record = logging.LogRecord("radiator.x", logging.ERROR, "", 0, "failed: %s", ("\n",), sys.exc_info())
    line = logs.JsonFormatter().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert (found["level"], found["message"]) == ("error", "failed: \n")
    assert found["exception"].endswith("KeyError: 'unforeseen'")


@pytest.mark.thorough
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("log", ["from radiator.server import logs; logs.install('info')", "logging.basicConfig()"])
def test_a_bug_on_the_way_to_the_disk_ends_the_process_whatever_its_log_does(log: str, is_read: bool) -> None:
    script = f"""
import logging, sys
from radiator.server import worker
{log}
sys.stdin.readline()
try:
    raise KeyError("unforeseen")
except KeyError:
    worker.abort_process()
"""
    reader, writer = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stderr=writer, cwd=ROOT)
    if not is_read:
        fill(writer)
    os.close(writer)
    assert process.stdin is not None
    process.stdin.close()
    with os.fdopen(reader, "rb") as output:
        text = output.read() if is_read else b""
        assert process.wait(30) == 70
    assert not is_read or (b"CRITICAL" in text and b"KeyError: 'unforeseen'" in text)


# --- strangers --------------------------------------------------------------------------------------------------------


def test_strangers_cause_few_lines_and_exact_counters(start_broker: StartBroker) -> None:
    broker = start_broker()
    for _ in range(500):
        knock(broker)
        with Wire(broker) as wire:
            wire.open()
            wire.say("SUBSCRIBE", destination="/queue/a")
            wire.hear("ERROR")
    assert broker.stop() == 0
    lines = broker.text().splitlines()
    assert len(lines) < 40, lines
    assert any("connections that do not speak STOMP: 495 more from 127.0.0.1" in line for line in lines)
    figures = ast.literal_eval(lines[-1].partition("stopped: ")[2])
    assert figures["not_stomp"] == 500
    assert figures["refused"] == 500
