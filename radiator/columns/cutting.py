"""How a stretch of offsets is cut into tasks where each of them must be the same whenever it is planned again.

The number of a task of a stream is part of the ids of what it writes, so the cut is a function of offsets and options
alone: not of files, whose sizes and indexes change, nor of the machine that plans. All offsets lie on one line,
partition behind partition by name, and the line is cut into equal parts.

Knows: names and numbers. Must not know: files. A pure function.
Invariant: each offset lies in exactly one piece, and a task has at most one piece of a partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

TASKS = 16  # as many as a batch is cut into, if these become neither too small nor too large
OFFSETS_MIN, OFFSETS_MAX = 1 << 16, 1 << 19  # of a task: 16 and 128 MiB of records that have RECORD_BYTES
RECORD_BYTES = 256  # taken for the size of a record, where bytes are asked for: the true one is known to files only


class Piece(NamedTuple):
    """Offsets of one partition, ``low`` and those up to, not including, ``high``."""

    partition: str
    low: int
    high: int


def cut(
    wanted: Mapping[str, tuple[int, int]], tasks_min: int = 1, bytes_per_task: int | None = None
) -> list[tuple[Piece, ...]]:
    """The pieces of each task."""
    total = sum(max(high - low, 0) for low, high in wanted.values())
    if not total:
        return []
    if bytes_per_task is None:
        size = min(max(total // TASKS, OFFSETS_MIN), OFFSETS_MAX)
    else:
        size = max(bytes_per_task // RECORD_BYTES, 1)
    count = min(max(-(-total // size), tasks_min), total)
    tasks: list[list[Piece]] = [[]]
    passed = 0
    for name, (low, high) in sorted(wanted.items()):
        while low < high:
            end = total * len(tasks) // count  # where the task that is being filled ends
            if passed == end:
                tasks.append([])
                continue
            taken = min(high - low, end - passed)
            tasks[-1].append(Piece(name, low, low + taken))
            low, passed = low + taken, passed + taken
    return [tuple(pieces) for pieces in tasks]
