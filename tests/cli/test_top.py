"""``radiator top``: on a terminal of 80 columns, as text, and as JSON."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from radiator.cli import top as command
from radiator.cli.main import run
from radiator.cli.top import Top
from radiator.client import Connection, connect
from radiator.client import admin as client_admin
from tests.cli.terminal import ESCAPES, ROOT
from tests.running import BrokerProcess

LONG = "/queue/a-name-that-does-not-fit.into-the-column.of-a-terminal-with-eighty-columns"
WAIT_SECONDS = 30.0


@pytest.fixture(scope="module")
def address(shared_broker: BrokerProcess) -> Iterator[str]:
    """A broker with a few queues: messages without a consumer, and messages in flight."""
    with connect(shared_broker.address) as connection:
        for name, count in (("/queue/orders", 5), ("/topic/news", 3), (LONG, 2), ("/queue/\x1b[31mred", 1)):
            for _ in range(count):
                connection.send(name, b"x")
        subscription = connection.subscribe("/queue/orders", prefetch=2)
        assert subscription.fetch(WAIT_SECONDS)
        yield shared_broker.address


class Terminal:
    """The command on a terminal of 24 lines and 80 columns."""

    def __init__(self, *args: str) -> None:
        self.fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "radiator", "top", *args],
            stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env={**environment, "TERM": "xterm"},
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.data = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.fd)

    def press(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def lines(self) -> list[str]:
        """The last screen that is complete."""
        screens = self.data.split("\x1b[H")  # each is drawn from the upper left corner
        return ESCAPES.sub("", screens[-1]).replace("\r", "").rstrip("\n").split("\n")

    def shows(self, true: Callable[[list[str]], bool]) -> list[str]:
        """Wait until a screen is as wanted, and return it."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            lines = self.lines()
            if len(lines) == 24 and "filter" in lines[-1] and true(lines):
                return lines
            assert time.monotonic() < deadline, "\n".join(lines)
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.data += os.read(self.fd, 65_536).decode()
                except OSError:
                    raise AssertionError(self.data) from None

    def ends(self) -> int:
        """The exit code. What is still written is read, or the command could not end."""
        while select.select([self.fd], [], [], WAIT_SECONDS)[0]:
            try:
                piece = os.read(self.fd, 65_536)
            except OSError:
                break
            self.data += piece.decode()
        return self.process.wait(WAIT_SECONDS)


def test_a_screen_fits_a_terminal_and_the_keys_change_it(address: str) -> None:
    with Terminal("--url", address, "--interval", "0.3") as terminal:
        lines = terminal.shows(lambda lines: "published" in lines[1])
        assert max(map(len, lines)) <= 80
        assert lines[0].startswith(f"radiator/0.1.0  {address}")
        assert re.match(r"published \d.*/s  delivered \d.*/s  acknowledged \d.*/s", lines[1])
        assert re.match(r"memory .* of 256.0 MiB", lines[2])
        assert lines[4].split() == ["name", "ready*", "in", "flight", "in/s", "out/s", "consumers", "size"]
        assert lines[5].split()[:3] == ["/queue/orders", "3", "2"]
        assert lines[6].startswith("/queue/a-name-that") and "…" in lines[6]
        assert "\\x1b[31mred" in lines[7]
        terminal.press("s")
        terminal.shows(lambda lines: "in flight*" in lines[4])
        terminal.press("/NEWS\r")
        terminal.shows(lambda lines: lines[5].startswith("/topic/news") and "filter 'NEWS'" in lines[-1])
        terminal.press("\x1bv")
        terminal.shows(lambda lines: lines[4].startswith("user") and any("/queue/orders" in each for each in lines))
        terminal.press("v")
        terminal.shows(lambda lines: lines[5].startswith("queue:/queue/orders"))
        terminal.press("q")
        assert terminal.ends() == 0
        assert "\x1b[?1049l" in terminal.data  # the former screen is back


@pytest.mark.thorough
def test_a_signal_restores_the_terminal(address: str) -> None:
    with Terminal("--url", address) as terminal:
        terminal.shows(lambda lines: True)
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ends() == 0
        assert "\x1b[?1049l" in terminal.data


