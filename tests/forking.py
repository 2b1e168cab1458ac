"""Start brokers by forking a process that has imported the broker: a tenth of the CPU time of a new Python.

Each process of tests has one such process, ``python -m tests.forking``, from its first broker on. It forks for each
request, and the child runs ``python -m radiator`` with the arguments, environment and output of the request. Each child
has a socket that reports its exit code, so any thread can start a broker and wait for it.

Only on Linux (``pidfd_open``, sequenced packets). An environment that changes how Python or gevent imports needs a new
Python: ``can_fork`` is false.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple

ROOT = Path(__file__).parent.parent
REQUEST_BYTES_MAX = 1 << 17
START_SECONDS = 60.0  # imports on a busy machine
AT_IMPORT = ("PYTHON", "GEVENT", "RADIATOR_PURE")  # variables that are read while modules are imported
BYTECODE = "PYTHONDONTWRITEBYTECODE"  # is not one of them; conftest.py removes it
_LOCK = threading.Lock()


def _at_import() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(AT_IMPORT) and name != BYTECODE}


_FIRST = _at_import()


def can_fork() -> bool:
    """Whether a forked broker is as good as a new process."""
    return sys.platform == "linux" and _at_import() == _FIRST


class Forked:
    """A forked broker, with the methods of ``subprocess.Popen`` that tests use."""

    def __init__(self, pid: int, status: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            return self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._status.settimeout(timeout)
            try:
                text = self._status.recv(16)
            except TimeoutError:
                raise subprocess.TimeoutExpired("radiator serve", timeout or 0) from None
            assert text, "the process that forks brokers has ended"
            self.returncode = int(text)
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _forker(of: int) -> socket.socket:
    """Start the process that forks for the process ``of``. It ends when this one does, because its socket closes."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", __name__, str(its.fileno())]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[its.fileno()], cwd=ROOT)
    its.close()
    return ours


def fork(arguments: Sequence[str], output: IO[bytes]) -> Forked:
    """Run ``python -m radiator`` with these arguments, and with ``output`` as stdout and stderr."""
    request = json.dumps([list(arguments), dict(os.environ)]).encode()
    assert len(request) < REQUEST_BYTES_MAX
    status, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its, _LOCK:
        socket.send_fds(_forker(os.getpid()), [request], [output.fileno(), its.fileno()])
    status.settimeout(START_SECONDS)
    pid = status.recv(16)
    if not pid:
        _forker.cache_clear()
        raise OSError("the process that forks brokers has ended: the next broker gets a new one")
    return Forked(int(pid), status)


class _Request(NamedTuple):
    arguments: list[str]
    environment: dict[str, str]
    output: int


def _next_child(control: socket.socket) -> _Request | None:
    """Fork for each request and report exit codes. Return a child's request, or None when ``control`` closes."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    children: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for ready, _ in poll.poll():
            if ready != control.fileno():
                pid, status = children.pop(ready)
                poll.unregister(ready)
                os.close(ready)
                with status:
                    _report(status, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                continue
            text, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, 2)
            if not text:
                return None
            arguments, environment = json.loads(text)
            output, status_number = descriptors
            pid = os.fork()
            if pid == 0:
                return _Request(arguments, environment, output)
            os.close(output)
            status = socket.socket(fileno=status_number)
            _report(status, pid)
            watched = os.pidfd_open(pid)
            children[watched] = pid, status
            poll.register(watched, select.POLLIN)


def _report(status: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the test does not wait for its broker
        status.send(str(number).encode())


def main() -> None:
    import radiator.broker.broker
    import radiator.cli.serve
    import radiator.config
    import radiator.server.app  # noqa: F401

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    request = _next_child(socket.socket(fileno=int(sys.argv[1])))
    if request is None:
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(request.output, 1)
    os.dup2(request.output, 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(request.environment)
    sys.argv[1:] = request.arguments
    runpy.run_module("radiator", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
