"""Totals of messages skipped by selector over all queues of one broker, and the queues that stopped because of them.

A queue whose consumers have selectors skips messages that match no consumer with credit (``queues.skipped``). The
number of runs of skipped offsets is bounded for each queue and for all queues together.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from radiator.broker.peer_log import PeerLog
    from radiator.broker.stats import Stats

log = logging.getLogger("radiator.broker")

Source = TypeVar("Source")


class SkippedTotals(Generic[Source]):
    """Totals over all queues.

    Args:
        stats: The counters of the broker.
        peer_log: The limited log lines of the broker.

    Attributes:
        runs: The number of runs that all queues store.
        stopped: The cursors that stopped skipping, in the order in which they stopped.
    """

    __slots__ = ("_peer_log", "_stats", "runs", "stopped")

    def __init__(self, stats: Stats, peer_log: PeerLog) -> None:
        self._stats = stats
        self._peer_log = peer_log
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
            self._log(why.partition(": ")[0], why)

    def go_on(self, source: Source, queue: str) -> None:
        """Note that a cursor goes on skipping, or is gone."""
        if source in self.stopped:
            del self.stopped[source]
            self._log(queue, f"{queue}: messages are delivered again from the whole queue")

    def _log(self, queue: str, text: str) -> None:
        self._peer_log.line(logging.WARNING, "selectors that skip too much", queue, "%s", text, logger=log)
