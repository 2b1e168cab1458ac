"""``fsync:`` is what it says: the syncs of a real broker, counted.

By strace, which sees what the kernel is asked for (skipped where it is not installed or not permitted), and by a broker
whose file seam writes down each sync.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.running import BrokerProcess
from tests.server.wire import Wire

CALLS = "fdatasync,fsync,pwritev,pwritev2,pwrite64,sendto,sendmsg,write"
SYNC = re.compile(r"f(?:data)?sync\(\d+<([^>]*)>\)\s+= 0")
RESUMED = re.compile(r"^(\d+) <\.\.\. (\w+) resumed>")
UNFINISHED = re.compile(r"^(\d+) (.*) <unfinished \.\.\.>$")
TOPIC = "/topic/t"


class Traced:
    """A broker whose system calls are written to a file."""

    def __init__(self, directory: Path, config: str, how: str) -> None:
        self.trace = directory / "trace"
        self.broker = BrokerProcess(directory, config)
        self.strace: subprocess.Popen[str] | None = None
        if how == "seam":
            self.broker.program = ["tests.crash.counting_broker", str(self.trace)]
        self.broker.start()
        if how == "strace":
            self.attach()

    def attach(self) -> None:
        command = ["strace", "-f", "-y", "-s", "16", "-e", f"trace={CALLS}", "-o", str(self.trace)]
        self.strace = subprocess.Popen([*command, "-p", str(self.broker.pid)], stderr=subprocess.PIPE, text=True)
        assert self.strace.stderr is not None
        line = self.strace.stderr.readline()
        if "attached" not in line:
            self.close()
            pytest.skip(f"strace is not permitted here: {line.strip()}")

    def lines(self) -> list[str]:
        """Calls in the order in which they ended, whole."""
        found: list[str] = []
        begun: dict[str, str] = {}
        for line in self.trace.read_text(errors="replace").splitlines() if self.trace.exists() else []:
            if match := UNFINISHED.match(line):
                begun[match[1]] = match[2]
            elif match := RESUMED.match(line):
                found.append(begun.pop(match[1], "") + line[match.end() :])
            else:
                found.append(line)
        return found

    def syncs(self) -> int:
        """Of messages, so far: of the journal, and of segments."""
        return sum(match[1].endswith((".rjl", ".rlog")) for line in self.lines() if (match := SYNC.search(line)))

    def close(self) -> None:
        if self.broker.running:
            self.broker.kill()
        if self.strace is not None:
            self.strace.wait(30)


@pytest.fixture(params=["seam", "strace"])
def traced(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Traced]]:
    if request.param == "strace" and shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    made: list[Traced] = []

    def start(config: str) -> Traced:
        made.append(Traced(tmp_path, config, request.param))
        return made[-1]

    yield start
    for each in made:
        each.close()


def send(broker: BrokerProcess, destination: str, count: int, window: int, **headers: str) -> None:
    """With receipts."""
    with Wire(broker) as wire:
        wire.open()
        waiting = 0
        for number in range(count):
            wire.say("SEND", b"x" * 100, destination=destination, receipt=str(number), **headers)
            waiting += 1
            if waiting == window or number == count - 1:
                wire.hear_many("RECEIPT", waiting)
                waiting = 0


def test_always_is_a_sync_for_each_message_of_a_producer_that_waits(traced: Callable[[str], Traced]) -> None:
    it = traced("defaults: {fsync: always}")
    send(it.broker, TOPIC, 1, 1)
    before = it.syncs()
    send(it.broker, TOPIC, 50, 1)
    assert it.syncs() - before == 50


def test_a_receipt_leaves_after_the_write_and_the_sync(traced: Callable[[str], Traced]) -> None:
    it = traced("defaults: {fsync: always}")
    send(it.broker, TOPIC, 1, 1)
    send(it.broker, TOPIC, 20, 1)
    send(it.broker, "/topic/other", 1, 1)
    steps = []
    for line in it.lines():
        if ".rjl>" in line:
            steps.append("sync" if "sync(" in line else "write")
        elif '"RECEIPT' in line:
            steps.append("receipt")
    text = " ".join(steps)
    assert text.count("receipt") == 22
    assert re.fullmatch(r"((write ){1,3}sync receipt ?)+", text), text  # the head of the file, the entry, room ahead


@pytest.mark.thorough
def test_an_interval_is_a_sync_now_and_then(traced: Callable[[str], Traced]) -> None:
    it = traced("defaults: {fsync: 200ms}")
    begun = time.monotonic()
    send(it.broker, TOPIC, 400, 1)
    while not it.syncs():
        assert it.broker.running
    most = (time.monotonic() - begun) / 0.2 + 2
    assert 1 <= it.syncs() <= most


@pytest.mark.thorough
def test_never_is_no_sync_but_for_a_message_that_asks_for_it(traced: Callable[[str], Traced]) -> None:
    it = traced("defaults: {fsync: never}")
    send(it.broker, TOPIC, 200, 10)
    assert it.syncs() == 0
    send(it.broker, TOPIC, 10, 1, durability="fsync")
    assert it.syncs() == 10
    assert it.broker.stop() == 0
    it.close()  # strace has written everything down
    assert it.syncs() == 11, "\n".join(["what was asked for is in a segment when the journal goes", *it.lines()[-40:]])


@pytest.mark.thorough
def test_connections_and_messages_share_syncs(traced: Callable[[str], Traced]) -> None:
    """8 connections, 3 logs, 4000 messages: one sync for all that came while the last group was synced."""
    it = traced("defaults: {fsync: always}")
    threads = [
        threading.Thread(target=send, args=(it.broker, f"{TOPIC}{number % 3}", 500, 50), daemon=True)
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    print(f"{it.syncs()} syncs for 4000 messages")
    assert 0 < it.syncs() < 4_000 / 8
