"""A broker inside another program: for tests, tools, and applications that bring their own.

    from radiator.server.embedded import Broker

    with Broker() as broker:
        with broker.connect() as connection:
            connection.send("/queue/a", "one")

It is the whole broker, in a thread with an event loop of its own: any STOMP client may connect, of this process or of
another. It takes no signals and touches no settings of the process but its limit of open files. Where gevent has
patched ``threading``, the thread is a greenlet and the loop is the program's own.

A process that forks takes no broker along: the child must not use it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import gevent
import msgspec
from gevent.event import Event

from radiator import client
from radiator.config import Config, load, load_text, parse_listen
from radiator.server.app import App

FREE_PORT = "stomp://127.0.0.1:0"
STOP_SECONDS_MAX = 30.0  # App.stop is bounded itself; this only keeps a bug from hanging its caller


class Broker:
    """A broker that runs from ``start`` (or ``with``) to ``stop``.

    ``config`` is a Config, the path of a YAML file, or a mapping of the same keys; without one the defaults hold.
    ``listen`` replaces what it says about that; without either, a free port of the loopback is taken. ``data_dir``
    too is replaced; without a configuration and without it, a temporary directory is used and removed in the end.
    """

    def __init__(
        self,
        config: Config | str | os.PathLike[str] | Mapping[str, Any] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        listen: tuple[str, ...] = (),
    ) -> None:
        self._temporary = config is None and data_dir is None
        settings = _settings(config)
        if config is None and not listen:
            listen = (FREE_PORT,)
        if listen:
            settings = msgspec.structs.replace(settings, listen=tuple(map(parse_listen, listen)))
        if data_dir is not None:
            settings = msgspec.structs.replace(settings, data_dir=os.fspath(data_dir))
        self._settings = settings
        self._thread: threading.Thread | None = None
        self._turned = threading.Event()  # it has started, or failed to
        self._error: BaseException | None = None
        self._stopping: Any = None
        self.urls: list[str] = []

    @property
    def url(self) -> str:
        """Where it listens first; any client's address. Raises RuntimeError before ``start``."""
        if not self.urls:
            raise RuntimeError("this broker listens nowhere yet: start() it, or use it in a with statement")
        return self.urls[0]

    def start(self) -> Broker:
        """Start, and return when clients can connect. Raises ConfigError and StorageError."""
        if self._thread is not None:
            raise RuntimeError("this broker was started before; make a new one")
        if self._temporary:
            directory = tempfile.mkdtemp(prefix="radiator-")
            self._settings = msgspec.structs.replace(self._settings, data_dir=directory)
        self._thread = threading.Thread(target=self._run, name="radiator-broker", daemon=True)
        self._thread.start()
        self._turned.wait()
        if self._error is not None:
            self._thread.join()
            self._remove()
            raise self._error
        return self

    def stop(self) -> None:
        """Stop as on SIGTERM: what was receipted is stored, clients are told. May be repeated."""
        thread = self._thread
        if thread is None or self._error is not None:
            return
        if thread.is_alive():
            self._stopping.send()
            thread.join(STOP_SECONDS_MAX)
            if thread.is_alive():
                raise RuntimeError(f"the broker did not stop within {STOP_SECONDS_MAX:g} s")
        self._remove()

    def connect(self, **options: Any) -> client.Connection:
        """A connection of ``radiator.client``, with its options."""
        return client.connect(self.url, **options)

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        hub = gevent.get_hub()
        try:
            self._serve(hub)
        finally:
            if threading.current_thread() is self._thread and not _patched():
                hub.destroy(destroy_loop=True)

    def _serve(self, hub: Any) -> None:
        try:
            app = App(self._settings)
            self.urls = app.start()
        except BaseException as error:
            self._error = error
            self._turned.set()
            return
        asked = Event()
        self._stopping = hub.loop.async_()
        self._stopping.start(asked.set)
        self._turned.set()
        asked.wait()
        self._stopping.stop()
        self._stopping.close()
        app.stop()

    def _remove(self) -> None:
        if self._temporary:
            shutil.rmtree(self._settings.data_dir, ignore_errors=True)


def _settings(config: Config | str | os.PathLike[str] | Mapping[str, Any] | None) -> Config:
    if isinstance(config, Config):
        return config
    if isinstance(config, Mapping):
        return load_text(json.dumps(config), "Broker(config)")  # JSON is YAML
    return load(config)


def _patched() -> bool:
    from gevent import monkey

    return bool(monkey.is_module_patched("threading"))
