"""Open the files of a store: a local path, or a URI with a file system of pyarrow or fsspec.

``open_store`` returns the file system and the root directory in it. Local files use ``storage.files``: system calls
that read into numpy memory. All others are ``RemoteFiles``, which has the reading methods of that class and refuses the
others. Paths are the URI of the store and the path inside it, so that messages show what a user would search for.
fsspec is used for schemes that pyarrow does not support, and imported only then.

Uses URIs and the file systems of pyarrow. Must not depend on the contents of the files.
Invariant: nothing is written. The user, passcode and parameters of a URI are never part of a path.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, NamedTuple, NoReturn, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs as arrow

from radiator.errors import ConfigError, StorageError
from radiator.limits import MIB
from radiator.storage.files import FileStat, FileSystem

REMOTE_CHUNK_BYTES = 16 * MIB  # read at a time: a round trip costs as much as some MiB
_PART_BYTES = 4 * MIB  # of a chunk, per concurrent request: one connection is slower than the network
_AT_A_TIME = 32  # concurrent requests: object stores answer slowly, and serve many requests at once

Item = TypeVar("Item")
Made = TypeVar("Made")
Buffers = Sequence[bytearray | memoryview]
_BY_KEYWORDS = {"s3": "S3FileSystem", "gs": "GcsFileSystem", "gcs": "GcsFileSystem"}
_ALSO = {"s3a": "s3", "s3n": "s3"}  # the names that Hadoop uses
_WORDS: dict[str, bool] = {"true": True, "false": False}


class Place(NamedTuple):
    """A store.

    Attributes:
        fs: The file system.
        root: The directory of the store in ``fs``.
    """

    fs: FileSystem
    root: str


def is_remote(path: str) -> bool:
    """Return True if ``path`` is a URI of a file system that is not local.

    Args:
        path: A path or a URI.
    """
    return "://" in path and not path.startswith("file:")


def local_path(path: str) -> str:
    """Return a local path without a trailing slash; a ``file:`` URI is converted.

    Args:
        path: A path, or a URI ``file:/...``.
    """
    if path.startswith("file:"):
        path = "/" + unquote(path[5:]).lstrip("/")
    return path.rstrip("/") or "/"


def shown(path: str) -> str:
    """Return a path or a URI for messages: without user, passcode and parameters.

    Args:
        path: A path or a URI.
    """
    if not is_remote(path):
        return local_path(path)
    parts = urlsplit(path)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def open_store(path: str, storage: Mapping[str, str] | None = None) -> Place:
    """Open the file system of a store.

    Args:
        path: The path or the URI of the store.
        storage: The arguments of the file system, as text (options ``storage.*``). Not allowed for local paths.

    Returns:
        The file system and the root directory.

    Raises:
        ConfigError: ``storage`` was given for a local path.
        StorageError: The file system does not exist, or refuses its arguments.
    """
    if not is_remote(path):
        if storage:
            raise ConfigError(
                f"option storage.{next(iter(storage))}: expected a store on another file system, such as s3://..., "
                f"got the local path {path!r}; remove the option"
            )
        return Place(FileSystem(), local_path(path))
    written = path[: path.index("://")]
    scheme = _ALSO.get(written, written)
    path = scheme + path[len(written) :]
    given = {name: _WORDS.get(text.lower(), text) for name, text in (storage or {}).items()}
    try:
        files, inner = _open(path, scheme, given)
    except (OSError, ValueError, TypeError, ImportError) as error:
        reason = str(error).replace(path, shown(path))  # without the secrets of the URI
        raise StorageError(f"{shown(path)}: this file system cannot be used: {reason}") from None
    prefix = f"{scheme}://"
    return Place(RemoteFiles(files, prefix), prefix + inner.rstrip("/"))


def together(fs: FileSystem, work: Callable[[Item], Made], items: Iterable[Item]) -> list[Made]:
    """Apply ``work`` to each item, many at a time on a remote file system, and return the results in order.

    Args:
        fs: The file system; local files are processed one after another.
        work: The function to call.
        items: Its arguments.
    """
    if not isinstance(fs, RemoteFiles):
        return [work(item) for item in items]
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        return list(pool.map(work, items))


def remedy(fs: FileSystem) -> str | None:
    """Return what to check when the files cannot be read, or None for the standard text of ``storage_error``.

    Args:
        fs: The file system.
    """
    if isinstance(fs, RemoteFiles):
        return "check its URI, the network, and the credentials of the file system (options storage.*)"
    return None


def _open(uri: str, scheme: str, given: dict[str, Any]) -> tuple[arrow.FileSystem, str]:
    if given and scheme in _BY_KEYWORDS:
        parts = urlsplit(uri)
        return getattr(arrow, _BY_KEYWORDS[scheme])(**given), unquote(parts.netloc + parts.path)
    if not given:
        try:
            files, inner = arrow.FileSystem.from_uri(uri)
            return files, str(inner)
        except pa.ArrowInvalid as error:
            if "Unrecognized filesystem" not in str(error):
                raise
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise ImportError(f"pyarrow does not know {scheme}:// with these options; pip install fsspec") from None
    found, inner = url_to_fs(uri, **given)
    return arrow.PyFileSystem(_Unbuffered(found)), str(inner)


class _Unbuffered(arrow.FSSpecHandler):  # type: ignore[misc]  # pyarrow is untyped here
    """Open files without read-ahead, because the caller knows which bytes it needs."""

    def open_input_file(self, path: str) -> pa.PythonFile:
        return pa.PythonFile(self.fs.open(path, mode="rb", cache_type="none"), mode="r")


class RemoteFiles(FileSystem):
    """The reading methods of ``FileSystem`` for another file system. File descriptors are numbers of this object.

    Args:
        files: The file system of pyarrow.
        prefix: The beginning of all paths, such as ``s3://``.
    """

    def __init__(self, files: arrow.FileSystem, prefix: str) -> None:
        self.files, self.prefix = files, prefix
        self._numbers = count(1)
        self._open: dict[int, Any] = {}

    def inner(self, path: str) -> str:
        """Return the path inside the file system.

        Args:
            path: A path that begins with the prefix.
        """
        return path.removeprefix(self.prefix)

    def open_read(self, path: str) -> int:
        """Open a file and return its descriptor.

        Args:
            path: The path of the file.

        Raises:
            OSError: The file does not exist or cannot be opened.
        """
        return self.add(self.opened(path))

    def opened(self, path: str) -> Any:
        """Open a file and return the file object of pyarrow.

        Args:
            path: The path of the file.

        Raises:
            OSError: The file does not exist or cannot be opened.
        """
        return self.files.open_input_file(self.inner(path))

    def add(self, file: Any) -> int:
        """Return a new descriptor for a file object.

        Args:
            file: An object with the methods ``size()``, ``read_at(size, position)`` and ``close()``.
        """
        number = next(self._numbers)
        self._open[number] = file
        return number

    def close(self, fd: int) -> None:
        """Close a file.

        Args:
            fd: The descriptor of the file.
        """
        self._open.pop(fd).close()

    def size(self, fd: int) -> int:
        """Return the size of a file in bytes.

        Args:
            fd: The descriptor of the file.
        """
        return int(self._open[fd].size())

    def pread(self, fd: int, size: int, position: int) -> bytes:
        """Return up to ``size`` bytes at a position; fewer at the end of the file.

        Args:
            fd: The descriptor of the file.
            size: The number of bytes.
            position: The position in the file, in bytes.

        Raises:
            OSError: The read failed.
        """
        file = self._open[fd]
        size = min(size, file.size() - position)
        return bytes(file.read_at(size, position)) if size > 0 else b""

    def preadv(self, fd: int, buffers: Buffers, position: int) -> int:  # type: ignore[override]
        """Read into buffers, one after another, and return the number of bytes.

        Args:
            fd: The descriptor of the file.
            buffers: Writable buffers.
            position: The position in the file, in bytes.

        Raises:
            OSError: The read failed.
        """
        done = 0
        for buffer in buffers:
            got = self._read_into(fd, memoryview(buffer), position + done)
            done += got
            if got < len(buffer):
                break
        return done

    def _read_into(self, fd: int, buffer: memoryview, position: int) -> int:
        """Fill a buffer, in parallel if this file supports concurrent reads."""
        step = len(buffer) if isinstance(self.files, arrow.PyFileSystem) else _PART_BYTES

        def fill(start: int) -> int:
            part = buffer[start : start + step]
            data = self.pread(fd, len(part), position + start)
            part[: len(data)] = data
            return len(data)

        starts = range(0, len(buffer), step or 1)
        return sum(together(self, fill, starts) if len(starts) > 1 else map(fill, starts))

    def pread_once(self, fd: int, size: int, position: int) -> bytes:
        """Return the same as ``pread``.

        Args:
            fd: The descriptor of the file.
            size: The number of bytes.
            position: The position in the file, in bytes.

        Raises:
            OSError: The read failed.
        """
        return self.pread(fd, size, position)

    def uncache(self, fd: int, position: int = 0, size: int = 0) -> None:
        """Do nothing: remote files have no local page cache.

        Args:
            fd: Ignored.
            position: Ignored.
            size: Ignored.
        """

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; none if it does not exist.

        Args:
            path: The path of the directory.

        Raises:
            NotADirectoryError: The path is a file.
            OSError: The directory cannot be read.
        """
        inner = self.inner(path)
        found = self.files.get_file_info(arrow.FileSelector(inner, allow_not_found=True))
        if not found and (facts := self.stat(path)) is not None and facts.is_file:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return sorted(each.base_name for each in found)

    def stat(self, path: str) -> FileStat | None:
        """Return size and kind of a file or a directory, or None if it does not exist.

        Args:
            path: The path.

        Raises:
            OSError: The request failed.
        """
        found = self.files.get_file_info(self.inner(path))
        if found.type is arrow.FileType.NotFound:
            return None
        is_dir = found.type is arrow.FileType.Directory
        return FileStat(found.size or 0, 0, is_dir, found.type is arrow.FileType.File)

    def _refuse(self, *given: object, **named: object) -> NoReturn:
        raise OSError(errno.EROFS, "a store on another file system is read-only")

    open = pwritev = fdatasync = truncate = rename = remove = rmdir = link = stamp = free_bytes = mkdir = has_name = (
        _refuse
    )
    sync_all = device = sync_dir = map = lock = unlock = in_place = is_locked = ancestors = chmod = entropy = _refuse
