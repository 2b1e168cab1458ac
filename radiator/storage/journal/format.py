"""The bytes of the journal (``docs/storage-format.md``, "The journal").

    file:  magic 89 'RDW1' 0D 0A 1A | file number u64 | number of its first entry u64 | epoch u64 | salt u64
           | crc u32 of that | zeros to 64 bytes | entries | what was there before
    entry: salt u64 of the file | length u32 of the parts | crc u32 | number u64 | epoch u64 | parts | zeros to 8
    part:  1 u8, name u16 length, batch u32 length, name of the partition in UTF-8, the batch as it is in the segment
           2 u8, records u32 length, records about cursors (``cursor_records``): what has changed in them
           3 u8, text u32 length, what has changed in durable subscriptions (``definitions``)
           4 u8, text u32 length, a JSON list of removed partitions (``removal``): batches of these in earlier entries
                 do not count

The crc of an entry covers everything behind it except the part of each batch behind the batch's own crc, which that crc
covers. The salt is random and not known to clients: behind damage the next entry is searched for, and a message there
may contain whole entries made by a client. Entries of an earlier use of the file have another salt.

This module knows bytes. It does not know files, partitions or the meaning of an entry. All functions are pure: any
thread may call them.
"""

from __future__ import annotations

import json
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from radiator.checksum import crc32
from radiator.speed import accelerated
from radiator.storage.header import PREFIX, BatchHeader, DamagedBatch, check, decode_header

FILE_MAGIC = b"\x89RDW1\r\n\x1a"
FILE_HEADER_BYTES = 64
BATCH, CURSORS, NAMES, REMOVED = 1, 2, 3, 4

_FILE = Struct("<8sQQQQ")
_CRC = Struct("<I")
_ENTRY = Struct("<QII")
_SALT = Struct("<Q")
_NUMBERS = Struct("<QQ")
_BATCH = Struct("<BHI")
_METADATA = Struct("<BI")
SALT_BYTES = _SALT.size
ENTRY_HEADER_BYTES = _ENTRY.size + _NUMBERS.size
PREFIX_BYTES = PREFIX.size


class FileHeader(NamedTuple):
    """The header of a file of the journal."""

    number: int
    first_entry: int  # entries of earlier files from this number on do not count
    epoch: int
    salt: int


class Part(NamedTuple):
    """The batch of one partition in an entry; ``data`` is a view of the bytes that were read."""

    partition: str
    header: BatchHeader
    data: memoryview
    position: int  # position in the data


class Entry(NamedTuple):
    """The contents of one group commit."""

    number: int
    epoch: int
    parts: list[Part]
    cursors: bytes  # records about them
    names: bytes  # changes of durable subscriptions
    start: int  # position in its file
    end: int
    file: int = 0  # the number of that file
    removed: tuple[str, ...] = ()  # partitions that were removed: their batches in earlier entries do not count


# --- writing ----------------------------------------------------------------------------------------------------------


def encode_file_header(header: FileHeader) -> bytes:
    """Return the bytes of the header of a file."""
    data = _FILE.pack(FILE_MAGIC, *header)
    return (data + _CRC.pack(crc32(data))).ljust(FILE_HEADER_BYTES, b"\0")


@accelerated
def add_batch_part(sealed: list[bytes], parts: list[bytes], partition: bytes, pieces: list[bytes]) -> int:
    """Add the batch of a partition to the pieces of an entry. It has a compiled twin (``radiator/speed.py``).

    Args:
        sealed: The pieces that the crc of the entry covers.
        parts: The pieces of the entry.
        partition: Its name in UTF-8.
        pieces: The result of ``encode_batch``; the first of them is PREFIX.

    Returns:
        The bytes that the part has in the entry.

    Raises:
        struct.error: The name or the batch is too long. The lists are not changed.
    """
    length = 0
    for piece in pieces:
        length += len(piece)
    head = _BATCH.pack(BATCH, len(partition), length)
    sealed += (head, partition, pieces[0])
    parts += (head, partition, *pieces)
    return _BATCH.size + len(partition) + length