@pytest.mark.thorough
def test_a_broker_that_stops_ends_the_screen(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    with Terminal("--url", broker.address, "--interval", "0.3") as terminal:
        terminal.shows(lambda lines: True)
        assert broker.stop() == 0
        assert terminal.ends() == 3
        assert "\x1b[?1049l" in terminal.data
        assert "stopping" in terminal.data.partition("\x1b[?1049l")[2]


def test_once_prints_json_or_text(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    args = ["top", "--url", address, "--once", "--interval", "0.6"]
    assert run([*args, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["destinations"][0]["name"] == "/queue/orders"
    assert found["destinations"][0]["in_per_second"] == 0
    assert set(found["rates"]) >= {"published", "delivered", "acknowledged"}
    assert run(args) == 0
    lines = capfd.readouterr().out.splitlines()
    assert LONG in "".join(lines)  # a pipe is wide enough
    assert max(map(len, lines)) < len(LONG) + 80, "no wider than the values"
    assert any(line.startswith("/topic/news") for line in lines)
    assert lines[-1].startswith("destinations ") and "quit" not in lines[-1], "there are no keys to press"


def test_a_paused_queue_is_marked(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["pause", "/queue/orders", "--url", address]) == 0
    try:
        assert run(["top", "--once", "--url", address, "--interval", "0.1"]) == 0
    finally:
        assert run(["resume", "/queue/orders", "--url", address]) == 0
    assert "/queue/orders (paused)" in capfd.readouterr().out


def test_without_a_broker_the_exit_code_is_that_of_the_other_commands(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["top", "--url", "127.0.0.1:1", "--once"]) == 3
    assert "127.0.0.1:1" in capfd.readouterr().err


class Answers:
    """A broker with ``overview`` and sorted lists."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.published = 0
        self.problems: list[dict[str, Any]] = []

    def __call__(self, connection: Connection, verb: str, /, **args: Any) -> dict[str, Any]:
        self.asked.append((verb, args))
        self.published += 50
        if verb == "overview":
            now = {"sessions": 1, "destinations": 2}
            rates = {"published": 7.0, "delivered": 6.0, "acknowledged": 5.0}
            return {"version": "radiator/x", "now": now, "rates": rates, "problems": self.problems}
        if verb == "destinations.ls":
            entry = {"name": "/queue/a", "subscribers": 0, "bytes": 1, "published": self.published, "total": 0}
            return {"destinations": [entry, {**entry, "name": "/queue/b", "published": None}], "matched": 70_000}
        raise AssertionError(verb)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    answers = Answers()
    monkeypatch.setattr(client_admin, "ask", answers)
    return answers


def top() -> Top:
    return Top(cast(Connection, None), "address")


def test_the_broker_sorts_and_searches_where_it_can(answers: Answers) -> None:
    screen = top()
    screen.press("s")
    screen.press("s")
    assert screen.sort == "in/s"
    for key in "/que\r":
        screen.press(key)
    screen.take()
    assert ("destinations.ls", {"limit": command.PAGE, "sort": "published", "descending": True, "search": "que"}) in (
        answers.asked
    )
    assert screen.as_json()["matched"] == 70_000
    assert screen.as_json()["rates"] == {"published": 7.0, "delivered": 6.0, "acknowledged": 5.0}


def test_rates_are_differences_between_samples(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 12.0, 12.1, 14.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    screen = top()
    for expected in (None, 50.0, 95.24, 52.63):  # 100 messages from sample to sample
        screen.take()
        assert screen.sample is not None
        found = screen.sample.entries[0].get("in_per_second")
        assert found == pytest.approx(expected, abs=0.01) if expected is not None else found is None
        assert "in_per_second" not in screen.sample.entries[1]


def test_problems_of_the_broker_come_first(answers: Answers) -> None:
    answers.problems = [{"severity": "error", "text": "the disk is full"}, {"severity": "warning", "text": "lag"}]
    screen = top()
    screen.take()
    assert screen.as_json()["problems"] == ["the disk is full", "lag"]


def test_typing_a_filter_can_be_corrected_and_given_up() -> None:
    screen = top()
    for key in "/ab\x7fc":
        assert screen.press(key)
    assert (screen.filter, screen.typing) == ("ac", True)
    screen.press("q")  # a letter of the filter
    screen.press("\x1b")
    assert (screen.filter, screen.typing) == ("", False)
    assert not screen.press("q")
