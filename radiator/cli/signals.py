"""End a command by a signal when it is ready to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from radiator.stopping import Stopping


@contextmanager
def stop_on_signals(stopping: Stopping, *, breakable: bool = True) -> Iterator[None]:
    """Set ``stopping`` on the first SIGINT or SIGTERM, as a context manager.

    If ``breakable``, the second signal interrupts the command.
    """

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
