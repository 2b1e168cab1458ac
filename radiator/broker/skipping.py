"""The totals of skipped messages over all queues of one broker, and the queues that look no further because of them.

A queue whose consumers have selectors skips the messages that no consumer with credit wants (``queues.skipped``). The
runs of skipped offsets are bounded for each queue and for all queues together.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from radiator.broker.stats import Stats

log = logging.getLogger("radiator.broker")

Source = TypeVar("Source")


class SkippedTotals(Generic[Source]):
    """Totals over all queues.

    Attributes:
        runs: The number of runs that all queues store.
        stopped: The cursors that look no further, in the order in which they stopped.
    """

    __slots__ = ("_stats", "runs", "stopped")

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self.runs = 0
        self.stopped: dict[Source, None] = {}

    def count(self, runs: int) -> None:
        """Count ``runs`` more runs; fewer if it is negative."""
        self.runs += runs

    def stop(self, source: Source, why: str) -> None:
        """Note, and report in the log once, that a cursor has skipped as many messages as it may."""
        if source not in self.stopped:
            self.stopped[source] = None
            self._stats.count(selectors_stopped=1)
            log.warning("%s", why)

    def go_on(self, source: Source, queue: str) -> None:
        """Note that a cursor looks further, or is gone."""
        if source in self.stopped:
            del self.stopped[source]
            log.warning("%s: messages are handed out again in the whole queue", queue)
