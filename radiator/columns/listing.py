"""List a store on another file system with few round trips, many of them at a time.

Planning reads small parts of thousands of files, and one round trip to an object store costs as much as megabytes. So
this module first reads all ``head`` files, then lists all files with their sizes, then reads the start of every
segment. Planning is answered from that. The ``head`` files come before the listing, as they do for local files: every
segment that a ``head`` refers to is then in the listing.

Uses the file names of a store. An instance is one snapshot of a store.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from pyarrow.fs import FileSelector, FileType

from radiator.columns.files import Place, RemoteFiles, together
from radiator.limits import KIB
from radiator.storage import layout
from radiator.storage.files import FileStat, FileSystem, opened, read_file

START_BYTES = 4 * KIB  # of a segment: planning reads no more of it


def listed(place: Place) -> FileSystem:
    """Return a file system for planning: a snapshot of a remote store, or local files unchanged.

    Args:
        place: The store.

    Raises:
        OSError: The store cannot be read.
    """
    fs, root = place
    return Listed(fs, root) if isinstance(fs, RemoteFiles) else fs


class Listed(RemoteFiles):
    """A snapshot of the files of a remote store, with the contents that planning reads.

    Args:
        fs: The file system of the store.
        root: The root directory of the store.
    """

    def __init__(self, fs: RemoteFiles, root: str) -> None:
        super().__init__(fs.files, fs.prefix)
        self._under = layout.partitions_path(root)
        directories = fs.listdir(self._under)
        heads = [layout.head_path(f"{self._under}/{name}") for name in directories]
        known = zip(heads, together(fs, lambda path: read_file(fs, path), heads), strict=True)
        self._heads = {path: data for path, data in known if data is not None}
        self._sizes, self._names = self._tree()
        self._names[self._under] = directories
        bases = [path for path in self._sizes if layout.segment_base(os.path.basename(path)) is not None]
        self._starts = {}
        for path, start in zip(bases, together(fs, lambda path: _start(fs, path), bases), strict=True):
            if start is None:
                self._forget(path)
            else:
                self._starts[path] = start

    def _tree(self) -> tuple[dict[str, int], dict[str, list[str]]]:
        """Return the sizes of all files and the names in all directories."""
        sizes: dict[str, int] = {}
        names: dict[str, list[str]] = {}
        for each in self.files.get_file_info(FileSelector(self.inner(self._under), recursive=True)):
            path = self.prefix + each.path
            names.setdefault(os.path.dirname(path), []).append(each.base_name)
            if each.type is FileType.File:
                sizes[path] = int(each.size)
        return sizes, {directory: sorted(found) for directory, found in names.items()}

    def _forget(self, path: str) -> None:
        """Remove a file that retention removed after the listing."""
        del self._sizes[path]
        self._names[os.path.dirname(path)].remove(os.path.basename(path))

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory; from the snapshot for partitions.

        Args:
            path: The path of the directory.

        Raises:
            NotADirectoryError: The path is a file.
            OSError: A directory outside the snapshot cannot be read.
        """
        if not path.startswith(self._under):
            return super().listdir(path)
        if path in self._sizes:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return self._names.get(path, [])

    def stat(self, path: str) -> FileStat | None:
        """Return size and kind of a file; from the snapshot if it is listed.

        Args:
            path: The path.

        Raises:
            OSError: A request outside the snapshot failed.
        """
        if path in self._sizes:
            return FileStat(self._sizes[path], 0, False, True)
        return super().stat(path)

    def open_read(self, path: str) -> int:
        """Open a file and return its descriptor; the snapshot serves its size and first bytes.

        Args:
            path: The path of the file.

        Raises:
            FileNotFoundError: The file is not in the snapshot.
            OSError: A file outside the snapshot cannot be opened.
        """
        head = self._heads.get(path)
        if head is not None:
            return self.add(_CachedFile(self, path, len(head), head))
        if not path.startswith(self._under):
            return super().open_read(path)
        if path not in self._sizes:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self.add(_CachedFile(self, path, self._sizes[path], self._starts.get(path, b"")))


def _start(fs: RemoteFiles, path: str) -> bytes | None:
    """Return the first bytes of a segment, or None if it was removed meanwhile."""
    try:
        fd = fs.open_read(path)
    except FileNotFoundError:
        return None
    with opened(fs, fd):
        return fs.pread(fd, START_BYTES, 0)


class _CachedFile:
    """A file whose size and first bytes are cached. It is opened when other bytes are read."""

    def __init__(self, fs: RemoteFiles, path: str, size: int, start: bytes) -> None:
        self._fs, self._path, self._size, self._start = fs, path, size, start
        self._file: Any = None

    def size(self) -> int:
        return self._size

    def read_at(self, size: int, position: int) -> bytes:
        if position + size <= len(self._start):
            return self._start[position : position + size]
        if self._file is None:
            self._file = self._fs.opened(self._path)
        return bytes(self._file.read_at(size, position))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
