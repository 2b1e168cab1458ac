"""Where a store lies: a path and the local files, or a URI and a file system of pyarrow or fsspec.

``open_store`` gives the files and the root under which they are found there. Local ones are ``storage.files`` itself:
system calls, read into numpy's memory. All others are ``RemoteFiles``, which has the reading verbs of it and no other;
paths are the URI of the store and what follows, so messages show what a user would look for. fsspec is asked for
schemes that pyarrow does not know, and imported only then.

Knows: URIs, pyarrow's file systems. Must not know: what is in the files.
Invariant: nothing is written, and of what stands in a URI no user, passcode or parameter gets into a path.
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
from radiator.storage.files import Facts, FileSystem

REMOTE_CHUNK_BYTES = 16 * MIB  # read at a time: a round trip costs as much as some MiB
_PART_BYTES = 4 * MIB  # of those, read side by side: one connection is slower than the network
_AT_A_TIME = 32  # requests under way: object stores answer slowly, and as many as one likes at once

Item = TypeVar("Item")
Made = TypeVar("Made")
Buffers = Sequence[bytearray | memoryview]
_BY_KEYWORDS = {"s3": "S3FileSystem", "gs": "GcsFileSystem", "gcs": "GcsFileSystem"}
_ALSO = {"s3a": "s3", "s3n": "s3"}  # what Hadoop calls them
_WORDS: dict[str, bool] = {"true": True, "false": False}


class Place(NamedTuple):
    fs: FileSystem
    root: str


def is_remote(path: str) -> bool:
    """Whether this is a URI of something else than a local file."""
    return "://" in path and not path.startswith("file:")


def local_path(path: str) -> str:
    """A path, or a URI ``file:/...`` as one."""
    if path.startswith("file:"):
        path = "/" + unquote(path[5:]).lstrip("/")
    return path.rstrip("/") or "/"


def shown(path: str) -> str:
    """For messages: without what may be secret in a URI."""
    if not is_remote(path):
        return local_path(path)
    parts = urlsplit(path)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def open_store(path: str, storage: Mapping[str, str] | None = None) -> Place:
    """``storage``: arguments of the file system, as text. Raises ConfigError, StorageError."""
    if not is_remote(path):
        if storage:
            raise ConfigError(f"storage.{next(iter(storage))} is for stores on other file systems; {path!r} is local")
        return Place(FileSystem(), local_path(path))
    written = path[: path.index("://")]
    scheme = _ALSO.get(written, written)
    path = scheme + path[len(written) :]
    given = {name: _WORDS.get(text.lower(), text) for name, text in (storage or {}).items()}
    try:
        files, inner = _open(path, scheme, given)
    except (OSError, ValueError, TypeError, ImportError) as error:
        told = str(error).replace(path, shown(path))
        raise StorageError(f"{shown(path)}: this file system cannot be used: {told}") from None
    prefix = f"{scheme}://"
    return Place(RemoteFiles(files, prefix), prefix + inner.rstrip("/"))


def together(fs: FileSystem, work: Callable[[Item], Made], items: Iterable[Item]) -> list[Made]:
    """``work`` of each, in order; where each is a round trip or more, many at a time."""
    if not isinstance(fs, RemoteFiles):
        return [work(item) for item in items]
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        return list(pool.map(work, items))


def remedy(fs: FileSystem) -> str | None:
    """What to look at when these files cannot be read; None: what storage says of the error."""
    if isinstance(fs, RemoteFiles):
        return "look at its URI, the network, and what the file system is given to prove who asks (options storage.*)"
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
    """What is asked for is fetched, no more: we know better how much will be needed."""

    def open_input_file(self, path: str) -> pa.PythonFile:
        return pa.PythonFile(self.fs.open(path, mode="rb", cache_type="none"), mode="r")


class RemoteFiles(FileSystem):
    """The reading verbs over another file system. Descriptors are numbers of our own."""

    def __init__(self, files: arrow.FileSystem, prefix: str) -> None:
        self.files, self.prefix = files, prefix
        self._numbers = count(1)
        self._open: dict[int, Any] = {}

    def inner(self, path: str) -> str:
        return path.removeprefix(self.prefix)

    def open_read(self, path: str) -> int:
        return self.add(self.opened(path))

    def opened(self, path: str) -> Any:
        return self.files.open_input_file(self.inner(path))

    def add(self, file: Any) -> int:
        """The descriptor of something that has size(), read_at() and close()."""
        number = next(self._numbers)
        self._open[number] = file
        return number

    def close(self, fd: int) -> None:
        self._open.pop(fd).close()

    def size(self, fd: int) -> int:
        return int(self._open[fd].size())

    def pread(self, fd: int, size: int, position: int) -> bytes:
        file = self._open[fd]
        size = min(size, file.size() - position)
        return bytes(file.read_at(size, position)) if size > 0 else b""

    def preadv(self, fd: int, buffers: Buffers, position: int) -> int:  # type: ignore[override]
        done = 0
        for buffer in buffers:
            got = self._read_into(fd, memoryview(buffer), position + done)
            done += got
            if got < len(buffer):
                break
        return done

    def _read_into(self, fd: int, buffer: memoryview, position: int) -> int:
        """Parts of it at a time, if this file can be read at several places at once."""
        step = len(buffer) if isinstance(self.files, arrow.PyFileSystem) else _PART_BYTES

        def fill(start: int) -> int:
            part = buffer[start : start + step]
            data = self.pread(fd, len(part), position + start)
            part[: len(data)] = data
            return len(data)

        starts = range(0, len(buffer), step or 1)
        return sum(together(self, fill, starts) if len(starts) > 1 else map(fill, starts))

    def pread_once(self, fd: int, size: int, position: int) -> bytes:
        return self.pread(fd, size, position)

    def uncache(self, fd: int, position: int = 0, size: int = 0) -> None:
        """There is no page cache of ours."""

    def listdir(self, path: str) -> list[str]:
        inner = self.inner(path)
        found = self.files.get_file_info(arrow.FileSelector(inner, allow_not_found=True))
        if not found and (facts := self.facts(path)) is not None and facts.is_file:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return sorted(each.base_name for each in found)

    def facts(self, path: str) -> Facts | None:
        found = self.files.get_file_info(self.inner(path))
        if found.type is arrow.FileType.NotFound:
            return None
        is_dir = found.type is arrow.FileType.Directory
        return Facts(found.size or 0, 0, is_dir, found.type is arrow.FileType.File)

    def _refuse(self, *given: object, **named: object) -> NoReturn:
        raise OSError(errno.EROFS, "stores on other file systems are only read")

    open = pwritev = fdatasync = truncate = rename = remove = rmdir = link = stamp = free_bytes = mkdir = has_name = (
        _refuse
    )
    sync_all = device = sync_dir = map = lock = unlock = in_place = held = ancestors = chmod = entropy = _refuse
