"""An end that is asked for by a signal, and comes when the command is ready for it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from radiator.stopping import Stopping


@contextmanager
def stop_on_signals(stopping: Stopping, *, breakable: bool = True) -> Iterator[None]:
    """The first SIGINT or SIGTERM asks for an end behind the message in hand; the second one is Ctrl-C as ever, if that
    may come anywhere (``breakable``)."""

    def note(number: int, frame: Any) -> None:
        if breakable and stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
