"""Verify a backup, and make a data directory of it.

Everything is verified before the first byte is written, and once more while it is copied. The files are collected in a
temporary directory inside the new one and renamed at the end, the partitions last; the directory is locked meanwhile.
So a broker never finds a part of a store, and an interrupted restore can be repeated.

Knows manifests and files, but not what is in the files. One thread, any process.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.files import FileSystem, lock_holder, opened, storage_error, sync_ancestors
from radiator.upkeep import manifest as manifests
from radiator.upkeep.copying import Copier, remove_tree
from radiator.upkeep.manifest import CopiedFile, DamagedBackup, Manifest

PARTIAL = "restore.partial"  # in the data directory, while it is being filled
TOP = (  # in this order
    layout.SALT,
    layout.JOURNAL,
    layout.TRANSACTIONS,
    layout.SCHEMAS,
    layout.SUBSCRIPTIONS,
    layout.SUBSCRIPTIONS_DAMAGED,
    layout.LAST_RULES,
    layout.CURSORS,
    layout.PARTITIONS,
)
OWN_NAMES = (PARTIAL, *TOP)
NAMED_MAX = 10


def verify(fs: FileSystem, backup: str, copier: Copier, planned: Callable[[int], None] | None = None) -> Manifest:
    """Read the whole backup, and return its manifest.

    Args:
        fs: The file system.
        backup: The directory of the backup.
        copier: Reads the files.
        planned: Called once with how many bytes there are.

    Raises:
        DamagedBackup: A file is not what the manifest says; the message names it.
        StorageError: There is no backup.
    """
    manifest = manifests.read(fs, backup)
    if planned is not None:
        planned(manifest.size_bytes)
    wrong = [reason for file in manifest.files if (reason := _fault(fs, backup, copier, file))]
    if wrong:
        more = [f"and {len(wrong) - NAMED_MAX} more"] if len(wrong) > NAMED_MAX else []
        raise DamagedBackup("\n".join([*wrong[:NAMED_MAX], *more]))
    return manifest


def _fault(fs: FileSystem, backup: str, copier: Copier, file: CopiedFile) -> str:
    """Return what is wrong with a file of the backup, in words; "" if nothing is."""
    path = f"{backup}/{file.path}"
    try:
        with opened(fs, fs.open_read(path)) as fd:
            size = fs.size(fd)
            if size != file.size_bytes:
                return f"{path}: {size} bytes, the manifest says {file.size_bytes}"
            _, digest = copier.digest(fd, size)
            return "" if digest == file.sha256 else f"{path}: wrong checksum"
    except FileNotFoundError:
        return f"{path}: missing"
    except OSError as error:
        return f"{path}: cannot be read: {error.strerror}"


def restore(
    fs: FileSystem, backup: str, root: str, copier: Copier, planned: Callable[[int], None] | None = None
) -> Manifest:
    """Verify a backup, make a data directory of it, and return its manifest.

    Args:
        fs: The file system.
        backup: The directory of the backup.
        root: The data directory to make, which must be new or empty.
        copier: Copies the files.
        planned: Called once with how many bytes there are to read.

    Raises:
        StorageError: The backup is damaged, the directory is in use or not empty, or a file cannot be read or written.
    """
    if f"{root}/".startswith(f"{backup}/"):
        raise StorageError(f"{root}: is inside the backup {backup}; choose another directory")
    there = fs.listdir(root)
    begun = PARTIAL in there and layout.PARTITIONS not in there  # by a restore that was interrupted
    found = [name for name in there if not (name in ("lost+found", layout.LOCK) or (begun and name in OWN_NAMES))]
    if found:
        raise StorageError(f"{root}: not empty ({', '.join(found[:3])}); a backup is restored into a new directory")
    manifest = verify(fs, backup, copier, planned and (lambda size: planned(2 * size)))
    lock = None
    try:
        free = fs.free_bytes(root.rpartition("/")[0] or "/")
        if manifest.size_bytes > free:
            raise StorageError(f"{root}: the backup has {manifest.size_bytes} bytes, and there is room for {free}")
        fs.mkdir(root)
        try:
            lock = fs.lock(root)
        except BlockingIOError:
            holder = lock_holder(fs, root)
            raise StorageError(f"{root}: in use by process {holder}; choose another directory") from None
        partial = f"{root}/{PARTIAL}"
        for name in OWN_NAMES if begun else ():
            remove_tree(fs, f"{root}/{name}")
        _copy_files(fs, backup, partial, manifest, copier)
        there = fs.listdir(partial)
        for name in TOP:
            if name in there:
                fs.rename(f"{partial}/{name}", f"{root}/{name}")
        fs.rmdir(partial)
        fs.sync_dir(root)
        sync_ancestors(fs, root)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "free space there, and start again with the same command" if full else None
        raise storage_error(error.filename or root, "restore", error, remedy) from error
    finally:
        if lock is not None:
            fs.unlock(lock)
    return manifest


def _copy_files(fs: FileSystem, backup: str, partial: str, manifest: Manifest, copier: Copier) -> None:
    fs.mkdir(f"{partial}/{layout.PARTITIONS}")
    for partition in manifest.partitions:  # one may have no file yet
        fs.mkdir(f"{partial}/{layout.PARTITIONS}/{layout.encode_name(partition.name)}")
    directories = list(manifests.directories(manifest.files))
    for directory in directories:
        fs.mkdir(f"{partial}/{directory}" if directory else partial)
    for file in manifest.files:
        with opened(fs, fs.open_read(f"{backup}/{file.path}")) as fd:
            if copier.copy(fd, file.size_bytes, f"{partial}/{file.path}") != (file.size_bytes, file.sha256):
                raise DamagedBackup(f"{backup}/{file.path}: has changed since it was verified")
    for directory in {*directories, layout.PARTITIONS}:
        fs.sync_dir(f"{partial}/{directory}" if directory else partial)
