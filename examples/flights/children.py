"""The demo's processes: start, watch and stop them.

Each child has a process group of its own, so Ctrl-C reaches the demo alone, which then ends all children. On Linux
the kernel also kills them if the demo is killed. The stderr of a child goes to a log file. Its stdout is JSON lines
that are merged into ``child.state``, or goes to a file whose lines are counted.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Any

READY_SECONDS = 60.0
STOP_SECONDS = 20.0
PR_SET_PDEATHSIG = 1

ROOT = Path(__file__).parent.parent.parent  # from here `examples` and `radiator` can be imported


class ChildFailed(Exception):
    """A child ended unexpectedly, or was too slow; the text has the end of its log."""


def die_with_parent() -> Callable[[], None] | None:
    """Return a function with which a child has the kernel kill it when its parent dies; None except on Linux."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork
    return lambda: prctl(PR_SET_PDEATHSIG, int(SIGKILL))


class Child:
    def __init__(self, name: str, process: subprocess.Popen[str], log: Path, output: Path | None) -> None:
        self.name = name
        self.process = process
        self.log = log
        self.output = output
        self.state: dict[str, Any] = {}
        self._lines = 0
        self._position = 0
        self._listener = threading.Thread(target=self._listen, daemon=True)
        if output is None:
            self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.state.update(json.loads(line))

    @property
    def running(self) -> bool:
        """Whether the child runs, or has output that is not read yet."""
        if self.process.poll() is None:
            return True
        if self.output is None:
            self._listener.join(STOP_SECONDS)
        return False

    def lines(self) -> int:
        """Count the whole lines of its output file."""
        assert self.output is not None
        with self.output.open("rb") as file:
            file.seek(self._position)
            while chunk := file.read(1 << 20):
                self._position += len(chunk)
                self._lines += chunk.count(b"\n")
        return self._lines

    def say(self, text: str = "go") -> None:
        """Write a line to its stdin."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(text + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise ChildFailed(self.story("ended too early")) from None

    def wait_for(self, key: str, seconds: float = READY_SECONDS) -> Any:
        """Wait until its state has ``key``."""
        deadline = time.monotonic() + seconds
        while key not in self.state:
            if not self.running and key not in self.state:  # in this order, to read its last output
                raise ChildFailed(self.story("ended too early"))
            if time.monotonic() > deadline:
                raise ChildFailed(self.story(f"did not tell {key!r} within {seconds:.0f} s"))
            time.sleep(0.005)
        return self.state[key]

    def must_run(self) -> None:
        if not self.running and "finished" not in self.state:
            raise ChildFailed(self.story("ended too early"))

    def kill(self) -> None:
        """Send SIGKILL to it and its children (Spark's Java), and wait for its end."""
        try:
            os.killpg(self.process.pid, SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def stop(self, number: Signals = SIGTERM) -> int:
        """Ask it to end and return the exit code. Raises ChildFailed if it does not end in time."""
        self.process.send_signal(number)  # does nothing if it has ended
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ChildFailed(self.story(f"did not end within {STOP_SECONDS:.0f} s")) from None

    def story(self, what: str) -> str:
        tail = self.log.read_text(errors="replace")[-2_000:].strip()
        code = self.process.poll()
        ended = "" if code is None else f" (exit code {code})"
        return f"{self.name} {what}{ended}" + (
            f"; its log ends with:\n{tail}" if tail else f"; its log is empty: {self.log}"
        )


class Children:
    """The demo's children, as a context manager that ends all of them, however the block ends."""

    asked_to_end: BaseException | None = None  # the exception of a signal handler
    forking = False  # then it is raised afterwards

    def __init__(self, logs: Path) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self.logs = logs
        self.all: list[Child] = []

    def start(self, name: str, module: str, arguments: Sequence[object], output: Path | None = None) -> Child:
        """Start ``python -m module arguments``. Its stdout goes to ``output``, or is parsed without one."""
        log = self.logs / f"{name.replace(' ', '-')}.log"
        target = subprocess.PIPE if output is None else output.open("wb")
        with log.open("ab") as errors:
            Children.forking = True
            process = subprocess.Popen(
                [sys.executable, "-m", module, *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=target,
                stderr=errors,
                text=True,
                cwd=ROOT,
                process_group=0,
                preexec_fn=die_with_parent(),
            )
            Children.forking = False
        if output is not None:
            target.close()  # type: ignore[union-attr]
        child = Child(name, process, log, output)
        self.all.append(child)
        if self.asked_to_end is not None:
            raise self.asked_to_end
        return child

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.all:
            child.kill()
