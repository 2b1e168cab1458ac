"""A set of offsets, and a map of them, stored as runs of consecutive offsets.

A million consecutive offsets take as much memory as one. Adding and removing in the middle moves the rest of a list:
about 20 us with 100,000 runs.

Invariants: runs are sorted and disjoint; those of a set are not adjacent, and its ``len`` is the number of offsets.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Runs:
    """A set of offsets, stored as runs of consecutive offsets."""

    __slots__ = ("_count", "_starts", "_stops")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, offset: int) -> bool:
        place = bisect_right(self._starts, offset) - 1
        return place >= 0 and offset < self._stops[place]

    @property
    def runs(self) -> int:
        """The number of runs, which is the memory cost of the set."""
        return len(self._starts)

    @property
    def last(self) -> int:
        """The highest offset; -1 if the set is empty."""
        return self._stops[-1] - 1 if self._stops else -1

    def first(self, at: int) -> int | None:
        """Return the lowest offset that is at least ``at``; None if there is none."""
        place = bisect_right(self._stops, at)
        return max(at, self._starts[place]) if place < len(self._starts) else None

    def within(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the runs in [start, stop), each as (start, stop)."""
        low, high = bisect_right(self._stops, start), bisect_left(self._starts, stop)
        return [(max(start, self._starts[each]), min(stop, self._stops[each])) for each in range(low, high)]

    def add(self, start: int, stop: int) -> None:
        """Add the offsets in [start, stop)."""
        starts, stops = self._starts, self._stops
        if not starts or start > stops[-1]:
            starts.append(start)
            stops.append(stop)
            self._count += stop - start
            return
        low, high = bisect_left(stops, start), bisect_right(starts, stop)  # the runs that touch the range
        if low < high:
            start, stop = min(start, starts[low]), max(stop, stops[high - 1])
            self._count -= sum(stops[low:high]) - sum(starts[low:high])
        starts[low:high] = [start]
        stops[low:high] = [stop]
        self._count += stop - start

    def remove(self, start: int, stop: int) -> int:
        """Remove the offsets in [start, stop) and return how many of them were in the set."""
        starts, stops = self._starts, self._stops
        low, high = bisect_right(stops, start), bisect_left(starts, stop)  # the runs that overlap the range
        if low >= high:
            return 0
        removed = sum(min(stop, stops[each]) - max(start, starts[each]) for each in range(low, high))
        left = [(starts[low], start)] if starts[low] < start else []
        if stops[high - 1] > stop:
            left.append((stop, stops[high - 1]))
        starts[low:high] = [first for first, _ in left]
        stops[low:high] = [end for _, end in left]
        self._count -= removed
        return removed


class RunMap:
    """A value for each of some offsets, stored as runs of consecutive offsets that were set together."""

    __slots__ = ("_starts", "_stops", "_values")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._values: list[bytes] = []

    @property
    def end(self) -> int:
        """The offset behind the last one; 0 if there is none."""
        return self._stops[-1] if self._stops else 0

    def set(self, start: int, stop: int, value: bytes) -> None:
        """Set the value of the offsets in [start, stop)."""
        starts, stops, values = self._starts, self._stops, self._values
        if not starts or start >= stops[-1]:
            starts.append(start)
            stops.append(stop)
            values.append(value)
            return
        self.remove(start, stop)
        place = bisect_right(starts, start)
        starts.insert(place, start)
        stops.insert(place, stop)
        values.insert(place, value)

    def within(self, start: int, stop: int) -> list[tuple[int, int, bytes | None]]:
        """Return the runs that cover [start, stop), each as (start, stop, value); None: its offsets have none."""
        starts, stops, values = self._starts, self._stops, self._values
        found: list[tuple[int, int, bytes | None]] = []
        for place in range(bisect_right(stops, start), bisect_left(starts, stop)):
            if start < starts[place]:
                found.append((start, starts[place], None))
                start = starts[place]
            end = min(stop, stops[place])
            found.append((start, end, values[place]))
            start = end
        if start < stop:
            found.append((start, stop, None))
        return found

    def remove(self, start: int, stop: int) -> None:
        """Remove the offsets in [start, stop)."""
        starts, stops, values = self._starts, self._stops, self._values
        low, high = bisect_right(stops, start), bisect_left(starts, stop)  # the runs that overlap the range
        if low >= high:
            return
        left = [(starts[low], start, values[low])] if starts[low] < start else []
        if stops[high - 1] > stop:
            left.append((stop, stops[high - 1], values[high - 1]))
        starts[low:high] = [first for first, _, _ in left]
        stops[low:high] = [end for _, end, _ in left]
        values[low:high] = [value for _, _, value in left]
