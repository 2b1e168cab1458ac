"""The salt of a partition, which distinguishes a batch from bytes of a message that look like one.

Where one batch ends the next begins. But behind damage the next batch must be searched for, and a client's message may
contain whole batches made by the client. So every header contains a salt that only the broker knows. It is made from
the partition's name and a key, ``<data_dir>/salt``, which is synced before the first batch.

If the key is lost a new one is made, and batches with the old one are recognised by the first header of their segment.
Without a key and without a whole first batch, every batch is accepted.

This module knows the key file, and headers at the start of a segment. It has no state: any thread and any process may
call it.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct

from radiator.checksum import crc32
from radiator.storage import layout
from radiator.storage.files import FileSystem, read_file, read_fully, replace_file
from radiator.storage.header import HEADER, HEADER_BYTES, MAGIC, DamagedBatch, check, decode_header

KEY_MAGIC = b"\x89RDS1\r\n\x1a"
KEY_BYTES = 16
_FILE = Struct("<8s16sI4x")


def of_partition(key: bytes, directory: str) -> int:
    """Return the salt of a partition, which is never 0."""
    name = directory.rpartition("/")[2].encode()
    return int.from_bytes(blake2b(name, key=key, digest_size=4).digest(), "little") or 1


def make_key(fs: FileSystem, root: str) -> bytes:
    """Return the key of this store, a new one if there is none. Raises OSError."""
    path = layout.salt_path(root)
    key = decode_key(read_file(fs, path))
    if key is not None:
        return key
    key = fs.entropy(KEY_BYTES)
    replace_file(fs, path, _FILE.pack(KEY_MAGIC, key, crc32(KEY_MAGIC + key)))
    return key


def decode_key(data: bytes | None) -> bytes | None:
    """Return the key in the bytes of its file; None if they are damaged."""
    if data is None or len(data) != _FILE.size:
        return None
    magic, key, crc = _FILE.unpack(data)
    return bytes(key) if magic == KEY_MAGIC and crc == crc32(data[: 8 + KEY_BYTES]) else None


def first_of(fs: FileSystem, path: str, whole: bool = False) -> int:
    """Return the salt in the first header of a segment; 0 if there is none.

    Clients cannot write there, and a salt with a flipped bit is still unknown to clients, so the crc is not needed.

    Args:
        fs: The file system.
        path: The segment.
        whole: Check the crc all the same.
    """
    fd = fs.open_read(path)
    try:
        data = read_fully(fs, fd, HEADER_BYTES, 0)
        if len(data) < HEADER_BYTES or not data.startswith(MAGIC):
            return 0
        if whole:
            header = decode_header(data)
            check(read_fully(fs, fd, min(header.total_len, fs.size(fd)), 0), 0, header)
        return int(HEADER.unpack(data)[-1])
    except DamagedBatch:
        return 0
    finally:
        fs.close(fd)


def of_segment(fs: FileSystem, path: str) -> frozenset[int]:
    """Return the salts that batches of this segment may have; an empty set if they cannot be known."""
    directory = path.rpartition("/")[0]
    root = directory.rpartition("/")[0].rpartition("/")[0]
    try:
        key = decode_key(read_file(fs, layout.salt_path(root)))
        first = first_of(fs, path, whole=key is None)
    except OSError:
        return frozenset()
    return frozenset({first, of_partition(key, directory) if key is not None else 0} - {0})
