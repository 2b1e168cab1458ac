"""Logs whose last receive time is in the future because the clock was wrong at the time of writing.

Receive times never decrease within a log. A new message therefore gets the last receive time until the clock has caught
up. Until then retention by age removes nothing from the log, and a replay by time finds no message after the present.

The module knows partitions and their last receive time, but not how to repair a log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from radiator import limits
from radiator.clock import NS_PER_SECOND, Now, WallNs

if TYPE_CHECKING:
    from radiator.storage.partition import Partition
    from radiator.storage.store import Store

log = logging.getLogger("radiator.broker")

TOLERANCE_NS: Final = int(limits.LOG_AHEAD_SECONDS * NS_PER_SECOND)
REMEDY: Final = "stop the broker and run `radiator fsck --repair --latest now`"
NAMED_MAX: Final = 5  # logs named in one log line


class FutureLogs:
    """The logs of one store that are ahead of the clock.

    A receive time is the trusted time or the log's last receive time, so a log can get ahead of the clock only before
    the first tick or by a backward step of the clock. ``tick`` scans the logs only then.

    Args:
        store: The open store.
    """

    __slots__ = ("_found", "_offset_ns", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: list[Partition] = []
        self._offset_ns: int | None = None  # the largest wall time minus monotonic time since the last scan

    def tick(self, now: Now) -> None:
        """Scan all logs at the first call and after a backward step of the clock; log an error if any log is ahead.

        Args:
            now: Both clocks; the wall time is the trusted one.
        """
        offset_ns = now.wall - now.mono
        if self._offset_ns is not None and offset_ns >= self._offset_ns - TOLERANCE_NS:
            self._offset_ns = max(self._offset_ns, offset_ns)
            return
        self._offset_ns = offset_ns
        self._found = [each for each in self._store.partitions.values() if _ahead_ns(each, now.wall) > TOLERANCE_NS]
        if text := self.text(now.wall):
            log.error("clock: %s", text)

    def at(self, now_ns: WallNs) -> list[Partition]:
        """Return the logs that are still ahead of the clock, the furthest first."""
        self._found = [each for each in self._found if _ahead_ns(each, now_ns) > TOLERANCE_NS]
        return sorted(self._found, key=lambda each: -each.last_receive_ns)

    def text(self, now_ns: WallNs) -> str:
        """Return a description of the logs that are ahead of the clock; empty if there are none."""
        found = self.at(now_ns)
        if not found:
            return ""
        shown = ", ".join(f"{each.name} (by {_span(_ahead_ns(each, now_ns))})" for each in found[:NAMED_MAX])
        more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
        return (
            f"the last receive time is in the future in {len(found)} logs: {shown}{more}. New messages get that time, "
            "and retention by age and replay by time do not work there until the clock has caught up. If the clock is "
            f"right now, {REMEDY}"
        )


def _ahead_ns(partition: Partition, now_ns: WallNs) -> int:
    return partition.last_receive_ns - now_ns


def _span(ns: int) -> str:
    """Return a length of time as text, in the largest unit that gives at least two."""
    seconds = ns // NS_PER_SECOND
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} seconds"
