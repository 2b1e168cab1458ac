"""Batches without what is not asked for: their columns, or columns and header blocks, one close behind the other.

A long batch says in its last bytes what its crc was behind the names and behind the header blocks (PARTIAL_CRCS). So
what stands before is read and checked, and the rest is left on disk. One ``preadv`` a batch brings the last bytes of
one and the beginning of the next, which lie side by side; both stay side by side in memory as well.

Knows: headers of batches, ``preadv``. Must not know: what follows from damage, what columns mean.
Invariant: of each batch that is given, everything up to where ``Reach`` ends has been checked by a crc, and the file
was long enough for all of it. Where anything does not hold, what is given ends before it: others look at it whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

import numpy as np

from radiator.columns.batches import Batches, Ints
from radiator.columns.checksum import crc32
from radiator.limits import BATCH_TOTAL_BYTES_MAX, MIB
from radiator.storage.files import FileSystem
from radiator.storage.format import (
    CRC_FROM,
    HEADER,
    HEADER_BYTES,
    KNOWN_FLAGS,
    MAGIC,
    PARTIAL_CRCS,
    TRAILER,
    columns_len,
)

PART_BYTES = 4 * MIB  # in memory at a time: a hundred thousand records' columns
_FIRST_BYTES = 4096  # of the first batch, whose length is not known


class Reach(Enum):
    """How much of each batch is wanted."""

    COLUMNS = 0
    HEADERS = 1  # and header blocks
    WHOLE = 2


_REACHES = {"tags": Reach.HEADERS, "headers": Reach.HEADERS, "body": Reach.WHOLE}


def reach_of(columns: Iterable[str]) -> Reach:
    """What these columns of the table are made of."""
    reaches = [_REACHES.get(name, Reach.COLUMNS) for name in columns]
    return max(reaches, key=lambda each: each.value, default=Reach.WHOLE)


class Part(NamedTuple):
    """Batches in memory, where each stands in the file, where there the next one begins, and what has been read."""

    batches: Batches
    places: Ints
    end: int
    bytes_read: int


def read_part(fs: FileSystem, fd: int, position: int, end: int, next_offset: int, reach: Reach) -> Part:
    """From the batch at ``position`` on, up to one that begins with ``next_offset`` or later, or ends behind ``end``,
    or has no PARTIAL_CRCS, or is not good. Raises OSError."""
    data = np.empty(PART_BYTES, np.uint8)
    view = data.data
    at: list[int] = []
    places: list[int] = []
    bytes_read = 0
    start, likely, lead = 0, _FIRST_BYTES, 0  # of the next batch: where it goes, how long, what is read in front of it
    while True:
        size = max(min(likely, PART_BYTES - start, end - position), 0)
        got = fs.preadv(fd, [view[start - lead : start + size]], position - lead) - lead
        bytes_read += got + lead
        if lead and (got < 0 or not _holds(view, at[-1], start, reach)):
            at.pop()
            position = places.pop()
            break
        if got < HEADER_BYTES:
            break
        total, needed, base_offset = _lengths(view, start, reach)
        if not needed or base_offset >= next_offset or position + total > end:
            break
        if needed + TRAILER.size > PART_BYTES - start:
            break
        if got < needed:
            more = fs.preadv(fd, [view[start + got : start + needed]], position + got)
            bytes_read += more
            if got + more < needed:
                break
        at.append(start)
        places.append(position)
        start += needed + TRAILER.size
        position += total
        likely, lead = needed + needed // 16, TRAILER.size
    return Part(Batches(data, np.array(at, np.int64)), np.array(places, np.int64), position, bytes_read)


def _lengths(view: memoryview, at: int, reach: Reach) -> tuple[int, int, int]:
    """How long the batch at ``at`` is, how much of it is wanted (0: it has to be looked at whole), its base offset."""
    magic, total, _, base_offset, _, _, count, flags, _, names, headers, bodies, _ = HEADER.unpack_from(view, at)
    if magic != MAGIC or not flags & PARTIAL_CRCS or flags & ~KNOWN_FLAGS:
        return 0, 0, 0
    needed = HEADER_BYTES + columns_len(count, flags) + ((names + 7) & ~7)
    headers, bodies = (headers + 7) & ~7, (bodies + 7) & ~7
    if total != needed + headers + bodies + TRAILER.size or total > BATCH_TOTAL_BYTES_MAX:
        return 0, 0, 0
    return total, needed + headers if reach is Reach.HEADERS else needed, base_offset


def _holds(view: memoryview, at: int, following: int, reach: Reach) -> bool:
    """Whether what was read of the batch at ``at`` is what was written: its last bytes stand before ``following``."""
    end = following - TRAILER.size
    return bool(crc32(view[at + CRC_FROM : end]) == TRAILER.unpack_from(view, end)[reach.value])
