"""What concerns many logs at once: how many hold descriptors, and who gives them back first; new directories.

Knows: which logs are open, in the order in which they were opened. Must not know: files. Disk thread only, but for the
count of syncs, which the hub may read. Invariant: at most ``limit`` logs are open, one more while another is opening.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from radiator import limits

if TYPE_CHECKING:
    from radiator.storage.log import Log


class OpenLogs:
    """Bounds the descriptors: when too many logs are open, the one that has not been used for longest is closed."""

    __slots__ = ("limit", "queue", "syncs")

    def __init__(self, limit: int = limits.OPEN_LOGS_MAX) -> None:
        self.limit = limit
        self.syncs = 0  # made so far, for metrics (the hub may read it)
        self.queue: deque[Log] = deque()

    def opened(self, log: Log) -> None:
        queue = self.queue
        queue.append(log)
        while len(queue) > self.limit:
            oldest = queue.popleft()
            if oldest is log or oldest.used:
                oldest.used = False  # a second chance
                queue.append(oldest)
            else:
                oldest.release()


def make_directories(logs: list[Log]) -> None:
    """Those that are not there yet, with one sync for all. Raises OSError."""
    wanted = [log for log in logs if not log.exists]
    for log in wanted:
        log.fs.mkdir(log.directory)
    for parent in {log.directory.rpartition("/")[0] for log in wanted}:
        wanted[0].fs.sync_dir(parent)
    for log in wanted:
        log.exists = True
