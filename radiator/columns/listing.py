"""A store on another file system, as planning looks at it: few round trips, many of them at a time.

What planning reads of a store is small and in thousands of files, and a round trip to an object store is as dear as
megabytes. So the heads are read first, then everything is listed at once, with the sizes, then the first headers of all
segments are read; what follows is answered from that. The head comes before the listing, as it does where files are
local: what it speaks of is then listed.

Knows: the names of the files of a store. Must not know: what is wanted of them.
An instance is one look at a store.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from pyarrow.fs import FileSelector, FileType

from radiator.columns.files import Place, RemoteFiles, together
from radiator.limits import KIB
from radiator.storage import layout
from radiator.storage.files import Facts, FileSystem, read_file

START_BYTES = 4 * KIB  # of a segment: as much as whoever lists a store looks at


def listed(place: Place) -> FileSystem:
    """The files to plan with: the same if they are local. Raises OSError."""
    fs, root = place
    return Listed(fs, root) if isinstance(fs, RemoteFiles) else fs


class Listed(RemoteFiles):
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
        """Sizes of files, and names in directories."""
        sizes: dict[str, int] = {}
        names: dict[str, list[str]] = {}
        for each in self.files.get_file_info(FileSelector(self.inner(self._under), recursive=True)):
            path = self.prefix + each.path
            names.setdefault(os.path.dirname(path), []).append(each.base_name)
            if each.type is FileType.File:
                sizes[path] = int(each.size)
        return sizes, {directory: sorted(found) for directory, found in names.items()}

    def _forget(self, path: str) -> None:
        """Retention took it since it was listed."""
        del self._sizes[path]
        self._names[os.path.dirname(path)].remove(os.path.basename(path))

    def listdir(self, path: str) -> list[str]:
        if not path.startswith(self._under):
            return super().listdir(path)
        if path in self._sizes:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return self._names.get(path, [])

    def facts(self, path: str) -> Facts | None:
        if path in self._sizes:
            return Facts(self._sizes[path], 0, False, True)
        return super().facts(path)

    def open_read(self, path: str) -> int:
        head = self._heads.get(path)
        if head is not None:
            return self.add(_Known(self, path, len(head), head))
        if not path.startswith(self._under):
            return super().open_read(path)
        if path not in self._sizes:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self.add(_Known(self, path, self._sizes[path], self._starts.get(path, b"")))


def _start(fs: RemoteFiles, path: str) -> bytes | None:
    """None if the file is gone, just now."""
    try:
        fd = fs.open_read(path)
    except FileNotFoundError:
        return None
    try:
        return fs.pread(fd, START_BYTES, 0)
    finally:
        fs.close(fd)


class _Known:
    """A file of which the size and the first bytes are known; it is opened when others are asked for."""

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
