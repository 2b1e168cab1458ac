"""Read batches without the parts that a query does not need: their columns, or columns and header blocks.

The last bytes of a long batch contain the crc after the names and the crc after the header blocks (PARTIAL_CRCS). So
the first part of the batch can be read and checked while the rest stays on disk. One ``preadv`` per batch reads the
last bytes of one batch and the start of the next, which are adjacent in the file and stay adjacent in memory.

Uses batch headers and ``preadv``.
Invariant: each returned batch has been checked by a crc up to the end of its ``Reach``, and the file was long enough
for all of it. At the first batch for which this is not true the result ends, and the caller reads that batch whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

import numpy as np

from radiator.checksum import crc32
from radiator.columns.batches import Batches, Ints
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
    """How much of each batch a query needs."""

    COLUMNS = 0
    HEADERS = 1  # columns and header blocks
    WHOLE = 2


_REACHES = {"tags": Reach.HEADERS, "headers": Reach.HEADERS, "body": Reach.WHOLE}


def reach_of(columns: Iterable[str]) -> Reach:
    """Return how much of each batch the given columns need.

    Args:
        columns: Names of columns of the table.
    """
    reaches = [_REACHES.get(name, Reach.COLUMNS) for name in columns]
    return max(reaches, key=lambda each: each.value, default=Reach.WHOLE)


class Part(NamedTuple):
    """Partly read batches.

    Attributes:
        batches: The batches in memory.
        places: The position of each batch in the file, in bytes.
        end: The position in the file at which the next batch begins.
        bytes_read: The number of bytes that were read.
    """

    batches: Batches
    places: Ints
    end: int
    bytes_read: int


def read_part(fs: FileSystem, fd: int, position: int, end: int, next_offset: int, reach: Reach) -> Part:
    """Read batches in part, from the batch at ``position`` on.

    The result ends before a batch that begins at ``next_offset`` or later, ends after ``end``, has no PARTIAL_CRCS, or
    is not valid.

    Args:
        fs: The file system.
        fd: The descriptor of the segment.
        position: The position of the first batch in the file, in bytes.
        end: The end of the committed part of the file, in bytes.
        next_offset: The offset after the last one to read.
        reach: How much of each batch to read.

    Raises:
        OSError: The read failed.
    """
    data = np.empty(PART_BYTES, np.uint8)
    view = data.data
    at: list[int] = []
    places: list[int] = []
    bytes_read = 0
    start, likely, lead = 0, _FIRST_BYTES, 0  # of the next batch: place in data, likely length, bytes read before it
    while True:
        size = max(min(likely, PART_BYTES - start, end - position), 0)
        got = fs.preadv(fd, [view[start - lead : start + size]], position - lead) - lead
        bytes_read += got + lead
        if lead and (got < 0 or not _valid(view, at[-1], start, reach)):
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


def _valid(view: memoryview, at: int, following: int, reach: Reach) -> bool:
    """Return True if the crc of the part that was read is correct; its last bytes end at ``following``."""
    end = following - TRAILER.size
    return bool(crc32(view[at + CRC_FROM : end]) == TRAILER.unpack_from(view, end)[reach.value])