class EntryBuilder:
    """Collects the parts of an entry."""

    __slots__ = ("_pieces", "_sealed", "batches", "length")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._sealed: list[bytes] = []  # the bytes that the entry's crc covers
        self.length = 0
        self.batches = 0

    def add_batch(self, partition: bytes, pieces: list[bytes]) -> None:
        """Add a batch. ``partition``: its name in UTF-8; ``pieces``: of ``encode_batch``, PREFIX first."""
        self.length += add_batch_part(self._sealed, self._pieces, partition, pieces)
        self.batches += 1

    def add(self, kind: int, data: bytes) -> None:
        """Add changes: ``data`` of ``cursor_records`` for CURSORS, of ``definitions`` for NAMES, or REMOVED."""
        head = _METADATA.pack(kind, len(data))
        self._sealed += (head, data)
        self._pieces += (head, data)
        self.length += _METADATA.size + len(data)

    @property
    def size_bytes(self) -> int:
        """The size of the entry."""
        return ENTRY_HEADER_BYTES + self.length + (-self.length & 7)

    def encode(self, number: int, epoch: int, salt: int) -> bytes:
        """Return the bytes of the entry."""
        numbers = _NUMBERS.pack(number, epoch)
        crc = crc32(b"".join([numbers, *self._sealed]))
        head = _ENTRY.pack(salt, self.length, crc)
        return b"".join([head, numbers, *self._pieces, bytes(-self.length & 7)])


# --- reading ----------------------------------------------------------------------------------------------------------


def decode_file_header(data: bytes) -> FileHeader | None:
    """Return the header of a file; None if it is missing or damaged."""
    if len(data) < FILE_HEADER_BYTES:
        return None
    magic, number, first_entry, epoch, salt = _FILE.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _FILE.size)
    if magic != FILE_MAGIC or crc != crc32(data[: _FILE.size]):
        return None
    return FileHeader(number, first_entry, epoch, salt)


def decode_entry(data: memoryview, at: int, salt: int) -> Entry | None:
    """Return the entry at ``at`` of a file with this salt, or None if it is damaged."""
    if at + ENTRY_HEADER_BYTES > len(data):
        return None
    found_salt, length, crc = _ENTRY.unpack_from(data, at)
    start = at + ENTRY_HEADER_BYTES
    if found_salt != salt or start + length > len(data):
        return None
    found = decode_parts(data[start : start + length], start)
    numbers = data[at + _ENTRY.size : start]
    if found is None or crc32(b"".join([numbers, *found.sealed])) != crc:
        return None
    try:
        for part in found.parts:
            check(part.data, 0, part.header)
    except DamagedBatch:
        return None
    number, epoch = _NUMBERS.unpack(numbers)
    end = start + ((length + 7) & ~7)
    return Entry(number, epoch, found.parts, found.cursors, found.names, at, end, removed=found.removed)


class Parts(NamedTuple):
    """The parts of an entry. ``sealed``: what its crc covers, behind its numbers."""

    parts: list[Part]
    cursors: bytes
    names: bytes
    sealed: list[memoryview]
    removed: tuple[str, ...] = ()


def decode_parts(body: memoryview, position: int) -> Parts | None:
    """Return the parts of an entry; None if they are damaged or unknown.

    Args:
        body: The bytes of the parts. The crcs of their batches are not checked.
        position: Where ``body`` begins in the file.
    """
    try:
        return _decode_parts(body, position)
    except (StructError, ValueError, DamagedBatch):
        return None


def _decode_parts(body: memoryview, position: int) -> Parts:
    parts: list[Part] = []
    metadata = {CURSORS: b"", NAMES: b"", REMOVED: b""}
    sealed: list[memoryview] = []
    at = 0
    while at < len(body):
        if body[at] == BATCH:
            _, name_length, batch_length = _BATCH.unpack_from(body, at)
            start = at + _BATCH.size + name_length
            end = start + batch_length
            header = decode_header(body, start)
            if header.total_len != batch_length or end > len(body):
                raise DamagedBatch(f"a batch of {batch_length} bytes says it has {header.total_len}")
            name = str(body[at + _BATCH.size : start], "utf-8")
            parts.append(Part(name, header, body[start:end], position + start))
            sealed.append(body[at : start + PREFIX_BYTES])
            at = end
        elif body[at] in metadata:
            kind, length = _METADATA.unpack_from(body, at)
            end = at + _METADATA.size + length
            metadata[kind] += bytes(body[at + _METADATA.size : end])
            sealed.append(body[at:end])
            at = end
        else:
            raise StructError("a part of a newer version")
    removed = tuple(map(str, json.loads(metadata[REMOVED]))) if metadata[REMOVED] else ()
    return Parts(parts, metadata[CURSORS], metadata[NAMES], sealed, removed)


def find_entry(data: memoryview, at: int, number: int, salt: int) -> Entry | None:
    """Return the first valid entry behind ``at`` with at least that number: there is damage before it."""
    raw, beginning = bytes(data[at:]), _SALT.pack(salt)
    place = raw.find(beginning)
    while place >= 0:
        if not (at + place) & 7:
            entry = decode_entry(data, at + place, salt)
            if entry is not None and entry.number >= number:
                return entry
        place = raw.find(beginning, place + 1)
    return None
