"""Find sealed segments of a log that are half settled.

A scan reads all segments in steps, because acks may be in many pieces: the intervals of some thousands of offsets at a
time, which it adds up. A segment with too many unsettled offsets is skipped at once. Settled offsets stay settled, so a
scan may take long, and the next one finds acks that come meanwhile.

This module knows offsets. It does not know cursors or files. The event loop owns it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from radiator.storage.segment import SegmentInfo

STEP_OFFSETS = 8_192  # at first: half as many intervals at most
STEP_OFFSETS_MAX = 65_536
FEW = 256  # intervals in a step: the next one is twice as long
STEP_COST, PIN_COST = 16, 4  # per step, and per cursor in it, in intervals
SCAN_COST_MAX = 8_192  # in one turn: some milliseconds

Intervals = list[tuple[int, int]]


class Settled(NamedTuple):
    """A segment of which queues have settled at least half."""

    segment: SegmentInfo
    end: int  # where the next segment begins
    intervals: Intervals  # that are settled
    unsettled: int  # how many offsets are not


class SettledScan:
    """A scan over the sealed segments of one log.

    Args:
        sealed: The segments, each with the base offset of the next.
        found_max: Stop after this many segments.
        needed: The lowest offset that a cursor needs.
        fingerprint: Distinguishes this scan from others.
    """

    def __init__(
        self,
        sealed: list[tuple[SegmentInfo, int]],
        found_max: int,
        needed: int,
        fingerprint: tuple[int, ...],
    ) -> None:
        self.needed = needed
        self.fingerprint = fingerprint
        self.found: list[Settled] = []
        self._todo = deque(sealed)
        self._found_max = found_max
        self._at = -1  # in the segment that comes next
        self._step = STEP_OFFSETS
        self._settled: Intervals = []
        self._unsettled = 0

    @property
    def done(self) -> bool:
        """Whether the scan has ended."""
        return not self._todo or len(self.found) == self._found_max

    def advance(self, settled_in: Callable[[int, int], Intervals], cost: int, pins: int) -> int:
        """Continue the scan as far as ``cost`` allows.

        Args:
            settled_in: Returns the settled intervals between two offsets.
            cost: How much work may be done, in intervals.
            pins: How many cursors ``settled_in`` reads.

        Returns:
            The rest of ``cost``.
        """
        while cost > 0 and not self.done:
            segment, end = self._todo[0]
            start = max(self._at, segment.base_offset)
            stop = min(start + self._step, end)
            settled = settled_in(start, stop)
            cost -= STEP_COST + PIN_COST * pins + len(settled)
            more = len(settled) < FEW
            self._step = min(2 * self._step, STEP_OFFSETS_MAX) if more else STEP_OFFSETS
            self._settled += settled
            self._unsettled += stop - start - sum(stop - start for start, stop in settled)
            before = end - segment.base_offset if segment.remaining is None else segment.remaining
            enough = 2 * (self._unsettled + 1) <= before
            self._at = stop
            if enough and stop == end:
                self.found.append(Settled(segment, end, self._settled, self._unsettled))
            if stop == end or not enough:
                self._todo.popleft()
                self._settled, self._unsettled, self._at = [], 0, -1
        return cost
