"""Turn SIGTERM and SIGINT into a request to stop that the main greenlet can wait for."""

from __future__ import annotations

import os
import signal
from typing import Any

import gevent
from gevent.event import Event

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignal:
    """Handle SIGTERM and SIGINT inside ``with``: the first requests a stop, a second ends the process at once.

    Attributes:
        received: True after the first signal.
    """

    def __init__(self) -> None:
        self.received = False
        self._event = Event()
        self._handlers: list[Any] = []

    def wait(self, seconds: float | None = None) -> bool:
        """Serve until a signal arrives, and return True; return False after ``seconds`` without one.

        Args:
            seconds: The time limit; None waits without limit.
        """
        return bool(self._event.wait(seconds))

    def __enter__(self) -> StopSignal:
        self._handlers = [gevent.signal_handler(number, self._handle) for number in SIGNALS]
        return self

    def __exit__(self, *_: object) -> None:
        for handler in self._handlers:
            handler.cancel()

    def _handle(self) -> None:
        # Python handles a second signal itself, because the event loop may be blocked while the broker stops.
        for number in SIGNALS:
            signal.signal(number, lambda *_: os._exit(1))
        self.received = True
        self._event.set()
