"""Read batches in part: only their headers, or these and the columns, or the header blocks too.

The last bytes of a long batch contain the crc after the names and the crc after the header blocks (PARTIAL_CRCS). So
the first part of the batch can be read and checked while the rest stays on disk. One ``preadv`` per batch reads the
last bytes of one batch and the start of the next, which are adjacent in the file and stay adjacent in memory.

Where only offsets and counts are needed, the batch header has them. It has no crc of its own. Its numbers are
confirmed by others: the declared length must be that of the parts, one of which is as long as the count says, and the
next header must begin there with the offset that follows.

Uses batch headers and ``preadv``.
Invariant: each returned batch has been checked by a crc up to the end of its ``Reach``, or its header has been
confirmed, and the file was long enough for all of it. At the first batch for which this is not true the result ends,
and the caller reads more of that batch.
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
    SPARSE,
    TRAILER,
    BatchHeader,
    DamagedBatch,
    UnknownVersion,
    decode_header,
)

PART_BYTES = 4 * MIB  # in memory at a time: a hundred thousand records' columns
HEADERS_MAX = 4096  # batch headers in memory at a time
PART_RECORDS = 1 << 17  # in a part of batch headers: as many as have their columns in PART_BYTES
_FIRST_BYTES = 4096  # of the first batch, whose length is not known


class Reach(Enum):
    """How much of each batch a query needs."""

    BATCH_HEADERS = -1  # the 64 bytes with the first offset and the count; of a sparse batch also the columns
    COLUMNS = 0
    HEADERS = 1  # columns and header blocks
    WHOLE = 2


_REACHES = {
    "partition": Reach.BATCH_HEADERS,
    "offset": Reach.BATCH_HEADERS,
    "message_id": Reach.BATCH_HEADERS,
    "tags": Reach.HEADERS,
    "headers": Reach.HEADERS,
    "body": Reach.WHOLE,
}


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


def read_headers(fs: FileSystem, fd: int, position: int, end: int, next_offset: int) -> Part:
    """Read the headers of batches, from the batch at ``position`` on. The batches in memory have nothing else.

    The result ends before a batch that begins at ``next_offset`` or later, ends after ``end``, has no PARTIAL_CRCS, is
    sparse, or has a header that is not confirmed.

    Args:
        fs: The file system.
        fd: The descriptor of the segment.
        position: The position of the first batch in the file, in bytes.
        end: The end of the committed part of the file, in bytes.
        next_offset: The offset after the last one to read.

    Returns:
        The headers before that batch; none if the first batch is one.

    Raises:
        OSError: The read failed.
    """
    data = np.empty(HEADERS_MAX * HEADER_BYTES, np.uint8)
    view = data.data
    at: list[int] = []
    places: list[int] = []
    bytes_read = records = 0
    following = -1  # the offset after the last batch
    for start in range(0, len(data), HEADER_BYTES):
        size = max(min(HEADER_BYTES, end - position), 0)
        got = fs.preadv(fd, [view[start : start + size]], position) if size else 0
        bytes_read += got
        header = _header(view[: start + got], start)
        if at and following != next_offset and (header is None or header.base_offset != following):
            at.pop()
            position = places.pop()
            break
        if header is None or not header.flags & PARTIAL_CRCS or header.flags & (SPARSE | ~KNOWN_FLAGS):
            break
        if header.base_offset >= next_offset or position + header.total_len > end or records >= PART_RECORDS:
            break
        at.append(start)
        places.append(position)
        position += header.total_len
        records += header.records
        following = header.base_offset + header.records
    else:
        at.pop()  # the header after it was not read
        position = places.pop()
    return Part(Batches(data, np.array(at, np.int64)), np.array(places, np.int64), position, bytes_read)


def _header(data: memoryview, at: int) -> BatchHeader | None:
    try:
        return decode_header(data, at)
    except (DamagedBatch, UnknownVersion):
        return None


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
        reach: How much of each batch to read: COLUMNS or HEADERS.

    Returns:
        The batches before that one; none if the first batch is one.

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
        header = _header(view[: start + got], start)
        if header is None:
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
