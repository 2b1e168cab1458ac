"""Split ranges of offsets into tasks, the same tasks whenever a batch of a stream is planned again.

The number of a task is part of the ids of the messages that a stream writes. So the split depends on offsets and
options alone: not on files, whose sizes and indexes change, and not on the machine that plans. The ranges are
concatenated in the order of the partition names, and the result is split into equal parts.

Invariant: each offset is in exactly one piece, and a task has at most one piece of a partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

TASKS = 16  # per batch, within the limits of their size
OFFSETS_MIN, OFFSETS_MAX = 1 << 16, 1 << 19  # per task: 16 and 128 MiB of records of RECORD_BYTES
RECORD_BYTES = 256  # the assumed size of a record, because the true size is in the files


class Piece(NamedTuple):
    """A range of offsets of one partition.

    Attributes:
        partition: The name of the partition.
        low: The first offset.
        high: The offset after the last one.
    """

    partition: str
    low: int
    high: int


def cut(
    wanted: Mapping[str, tuple[int, int]], tasks_min: int = 1, bytes_per_task: int | None = None
) -> list[tuple[Piece, ...]]:
    """Split ranges of offsets into tasks of equal size.

    Args:
        wanted: The half-open range ``(low, high)`` of offsets of each partition.
        tasks_min: The minimum number of tasks, if there are that many offsets.
        bytes_per_task: The approximate size of a task in bytes; records count as RECORD_BYTES. None chooses a size.

    Returns:
        The pieces of each task.

    Example:
        >>> [[(piece.low, piece.high) for piece in task] for task in cut({"/queue/a": (0, 3)}, tasks_min=2)]
        [[(0, 1)], [(1, 3)]]
    """
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
            end = total * len(tasks) // count  # the end of the current task
            if passed == end:
                tasks.append([])
                continue
            taken = min(high - low, end - passed)
            tasks[-1].append(Piece(name, low, low + taken))
            low, passed = low + taken, passed + taken
    return [tuple(pieces) for pieces in tasks]
