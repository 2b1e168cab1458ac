"""Scheduled messages beyond the position of a source, for counts only.

The source has not reached these messages. They are counted as delayed, not as ready. A source that reaches such a
message moves it to ``Deferred``.

A SEND with a delay is noted at append. Messages of an earlier run are searched when figures are requested, with a
bounded number of reads per request. ``QueueSource.unlooked`` is the number of messages that remain.

Invariants: only counts use this information. ``Timing.noted`` counts the notes and is bounded.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Protocol

from radiator import limits
from radiator.broker.logs.delivery_times import DELIVER_AT, EXPIRED, NOW, judge, marks
from radiator.clock import WallNs
from radiator.timers import NEVER_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from radiator.broker.logs.feed import Feed
    from radiator.broker.timers.timing import Timing
    from radiator.config import Settings
    from radiator.storage.batch import RecordBatch

BLOCK = 1_000  # notes that one binary search counts


class ScheduledCursor(Protocol):
    """The cursor of a queue over one partition, as far as this module uses it."""

    next_offset: int
    earlier_to: int
    feed: Feed

    @property
    def closed(self) -> bool:
        """True once the cursor is not read any more."""

    @property
    def settings(self) -> Settings:
        """The settings of the queue."""


class Block:
    """Notes in the order of their offsets."""

    __slots__ = ("_ranked", "dues", "offsets")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.dues = array("q")
        self._ranked: list[int] | None = None

    def take_last(self) -> None:
        """Remove the last note."""
        self.offsets.pop()
        self.dues.pop()
        self._ranked = None

    def count(self, start: int, now_ns: WallNs) -> int:
        """Return how many notes with an offset of at least ``start`` are not due."""
        if self.offsets[0] < start or len(self.offsets) < BLOCK:
            pairs = zip(self.offsets, self.dues, strict=True)
            return sum(due > now_ns and offset >= start for offset, due in pairs)
        if self._ranked is None:
            self._ranked = sorted(self.dues)
        return len(self._ranked) - bisect_right(self._ranked, now_ns)


class ScheduledAhead:
    """The scheduled messages of one source that it has not reached.

    Args:
        source: The cursor of the queue.
        timing: The present time and the totals.

    Attributes:
        searched_to: The end of the offsets of an earlier run that were searched.
    """

    __slots__ = ("_earlier", "_loading", "_reads", "_sent", "_source", "_timing", "searched_to")

    def __init__(self, source: ScheduledCursor, timing: Timing) -> None:
        self._source = source
        self._timing = timing
        self._earlier: deque[Block] = deque()  # notes of an earlier run
        self._sent: deque[Block] = deque()
        self.searched_to = 0
        self._loading = False
        self._reads = 0

    def note(self, offsets: Sequence[int], dues: Sequence[int]) -> None:
        """Note messages that were sent with a delay."""
        self._note(self._sent, offsets, dues)

    def count(self, now_ns: WallNs) -> int:
        """Return how many noted messages were not reached and are not due."""
        start, found = self._source.next_offset, 0
        for blocks in (self._earlier, self._sent):
            self._forget_passed(blocks)
            found += sum(block.count(start, now_ns) for block in blocks)
        return found

    def take_back(self, high_watermark: int) -> None:
        """Remove the notes from ``high_watermark`` on: these offsets will be assigned again."""
        while self._sent and self._sent[-1].offsets[-1] >= high_watermark:
            self._sent[-1].take_last()
            self._timing.count(noted=-1)
            if not self._sent[-1].offsets:
                self._sent.pop()

    def close(self) -> None:
        """Remove all notes: the source is gone."""
        for blocks in (self._earlier, self._sent):
            self._timing.count(noted=-sum(len(block.offsets) for block in blocks))
            blocks.clear()

    def _note(self, blocks: deque[Block], offsets: Sequence[int], dues: Sequence[int]) -> None:
        done = 0
        while done < len(offsets):
            if not blocks or len(blocks[-1].offsets) == BLOCK:
                self._forget_passed(blocks)
                if self._timing.noted >= limits.DEFERRED_MAX:
                    return
                blocks.append(Block())
            block = blocks[-1]
            stop = done + BLOCK - len(block.offsets)
            block.offsets.extend(offsets[done:stop])
            block.dues.extend(min(due, NEVER_NS - 1) for due in dues[done:stop])
            self._timing.count(noted=len(offsets[done:stop]))
            done = stop

    def _forget_passed(self, blocks: deque[Block]) -> None:
        start = self._source.next_offset
        while blocks and blocks[0].offsets[-1] < start:
            self._timing.count(noted=-len(blocks.popleft().offsets))

    # --- messages of an earlier run -----------------------------------------------------------------------------------

    def look(self, reads: int) -> None:
        """Search messages of an earlier run with up to ``reads`` reads."""
        self._reads = reads
        if not self._loading:
            self._go_on()

    def _go_on(self) -> None:
        source = self._source
        partition = source.feed.partition
        while self._reads and not source.closed:
            offset = max(self.searched_to, source.next_offset, partition.log_start_offset)
            if offset >= source.earlier_to:
                break
            self._reads -= 1
            batch = partition.read(offset)
            if batch is None:
                self._loading = True
                source.feed.load(offset, self)
                break
            self._see(offset, batch)

    @property
    def waits(self) -> bool:
        """False if the result of a cold read is not needed any more (``Waiter``)."""
        return not self._source.closed

    def loaded(self, offset: int, batch: RecordBatch | None, skip_to: int | None) -> None:
        """Handle the end of a cold read (``Waiter``)."""
        self._loading = False
        if batch is not None and len(batch) and batch.next_offset > offset:
            self._see(offset, batch)
        elif skip_to is not None and skip_to > offset:
            self.searched_to = skip_to
        else:
            return
        self._go_on()

    def _see(self, start: int, batch: RecordBatch) -> None:
        source = self._source
        self.searched_to = max(batch.next_offset, start + 1)
        if not marks(batch) & DELIVER_AT:
            return
        for index in range(batch.index_at(start), len(batch)):
            if batch.offsets[index] >= source.earlier_to:
                break
            verdict = judge(batch, index, source.settings.message_ttl_ns, self._timing)
            if verdict not in (NOW, EXPIRED):
                self._note(self._earlier, [batch.offsets[index]], [verdict])
