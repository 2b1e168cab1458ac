"""The redo log of transactions over several files: ``<data_dir>/transactions``.

What a COMMIT brings to one partition is one batch, and holds as a whole or not at all. When it touches several
partitions, or a partition and cursors, or fits into no single batch, an entry with all of it is written and synced here
first. From then on the transaction is decided: whatever happens to the files that it changes, a start makes up for it
(``redo``).

    entry: magic 89 'RDT1' 0D 0A 1A | serial u64 | length u32 | crc u32 of serial and parts | parts | zeros to 8
    part:  1 u8, name u16 length, batch u32 length, partition name in UTF-8, the batch as it is in the segment
           2 u8, records u32 length, records of the cursors' journal: create and acked, for each cursor

An entry is needed only until what it holds is synced where it belongs, which is at the end of the same group. So the
file is written from its start again and again; serials tell where the entries of the last time end.

Knows: bytes, one file. Must not know: partitions, cursors, who waits. The disk thread's, once the store is open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import NamedTuple
from zlib import crc32

from radiator import limits
from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.files import FileSystem, close_quietly, read_file, storage_error, write_all
from radiator.storage.open_logs import Again, once

MAGIC = b"\x89RDT1\r\n\x1a"
KEPT_BYTES = limits.MIB  # of the file, for the next time: inside it a sync has no size to record
BATCH, ACKS = 1, 2
_ENTRY = Struct("<8sQII")
_SERIAL = Struct("<Q")
_BATCH = Struct("<BHI")
_ACKS = Struct("<BI")


class Entry(NamedTuple):
    """What one group decided: batches by partition name, in order, and records of the cursors' journal. The batches
    are views of what was read, since all of them together may be a good part of the memory of a broker."""

    batches: list[tuple[str, memoryview]]
    acks: bytes


def encode_batch_part(partition: str, pieces: Iterable[bytes]) -> bytes:
    name, batch = partition.encode(), b"".join(pieces)
    return _BATCH.pack(BATCH, len(name), len(batch)) + name + batch


def encode_acks_part(records: bytes) -> bytes:
    return _ACKS.pack(ACKS, len(records)) + records


def encode_entry(serial: int, parts: Iterable[bytes]) -> bytes:
    parts = list(parts)
    crc, length = crc32(_SERIAL.pack(serial)), 0
    for part in parts:
        crc, length = crc32(part, crc), length + len(part)
    return b"".join([_ENTRY.pack(MAGIC, serial, length, crc), *parts, bytes(-length & 7)])  # large: no copy more


class Found(NamedTuple):
    """The entries of a file, the position behind them, and the serial that follows."""

    entries: list[Entry]
    end: int
    serial: int


def decode_entries(data: bytes) -> list[Entry]:
    return find_entries(data).entries


def find_entries(data: bytes) -> Found:
    """The entries that hold, up to the first that does not, or that is left over from an earlier time."""
    found = Found([], 0, 0)
    while (entry := read_entry(data, found.end)) is not None:
        serial, end, brings = entry
        if found.entries and serial != found.serial:
            break
        found = Found([*found.entries, brings], end, serial + 1)
    return found


def read_entry(data: bytes, at: int) -> tuple[int, int, Entry] | None:
    """The serial of the entry at ``at``, the place behind it, and what it brings; None if it does not hold."""
    if at + _ENTRY.size > len(data):
        return None
    magic, serial, length, crc = _ENTRY.unpack_from(data, at)
    body = memoryview(data)[at + _ENTRY.size : at + _ENTRY.size + length]
    if magic != MAGIC or len(body) != length or crc != crc32(body, crc32(_SERIAL.pack(serial))):
        return None
    try:
        return serial, at + _ENTRY.size + ((length + 7) & ~7), _parts(body)
    except (StructError, UnicodeDecodeError):  # a crc that holds over nonsense: not ours
        return None


def _parts(body: memoryview) -> Entry:
    entry = Entry([], b"")
    at = 0
    while at < len(body):
        if body[at] == BATCH:
            _, name_len, batch_len = _BATCH.unpack_from(body, at)
            at += _BATCH.size
            name = str(body[at : at + name_len], "utf-8")
            at += name_len
            entry.batches.append((name, body[at : at + batch_len]))
            at += batch_len
        elif body[at] == ACKS:
            _, length = _ACKS.unpack_from(body, at)
            at += _ACKS.size
            entry = Entry(entry.batches, entry.acks + bytes(body[at : at + length]))
            at += length
        else:
            raise StructError("a part of a newer version")
    return entry


def load(fs: FileSystem, root: str) -> Found:
    """Raises OSError."""
    return find_entries(read_file(fs, layout.transactions_path(root)) or b"")


class TransactionLog:
    """The writing end."""

    __slots__ = ("_again", "failed", "fd", "fs", "position", "root", "serial", "size")

    def __init__(self, fs: FileSystem, root: str, again: Again = once) -> None:
        self.fs = fs
        self._again = again
        self.root = root
        self.failed: StorageError | None = (
            None  # an entry could not be made void: nothing is decided before that is done
        )
        self.fd = -1
        self.position = 0
        self.serial = 1
        self.size = 0  # of the file

    def write(self, parts: Iterable[bytes], start_over: bool) -> None:
        """Decides a transaction: it is on disk when this returns. ``start_over``: nothing of before is needed any more.
        Raises StorageError; then it is not there, and never was."""
        path = layout.transactions_path(self.root)
        if self.failed is not None:
            self._make_void(path, self.position)
            if self.failed is not None:
                raise StorageError(str(self.failed))
        position = 0 if start_over else self.position
        data = encode_entry(self.serial, parts)
        if position and position + len(data) > limits.TRANSACTION_LOG_BYTES_MAX:
            raise StorageError(
                f"{path}: {limits.TRANSACTION_LOG_BYTES_MAX} bytes of transactions wait for files that cannot be "
                "written; see the other errors, and commit less at once"
            )
        try:
            if self.fd < 0:
                self._again(self._open)
            write_all(self.fs, self.fd, [data], position)
            self.size = max(self.size, position + len(data))
            if start_over and self.size > max(KEPT_BYTES, len(data)):
                self.fs.truncate(self.fd, len(data))
                self.size = len(data)
            self.fs.fdatasync(self.fd)
        except OSError as error:
            self._make_void(path, position)
            raise storage_error(path, "write a transaction", error) from error
        self.position = position + len(data)
        self.serial += 1

    def _open(self) -> None:
        close_quietly(self.fs, self.fd)  # of an attempt that ended half-way
        self.fd = -1
        self.fd = self.fs.open(layout.transactions_path(self.root), create=True)
        self.size = self.fs.size(self.fd)
        self.fs.sync_dir(self.root)

    def _make_void(self, path: str, position: int) -> None:
        """The entry may be there, or half of it, and must not count. A file whose sync has failed is not used again."""
        close_quietly(self.fs, self.fd)
        self.fd = -1
        self.position = self.size = position
        self.failed = None
        try:
            if position:  # earlier entries are still needed
                fd = self.fs.open(path)
                try:
                    self.fs.truncate(fd, position)
                    self.fs.fdatasync(fd)
                finally:
                    self.fs.close(fd)
            else:
                with contextlib.suppress(FileNotFoundError):
                    self.fs.remove(path)
                self.fs.sync_dir(self.root)
        except OSError as error:
            self.failed = storage_error(path, "take a transaction back", error)

    def goes_on(self, found: Found) -> None:
        """The file holds these, and they are still needed."""
        self.position = self.size = found.end
        self.serial = found.serial

    def clear(self) -> None:
        """Everything that was decided is where it belongs. Raises OSError."""
        close_quietly(self.fs, self.fd)
        self.fd = -1
        self.position = self.size = 0
        try:
            self.fs.remove(layout.transactions_path(self.root))
        except FileNotFoundError:
            return
        self.fs.sync_dir(self.root)

    def close(self) -> None:
        """Leaves the file for the next start."""
        close_quietly(self.fs, self.fd)
        self.fd = -1
