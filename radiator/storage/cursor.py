"""A cursor: the position of one reader in one partition, and the offsets above it that are settled.

    0 ............ floor ............ ceiling ......... delivered
      all settled   |  islands of acks  |  nothing settled  |  may have been delivered

Acks above the floor are stored as intervals: one unsettled message in front of a million settled ones takes two
numbers. ``delivered`` is a hint that only rises: it is in a shared mapping, survives SIGKILL without a system call, may
be stale or wrong after a power cut, and only means "may have been delivered". If a queue skips a message, it leaves
``delivered`` there and gives each message that it delivers behind it a delivery count.

This module knows offsets. It does not know messages, subscriptions or files. The event loop owns cursors. Invariants:
intervals are sorted, disjoint, not adjacent, and above the floor; they contain ``settled_above`` offsets; ``counts``
has unsettled offsets only; every change since the last ``take_changes`` is in the changes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, MutableSequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from radiator.storage.delivery_hints import DeliveryHints

COUNT_STOP = 1 << 30  # what a delivery count has from here on is a note of the broker; the bits below count


def later(count: int) -> tuple[int, int]:
    """Return a sort key of a delivery count: of two counts of one message, the later one has the greater key."""
    return count % COUNT_STOP, count


def ranges(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Return the (start, stop) of each run of consecutive offsets, in order. Duplicates do not matter."""
    ordered = sorted(set(offsets))
    if ordered and ordered[-1] - ordered[0] == len(ordered) - 1:
        return [(ordered[0], ordered[-1] + 1)]
    found: list[tuple[int, int]] = []
    for offset in ordered:
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return found


class Changes:
    """Changes of a cursor that are not in the journal yet."""

    __slots__ = ("counts", "ranges")

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.counts: dict[int, int] = {}


