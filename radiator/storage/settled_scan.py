"""Which sealed segments of a log are half settled: a look at all of them, in steps, as acks may come in many pieces.

The intervals of some thousands of offsets are asked for at a time, and added up; a segment of which too much is left is
given up at once. What is settled stays settled, so a look may take as long as it likes, and acks that come meanwhile
are found by the next one.

Knows: offsets. Must not know: cursors, files. Hub only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from radiator.storage.segment import SegmentInfo

STEP_OFFSETS = 8_192  # at first: half as many intervals at most
STEP_OFFSETS_MAX = 65_536
FEW = 256  # intervals in a step: the next one is twice as long
STEP_COST, PIN_COST = 16, 4  # of a question, and for each cursor that is asked, in intervals
SCAN_COST_MAX = 8_192  # in one turn: some milliseconds

Intervals = list[tuple[int, int]]


class SettledScan:
    """``left``: of segments that were rewritten before, how much was left then. ``needed``: the lowest offset that some
    cursor needs. ``seen``: what tells this look from others."""

    def __init__(
        self,
        sealed: list[tuple[SegmentInfo, int]],
        remaining: Mapping[int, int],
        found_max: int,
        needed: int,
        fingerprint: tuple[int, ...],
    ) -> None:
        self.needed = needed
        self.fingerprint = fingerprint
        self.found: list[tuple[SegmentInfo, int, Intervals, int]] = []  # segment, its end, what is settled, what is not
        self._todo = deque(sealed)
        self._remaining = remaining
        self._found_max = found_max
        self._at = -1  # in the segment that comes next
        self._step = STEP_OFFSETS
        self._settled: Intervals = []
        self._unsettled = 0

    @property
    def done(self) -> bool:
        return not self._todo or len(self.found) == self._found_max

    def advance(self, settled_in: Callable[[int, int], Intervals], cost: int, pins: int) -> int:
        """As far as ``cost`` allows; returns what is left of it. ``pins``: how many are asked."""
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
            before = self._remaining.get(segment.base_offset, end - segment.base_offset)
            enough = 2 * (self._unsettled + 1) <= before
            self._at = stop
            if enough and stop == end:
                self.found.append((segment, end, self._settled, self._unsettled))
            if stop == end or not enough:
                self._todo.popleft()
                self._settled, self._unsettled, self._at = [], 0, -1
        return cost
