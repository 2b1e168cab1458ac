"""The sparse index of a segment: which batch stands where, one entry per INDEX_INTERVAL_BYTES of log.

    32-byte header: magic 89 'RDX1' 0D 0A 1A | segment base u64 | reserved u64 | reserved u32 | crc u32 of bytes 0 to 28
    32-byte entry:  base_offset u64 | position u64 | min_receive_ns i64 | reserved u32 | crc u32 of bytes 0 to 28

It is a cache: readers use it to start close to an offset or a time, recovery to scan only the end of the log.
Entries are written only for bytes that the segment's file already holds safely, and every one is checked against the
batch it points to before anything is cut off because of it. A missing or damaged index costs time, never data.

Knows: entries. Must not know: who writes it when (``log`` for the active segment, ``recovery``). Pure: any thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple
from zlib import crc32

MAGIC = b"\x89RDX1\r\n\x1a"
ENTRY_BYTES = 32
_HEAD = Struct("<8sQQI")
_ENTRY = Struct("<QQqI")
_CRC = Struct("<I")


class IndexEntry(NamedTuple):
    base_offset: int
    position: int
    min_receive_ns: int


def encode_head(segment_base: int) -> bytes:
    return _sealed(_HEAD.pack(MAGIC, segment_base, 0, 0))


def encode_entries(entries: Sequence[IndexEntry]) -> bytes:
    return b"".join([_sealed(_ENTRY.pack(*entry, 0)) for entry in entries])


def _sealed(fields: bytes) -> bytes:
    return fields + _CRC.pack(crc32(fields))


def decode(data: bytes | None, segment_base: int) -> list[IndexEntry]:
    """The entries up to the first that does not hold; none if the header does not."""
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
    """Those at or before ``offset``: the batch of the last of them, or one that follows it, holds the offset."""
    return entries[: bisect_right(entries, offset, key=lambda entry: entry.base_offset)]


def up_to_time(entries: list[IndexEntry], receive_ns: int) -> list[IndexEntry]:
    """Those whose batch began before ``receive_ns``: the first record of that time or later follows the last."""
    return entries[: bisect_right(entries, receive_ns - 1, key=lambda entry: entry.min_receive_ns)]
