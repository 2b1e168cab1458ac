"""A home: the directory of a private broker, and how to find that broker there or start it.

    <home>/                   0700, owned by the user
      broker.sock             where it listens
      lock                    held by whoever starts a broker, and by a broker that is ending
      broker.log              what the broker has to say
      radiator.yaml           a configuration, if the user wants one
      data/                   its data directory, unless the configuration names another

Who finds nobody at the socket takes the lock, looks again, starts a broker, waits until it listens, and gives the lock
back. A broker that wants to end takes the lock first and keeps it until its process is gone, so nobody starts the next
one over its data, and whoever came too late for the old one starts the new.

Knows: files, processes, a socket. Must not know: STOMP.
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
READY = b"ready\n"
LOG_BYTES_MAX = 1 << 20  # of broker.log: a broker that starts on a longer one begins it anew
LOG_TOLD_BYTES = 2_000
LOOK_SECONDS = 0.02
IDLE_SECONDS_MIN = 0.02  # who starts a broker must have the time to connect


class HomeError(ClientError):
    """There is no private broker, and none can be started; ``str()`` says why and what to do."""


def default_home() -> str:
    """``RADIATOR_HOME``, else one in the user's own runtime directory, else in shared memory or among the temporary
    files, under the user's number."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        return named
    runtime = os.environ.get(RUNTIME, "")
    if os.path.isdir(runtime) and os.stat(runtime).st_uid == os.getuid():
        return os.path.join(runtime, "radiator")
    room = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) else tempfile.gettempdir()
    return os.path.join(room, f"radiator-{os.getuid()}")


def prepare(home: str) -> str:
    """The home as an absolute path, made if it is not there. Raises HomeError where it cannot be used."""
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
        raise HomeError(f"{home}: cannot be a home: {error.strerror}") from None
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        raise HomeError(
            f"{home}: cannot be a home: expected a directory of user {os.getuid()} that nobody else may enter (0700), "
            f"got mode {stat.filemode(facts.st_mode)} of user {facts.st_uid}"
        )
    return home


def address(home: str) -> str:
    """Where clients connect."""
    return f"unix:{os.path.join(home, SOCKET)}"


def listens(home: str) -> bool:
    """True if a broker can be reached."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(os.path.join(home, SOCKET))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
                return False
            if error.errno == errno.EAGAIN:  # there is one, with many at the door
                return True
            raise HomeError(f"{home}: its broker cannot be reached: {error.strerror}") from None
    return True


def start(home: str, idle_seconds: float, timeout: float) -> None:
    """Return when a broker listens: the one that is there, or one that this starts. Raises HomeError."""
    deadline = time.monotonic() + timeout
    with locked(home, deadline) as lock:
        if not listens(home):
            _spawn(home, max(idle_seconds, IDLE_SECONDS_MIN), deadline, lock)


@contextlib.contextmanager
def locked(home: str, deadline: float) -> Iterator[int]:
    """Hold the home's lock, and give its descriptor: whoever inherits that holds it too. Raises HomeError if it does
    not come free by the deadline (monotonic seconds)."""
    fd = os.open(os.path.join(home, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise HomeError(
                        f"{home}: somebody else has been starting or ending its broker for too long; see "
                        f"{os.path.join(home, LOG)}"
                    ) from None
            time.sleep(LOOK_SECONDS)
        yield fd
    finally:
        os.close(fd)


def _spawn(home: str, idle_seconds: float, deadline: float, lock: int) -> None:
    path = os.path.join(home, LOG)
    fresh = not os.path.exists(path) or os.path.getsize(path) > LOG_BYTES_MAX
    reader, writer = os.pipe()
    try:
        with open(path, "wb" if fresh else "ab") as log:
            began = log.tell()
            process = subprocess.Popen(
                [sys.executable, "-m", "radiator.local.process", home, f"{idle_seconds:g}", str(writer), str(lock)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=_environment(),
                pass_fds=(writer, lock), start_new_session=True,
            )  # fmt: skip
        os.close(writer)
        writer = -1
        os.set_blocking(reader, False)
        heard = b""
        while heard != READY:
            ended = process.poll()
            try:
                heard += os.read(reader, len(READY))
            except BlockingIOError:
                if time.monotonic() > deadline:
                    process.kill()
                    process.wait()
                    raise HomeError(f"{home}: its broker did not start in time; see {path}") from None
                time.sleep(LOOK_SECONDS)
                continue
            if heard != READY and ended is not None:
                raise HomeError(f"{home}: its broker did not start:\n{_said(path, began)}")
            if not heard:
                time.sleep(LOOK_SECONDS)
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)


def _environment() -> dict[str, str]:
    """Ours, so that the broker is of the same radiator: it starts elsewhere."""
    paths = [str(Path(radiator.__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in paths if path)}


def _said(path: str, began: int) -> str:
    with open(path, "rb") as log:
        log.seek(began)
        return log.read()[-LOG_TOLD_BYTES:].decode(errors="replace").strip()
