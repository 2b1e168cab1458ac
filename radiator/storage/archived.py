"""The file ``archived`` of a partition: below which offset an archive has everything. Retention may wait for it.

    24 bytes: magic 89 'RDA1' 0D 0A 1A | next offset u64 | crc u32 of bytes 0 to 16 | 0 u32

Whoever archives writes it, after what it speaks of is safe. The broker reads it, on the disk thread; it writes it only
where a log has come out of a power cut shorter than it was: what comes at those offsets now is in no archive.

Knows: one small file. Must not know: what an archive is. No state: any thread, any process.
"""

from __future__ import annotations

from struct import Struct
from zlib import crc32

from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.files import FileSystem, read_file, replace_file

MAGIC = b"\x89RDA1\r\n\x1a"
_FIELDS = Struct("<8sQ")


def encode(next_offset: int) -> bytes:
    fields = _FIELDS.pack(MAGIC, next_offset)
    return fields + crc32(fields).to_bytes(8, "little")


def read(fs: FileSystem, directory: str) -> int:
    """The first offset that the archive of the partition in ``directory`` does not have; 0 if there is none. Raises
    StorageError if the file is damaged, OSError if it cannot be read."""
    data = read_file(fs, layout.archived_path(directory))
    if data is None:
        return 0
    if len(data) == len(encode(0)):
        next_offset: int = _FIELDS.unpack_from(data)[1]
        if data == encode(next_offset):
            return next_offset
    raise StorageError(
        f"{layout.archived_path(directory)}: damaged; nothing is removed until it is written again: archive once more, "
        "or delete it"
    )


def write(fs: FileSystem, directory: str, next_offset: int) -> None:
    """What lies below ``next_offset`` is safe in an archive. All or nothing, on disk when this returns."""
    replace_file(fs, layout.archived_path(directory), encode(next_offset), layout.NEW_SUFFIX)


def lower(fs: FileSystem, directory: str, end: int) -> bool:
    """Makes it say no more than that the log goes up to ``end``, or nothing where that cannot be written (a full disk);
    whether it said more. Raises OSError."""
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
