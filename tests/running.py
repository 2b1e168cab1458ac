"""A real broker as a child process, for tests that need one.

``broker`` (in conftest.py) starts ``python -m radiator serve`` on a free port with a data directory of its own, waits
until it answers CONNECT, and stops it by SIGTERM at the end; the test fails if it does not end well. ``start_broker``
is for tests that configure, kill or restart it. Where possible the broker is forked (``tests/forking.py``).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.forking import Forked, can_fork, fork

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 20.0
LOG_SECONDS_MAX = 10.0
PORTS = range(20_000, 32_000)  # below those that systems give away for port 0
WORKERS_MAX = 8  # of pytest-xdist


def _candidates() -> Iterator[int]:
    """Ports that the system gives to nobody by itself, and each worker's other ones, round and round."""
    own = PORTS[int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % WORKERS_MAX :: WORKERS_MAX]
    start = random.SystemRandom().randrange(len(own))  # others may run the same tests on this machine
    return itertools.cycle([*own[start:], *own[:start]])


_PORTS = _candidates()


def free_port() -> int:
    """A port of the loopback that is free, and stays so until it is used: nobody else is given it."""
    for port in itertools.islice(_PORTS, len(PORTS)):
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a broker does
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError(f"no port of {PORTS} is free")


def answers(port: int) -> bool:
    """True when a STOMP broker answers CONNECT there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
            sock.sendall(b"CONNECT\naccept-version:1.2\nhost:test\n\n\0")
            return sock.recv(9) == b"CONNECTED"
    except OSError:
        return False


class BrokerProcess:
    """``radiator serve`` on ``address``, with its data in ``data``; its output goes to ``log``. A configuration with
    ``{address}`` in it has a ``listen:`` of its own."""

    def __init__(self, directory: Path, config: str | None = None, options: Sequence[str] = ()) -> None:
        self.program = ["radiator"]
        self.data = directory / "data"
        self.log = directory / "broker.log"
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._options = list(options)
        self._listens = config is not None and "{address}" in config
        if config is not None:
            path = directory / "radiator.yaml"
            path.write_text(config.replace("{address}", self.address))
            self._options += ["--config", str(path)]
        self.process: subprocess.Popen[bytes] | Forked | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def spawn(self) -> None:
        """Start the process, and no more."""
        arguments = ["serve", "--data", str(self.data), *self._options]
        if not self._listens:
            arguments[1:1] = ["--listen", f"stomp://{self.address}"]
        with self.log.open("ab") as log:
            if self.program == ["radiator"] and can_fork():
                self.process = fork(arguments, log)
            else:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", *self.program, *arguments],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=Path(__file__).parent.parent,
                )  # fmt: skip

    def start(self) -> None:
        """Start, and wait until it answers. After a stop or a kill: start again, on the same port and data."""
        self.spawn()
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS_MAX
        while not answers(self.port):
            assert self.process.poll() is None, f"the broker ended while starting:\n{self.text()}"
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the broker did not answer within {START_SECONDS_MAX} s:\n{self.text()}")
            time.sleep(0.01)

    def text(self) -> str:
        """What it printed and logged."""
        return self.log.read_text(errors="replace")

    def logs(self, *words: str) -> bool:
        """Whether it logs all of these texts, or has: its log is written behind what it answers. Waits if need be."""
        deadline = time.monotonic() + LOG_SECONDS_MAX
        while not all(each in self.text() for each in words):
            if time.monotonic() > deadline:
                print(self.text())  # pytest shows it beside the assertion that failed
                return False
            time.sleep(0.01)
        return True

    def port_of(self, scheme: str) -> int:
        """Of a listener that was given port 0."""
        found = re.search(rf"is ready: .*?\b{re.escape(scheme)}://127\.0\.0\.1:([0-9]+)", self.text())
        assert found is not None, self.text()
        return int(found[1])

    def stop(self) -> int:
        """SIGTERM and wait; returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the broker did not end within {STOP_SECONDS_MAX} s:\n{self.text()}") from None

    def kill(self) -> None:
        """SIGKILL: a crash."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None
