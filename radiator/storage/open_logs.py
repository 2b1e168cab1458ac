"""Bound the number of logs that hold descriptors, and choose which of them is closed first.

This module knows which logs are open, in the order in which they were opened. It does not know files. The disk thread
owns it, except the count of syncs, which the event loop may read. Invariants: at most ``limit`` logs are open, one more
while another is opening; when the process has no descriptor left, logs are closed before anything is refused.

An open log takes two descriptors and a mapping. Making and ending these takes longer than a write through files that
are opened for it alone.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Protocol

from radiator import limits
from radiator.storage.files import NO_DESCRIPTORS

PLACE_EVERY = 16
SPARED_LOGS = 4  # closed at once when descriptors run out: opening one log takes three for a moment
Runner = Callable[[Callable[[], None]], None]  # ``OpenLogs.again``, or ``once``


def run_once(work: Callable[[], None]) -> None:
    """Run the work. For callers without logs that could be closed."""
    work()


class OpenLog(Protocol):
    """A log that holds descriptors."""

    def was_used(self) -> bool:
        """Return whether something was appended since the last call."""

    def release(self) -> None:
        """Close the descriptors."""


class OpenLogs:
    """Bounds the descriptors: when too many logs are open, the least recently used one is closed."""

    __slots__ = ("_passed", "limit", "queue", "syncs")

    def __init__(self, limit: int = limits.OPEN_LOGS_MAX) -> None:
        self.limit = limit
        self.syncs = 0  # made so far, for metrics (the event loop may read it)
        self.queue: deque[OpenLog] = deque()
        self._passed = 0  # logs that were not opened, though they were written

    def skips_opening(self) -> bool:
        """Return whether a closed log should write through files that are opened for one write alone.

        To open it would close another log. If more logs are written than may be open, each would be closed before it is
        written again; so only one of ``PLACE_EVERY`` is opened, and the others write through temporary descriptors.
        """
        if len(self.queue) < self.limit:
            return False
        self._passed += 1
        return self._passed % PLACE_EVERY != 0

    def synced(self) -> None:
        """Count a sync of a segment."""
        self.syncs += 1

    def opened(self, log: OpenLog) -> None:
        """Add an opened log, and close others beyond the limit."""
        self.queue.append(log)
        while len(self.queue) > self.limit:
            self._release_oldest(log)

    def forget(self, log: OpenLog) -> None:
        """Drop a log that is removed. The caller closes its descriptors."""
        with contextlib.suppress(ValueError):
            self.queue.remove(log)

    def with_descriptors(self, work: Callable[[], None]) -> None:
        """Run work that opens files. If no descriptor is left, close some logs, lower the limit and run it again.

        Args:
            work: It may be started twice.

        Raises:
            OSError: The work has failed.
        """
        try:
            work()
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS or not self.queue:
                raise
            self.limit = min(self.limit, max(1, len(self.queue) - SPARED_LOGS))
            for _ in range(min(SPARED_LOGS, len(self.queue))):
                self._release_oldest()
            work()

    def _release_oldest(self, besides: OpenLog | None = None) -> None:
        queue = self.queue
        while (oldest := queue.popleft()) is besides or oldest.was_used():
            queue.append(oldest)  # a second chance
        oldest.release()
