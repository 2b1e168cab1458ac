"""The sparse index of a segment: the positions of some batches, one entry per INDEX_INTERVAL_BYTES of log.

    32-byte header: magic 89 'RDX1' 0D 0A 1A | segment base u64 | reserved u64 | reserved u32 | crc u32 of bytes 0 to 28
    32-byte entry:  base_offset u64 | position u64 | min_receive_ns i64 | reserved u32 | crc u32 of bytes 0 to 28

The index is a cache: readers start near an offset or a time with it, recovery scans only the end of the log. An entry
is written only for bytes that the segment's file has safely, and is checked against its batch before anything is
truncated because of it. A missing or damaged index costs time, never data.

This module knows entries. It does not know when they are written (``log`` for the active segment, ``recovery``). All
functions are pure: any thread may call them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from radiator.checksum import crc32

MAGIC = b"\x89RDX1\r\n\x1a"
ENTRY_BYTES = 32
_HEAD = Struct("<8sQQI")
_ENTRY = Struct("<QQqI")
_CRC = Struct("<I")


class IndexEntry(NamedTuple):
    """The position of a batch in its segment."""

    base_offset: int
    position: int
    min_receive_ns: int


def encode_head(segment_base: int) -> bytes:
    """Return the header of the index of a segment."""
    return _sealed(_HEAD.pack(MAGIC, segment_base, 0, 0))


def encode_entries(entries: Sequence[IndexEntry]) -> bytes:
    """Return the bytes of entries."""
    return b"".join([_sealed(_ENTRY.pack(*entry, 0)) for entry in entries])


def _sealed(fields: bytes) -> bytes:
    return fields + _CRC.pack(crc32(fields))


def decode(data: bytes | None, segment_base: int) -> list[IndexEntry]:
    """Return the entries up to the first damaged one; none if the header is damaged."""
    if not data or data[:ENTRY_BYTES] != encode_head(segment_base):
        return []
    entries = []
    low_offset, low_position = segment_base, -1
    for at in range(ENTRY_BYTES, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        raw = data[at : at + ENTRY_BYTES]
        base_offset, position, time, _ = _ENTRY.unpack_from(raw)
        if (
            raw[28:] != _CRC.pack(crc32(raw[:28]))
            or base_offset < low_offset
            or position <= low_position
            or position & 7
        ):
            break
        entries.append(IndexEntry(base_offset, position, time))
        low_offset, low_position = base_offset, position
    return entries


def up_to_offset(entries: list[IndexEntry], offset: int) -> list[IndexEntry]:
    """Return the entries at or before ``offset``: the batch of the last one, or a later batch, contains it."""
    return entries[: bisect_right(entries, offset, key=lambda entry: entry.base_offset)]


def up_to_time(entries: list[IndexEntry], receive_ns: int) -> list[IndexEntry]:
    """Return the entries whose batch began before ``receive_ns``: later records follow the last one."""
    return entries[: bisect_right(entries, receive_ns - 1, key=lambda entry: entry.min_receive_ns)]
