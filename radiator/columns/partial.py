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
from radiator.limits import MIB
from radiator.storage.files import FileSystem
from radiator.storage.header import (
    CRC_FROM,
    HEADER_BYTES,
    KNOWN_FLAGS,
    PARTIAL_CRCS,
    TRAILER,
    DamagedBatch,
    UnknownVersion,
    decode_header,
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
        try:
            header = decode_header(view[: start + got], start)
        except (DamagedBatch, UnknownVersion):
            break
        if not header.flags & PARTIAL_CRCS or header.flags & ~KNOWN_FLAGS or header.base_offset >= next_offset:
            break
        if position + header.total_len > end:
            break
        needed = header.bodies if reach is Reach.HEADERS else header.headers
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
        position += header.total_len
        likely, lead = needed + needed // 16, TRAILER.size
    return Part(Batches(data, np.array(at, np.int64)), np.array(places, np.int64), position, bytes_read)


def _holds(view: memoryview, at: int, following: int, reach: Reach) -> bool:
    """Whether what was read of the batch at ``at`` is what was written: its last bytes stand before ``following``."""
    end = following - TRAILER.size
    return bool(crc32(view[at + CRC_FROM : end]) == TRAILER.unpack_from(view, end)[reach.value])
