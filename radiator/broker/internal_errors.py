"""Exceptions that nobody foresaw: bugs of ours, or of what was plugged in. They are loud, and cost little.

One costs the connection for which the broker was at work, and nobody else's; where it is nobody's, it costs that one
step. Every one is counted (``internal_errors``); each place that raises is told with its traceback, again and again but
ever more seldom, so that what happens with every message does not fill the disk.

Knows: exceptions. Must not know: sessions, queues.
Invariant: what ends with the process (``KeyboardInterrupt`` and the like) is let through.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from radiator.broker.stats import Stats

log = logging.getLogger("radiator.broker")


class InternalErrors:
    """``with bugs:`` goes on behind what raises."""

    __slots__ = ("_stats", "_times")

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._times: dict[tuple[str, int], int] = {}  # by the place in the code: there are not many

    def found(self, error: Exception) -> None:
        """Count it and tell it: of each place the first, the second, the fourth and so on."""
        self._stats.count(internal_errors=1)
        step = error.__traceback__
        while step is not None and step.tb_next is not None:
            step = step.tb_next
        place = ("", 0) if step is None else (step.tb_frame.f_code.co_filename, step.tb_lineno)
        times = self._times[place] = self._times.get(place, 0) + 1
        if times & (times - 1) == 0:
            log.error("a bug of the broker, or of what was plugged in (here %d times)", times, exc_info=error)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.found(error)
        return True
