"""Run the private broker of a home: ``python -m radiator.local.process HOME IDLE_SECONDS [LOCK_FD]``.

The broker listens on the socket of the home, and ends after IDLE_SECONDS without connections. It acquires the lock of
the home before it ends, and holds the lock until the process is gone (see ``home``).
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys

import msgspec

from radiator.config import Config, Listen, LoggingConfig, load
from radiator.errors import RadiatorError
from radiator.local import home as homes
from radiator.server import logs
from radiator.server.app import App
from radiator.server.stop_signal import StopSignal

log = logging.getLogger("radiator.local")

LOOK_SECONDS_MAX = 0.5
LOCK_TRIES = 100  # two seconds: longer than another process needs to check the socket


def configuration(home: str) -> Config:
    """Return the configuration of a home, with its socket as the first listener.

    Args:
        home: The absolute path of the home.

    Returns:
        The configuration in ``radiator.yaml`` of the home, or the defaults. Relative data directories are in the home.

    Raises:
        ConfigError: The configuration file is not valid.
    """
    path = os.path.join(home, homes.CONFIG)
    exists = os.path.exists(path)
    config = load(path if exists else None)
    listen = Listen(scheme="unix", path=os.path.join(home, homes.SOCKET))
    more = [each for each in config.listen if each != listen] if exists else []
    data_dir = config.data_dir if exists and config.data_dir != load(None).data_dir else homes.DATA
    return msgspec.structs.replace(config, listen=(listen, *more), data_dir=os.path.join(home, data_dir))


def serve(home: str, idle_seconds: float, lock_fd: int | None) -> None:
    """Run the broker until it is idle or receives SIGTERM or SIGINT.

    Args:
        home: The absolute path of the home.
        idle_seconds: The time without connections after which the broker ends, in seconds.
        lock_fd: The descriptor of the lock, inherited from the process that started the broker, or None. It is closed
            when the broker listens.

    Raises:
        RadiatorError: The configuration is not valid, or the store cannot be opened.
    """
    app = App(configuration(home))
    app.start()
    with StopSignal() as stop:
        log.info("broker of %s started, process %d", home, os.getpid())
        if lock_fd is not None:
            os.close(lock_fd)
        lock = os.open(os.path.join(home, homes.LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        alone = 0.0
        look_seconds = min(LOOK_SECONDS_MAX, idle_seconds / 4)
        while not stop.wait(look_seconds):
            alone = 0.0 if app.connections else alone + look_seconds
            if alone >= idle_seconds and _may_end(app, lock):
                break
        else:
            _wait_for(app, lock)
        log.info("broker of %s stopping: %s", home, "signal" if stop.received else "idle")
        app.stop()


def _may_end(app: App, lock: int) -> bool:
    """Return True with the lock held if no client is connected.

    A client that is connecting finds the socket closed, and waits for the lock.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False  # another process is checking the socket, so a client may connect
    app.serve(0)
    if not app.connections:
        return True
    fcntl.flock(lock, fcntl.LOCK_UN)
    return False


def _wait_for(app: App, lock: int) -> None:
    """Acquire the lock, which another process may hold while it checks whether the broker listens."""
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            app.serve(homes.LOOK_SECONDS)


def main(arguments: list[str]) -> int:
    """Run the broker with command line arguments, and return the exit status.

    Args:
        arguments: The arguments that the module docstring lists.
    """
    home, idle_seconds, *lock_fd = arguments
    logs.install(LoggingConfig())
    try:
        serve(home, float(idle_seconds), int(lock_fd[0]) if lock_fd else None)
    except RadiatorError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
