"""A unit of work: the records of consecutive sealed segments of a partition.

This module knows segments. It does not know files of the archive, or commits. It has no state.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from radiator.archive.lineage import anchor_at
from radiator.archive.manifest import Anchor, Lost
from radiator.archive.raw import RAW_SCHEMA
from radiator.archive.split import Split
from radiator.columns.batches import Batches
from radiator.columns.decode import Contradiction, Counters, Decoder
from radiator.columns.names import NameTable
from radiator.columns.rows import Rows
from radiator.columns.scan import Loss, LostRecords, SegmentRange, scan
from radiator.columns.selection import Selection
from radiator.errors import StorageError
from radiator.storage.header import DamagedBatch

ALL_ROWS = 1 << 40  # of a chunk in one batch


class SegmentGone(StorageError):
    """Retention has deleted a segment since the unit was planned."""


@dataclass(frozen=True)
class Unit:
    """Offsets from ``first`` up to, not including, ``following``, of one partition.

    ``lost`` are those before them and among them that are gone already. ``before``: the archive's end of the partition
    when this was planned; None: it had nothing of it. ``sparse``: there may be fewer records than offsets.
    """

    partition: str
    ranges: tuple[SegmentRange, ...]
    before: int | None
    first: int
    following: int
    lost: tuple[Lost, ...]
    bytes: int
    sparse: bool = False


def add_unit(
    unit: Unit, split: Split, skip_damaged: bool, advance: Callable[[int], None]
) -> tuple[list[Lost], Anchor | None]:
    """Add the records of a unit to files, each that is not reported as lost exactly once.

    Args:
        unit: The unit.
        split: The files.
        skip_damaged: Whether damaged records are reported as lost.
        advance: Called with the bytes of the log that are done.

    Returns:
        The lost offsets, also those that were found now, and the anchor: the last record, or None.

    Raises:
        LostRecords: Records are damaged, and are not to be skipped.
        SegmentGone: A segment was deleted.
        StorageError: A segment cannot be read, or has other records than expected.
        OSError: A file cannot be written.
    """
    lost: set[Lost] = set()

    def lose(loss: Loss) -> None:
        if loss.following <= unit.first:
            return
        if not os.path.exists(loss.path):
            raise SegmentGone(str(loss))
        if not skip_damaged:
            raise LostRecords(f"{loss}. --skip-damaged archives everything else, and records what is missing")
        lost.add(Lost(unit.partition, max(loss.first, unit.first), loss.following, "damaged"))

    decoder = Decoder(unit.partition, RAW_SCHEMA, Selection(), ALL_ROWS, Counters())
    split.begin(unit.partition, unit.first, decoder.names)
    last: Batches | None = None
    records = 0
    for wanted in unit.ranges:
        contradicted = partial(_lose_contradiction, wanted, lose)
        for chunk in scan(wanted, lose, Counters()):
            last = chunk.batches
            low = max(chunk.low, unit.first)
            for batch in decoder.decode(chunk.batches, low, chunk.high, chunk.place_of, contradicted):
                split.add(batch)
                records += batch.num_rows
            advance(len(chunk.batches.chunk))
    split.end(unit.following)
    found = [*unit.lost, *sorted(lost)]
    gone = sum(max(0, each.next_offset - max(each.first, unit.first)) for each in found)
    expected = unit.following - unit.first - gone
    if records > expected or (records < expected and not unit.sparse and not _sparse(unit)):
        raise StorageError(
            f"partition {unit.partition!r}: {records} records where {expected} were expected, of offsets "
            f"{unit.first} to {unit.following - 1}; they were not archived: find the reason with `radiator fsck`"
        )
    return found, None if last is None else _anchor(last, unit)


def _lose_contradiction(wanted: SegmentRange, lose: Callable[[Loss], None], found: Contradiction) -> None:
    lose(Loss(wanted.partition, wanted.path, *found))


def _anchor(last: Batches, unit: Unit) -> Anchor | None:
    """Return the anchor of the last batch that can be unpacked."""
    starts = last.at.tolist()
    for at, end in zip(reversed(starts), [None, *reversed(starts[1:])], strict=True):
        with suppress(DamagedBatch):
            return anchor_at(last.chunk[at:end].tobytes(), unit.first, unit.following)
    return None


def _sparse(unit: Unit) -> bool:
    """Return whether records were removed from a segment since the unit was planned."""
    for wanted in unit.ranges:
        for chunk in scan(wanted, lambda loss: None, Counters()):
            rows = Rows(chunk.batches, NameTable())
            if (rows.span != rows.count).any():
                return True
    return False
