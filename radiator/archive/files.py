"""The file operations of an archive, over a directory or over any store that pyarrow or fsspec reach by URI.

    a path, file://     ``LocalFiles``: os calls; published files are synced, with their directories
    any other scheme    fsspec if it has a driver for the scheme (s3fs, gcsfs ...), else ``pyarrow.fs``: see ``remote``

Paths are relative to the archive, with ``/``. A data file is written in the directory of ``spool``, on a local disk,
and moved to its place by ``publish`` when it is complete. The log of commits relies on ``create_new``: an existing name
is never written again, and an existing file is complete. That is one atomic step locally, and in object stores with
every fsspec driver with mode ``xb`` (S3, Google, Azure: by conditional requests); elsewhere it checks first and then
writes, so only one archiver may work at a time there.

Errors are OSErrors. This module knows bytes and names. It does not know the contents of files. It has no state: any
thread and any process may use it; instances can be pickled.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from radiator.archive.paths import LOG, NEW
from radiator.errors import StorageError

LOCAL_SCHEMES = ("", "file", "local")


class NoArchive(StorageError):
    """There is no archive at this place."""


class NoVersion(StorageError):
    """The archive has no such version, or not its files any more."""


class Entry(NamedTuple):
    """The path and size of a file."""

    path: str
    size_bytes: int


class Files(ABC):
    """The files of an archive."""

    uri: str  # of the archive, for messages; without secrets
    given: str  # the arguments that open it again
    local: str | None = None  # its directory, if it is one of this machine

    @abstractmethod
    def list(self, directory: str) -> list[Entry]:
        """Return the files below a directory, at any depth, sorted; none if it does not exist.

        Raises:
            OSError: It cannot be listed.
        """

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return the contents of a file. Raises FileNotFoundError."""

    @abstractmethod
    def open(self, path: str) -> Any:
        """Open a file for reading, also by pyarrow. Raises FileNotFoundError."""

    @abstractmethod
    def size(self, path: str) -> int | None:
        """Return the size in bytes; None if the file does not exist."""

    @abstractmethod
    def create_new(self, path: str, data: bytes) -> bool:
        """Create a file with these contents, in one step. Return False if the name exists."""

    @abstractmethod
    def replace(self, path: str, data: bytes) -> None:
        """Create a file with these contents, or replace the contents of one."""

    @abstractmethod
    def publish(self, spooled: str, path: str) -> None:
        """Move the complete local file ``spooled`` to ``path``, which is new.

        After a failure the contents at ``path`` are useless; the spooled file may be gone.
        """

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file. A missing file is no error."""

    @abstractmethod
    def spool(self, name: str) -> str:
        """Return a directory of this machine for files that are being written, the same for the same name.

        A run calls it first. The next ``settle`` syncs what earlier runs may have published without a sync too.
        """

    @abstractmethod
    def spools(self) -> tuple[str, str]:
        """Return the directory of all spools, and the prefix of their names."""

    @abstractmethod
    def address(self, path: str) -> str:
        """Return what other programs open: a local path, or a URI, maybe with the secrets of the archive's URI."""

    def named(self, path: str) -> str:
        """Return the path for messages."""
        return f"{self.uri}/{path}"

    def settle(self) -> None:  # noqa: B027 - elsewhere it is safe when it is published
        """Sync what was published since the last call."""


class LocalFiles(Files):
    """An archive in a directory of this machine."""

    def __init__(self, root: str) -> None:
        self.local = self.uri = self.given = os.path.abspath(root)
        self._temporary = self.address(NEW)  # where a file is made before it gets its name
        self._unsynced: set[str] = set()  # directories with new names

    def list(self, directory: str) -> list[Entry]:
        """Return the files below a directory."""

        def failed(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):  # none, or one that goes just now
                raise error

        top, found = self.address(directory), []
        for folder, _, names in os.walk(top, onerror=failed):
            inside = os.path.relpath(folder, self.uri)
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # going, just now
                    found.append(Entry(f"{inside}/{name}", os.stat(f"{folder}/{name}").st_size))
        return sorted(found)

    def read(self, path: str) -> bytes:
        """Return the contents of a file."""
        with open(self.address(path), "rb") as file:
            return file.read()

    def open(self, path: str) -> Any:
        """Open a file for reading."""
        return open(self.address(path), "rb")

    def size(self, path: str) -> int | None:
        """Return the size in bytes, or None."""
        try:
            return os.stat(self.address(path)).st_size
        except FileNotFoundError:
            return None

    def create_new(self, path: str, data: bytes) -> bool:
        """Create a file with these contents, in one step."""
        self._folder(f"{NEW}/x")
        os.makedirs(self._temporary, exist_ok=True)
        new = f"{self._temporary}/{secrets.token_hex(8)}.new"
        try:
            with open(new, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self._folder(path)
            try:
                os.link(new, self.address(path))
            except FileExistsError:
                return False
            self.settle()
            return True
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new)

    def replace(self, path: str, data: bytes) -> None:
        """Create a file with these contents, or replace it in one step."""
        os.makedirs(self._temporary, exist_ok=True)
        new = f"{self._temporary}/{secrets.token_hex(8)}.new"
        with open(new, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(new, self.address(path))

    def publish(self, spooled: str, path: str) -> None:
        """Sync a spooled file, and rename it."""
        with open(spooled, "rb") as file:
            os.fsync(file.fileno())
        self._folder(path)
        os.rename(spooled, self.address(path))

    def remove(self, path: str) -> None:
        """Remove a file."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.address(path))

    def spool(self, name: str) -> str:
        """Return a directory in ``_new``."""
        self._temporary = self.address(f"{NEW}/{name}")
        self._folder(f"{NEW}/x")
        os.makedirs(self._temporary, exist_ok=True)
        if os.path.isdir(log := self.address(LOG)):
            self._unsynced.add(log)  # a run may have died between the link of a commit and its sync
        return self._temporary

    def spools(self) -> tuple[str, str]:
        """Return the directory ``_new``."""
        return self.address(NEW), ""

    def address(self, path: str) -> str:
        """Return the local path."""
        return f"{self.uri}/{path}"

    def settle(self) -> None:
        """Sync the directories with new names."""
        while self._unsynced:
            directory = next(iter(self._unsynced))
            try:
                fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except PermissionError:
                if directory.startswith(self.uri):
                    raise
                fd = -1  # above the archive, and not ours to look at
            if fd >= 0:
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
            self._unsynced.discard(directory)

    def _folder(self, path: str) -> None:
        """Make the directory of ``path`` if it does not exist.

        It and those above it will be synced, because a run that died may have made them.
        """
        folder = above = os.path.dirname(self.address(path))
        while not os.path.isdir(above):
            above = os.path.dirname(above)
        os.makedirs(folder, exist_ok=True)
        last = min(above, os.path.dirname(self.uri), key=len)
        self._unsynced.add(last)
        while folder != last:
            self._unsynced.add(folder)
            folder = os.path.dirname(folder)
