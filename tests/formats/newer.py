"""Batches of versions that do not exist yet: what every later version keeps, and nothing else.

magic with its digit | total_len | crc32 of the magic and of everything from byte 16 on | ... | salt at byte 60
"""

from __future__ import annotations

from zlib import crc32

from radiator.storage.header import CRC_FROM, HEADER_BYTES


def newer(batch: bytes, version: int = 2, tail: bytes = b"") -> bytes:
    """``batch`` as if that version had written it, with a shape that this program does not know."""
    rest = batch[CRC_FROM : HEADER_BYTES - 4][::-1] + batch[HEADER_BYTES - 4 :] + tail
    magic = batch[:4] + b"%d" % version + batch[5:8]
    crc = crc32(rest, crc32(magic))
    return magic + (CRC_FROM + len(rest)).to_bytes(4, "little") + crc.to_bytes(4, "little") + rest


def flagged(batch: bytes, part: bytes = bytes(8)) -> bytes:
    """``batch`` with ``part`` behind the others."""
    flags = int.from_bytes(batch[44:46], "little") | 1 << 11
    rest = batch[CRC_FROM:44] + flags.to_bytes(2, "little") + batch[46:] + part
    return batch[:8] + (CRC_FROM + len(rest)).to_bytes(4, "little") + crc32(rest).to_bytes(4, "little") + rest
