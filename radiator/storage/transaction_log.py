"""The redo log of earlier versions: ``<data_dir>/transactions``. A start reads it once, and removes it.

    entry: magic 89 'RDT1' 0D 0A 1A | serial u64 | length u32 | crc u32 of serial and parts | parts | zeros to 8
    part:  as in the journal (``journal.format``)

An entry was needed until its contents were synced in their logs. The file was written from its start again and again;
serials show where the entries of the last time end.
"""

from __future__ import annotations

import contextlib
from struct import Struct

from radiator.checksum import crc32
from radiator.storage import layout
from radiator.storage.files import FileSystem, read_file
from radiator.storage.journal.format import Entry, decode_parts

MAGIC = b"\x89RDT1\r\n\x1a"
UNCOVERED = (1 << 64) - 1  # no snapshot includes these
_ENTRY = Struct("<8sQII")
_SERIAL = Struct("<Q")


def decode_entries(data: bytes) -> list[Entry]:
    """Return the valid entries, up to the first that is damaged or left over from an earlier time."""
    found: list[Entry] = []
    while (entry := decode_entry(data, found[-1].end if found else 0)) is not None:
        if found and entry.number != found[-1].number + 1:
            break
        found.append(entry)
    return found


def decode_entry(data: bytes, at: int) -> Entry | None:
    """Return the entry at ``at``, whose number is its serial; None if it is damaged."""
    if at + _ENTRY.size > len(data):
        return None
    magic, serial, length, crc = _ENTRY.unpack_from(data, at)
    body = memoryview(data)[at + _ENTRY.size : at + _ENTRY.size + length]
    if magic != MAGIC or len(body) != length or crc != crc32(body, crc32(_SERIAL.pack(serial))):
        return None
    found = decode_parts(body, at + _ENTRY.size)
    if found is None:  # correct crc, wrong contents: not written by radiator
        return None
    return Entry(serial, 0, found.parts, found.cursors, b"", at, at + _ENTRY.size + ((length + 7) & ~7))


def load(fs: FileSystem, root: str) -> list[Entry]:
    """Return the entries that a start must redo. Raises OSError."""
    entries = decode_entries(read_file(fs, layout.transactions_path(root)) or b"")
    return [entry._replace(number=UNCOVERED) for entry in entries]


def remove(fs: FileSystem, root: str) -> None:
    """Remove the file: everything that was decided is in its logs. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        fs.remove(layout.transactions_path(root))
    fs.sync_dir(root)
