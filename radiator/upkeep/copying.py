"""Copy files for a backup or a restore: in bounded pieces, with a checksum, at a bounded pace, synced at the end.

Reading leaves the page cache as it was, and writing syncs every few megabytes and leaves nothing in the cache. So a
broker beside it keeps its share of disk and memory.

Knows bytes, but not what they mean. A ``Copier`` is used by one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from radiator.limits import MIB
from radiator.storage.files import FileSystem, opened, write_all

CHUNK_BYTES = 1 * MIB
SYNC_EVERY_BYTES = 16 * MIB  # a sync of more would hold up the broker's own syncs for longer


class Copier:
    """Copy files and compute their checksums.

    Args:
        fs: The file system.
        pace: Called with the size of each chunk before it is read; may sleep.
        progress: Called with the size of each chunk that is done.
    """

    def __init__(
        self,
        fs: FileSystem,
        pace: Callable[[int], None] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.fs = fs
        self._pace = pace
        self._progress = progress

    def done(self, size: int) -> None:
        """Report ``size`` bytes as done."""
        if self._progress is not None:
            self._progress(size)

    def write(self, path: str, data: bytes) -> str:
        """Write a new file, sync it, and return its SHA-256."""
        with opened(self.fs, self.fs.open(path, create=True)) as fd:
            write_all(self.fs, fd, [data], 0)
            self.fs.fdatasync(fd)
        self.done(len(data))
        return sha256(data).hexdigest()

    def copy(self, source: int, size: int, path: str) -> tuple[int, str]:
        """Copy the first bytes of an open file to a new file, and sync it.

        Args:
            source: The open file.
            size: How many bytes to copy.
            path: The new file.

        Returns:
            How many bytes there were, and their SHA-256.
        """
        fs, digest, position, synced = self.fs, sha256(), 0, 0
        with opened(fs, fs.open(path, create=True)) as fd:
            while data := self._read(source, min(CHUNK_BYTES, size - position), position):
                write_all(fs, fd, [data], position)
                digest.update(data)
                position += len(data)
                if position - synced >= SYNC_EVERY_BYTES:
                    fs.fdatasync(fd)
                    synced = position
                self.done(len(data))
            fs.fdatasync(fd)
            fs.uncache(fd)
        return position, digest.hexdigest()

    def digest(self, source: int, size: int) -> tuple[int, str]:
        """Return how many of the first ``size`` bytes an open file has, and their SHA-256."""
        digest, position = sha256(), 0
        while data := self._read(source, min(CHUNK_BYTES, size - position), position):
            digest.update(data)
            position += len(data)
            self.done(len(data))
        return position, digest.hexdigest()

    def _read(self, fd: int, size: int, position: int) -> bytes:
        if size <= 0:
            return b""
        if self._pace is not None:
            self._pace(size)
        return self.fs.pread_once(fd, size, position)


def remove_tree(fs: FileSystem, path: str) -> None:
    """Remove a file, or a directory and everything under it; do nothing if there is none."""
    try:
        fs.remove(path)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        for name in fs.listdir(path):
            remove_tree(fs, f"{path}/{name}")
        fs.rmdir(path)
