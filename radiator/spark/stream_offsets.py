"""Represent the progress of a stream: the JSON in Spark's checkpoint, and how one micro-batch follows another.

    {"flights": 1000, "/topic/a": {"from": 0, "next": 17}}

Each partition has the first offset that has not been read. A partition that is new in a batch also has the start of the
batch, because the previous batch does not contain it. So a batch that is planned again after a crash is the same batch,
whatever ``latest`` or retention would give by then. That is true for the very first batch too.

A new partition starts at its first offset, as in Kafka. A partition is in the offsets from its first matching record
on. If it has no more of them, for example with other options after a restart, its offset advances without reading.

Must not import files or pyspark. All functions are pure.
Invariant: an offset never decreases, and each offset of a partition from its start on is in exactly one batch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from radiator.errors import StorageError

Offsets = Mapping[str, Any]  # a JSON object


class Progress(NamedTuple):
    """The progress in one partition.

    Attributes:
        next: The first offset that was not read.
        begin: The start of the batch, if the previous batch does not contain the partition.
    """

    next: int
    begin: int | None = None

    @property
    def json(self) -> int | dict[str, int]:
        """The progress in the form of the checkpoint."""
        return self.next if self.begin is None else {"from": self.begin, "next": self.next}


def progress_of(offsets: Offsets) -> dict[str, Progress]:
    """Return the progress by partition.

    Args:
        offsets: The JSON object in the checkpoint.

    Raises:
        StorageError: The object has another form: another source wrote the checkpoint.

    Example:
        >>> progress_of({"flights": 1000})
        {'flights': Progress(next=1000, begin=None)}
    """
    if not isinstance(offsets, Mapping):
        raise _foreign("offsets by partition", offsets)
    found = {}
    for name, value in offsets.items():
        ours = isinstance(value, dict) and value.keys() == {"from", "next"}
        low, following = (value["from"], value["next"]) if ours else (0, value)
        if type(low) is not int or type(following) is not int or not 0 <= low <= following:
            raise _foreign(f"an offset for partition {name!r}", value)
        found[name] = Progress(following, low if ours else None)
    return found


def _foreign(expected: str, got: object) -> StorageError:
    return StorageError(
        f"the checkpoint is not one of a radiator stream: expected {expected}, got {json.dumps(got)}; "
        "a query that reads another source needs a checkpointLocation of its own"
    )


def first(begins: Mapping[str, int]) -> Offsets:
    """Return the offsets of a query that has read nothing.

    Args:
        begins: The start of each partition.
    """
    return {name: Progress(offset, offset).json for name, offset in sorted(begins.items())}


def following(
    start: Offsets,
    ends: Mapping[str, int],
    new_starts: Mapping[str, int],
    limit: int | None = None,
    idle: Collection[str] = (),
    gone: Collection[str] = (),
) -> Offsets:
    """Return the offsets at the end of the next batch; ``start`` itself if there is nothing new.

    Args:
        start: The offsets at the start of the batch.
        ends: The end of each partition.
        new_starts: The start of the partitions that ``start`` does not contain.
        limit: The approximate maximum number of offsets, or None.
        idle: Partitions without matching records; their offsets do not count.
        gone: Partitions to remove from the offsets.

    Raises:
        StorageError: ``start`` is not of this source.
    """
    before = {name: progress for name, progress in progress_of(start).items() if name not in gone}
    begins = {name: before[name].next if name in before else new_starts[name] for name in ends}
    todo = {name: ends[name] - begins[name] for name in ends if ends[name] > begins[name]}
    if not todo and not gone:
        return start
    counted = {name: count for name, count in todo.items() if name not in idle}
    taken = {**todo, **({} if limit is None else spread(counted, limit))}
    after = {
        name: Progress(progress.next, progress.begin if progress.begin == progress.next else None)
        for name, progress in before.items()
    }
    for name, count in taken.items():
        progress = before.get(name)
        unread = progress is None or progress.begin == progress.next
        after[name] = Progress(begins[name] + count, begins[name] if unread else None)
    return {name: progress.json for name, progress in sorted(after.items())}


def spread(todo: Mapping[str, int], limit: int) -> dict[str, int]:
    """Return the number of offsets to read of each partition: in proportion to its backlog, and at least one.

    Kafka's source does the same, so that no partition waits behind a large one.

    Args:
        todo: The number of unread offsets of each partition.
        limit: The approximate total.

    Example:
        >>> spread({"a": 900, "b": 100}, 10)
        {'a': 9, 'b': 1}
    """
    total = sum(todo.values())
    if total <= limit:
        return dict(todo)
    return {name: min(count, max(1, math.floor(limit * count / total))) for name, count in todo.items()}


def between(start: Offsets, end: Offsets) -> dict[str, tuple[int, int]]:
    """Return the half-open range of offsets that a batch reads, for each partition with something to read.

    Args:
        start: The offsets at the start of the batch.
        end: The offsets at the end of the batch.

    Raises:
        StorageError: The offsets are not of this source, or do not say where a partition starts.
    """
    if start == end:  # an empty batch, for example to advance a watermark
        return {}
    before, found = progress_of(start), {}
    for name, progress in progress_of(end).items():
        low = progress.begin
        if low is None:
            known = before.get(name)
            if known is None:
                raise StorageError(f"the checkpoint does not say where partition {name!r} begins: {json.dumps(end)}")
            low = known.next
        if low < progress.next:
            found[name] = (low, progress.next)
    return found
