"""Unexpected exceptions: bugs of the broker, or of a plug-in.

An exception ends the connection whose frame was being handled, and no other. Outside of frames it ends the present
step. Every exception is counted (``internal_errors``). The log has the traceback of the first, second, fourth, eighth
... exception of each place in the code, so an exception for every message does not fill the disk.

The module knows exceptions, but not sessions or queues.
Invariant: exceptions that end the process (``KeyboardInterrupt``, for example) pass through.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from radiator.broker.stats import Stats

log = logging.getLogger("radiator.broker")


class InternalErrors:
    """A context manager that logs and swallows unexpected exceptions.

    Args:
        stats: The counters of the broker.
    """

    __slots__ = ("_stats", "_times")

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._times: dict[tuple[str, int], int] = {}  # by place in the code, so the number of keys is bounded

    def found(self, error: Exception) -> None:
        """Count an exception, and log it if it is the first, second, fourth ... of its place in the code."""
        self._stats.count(internal_errors=1)
        step = error.__traceback__
        while step is not None and step.tb_next is not None:
            step = step.tb_next
        place = ("", 0) if step is None else (step.tb_frame.f_code.co_filename, step.tb_lineno)
        times = self._times[place] = self._times.get(place, 0) + 1
        if times & (times - 1) == 0:
            log.error("a bug in the broker or in a plug-in (%d times here)", times, exc_info=error)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.found(error)
        return True
