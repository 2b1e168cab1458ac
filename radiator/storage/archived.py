"""The file ``archived`` of a partition: the offset below which an archive has every record. Retention may wait for it.

    24 bytes: magic 89 'RDA1' 0D 0A 1A | next offset u64 | crc u32 of bytes 0 to 16 | 0 u32

The archiver writes the file after the archived records are safe. The broker reads it on the disk thread. The broker
writes it only if a log lost its end in a power cut: the archive does not have what is stored at those offsets now.

This module does not know what an archive contains. It has no state: any thread and any process may call it.
"""

from __future__ import annotations

from struct import Struct

from radiator.checksum import crc32
from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.files import FileSystem, read_file, replace_file

MAGIC = b"\x89RDA1\r\n\x1a"
_FIELDS = Struct("<8sQ")


def encode(next_offset: int) -> bytes:
    """Return the bytes of the file."""
    fields = _FIELDS.pack(MAGIC, next_offset)
    return fields + crc32(fields).to_bytes(8, "little")


def read(fs: FileSystem, directory: str) -> int:
    """Return the first offset that the archive of a partition does not have.

    Args:
        fs: The file system.
        directory: The directory of the partition.

    Returns:
        The offset; 0 if the file does not exist.

    Raises:
        StorageError: The file is damaged.
        OSError: The file cannot be read.
    """
    data = read_file(fs, layout.archived_path(directory))
    if data is None:
        return 0
    if len(data) == len(encode(0)):
        next_offset: int = _FIELDS.unpack_from(data)[1]
        if data == encode(next_offset):
            return next_offset
    raise StorageError(
        f"{layout.archived_path(directory)}: damaged; nothing is removed until it is written again: run `radiator "
        f"archive`, or delete it"
    )


def write(fs: FileSystem, directory: str, next_offset: int, synced: bool = True) -> None:
    """Write the file in one step: the archive has everything below ``next_offset``.

    Args:
        fs: The file system.
        directory: The directory of the partition.
        next_offset: The offset.
        synced: Whether the file must be there after a power failure. A higher offset need not: without it retention
            waits until the next run of the archiver, which writes the file again.

    Raises:
        OSError: The file cannot be written.
    """
    replace_file(fs, layout.archived_path(directory), encode(next_offset), layout.NEW_SUFFIX, synced)


def lower(fs: FileSystem, directory: str, end: int) -> bool:
    """Lower the offset in the file to the end of the log.

    If the file cannot be written (a full disk), remove it.

    Args:
        fs: The file system.
        directory: The directory of the partition.
        end: The next offset of the log.

    Returns:
        True if the file had a higher offset.

    Raises:
        OSError: The file cannot be read, written or removed.
    """
    try:
        if read(fs, directory) <= end:
            return False
    except StorageError:
        return False  # as good as none
    try:
        write(fs, directory, end)
    except OSError:
        fs.remove(layout.archived_path(directory))
        fs.sync_dir(directory)
    return True
