"""Some pages (``PAGES``) are run: every fenced block, from top to bottom, in one shell session each.

What a block is stands in a comment on the line before it, which readers of the rendered page do not see:

    <!-- test: file NAME -->        the block is a file of that name
    <!-- test: run -->              a shell script; it must succeed
    <!-- test: background -->       a command that goes on running: the broker; the next block waits until it answers
    <!-- test: output -->           what the last script printed, figures aside; a line ``...`` stands for any lines
    <!-- test: see PATH -->         run by that test file
    <!-- test: picture -->          nothing to run
    <!-- test: stop -->             no block: Ctrl-C for what runs in the background; it must end well

A block without such a comment fails the test. The port 61613 of the pages is a free one here, and `radiator` and
`python` are those of this checkout.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.running import START_SECONDS_MAX, STOP_SECONDS_MAX, answers, free_port

pytest.importorskip("stomp")

ROOT = Path(__file__).parent.parent
PORT = "61613"
SCRIPT_SECONDS_MAX = 300
KINDS = {"file", "run", "background", "output", "see", "picture", "stop"}

BLOCK = re.compile(
    r"^(?:<!-- test: (?P<kind>\w+) ?(?P<argument>[^>]*?) ?-->\n)?(?P<fence>```+)[^\n]*\n(?P<text>.*?)^(?P=fence)$"
    r"|^<!-- test: (?P<alone>stop) -->$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    kind: str
    argument: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    found = []
    for match in BLOCK.finditer(page):
        kind = match["alone"] or match["kind"] or ""
        found.append(Block(kind, match["argument"] or "", match["text"] or "", page.count("\n", 0, match.start()) + 1))
    return found


def masked(text: str) -> list[str]:
    """Lines without what differs from run to run: figures, the width of tables, blank lines."""
    text = re.sub(r"\d[\d.,:TZ]*", "#", text)
    text = re.sub(r"[-─━]{2,}", "--", text)
    lines = (re.sub(r"\s+", " ", line).strip() for line in text.splitlines())
    return [re.sub(r"# (?:[KMGT]iB|B|[kMG]|µs|ms|s|min)\b", "#", line) for line in lines if line]


def fits(expected: list[str], got: list[str]) -> bool:
    """Whether ``got`` is ``expected``, where ``...`` stands for any number of lines."""
    if not expected:
        return not got
    if expected[0] == "...":
        return any(fits(expected[1:], got[skipped:]) for skipped in range(len(got) + 1))
    return bool(got) and got[0] == expected[0] and fits(expected[1:], got[1:])


class Session:
    """Runs the blocks of one page in a directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.printed = ""
        self.background: subprocess.Popen[bytes] | None = None
        commands = folder / "bin"
        commands.mkdir()
        python = shlex.quote(sys.executable)
        listen = f"--listen stomp://127.0.0.1:{self.port}"
        self._command(commands / "python", f'exec {python} "$@"')
        self._command(
            commands / "radiator",
            f'if [ "$1" = serve ]; then exec {python} -m radiator "$@" {listen}; fi\nexec {python} -m radiator "$@"',
        )
        self.work = folder / "work"
        self.work.mkdir()
        self.environ = {
            **os.environ,
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "RADIATOR_URL": f"127.0.0.1:{self.port}",
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # Spark has little to do here
        }

    @staticmethod
    def _command(path: Path, script: str) -> None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def do(self, block: Block) -> None:
        text = block.text.replace(PORT, str(self.port))
        if block.kind == "file":
            (self.work / block.argument).write_text(text)
        elif block.kind == "run":
            self.run(text)
        elif block.kind == "background":
            self.start(text)
        elif block.kind == "output":
            expected = masked(text)
            assert fits(expected, masked(self.printed)), f"expected\n{text}\ngot\n{self.printed}"
        elif block.kind == "see":
            assert (ROOT / block.argument).exists()
        elif block.kind == "stop":
            self.stop()

    def run(self, script: str) -> None:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.work, env=self.environ, text=True, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=SCRIPT_SECONDS_MAX,
        )  # fmt: skip
        self.printed = done.stdout
        assert done.returncode == 0, f"{script}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"

    def start(self, command: str) -> None:
        assert self.background is None, "one thing runs in the background already"
        self.background = subprocess.Popen(
            ["bash", "-c", f"exec {command.strip()}"],
            cwd=self.work, env=self.environ, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS_MAX
        while not answers(self.port):
            assert self.background.poll() is None, f"it ended: {command}"
            assert time.monotonic() < deadline, f"it does not answer: {command}"
            time.sleep(0.01)

    def stop(self) -> None:
        assert self.background is not None, "nothing runs in the background"
        process, self.background = self.background, None
        process.send_signal(signal.SIGINT)
        assert process.wait(STOP_SECONDS_MAX) == 0

    def close(self) -> None:
        if self.background is not None:
            os.killpg(self.background.pid, signal.SIGKILL)
            self.background.wait()


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    opened = Session(tmp_path)
    yield opened
    opened.close()


PAGES = ["README.md", "docs/network.md", "docs/operations.md", "docs/quickstart.md"]
MARKS = {"docs/operations.md": [pytest.mark.thorough], "docs/quickstart.md": [pytest.mark.spark, pytest.mark.thorough]}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in PAGES])
def test_a_page_runs_from_top_to_bottom(name: str, session: Session) -> None:
    for block in blocks((ROOT / name).read_text("utf-8")):
        try:
            session.do(block)
        except (AssertionError, subprocess.TimeoutExpired, OSError) as error:
            raise AssertionError(f"{name}, line {block.line} ({block.kind} {block.argument}): {error}") from error
    assert session.background is None, f"{name} leaves the broker running"


@pytest.mark.parametrize("name", PAGES)
def test_every_block_of_a_page_says_what_it_is(name: str) -> None:
    for block in blocks((ROOT / name).read_text("utf-8")):
        assert block.kind in KINDS, f"{name}, line {block.line}: what is this block?"


def test_the_schedule_of_backups_runs_again_and_again_and_removes_old_ones(session: Session) -> None:
    section = (ROOT / "docs/deployment.md").read_text("utf-8").partition("## Backup schedule")[2].partition("\n## ")[0]
    folder = session.work / "backups"
    folder.mkdir()
    places = {"/var/lib/radiator": str(session.work / "data"), "/backup": str(folder)}
    first, hourly = (re.sub("|".join(places), lambda found: places[found[0]], each.text) for each in blocks(section))
    session.start("radiator serve")
    session.run("radiator send /queue/jobs one two")
    session.stop()
    session.run(first)
    for hour in ("2026-11-20T09", "2026-11-20T10"):
        session.run(f"date() {{ echo {hour}; }}\n{hourly}")
        assert os.readlink(folder / "latest") == hour
    session.run(f"radiator restore {folder}/latest --verify-only")
    os.utime(folder / "first", (0, 0))
    session.run(f"date() {{ echo 2026-11-20T11; }}\n{hourly}")
    assert sorted(os.listdir(folder)) == ["2026-11-20T09", "2026-11-20T10", "2026-11-20T11", "latest"]


def test_figures_are_not_compared_and_words_are() -> None:
    assert fits(masked("took 3.2 s\n...\nend"), masked("took 12.75 s\n\nmore\nmore\nend\n"))
    assert fits(masked("size  296 B"), masked("size 12.0 KiB"))
    assert not fits(masked("3 messages stored"), masked("3 messages lost"))
    assert not fits(masked("one"), masked("one\ntwo"))
