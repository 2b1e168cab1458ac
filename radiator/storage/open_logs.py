"""How many logs hold descriptors, and which of them give theirs back first.

Knows: which logs are open, in the order in which they were opened. Must not know: files. Disk thread only, but for the
count of syncs, which the hub may read. Invariants: at most ``limit`` logs are open, one more while another is opening;
when the process has no descriptor left, logs are closed before anything is refused.

A log is kept open by two descriptors and a mapping: these take longer to be made and ended than a write through files
that are opened for it alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from radiator import limits
from radiator.storage.files import NO_DESCRIPTORS

PLACE_EVERY = 16
SPARED_LOGS = 4  # closed at once when descriptors run out: opening one log takes three for a moment
Runner = Callable[[Callable[[], None]], None]  # ``OpenLogs.again``, or ``once``


def run_once(work: Callable[[], None]) -> None:
    """Where there are no logs to be closed."""
    work()


class OpenLog(Protocol):
    """A log that holds descriptors."""

    def was_used(self) -> bool:
        """Return whether something was appended since the last call."""

    def release(self) -> None:
        """Give the descriptors back."""


class OpenLogs:
    """Bounds the descriptors: when too many logs are open, the one that has not been used for longest is closed."""

    __slots__ = ("_passed", "limit", "queue", "syncs")

    def __init__(self, limit: int = limits.OPEN_LOGS_MAX) -> None:
        self.limit = limit
        self.syncs = 0  # made so far, for metrics (the hub may read it)
        self.queue: deque[OpenLog] = deque()
        self._passed = 0  # logs that were not opened, though they were written

    def skips_opening(self) -> bool:
        """Return whether a log that is not open, and has something to write, is better not kept open.

        To keep it open takes another one's place. If more logs are written than may be open, each would be closed
        before it is written again; so only one of ``PLACE_EVERY`` gets a place, and the others are opened for their
        writes alone."""
        if len(self.queue) < self.limit:
            return False
        self._passed += 1
        return self._passed % PLACE_EVERY != 0

    def synced(self) -> None:
        """Count a sync of a segment."""
        self.syncs += 1

    def opened(self, log: OpenLog) -> None:
        self.queue.append(log)
        while len(self.queue) > self.limit:
            self._release_oldest(log)

    def with_descriptors(self, work: Callable[[], None]) -> None:
        """Does what opens files, and once more if there was no descriptor: then with fewer logs open, now and later.
        ``work`` may be begun anew. Raises OSError."""
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
