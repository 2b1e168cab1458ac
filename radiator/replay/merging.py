"""Merge many ordered streams. A stream is opened when its first row may be next, so few are open at once.

Rows come by receive time; with equal times by partition and offset, so that a partition's order is kept even if several
streams have parts of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from radiator.export.rows import Row


class Stream(NamedTuple):
    """``earliest_ns``: no row of it was received before."""

    earliest_ns: int
    open: Callable[[], Iterator[Row]]


def merge(streams: Iterable[Stream]) -> Iterator[Row]:
    """Yield the rows of all streams in order."""
    waiting = sorted(streams, key=lambda each: each.earliest_ns, reverse=True)
    heap: list[tuple[int, str, int, int, Row, Iterator[Row]]] = []
    opened = 0

    def push(rows: Iterator[Row], number: int) -> None:
        row = next(rows, None)
        if row is not None:
            heapq.heappush(heap, (row.receive_ns, row.partition, row.offset, number, row, rows))

    while waiting or heap:
        while waiting and (not heap or waiting[-1].earliest_ns <= heap[0][0]):
            opened += 1
            push(waiting.pop().open(), opened)
        if heap:
            _, _, _, number, row, rows = heapq.heappop(heap)
            yield row
            push(rows, number)
