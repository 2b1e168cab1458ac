"""A wish to stop that a signal handler may express.

A handler runs between two instructions of the main thread, perhaps of its very wait: ``threading.Event.set`` would then
wait for a lock that this thread holds, forever. ``queue.SimpleQueue`` promises a reentrant ``put``.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue


class Stopping:
    """As ``threading.Event``, without a way back. For several threads, and for signal handlers."""

    def __init__(self) -> None:
        self._set = False
        self._wake: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._wake.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """At most so many seconds; whether it is set."""
        if not self._set:
            try:
                self._wake.get(timeout=timeout)
            except Empty:
                return self._set
            self._wake.put(None)  # for the next one who waits
        return self._set
