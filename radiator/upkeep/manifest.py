"""Read and write ``MANIFEST.json`` of a backup: each copied file with size and checksum (see ``docs/operations.md``).

The manifest is written last, so a directory without one is no backup. Its own checksum is over its text without that
line, so a flipped bit in the manifest is found as well.

Knows the JSON, but not how files are copied. Pure, except for ``read``: any thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.files import FileSystem, read_file, storage_error

MANIFEST = layout.MANIFEST
BACKUP_FORMAT = 1


class DamagedBackup(StorageError):
    """A backup does not match its manifest; the message names the file."""


@dataclass(frozen=True)
class CopiedFile:
    """A file of a backup.

    Attributes:
        path: Its path, relative to the backup.
        size_bytes: Its size.
        sha256: Its checksum.
        mtime_ns: The modification time of the source, for a sealed segment; else 0.
    """

    path: str
    size_bytes: int
    sha256: str
    mtime_ns: int = 0


@dataclass(frozen=True)
class CopiedPartition:
    """A partition of a backup.

    Attributes:
        name: The partition's name.
        first_offset: The first offset that the copy has.
        next_offset: The offset behind the last that the copy has.
        size_bytes: The size of its segments.
    """

    name: str
    first_offset: int
    next_offset: int
    size_bytes: int


@dataclass(frozen=True)
class CopiedCursor:
    """A cursor of a backup: everything below ``floor`` is settled."""

    name: str
    partition: str
    floor: int


@dataclass(frozen=True)
class Manifest:
    """What a backup contains.

    Attributes:
        time_ns: When it was made, in nanoseconds since 1970.
        radiator: The version that made it.
        store: A digest that differs between stores.
        partitions: The partitions.
        cursors: The cursors.
        files: The files.
        left_out: Files of the store that no backup needs, or that are not radiator's.
        whole_transactions: Whether each transaction over several logs is in it as a whole or not at all.
    """

    time_ns: int
    radiator: str  # the version that made it
    store: str  # a digest of the key of the salts, which differs between stores
    partitions: list[CopiedPartition] = field(default_factory=list)
    cursors: list[CopiedCursor] = field(default_factory=list)
    files: list[CopiedFile] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # files of the store that no backup needs, or that are not ours
    whole_transactions: bool = True  # no COMMIT over several logs is in it in part

    @property
    def size_bytes(self) -> int:
        """Return how many bytes all files have."""
        return sum(file.size_bytes for file in self.files)


def encode(manifest: Manifest) -> bytes:
    """Return the bytes of ``MANIFEST.json``."""
    fields = {"format": BACKUP_FORMAT, **asdict(manifest)}
    return _text({**fields, "sha256": sha256(_text(fields)).hexdigest()})


def _text(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, indent=1).encode() + b"\n"


def decode(data: bytes, path: str) -> Manifest:
    """Return the manifest that these bytes are.

    Args:
        data: The bytes.
        path: The path of the file, for messages.

    Raises:
        DamagedBackup: They are not a manifest, or the checksum is wrong.
        StorageError: A newer radiator wrote it.
    """
    try:
        fields = json.loads(data)
        claimed = fields.pop("sha256")
        version = fields.pop("format")
        if isinstance(version, int) and version > BACKUP_FORMAT:
            raise StorageError(
                f"{path}: a backup of format {version}; this radiator reads up to {BACKUP_FORMAT}: use a newer one"
            )
        if claimed != sha256(_text({"format": version, **fields})).hexdigest():
            raise DamagedBackup(f"{path}: its own checksum is wrong, so no file can be verified with it")
        for each in fields["files"]:
            if ".." in each["path"].split("/") or each["path"].startswith("/"):
                raise ValueError(f"the path {each['path']!r} leads out of the backup")
        return Manifest(
            fields["time_ns"],
            fields["radiator"],
            fields["store"],
            [CopiedPartition(**each) for each in fields["partitions"]],
            [CopiedCursor(**each) for each in fields["cursors"]],
            [CopiedFile(**each) for each in fields["files"]],
            fields["left_out"],
            fields["whole_transactions"],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedBackup(f"{path}: expected the manifest of a backup, got something else: {error!r}") from error


def read(fs: FileSystem, backup: str) -> Manifest:
    """Return the manifest of a backup.

    Raises:
        StorageError: There is none, or it cannot be read.
        DamagedBackup: It is damaged.
    """
    path = f"{backup}/{MANIFEST}"
    try:
        data = read_file(fs, path)
    except OSError as error:
        raise storage_error(path, "read", error) from error
    if data is None:
        raise StorageError(f"{backup}: no backup here; expected {MANIFEST}, which `radiator backup` writes last")
    return decode(data, path)


def directories(files: list[CopiedFile]) -> Iterator[str]:
    """Yield all directories of the files, parents first; "" is the backup itself."""
    found = {""}
    for file in files:
        above = file.path
        while "/" in above:
            above = above.rpartition("/")[0]
            found.add(above)
    yield from sorted(found)
