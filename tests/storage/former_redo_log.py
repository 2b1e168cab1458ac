"""Writing the redo log of earlier versions, as they did."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from zlib import crc32

from radiator.storage.journal.format import BATCH, CURSORS
from radiator.storage.transaction_log import MAGIC

_ENTRY = Struct("<8sQII")
_SERIAL = Struct("<Q")
_BATCH = Struct("<BHI")
_ACKS = Struct("<BI")


def encode_batch_part(partition: str, pieces: Sequence[bytes]) -> bytes:
    name, batch = partition.encode(), b"".join(pieces)
    return _BATCH.pack(BATCH, len(name), len(batch)) + name + batch


def encode_acks_part(records: bytes) -> bytes:
    return _ACKS.pack(CURSORS, len(records)) + records


def encode_entry(serial: int, parts: Sequence[bytes]) -> bytes:
    body = b"".join(parts)
    head = _ENTRY.pack(MAGIC, serial, len(body), crc32(body, crc32(_SERIAL.pack(serial))))
    return head + body + bytes(-len(body) & 7)
