"""Brokers to measure: a new radiator in a temporary directory, or any broker at a URL.

The URL of a target is ``stomp://[login:passcode@]host:port[?key=value&...]``. The query describes the broker: ``name``
(in the tables), ``vhost``, ``pid`` (otherwise the process that listens on the port, if it belongs to the same user),
``send`` and ``subscribe`` (a header ``name:value``, may be repeated), ``replay`` (the SUBSCRIBE header that requests
everything from the start) and ``skip`` (a regular expression of cells).
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from radiator.bench import frames, process
from radiator.errors import ConfigError

START_TIMEOUT_SECONDS = 20.0
STOP_TIMEOUT_SECONDS = 10.0
QUERY_KEYS = ("name", "vhost", "pid", "send", "subscribe", "replay", "skip")


@dataclass
class Target:
    """A broker at ``host:port``."""

    name: str
    host: str
    port: int
    login: str = ""
    passcode: str = ""
    vhost: str = "/"
    pids: list[int] = field(default_factory=list)
    send_headers: list[tuple[str, str]] = field(default_factory=list)
    subscribe_headers: list[tuple[str, str]] = field(default_factory=list)
    replay_header: tuple[str, str] = ("start-position", "first")
    skip: str = ""
    renew: Callable[[], OwnBroker] | None = None  # starts a new broker of the same kind, if it is a child process

    def skips(self, cell: str) -> bool:
        """Return True if the operator excluded the cell for this target."""
        return bool(self.skip and re.search(self.skip, cell))


def parse(url: str) -> Target:
    """Return the target of a URL.

    Raises:
        ConfigError: The URL is not valid; the message says what is wrong.
    """
    parts = urlsplit(url if "://" in url else f"stomp://{url}")
    try:
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{url}: {error}") from None
    if parts.scheme != "stomp" or not parts.hostname or port is None:
        raise ConfigError(f"{url}: expected stomp://[login:passcode@]host:port, got {url!r}")
    target = Target(f"{parts.hostname}:{port}", parts.hostname, port)
    target.login, target.passcode = unquote(parts.username or ""), unquote(parts.password or "")
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        _set(target, url, key, value)
    target.pids = target.pids or process.listeners(port)
    return target


def _set(target: Target, url: str, key: str, value: str) -> None:
    if key in ("name", "vhost", "skip"):
        setattr(target, key, value)
    elif key == "pid":
        if not value.isdigit():
            raise ConfigError(f"{url}: pid: expected a number, got {value!r}")
        target.pids.append(int(value))
    elif key in ("send", "subscribe", "replay"):
        name, colon, text = value.partition(":")
        if not colon:
            raise ConfigError(f"{url}: {key}: expected name:value, got {value!r}")
        if key == "replay":
            target.replay_header = (name, text)
        else:
            (target.send_headers if key == "send" else target.subscribe_headers).append((name, text))
    else:
        raise ConfigError(f"{url}: unknown key {key!r}, expected one of {', '.join(QUERY_KEYS)}")


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class OwnBroker:
    """``radiator serve`` as a child process, with a temporary data directory. Use it as a context manager.

    Args:
        parent: The directory for the data directory; None uses the default for temporary files.
        config: The path of a configuration, or None.

    Raises:
        ConfigError: The broker did not start.
    """

    def __init__(self, parent: str | None = None, config: str | None = None) -> None:
        self._parent, self._config = parent, config
        self.directory = tempfile.mkdtemp(prefix="radiator-bench-", dir=parent)
        self.port = free_port()
        self.start_seconds = 0.0
        self._log = Path(self.directory) / "broker.log"
        command = [sys.executable, "-m", "radiator", "serve", "--listen", f"stomp://127.0.0.1:{self.port}"]
        command += ["--data", str(Path(self.directory) / "data"), "--log-level", "warning"]
        if config:
            command += ["--config", config]
        started = time.monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self._wait_ready(started)
        except BaseException:
            self.close()
            raise

    def _wait_ready(self, started: float) -> None:
        while not answers(self.port):
            if self._process.poll() is not None:
                text = self._log.read_text(errors="replace")[-2000:]
                raise ConfigError(f"the broker ended with code {self._process.returncode} while starting:\n{text}")
            if time.monotonic() - started > START_TIMEOUT_SECONDS:
                raise ConfigError(f"the broker did not answer within {START_TIMEOUT_SECONDS:g} s")
            time.sleep(0.002)
        self.start_seconds = time.monotonic() - started

    def target(self) -> Target:
        """Return this broker as a target."""
        renew = functools.partial(OwnBroker, self._parent, self._config)
        return Target("radiator", "127.0.0.1", self.port, pids=[self._process.pid], renew=renew)

    def close(self) -> None:
        """Stop the broker and remove its directory."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> OwnBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def answers(port: int) -> bool:
    """Return True if a STOMP broker answers CONNECT with CONNECTED."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as sock:
            sock.sendall(frames.connect("/"))
            return sock.recv(9) == b"CONNECTED"
    except OSError:
        return False


def default_directory() -> str:
    """Return the directory for temporary data: that of the system, or the current one if the system's is in memory."""
    temporary = tempfile.gettempdir()
    if process.filesystem(temporary) in ("tmpfs", "ramfs") and os.access(".", os.W_OK):
        return os.getcwd()  # an fsync to memory costs nothing
    return temporary
