"""Which offsets of one partition went to one subscription: what tells a late ACK from one that names somebody else's.

A consumer alone gets offsets in a row, several get them in turn, so they are kept as runs. The memory is bounded: when
there are too many runs, the lower half becomes one, and offsets between them count as delivered too. So for what went
out lately the answer is exact, and for what lies long back it is kind.

Invariants: runs are sorted and disjoint; what was added is in one of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

RUNS_MAX = 128  # two numbers each


class Delivered:
    """A set of offsets."""

    __slots__ = ("_starts", "_stops")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []

    def __contains__(self, offset: int) -> bool:
        place = bisect_right(self._starts, offset) - 1
        return place >= 0 and offset < self._stops[place]

    def __len__(self) -> int:
        """How many runs there are."""
        return len(self._starts)

    @property
    def first(self) -> int:
        """The lowest."""
        return self._starts[0]

    def discard(self, offset: int) -> None:
        """This one is not in it any more, as long as there are not too many runs."""
        starts, stops = self._starts, self._stops
        place = bisect_right(starts, offset) - 1
        if place < 0 or offset >= stops[place]:
            return
        left = [run for run in ((starts[place], offset), (offset + 1, stops[place])) if run[0] < run[1]]
        starts[place : place + 1] = [start for start, _ in left]
        stops[place : place + 1] = [stop for _, stop in left]
        self._bound()

    def add(self, offsets: Sequence[int]) -> None:
        """``offsets``, which rise."""
        first, stop = offsets[0], offsets[-1] + 1
        stops = self._stops
        if stop - first == len(offsets):
            if stops and stops[-1] == first:  # how it nearly always is
                stops[-1] = stop
            else:
                self._add_run(first, stop)
            return
        for offset in offsets:
            self._add_run(offset, offset + 1)

    def update(self, other: Delivered) -> None:
        """All of the other's."""
        for start, stop in zip(other._starts, other._stops, strict=True):
            self._add_run(start, stop)

    def _add_run(self, start: int, stop: int) -> None:
        starts, stops = self._starts, self._stops
        low = high = bisect_right(starts, start)
        if low and stops[low - 1] >= start:
            low -= 1
            start = starts[low]
        while high < len(starts) and starts[high] <= stop:
            high += 1
        if low < high:
            stop = max(stop, stops[high - 1])
        starts[low:high] = [start]
        stops[low:high] = [stop]
        self._bound()

    def _bound(self) -> None:
        if len(self._starts) > RUNS_MAX:
            half = RUNS_MAX // 2
            del self._starts[1 : half + 1], self._stops[:half]


def delivered_in(seen: Mapping[bytes, Delivered], message_id: bytes) -> bool:
    """True if ``seen`` (per partition's id prefix) has the message."""
    place = place_of(message_id)
    return place is not None and (delivered := seen.get(place[0])) is not None and place[1] in delivered


def place_of(message_id: bytes) -> tuple[bytes, int] | None:
    """The partition's id prefix and the offset in a message id; None if it is none."""
    head, _, number = message_id.rpartition(b"@")
    offset = decimal(number.decode())
    return None if offset is None else (head + b"@", offset)


def decimal(text: str) -> int | None:
    """The number, if this is how it is written in an id: ASCII digits, no zeros ahead, at most 64 bits."""
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or (text[0] == "0" and text != "0"):
        return None
    return int(text)
