"""Run a broker inside another program: for tests, tools, and applications that include a broker.

Example:
    A broker on a free port with a temporary data directory::

        from radiator.server.embedded import Broker

        with Broker() as broker:
            with broker.connect() as connection:
                connection.send("/queue/a", "one")

It is the complete broker, in a thread with an event loop of its own. STOMP clients of any process can connect. It
handles no signals, and changes no settings of the process except the limit of open files. If gevent has patched
``threading``, the thread is a greenlet and the event loop is that of the program.

A forked child process must not use the broker of its parent.
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

    Args:
        config: A Config, the path of a YAML file, or a mapping with the keys of the YAML file. None uses the defaults.
        data_dir: The data directory, instead of the configured one. Without it and without ``config`` the broker uses a
            temporary directory and removes it at the end.
        listen: The URLs to listen on, instead of the configured ones. Without it and without ``config`` the broker
            listens on a free port of the loopback interface.

    Attributes:
        urls: The URLs of the listeners; empty before ``start``.

    Raises:
        ConfigError: The configuration is not valid.
    """

    def __init__(
        self,
        config: Config | str | os.PathLike[str] | Mapping[str, Any] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        listen: tuple[str, ...] = (),
    ) -> None:
        self._temporary = config is None and data_dir is None
        if config is None and not listen:
            listen = (FREE_PORT,)
        self._given: dict[str, Any] = {"listen": tuple(map(parse_listen, listen))} if listen else {}
        if data_dir is not None:
            self._given["data_dir"] = os.fspath(data_dir)
        self._settings = self._adjusted(_settings(config))
        self._thread: threading.Thread | None = None
        self._turned = threading.Event()  # it has started, or failed to
        self._error: BaseException | None = None
        self._stopping: Any = None
        self.urls: list[str] = []

    def _adjusted(self, config: Config) -> Config:
        """Return a configuration with the values that were given as arguments."""
        return msgspec.structs.replace(config, **self._given)

    @property
    def url(self) -> str:
        """The URL of the first listener, which any client accepts as its address.

        Raises:
            RuntimeError: The broker was not started.
        """
        if not self.urls:
            raise RuntimeError("this broker is not started: call start(), or use it in a with statement")
        return self.urls[0]

    def start(self) -> Broker:
        """Start, and return the broker when clients can connect.

        Raises:
            ConfigError: The configuration cannot be used.
            StorageError: The store cannot be opened.
            RuntimeError: The broker was started before.
        """
        if self._thread is not None:
            raise RuntimeError("this broker was started before; create a new one")
        if self._temporary:
            directory = tempfile.mkdtemp(prefix="radiator-")
            self._given["data_dir"] = directory
            self._settings = self._adjusted(self._settings)
        self._thread = threading.Thread(target=self._run, name="radiator-broker", daemon=True)
        self._thread.start()
        self._turned.wait()
        if self._error is not None:
            self._thread.join()
            self._remove()
            raise self._error
        return self

    def stop(self) -> None:
        """Stop as on SIGTERM: messages with a receipt are stored, and clients get an ERROR. May be called twice.

        Raises:
            RuntimeError: The broker did not stop within STOP_SECONDS_MAX.
        """
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
        """Return a new connection of ``radiator.client``; the options are those of ``radiator.client.connect``."""
        return client.connect(self.url, **options)

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        gevent_loop = gevent.get_hub()
        try:
            self._serve(gevent_loop)
        finally:
            if threading.current_thread() is self._thread and not _patched():
                gevent_loop.destroy(destroy_loop=True)

    def _serve(self, gevent_loop: Any) -> None:
        try:
            app = App(self._settings, self._adjusted)
            self.urls = app.start()
        except BaseException as error:
            self._error = error
            self._turned.set()
            return
        asked = Event()
        self._stopping = gevent_loop.loop.async_()
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
