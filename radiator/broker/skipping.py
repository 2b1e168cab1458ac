"""Totals of messages skipped by selector over all queues of one broker, and the queues that stopped because of them.

A queue whose consumers have selectors skips messages that match no consumer with credit (``queues.skipped``). The
number of runs of skipped offsets is bounded for each queue and for all queues together.
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

    Args:
        stats: The counters of the broker.

    Attributes:
        runs: The number of runs that all queues store.
        stopped: The cursors that stopped skipping, in the order in which they stopped.
    """

    __slots__ = ("_stats", "runs", "stopped")

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self.runs = 0
        self.stopped: dict[Source, None] = {}

    def count(self, runs: int) -> None:
        """Count ``runs`` more runs; fewer if negative."""
        self.runs += runs

    def stop(self, source: Source, why: str) -> None:
        """Note that a cursor has skipped as many messages as allowed, and log ``why`` once."""
        if source not in self.stopped:
            self.stopped[source] = None
            self._stats.count(selectors_stopped=1)
            log.warning("%s", why)

    def go_on(self, source: Source, queue: str) -> None:
        """Note that a cursor goes on skipping, or is gone."""
        if source in self.stopped:
            del self.stopped[source]
            log.warning("%s: messages are delivered again from the whole queue", queue)