class Cursor:
    """The floor, the settled intervals and the delivery counts of one reader."""

    __slots__ = (
        "_changes",
        "_counts",
        "_hints",
        "_mark",
        "_slot",
        "_slots",
        "_starts",
        "_stops",
        "floor",
        "settled_above",
        "stored",
    )

    def __init__(self, start: int = 0) -> None:
        """One that lives in memory only; CursorStore makes those that are stored."""
        self.floor = start  # everything below is settled
        self.settled_above = 0  # and so many above it
        self.stored = False
        self._starts: list[int] = []  # settled intervals above the floor
        self._stops: list[int] = []
        self._counts: dict[int, int] = {}
        self._changes: Changes | None = None  # None: nothing since the last take_changes
        self._mark: Callable[[Cursor], Any] | None = None
        self._hints: DeliveryHints | None = None
        self._slots: MutableSequence[int] | memoryview = [start]
        self._slot = 0

    def attach(
        self, mark: Callable[[Cursor], Any], slots: memoryview, slot: int, hints: DeliveryHints | None = None
    ) -> None:
        """Make the cursor a stored one.

        Args:
            mark: Called with the cursor at the first change after ``take_changes``.
            slots: The shared mapping of ``delivered``.
            slot: The place of this cursor in it.
            hints: Records deliveries before the journal does.
        """
        self.stored = True
        self._mark = mark
        self._hints = hints
        self._slots = slots
        self._slot = slot

    def detach(self) -> None:
        """Make the cursor an unstored one: changes made through it later change no file."""
        self.stored = False
        self._mark = None
        self._hints = None
        self._changes = None
        self._slots = [self.delivered]
        self._slot = 0

    # --- delivery -----------------------------------------------------------------------------------------------------

    @property
    def delivered(self) -> int:
        """The offset below which messages may have been delivered.

        At or above it, exactly the messages with a delivery count of 1 or more were delivered.
        """
        return self._slots[self._slot]

    @delivered.setter
    def delivered(self, offset: int) -> None:
        self._slots[self._slot] = offset

    def mark_delivered(self, offset: int) -> None:
        """Note that messages below ``offset`` may have been handed out."""
        self._slots[self._slot] = offset

    @property
    def counts(self) -> dict[int, int]:
        """Delivery counts of unsettled offsets, to be read; ``set_count`` changes them."""
        return self._counts

    def set_count(self, offset: int, count: int) -> None:
        """Set the delivery count of a message, before the message is sent."""
        if self._hints is not None and count:
            self._hints.record(self._slot, offset, self._counts.get(offset), count, offset >= self.delivered)
        self._counts[offset] = count
        self._changed().counts[offset] = count

    # --- settlement ---------------------------------------------------------------------------------------------------

    @property
    def ceiling(self) -> int:
        """The lowest offset such that nothing at or above it is settled."""
        return self._stops[-1] if self._stops else self.floor

    def ack(self, offsets: Iterable[int]) -> None:
        """Settle these offsets, in any order. Duplicates and settled offsets do not matter."""
        for start, stop in ranges(offsets):
            self.ack_range(start, stop)

    def ack_range(self, start: int, stop: int, in_journal: bool = False) -> None:
        """Settle every offset from ``start`` up to, not including, ``stop``.

        Args:
            start: The first offset.
            stop: The offset behind the last.
            in_journal: The journal has the change already.
        """
        if start < self.floor:
            start = self.floor
        if start >= stop:
            return
        if not in_journal:
            self._record_range(start, stop)
        if self._counts:
            self._forget_counts(start, stop)
        starts, stops = self._starts, self._stops
        if not starts:
            if start == self.floor:
                self.floor = stop
            else:
                starts.append(start)
                stops.append(stop)
                self.settled_above = stop - start
            return
        first = bisect_left(stops, start)  # the first interval that touches or follows
        last = bisect_right(starts, stop)  # behind the last one that touches
        if first < last:
            start = min(start, starts[first])
            stop = max(stop, stops[last - 1])
            self.settled_above -= sum(stops[first:last]) - sum(starts[first:last])
        self.settled_above += stop - start
        starts[first:last] = [start]
        stops[first:last] = [stop]
        if starts[0] == self.floor:
            self.floor = stops[0]
            self.settled_above -= stops[0] - starts[0]
            del starts[0], stops[0]

    def is_acked(self, offset: int) -> bool:
        """Return whether an offset is settled."""
        if offset < self.floor:
            return True
        place = bisect_right(self._starts, offset) - 1
        return place >= 0 and offset < self._stops[place]

    def unacked(self, stop: int) -> Iterator[int]:
        """Yield the unsettled offsets below ``stop``, in order."""
        at = self.floor
        for start, end in zip(tuple(self._starts), tuple(self._stops), strict=True):
            if start >= stop:
                break
            yield from range(at, start)
            at = end
        yield from range(at, stop)

    @property
    def intervals(self) -> list[tuple[int, int]]:
        """The settled intervals above the floor."""
        return list(zip(self._starts, self._stops, strict=True))

    def settled_in(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the settled intervals from ``start`` up to, not including, ``stop``."""
        found = [(start, min(stop, self.floor))] if start < self.floor else []
        for place in range(bisect_right(self._stops, start), bisect_left(self._starts, stop)):
            found.append((max(start, self._starts[place]), min(stop, self._stops[place])))
        return found

    def unsettled_in(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield each unsettled run from ``start`` up to, not including, ``stop``, as (start, stop)."""
        for first, end in self.settled_in(start, stop):
            if first > start:
                yield start, first
            start = end
        if start < stop:
            yield start, stop

    def unsettled_below(self, offset: int) -> tuple[int, int, int] | None:
        """Return the first, the last and the number of unsettled offsets below ``offset``, or None."""
        if self.floor >= offset:
            return None
        settled = self.settled_in(self.floor, offset)
        last = settled[-1][0] - 1 if settled and settled[-1][1] == offset else offset - 1
        return self.floor, last, offset - self.floor - sum(stop - start for start, stop in settled)

    # --- for the journal ----------------------------------------------------------------------------------------------

    def take_changes(self) -> Changes | None:
        """Return the changes since the last call, or None."""
        changes, self._changes = self._changes, None
        return changes

    def _changed(self) -> Changes:
        changes = self._changes
        if changes is None:
            changes = self._changes = Changes()
            if self._mark is not None:
                self._mark(self)
        return changes

    def _record_range(self, start: int, stop: int) -> None:
        if self._mark is None:
            return
        ranges = self._changed().ranges
        if ranges and ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], stop)
        else:
            ranges.append((start, stop))

    def _forget_counts(self, start: int, stop: int) -> None:
        counts = self._counts
        if stop - start < len(counts):
            for offset in range(start, stop):
                counts.pop(offset, None)
        else:
            for offset in [each for each in counts if start <= each < stop]:
                del counts[offset]
