"""The log of dropped messages, limited to one line per queue and reason every ``REPORT_EVERY_NS``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from radiator.clock import NS_PER_SECOND

if TYPE_CHECKING:
    from radiator.broker.peer_log import PeerLog
    from radiator.broker.timers.timing import Timing
    from radiator.clock import MonoNs

log = logging.getLogger("radiator.broker")

REPORT_EVERY_NS = 10 * NS_PER_SECOND
REPORTED_MAX = 1_000  # remembered pairs of queue and reason


class DroppedLog:
    """The log of dropped messages of one broker."""

    __slots__ = ("_peer_log", "_timing", "_reported")

    def __init__(self, peer_log: PeerLog, timing: Timing) -> None:
        self._peer_log = peer_log
        self._timing = timing
        self._reported: dict[tuple[str, str], tuple[MonoNs, int]] = {}  # when reported last, and how many since

    def add(self, queue: str, reason: str, number: int, hint: str) -> None:
        """Log dropped messages of a queue.

        Args:
            queue: The name of the queue.
            reason: Why they were dropped.
            number: How many.
            hint: The setting that keeps such messages, for the log line.
        """
        now_ns = self._timing.now.mono
        last_ns, count = self._reported.get((queue, reason), (None, 0))
        count += number
        if last_ns is None or now_ns - last_ns >= REPORT_EVERY_NS:
            self._peer_log.line(
                logging.WARNING,
                f"dropped messages ({reason})",
                queue,
                "%s: %d messages were dropped (%s); %s",
                queue,
                count,
                reason,
                hint,
                logger=log,
            )
            last_ns, count = now_ns, 0
        if len(self._reported) >= REPORTED_MAX:
            self._reported.clear()
        self._reported[queue, reason] = (last_ns, count)
