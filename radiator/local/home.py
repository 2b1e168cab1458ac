"""Manage a home, the directory of a private broker: find the broker there, or start it.

    <home>/                   0700, owned by the user
      broker.sock             the socket that the broker listens on
      lock                    locked by a process that starts a broker, and by a broker that is ending
      broker.log              the log of the broker
      radiator.yaml           an optional configuration
      data/                   the data directory, unless the configuration names another

A process that finds no broker at the socket acquires the lock, checks again, starts a broker, waits until the broker
listens, and releases the lock. A broker that ends acquires the lock first and holds it until its process is gone. So
no second broker starts on the same data, and a client that came too late for the old broker starts a new one.

Uses files, processes and a socket. Must not import the STOMP protocol.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import radiator
from radiator.errors import ClientError

SOCKET, LOCK, LOG, CONFIG, DATA = "broker.sock", "lock", "broker.log", "radiator.yaml", "data"
ENVIRONMENT = "RADIATOR_HOME"
RUNTIME = "XDG_RUNTIME_DIR"
SHARED_MEMORY = "/dev/shm"
SOCKET_PATH_BYTES_MAX = 107  # of a unix socket's address on Linux, without the zero at its end
LOG_BYTES_MAX = 1 << 20  # a broker that starts truncates a longer broker.log
LOG_SHOWN_BYTES = 2_000
LOOK_SECONDS = 0.02
IDLE_SECONDS_MIN = 0.02  # the process that starts a broker needs time to connect


class HomeError(ClientError):
    """No private broker runs, and none can be started. ``str()`` says why and what to change."""


def default_home() -> str:
    """Return the default home.

    Returns:
        The environment variable ``RADIATOR_HOME`` if it is set. Else a directory in ``XDG_RUNTIME_DIR`` if the user
        owns it, in shared memory, or in the directory of temporary files; the last two have the number of the user in
        the name.
    """
    configured = os.environ.get(ENVIRONMENT)
    if configured:
        return configured
    runtime = os.environ.get(RUNTIME, "")
    if os.path.isdir(runtime) and os.stat(runtime).st_uid == os.getuid():
        return os.path.join(runtime, "radiator")
    parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) else tempfile.gettempdir()
    return os.path.join(parent, f"radiator-{os.getuid()}")


def prepare(home: str) -> str:
    """Create the home if necessary, and return its absolute path.

    Args:
        home: The path of the directory.

    Raises:
        HomeError: The path is too long for a unix socket, the directory cannot be created, or other users can enter it.
    """
    home = os.path.abspath(home)
    path = os.path.join(home, SOCKET)
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        raise HomeError(
            f"{home}: the path is too long for a unix socket, {path} has more than {SOCKET_PATH_BYTES_MAX} bytes; "
            f"choose a shorter home (or set {ENVIRONMENT})"
        )
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        facts = os.lstat(home)
    except OSError as error:
        raise HomeError(
            f"{home}: cannot be a home: expected a directory that can be created, got: {error.strerror}; "
            f"choose another (or set {ENVIRONMENT})"
        ) from None
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        raise HomeError(
            f"{home}: cannot be a home: expected a directory of user {os.getuid()} "
            f"that only that user may enter (0700), got mode {stat.filemode(facts.st_mode)} of user {facts.st_uid}"
        )
    return home


def address(home: str) -> str:
    """Return the client address of the broker of a home.

    Args:
        home: The absolute path of the home.
    """
    return f"unix:{os.path.join(home, SOCKET)}"


def listens(home: str) -> bool:
    """Return True if a broker accepts connections.

    Args:
        home: The absolute path of the home.

    Raises:
        HomeError: The socket exists and cannot be connected to.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(os.path.join(home, SOCKET))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
                return False
            if error.errno == errno.EAGAIN:  # a broker listens, and its backlog is full
                return True
            raise HomeError(f"{home}: cannot connect to {SOCKET}: {error.strerror}") from None
    return True


def start(home: str, idle_seconds: float, timeout: float) -> None:
    """Start a broker if none listens, and return when a broker listens.

    Args:
        home: The absolute path of the home.
        idle_seconds: The time after which a broker without connections ends, in seconds.
        timeout: The time limit in seconds.

    Raises:
        HomeError: The broker did not start, or another process held the lock for too long.
    """
    deadline = time.monotonic() + timeout
    with locked(home, deadline) as lock:
        if not listens(home):
            _spawn(home, max(idle_seconds, IDLE_SECONDS_MIN), deadline, lock)


@contextlib.contextmanager
def locked(home: str, deadline: float) -> Iterator[int]:
    """Hold the lock of the home, as a context manager.

    Args:
        home: The absolute path of the home.
        deadline: The time limit, on the monotonic clock in seconds.

    Yields:
        The file descriptor of the lock. A process that inherits the descriptor holds the lock too.

    Raises:
        HomeError: Another process held the lock until the deadline.
    """
    fd = os.open(os.path.join(home, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise HomeError(
                        f"{home}: another process holds {LOCK} and did not finish starting or ending the broker in "
                        f"time; see {os.path.join(home, LOG)}"
                    ) from None
            time.sleep(LOOK_SECONDS)
        yield fd
    finally:
        os.close(fd)


def _spawn(home: str, idle_seconds: float, deadline: float, lock: int) -> None:
    path = os.path.join(home, LOG)
    fresh = not os.path.exists(path) or os.path.getsize(path) > LOG_BYTES_MAX
    with open(path, "wb" if fresh else "ab") as log:
        began = log.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "radiator.local.process", home, f"{idle_seconds:g}", str(lock)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=_environment(), pass_fds=(lock,),
            start_new_session=True,
        )  # fmt: skip
    while not listens(home):
        if process.poll() is not None:
            raise HomeError(f"{home}: the broker did not start:\n{_log_since(path, began)}")
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise HomeError(f"{home}: the broker did not start in time; see {path}")
        time.sleep(LOOK_SECONDS)


def _environment() -> dict[str, str]:
    """Return the environment for the broker, in which Python finds this version of radiator."""
    paths = [str(Path(radiator.__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in paths if path)}


def _log_since(path: str, began: int) -> str:
    with open(path, "rb") as log:
        log.seek(began)
        return log.read()[-LOG_SHOWN_BYTES:].decode(errors="replace").strip()
