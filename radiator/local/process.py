"""The private broker of a home: ``python -m radiator.local.process HOME IDLE_SECONDS [READY_FD START_FD]``.

It is an ordinary broker that listens on the home's socket, and ends when nobody has been connected for IDLE_SECONDS.
Ending is decided under the home's lock, which is held until the process is gone (see ``home``).
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import sys

import gevent
import msgspec
from gevent.event import Event

from radiator.config import Config, Listen, load
from radiator.errors import RadiatorError
from radiator.local import home as homes
from radiator.server import logs
from radiator.server.app import App

log = logging.getLogger("radiator.local")

LOOK_SECONDS_MAX = 0.5
LOCK_TRIES = 100  # two seconds: who looks takes no longer


def configuration(home: str) -> Config:
    """That of the home, or the defaults; it listens on the home's socket, and where the configuration says."""
    path = os.path.join(home, homes.CONFIG)
    there = os.path.exists(path)
    config = load(path if there else None)
    listen = Listen(scheme="unix", path=os.path.join(home, homes.SOCKET))
    more = [each for each in config.listen if each != listen] if there else []
    data_dir = config.data_dir if there and config.data_dir != load(None).data_dir else homes.DATA
    return msgspec.structs.replace(config, listen=(listen, *more), data_dir=os.path.join(home, data_dir))


def serve(home: str, idle_seconds: float, ready_fd: int | None, start_fd: int | None = None) -> None:
    """Serve until nobody has been there for ``idle_seconds``, or SIGTERM. ``ready_fd`` is told that it serves;
    ``start_fd`` is the home's lock as its starter holds it, kept until then."""
    app = App(configuration(home))
    app.start()
    stopping = Event()
    handlers = [gevent.signal_handler(number, stopping.set) for number in (signal.SIGTERM, signal.SIGINT)]
    log.info("the broker of %s begins, process %d", home, os.getpid())
    if ready_fd is not None:
        with contextlib.suppress(BrokenPipeError):  # whoever started this is gone; others may come
            os.write(ready_fd, homes.READY)
        os.close(ready_fd)
    if start_fd is not None:
        os.close(start_fd)
    lock = os.open(os.path.join(home, homes.LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    alone = 0.0
    look_seconds = min(LOOK_SECONDS_MAX, idle_seconds / 4)
    while not stopping.wait(look_seconds):
        alone = 0.0 if app.driver.transports else alone + look_seconds
        if alone >= idle_seconds and _may_end(app, lock):
            break
    else:
        _wait_for(lock)
    log.info("the broker of %s ends", home)
    app.stop()
    for handler in handlers:
        handler.cancel()


def _may_end(app: App, lock: int) -> bool:
    """True with the lock held and nobody there. Who is just coming finds the socket closed, and waits for the lock."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False  # somebody has found us, or is about to
    gevent.sleep(0)
    if not app.driver.transports:
        return True
    fcntl.flock(lock, fcntl.LOCK_UN)
    return False


def _wait_for(lock: int) -> None:
    """Take the lock from whoever is just looking whether we are there."""
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            gevent.sleep(homes.LOOK_SECONDS)


def main(arguments: list[str]) -> int:
    """See the top of the file."""
    home, idle_seconds = arguments[0], float(arguments[1])
    ready_fd, start_fd = map(int, arguments[2:4]) if len(arguments) > 3 else (None, None)
    logs.install("info")
    try:
        serve(home, idle_seconds, ready_fd, start_fd)
    except RadiatorError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
