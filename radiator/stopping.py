"""An event that a signal handler can set, to request a stop.

A signal handler runs between two instructions of the main thread, which may be waiting for the event. Then
``threading.Event.set`` could wait forever for a lock that the same thread has. ``queue.SimpleQueue.put`` is reentrant.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue


class Stopping:
    """A ``threading.Event`` that signal handlers may set. It cannot be cleared."""

    def __init__(self) -> None:
        self._set = False
        self._wake: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        """Return True if ``set`` was called."""
        return self._set

    def set(self) -> None:
        """Request the stop, and wake all threads that wait for it."""
        self._set = True
        self._wake.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until ``set`` is called.

        Args:
            timeout: The longest wait, in seconds. Without it the wait has no end.

        Returns:
            True if ``set`` was called, False after ``timeout``.
        """
        if not self._set:
            try:
                self._wake.get(timeout=timeout)
            except Empty:
                return self._set
            self._wake.put(None)  # for the next one who waits
        return self._set
