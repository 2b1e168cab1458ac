"""Where a stream stands: what Spark writes to the checkpoint as JSON, and how one micro-batch follows another.

    {"flights": 1000, "/topic/a": {"from": 0, "next": 17}}

By partition the first offset that has not been read. A partition that is new in a batch also says where the batch
begins with it, since the batch before knows nothing of it: so a batch that is planned again after a crash is the same
batch, whatever ``latest`` or retention would say by now. That holds for the very first batch too.

A new partition begins at its start, as in Kafka. A partition that holds nothing wanted is not in the offsets as long as
it holds only the destination it is named after; if it holds several, its offset moves on by itself.

Knows: numbers and names. Must not know: files, pyspark. Pure functions.
Invariant: an offset only ever rises, and each offset of a partition from where it began lies in exactly one batch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from radiator.errors import StorageError

Offsets = Mapping[str, Any]  # as JSON has it


class Mark(NamedTuple):
    """``next``: the first offset that was not read. ``begin``: of the batch, where the one before does not say."""

    next: int
    begin: int | None = None

    @property
    def json(self) -> int | dict[str, int]:
        return self.next if self.begin is None else {"from": self.begin, "next": self.next}


def marks(offsets: Offsets) -> dict[str, Mark]:
    """Raises StorageError if these are not ours."""
    if not isinstance(offsets, Mapping):
        raise _foreign("offsets by partition", offsets)
    found = {}
    for name, value in offsets.items():
        ours = isinstance(value, dict) and value.keys() == {"from", "next"}
        low, following = (value["from"], value["next"]) if ours else (0, value)
        if type(low) is not int or type(following) is not int or not 0 <= low <= following:
            raise _foreign(f"an offset for partition {name!r}", value)
        found[name] = Mark(following, low if ours else None)
    return found


def _foreign(expected: str, got: object) -> StorageError:
    return StorageError(
        f"the checkpoint is not one of a radiator stream: expected {expected}, got {json.dumps(got)}; "
        "a query that reads another source needs a checkpointLocation of its own"
    )


def first(begins: Mapping[str, int]) -> Offsets:
    """The offsets of a query that has read nothing."""
    return {name: Mark(offset, offset).json for name, offset in sorted(begins.items())}


def following(
    start: Offsets,
    ends: Mapping[str, int],
    born: Mapping[str, int],
    limit: int | None = None,
    idle: Collection[str] = (),
    gone: Collection[str] = (),
) -> Offsets:
    """The offsets after the next batch; ``start`` itself if there is nothing new. ``ends``: how far each partition
    may be read; ``born``: where those begin that ``start`` does not know. ``limit``: how many offsets, about; those of
    ``idle`` partitions, which hold nothing wanted, do not count. ``gone`` are left out from now on."""
    before = {name: mark for name, mark in marks(start).items() if name not in gone}
    begins = {name: before[name].next if name in before else born[name] for name in ends}
    todo = {name: ends[name] - begins[name] for name in ends if ends[name] > begins[name]}
    if not todo and not gone:
        return start
    counted = {name: count for name, count in todo.items() if name not in idle}
    taken = {**todo, **({} if limit is None else spread(counted, limit))}
    after = {name: Mark(mark.next, mark.begin if mark.begin == mark.next else None) for name, mark in before.items()}
    for name, count in taken.items():
        mark = before.get(name)
        unread = mark is None or mark.begin == mark.next
        after[name] = Mark(begins[name] + count, begins[name] if unread else None)
    return {name: mark.json for name, mark in sorted(after.items())}


def spread(todo: Mapping[str, int], limit: int) -> dict[str, int]:
    """Of each partition a share in proportion to what it has, and one offset at least, as Kafka's source does it: no
    partition waits for ever beside a large one."""
    total = sum(todo.values())
    if total <= limit:
        return dict(todo)
    return {name: min(count, max(1, math.floor(limit * count / total))) for name, count in todo.items()}


def between(start: Offsets, end: Offsets) -> dict[str, tuple[int, int]]:
    """What the batch reads: of each partition with something to read, from where to where."""
    if start == end:  # a batch for the sake of others, of a watermark say
        return {}
    before, found = marks(start), {}
    for name, mark in marks(end).items():
        low = mark.begin
        if low is None:
            known = before.get(name)
            if known is None:
                raise StorageError(f"the checkpoint does not say where partition {name!r} begins: {json.dumps(end)}")
            low = known.next
        if low < mark.next:
            found[name] = (low, mark.next)
    return found
