"""What the broker logs and prints is written in its order, and nobody ever waits for it to be written."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from radiator.config import LoggingConfig
from radiator.errors import ConfigError
from radiator.server import logs
from radiator.server.logs import LogFile, Output
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


def counters_of(line: str) -> dict[str, int]:
    """The counters in the last line of a log."""
    pairs = [pair.rsplit(" ", 1) for pair in line.partition("stopped: ")[2].split(", ")]
    return {name: int(count) for name, count in pairs}


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


# --- the file of the log ----------------------------------------------------------------------------------------------


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "log" / "radiator.log"


@pytest.fixture
def output(file: Path, reports: list[str]) -> Output:
    file.parent.mkdir()
    return Output(LogFile(str(file), rotate_bytes=64, keep=2), report=reports.append)


def put(output: Output, *lines: str) -> None:
    """Queue lines one by one, each after the one before is written or dropped."""
    for line in lines:
        output.put(line.encode() + b"\n")
        assert output.flush(30)


def test_the_file_is_appended_to(output: Output, file: Path) -> None:
    file.write_text("earlier\n")
    put(output, "one", "two")
    assert file.read_text() == "earlier\none\ntwo\n"


def test_a_new_file_is_not_readable_for_others(output: Output, file: Path) -> None:
    put(output, "one")
    assert file.stat().st_mode & 0o777 & ~0o640 == 0


@pytest.mark.parametrize("how", ["moved", "removed", "replaced"])
def test_a_file_that_logrotate_has_moved_is_opened_again(output: Output, file: Path, how: str) -> None:
    put(output, "one")
    if how == "removed":
        file.unlink()
    else:
        file.rename(file.with_suffix(".old"))
    if how == "replaced":
        file.touch()
    put(output, "two")
    assert file.read_text() == "two\n"
    assert output.lines_dropped == 0


def test_a_copied_and_truncated_file_goes_on_at_its_start(output: Output, file: Path) -> None:
    put(output, "one")
    os.truncate(file, 0)
    put(output, "two")
    assert file.read_text() == "two\n"


def test_a_file_above_its_size_is_renamed_and_only_as_many_stay_as_are_kept(output: Output, file: Path) -> None:
    put(output, *(f"{number:029d}" for number in range(9)))  # two lines fill a file
    kept = [int(line) for name in (".2", ".1", "") for line in Path(f"{file}{name}").read_text().split()]
    assert kept == [4, 5, 6, 7, 8]
    assert sorted(each.name for each in file.parent.iterdir()) == [file.name, f"{file.name}.1", f"{file.name}.2"]


def test_without_kept_files_a_full_file_is_removed(file: Path) -> None:
    file.parent.mkdir()
    put(Output(LogFile(str(file), rotate_bytes=64, keep=0)), *(f"{number:029d}" for number in range(5)))
    assert [int(line) for line in file.read_text().split()] == [4]
    assert list(file.parent.iterdir()) == [file]


def test_lines_for_a_directory_that_vanished_are_counted_and_reported(
    output: Output, file: Path, reports: list[str]
) -> None:
    put(output, "one")
    shutil.rmtree(file.parent)
    put(output, "two", "three")
    assert output.lines_dropped == 2
    file.parent.mkdir()
    put(output, "four")
    assert file.read_text() == "radiator: 2 lines were dropped here: No such file or directory\nfour\n"
    assert output.lines_dropped == 2
    assert [text.partition(";")[0] for text in reports] == [
        "the log cannot be written: No such file or directory",
        "the log is written again",
    ]


def test_a_fifo_in_the_place_of_the_file_does_not_stop_the_log(output: Output, file: Path, reports: list[str]) -> None:
    put(output, "one")
    file.unlink()
    os.mkfifo(file)
    put(output, "two")
    assert output.lines_dropped == 1 and len(reports) == 1
    file.unlink()
    put(output, "three")
    assert file.read_text().splitlines()[-1] == "three"


def test_a_full_disk_leaves_no_part_of_a_line(output: Output, file: Path, reports: list[str]) -> None:
    put(output, "one")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with ignored_signal(signal.SIGXFSZ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))  # the system then writes a part, as a full disk
        try:
            put(output, "a line that does not fit")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.read_text() == "one\n"
    assert output.lines_dropped == 1
    put(output, "two")
    assert file.read_text() == "one\nradiator: 1 line was dropped here: File too large\ntwo\n"
    assert len(reports) == 2


@contextlib.contextmanager
def ignored_signal(number: signal.Signals) -> Iterator[None]:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("before", [None, "", "one\n"])
def test_a_file_that_is_not_used_after_all_is_as_it_was(tmp_path: Path, before: str | None) -> None:
    file = tmp_path / "radiator.log"
    if before is not None:
        file.write_text(before)
    logs.NewLog(LoggingConfig(file=str(file))).drop()
    assert (file.read_text() if file.exists() else None) == before


@pytest.mark.parametrize("path", ["missing/radiator.log", "."])
def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError, match=r"^logging\.file: .*(cannot be written|a regular file)"):
        LogFile(str(tmp_path / path)).check()


def test_levels_of_loggers_differ_until_they_are_set_again() -> None:
    root = logging.getLogger()
    before = root.level
    try:
        logs.set_levels("warning", [("radiator.auth", "debug")])
        assert logging.getLogger("radiator.auth.x").isEnabledFor(logging.DEBUG)
        assert not logging.getLogger("radiator.server").isEnabledFor(logging.INFO)
        logs.set_levels("error")
        assert not logging.getLogger("radiator.auth").isEnabledFor(logging.WARNING)
    finally:
        root.setLevel(before)


def test_the_log_of_a_broker_survives_its_directory_and_logrotate(start_broker: StartBroker, tmp_path: Path) -> None:
    file = tmp_path / "log" / "radiator.log"
    file.parent.mkdir()
    broker = start_broker(f"logging: {{format: json, file: {file}, levels: {{radiator.peers: error}}}}\n")
    knock(broker)
    file.rename(file.with_suffix(".old"))
    os.kill(broker.pid, signal.SIGHUP)
    wait_for(lambda: file.exists() and "reload: " in file.read_text())
    shutil.rmtree(file.parent)
    knock(broker)
    assert broker.logs('"logger": "radiator.logs"', "the log cannot be written: No such file or directory")
    file.parent.mkdir()
    knock(broker)
    wait_for(file.exists)
    assert broker.stop() == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[0]["dropped"] >= 1 and lines[0]["message"].endswith("dropped here: No such file or directory")
    peer = next(line for line in lines if line["logger"] == "radiator.server" and "session" in line)
    assert (peer["user"], peer["address"].partition(":")[0]) == ("", "127.0.0.1")
    assert lines[-1]["counters"]["not_stomp"] == 3
    assert '"logger": "radiator.server"' not in broker.text()


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


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
    counters = counters_of(broker.text().splitlines()[-1])
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


def test_text_lines_begin_with_the_time_in_utc(start_broker: StartBroker) -> None:
    broker = start_broker()
    knock(broker)
    assert broker.stop() == 0
    logged = [line for line in broker.text().splitlines() if " is ready: " not in line]
    assert all(re.match(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ [A-Z]+ radiator\.", line) for line in logged), logged


def test_extra_fields_of_a_record_are_fields_of_the_json_line() -> None:
    record = logging.LogRecord("radiator.x", logging.INFO, "", 0, "said", (), None)
    record.__dict__.update(user="bob", count=3, time="not a time")
    found = json.loads(logs.JsonFormatter().format(record))
    assert (found["user"], found["count"], found["message"]) == ("bob", 3, "said")
    assert found["time"].endswith("Z")


def test_with_json_text_on_stderr_is_json_too(tmp_path: Path) -> None:
    script = """
import sys, warnings
from radiator.config import LoggingConfig
from radiator.server import logs
logs.install(LoggingConfig(format="json"))
print("half a ", end="", file=sys.stderr, flush=True)
print("line", file=sys.stderr)
raise KeyError("unforeseen")
"""
    process = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, cwd=ROOT, check=False)
    lines = [json.loads(line) for line in process.stderr.splitlines()]
    assert lines[0]["message"] == "half a line"
    assert lines[-1]["message"] == "KeyError: 'unforeseen'"
    assert {line["logger"] for line in lines} == {"stderr"}


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
@pytest.mark.parametrize(
    "log",
    [
        "from radiator.config import LoggingConfig; from radiator.server import logs; logs.install(LoggingConfig())",
        "logging.basicConfig()",
    ],
)
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
    figures = counters_of(lines[-1])
    assert figures["not_stomp"] == 500
    assert figures["refused"] == 500
