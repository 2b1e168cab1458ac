"""The seam over where an archive lies: few verbs, over a directory or over whatever pyarrow or fsspec reach by URI.

    a path, file://     ``LocalFiles``: os calls; what is published is synced, file and directories
    any other scheme    fsspec if it has a driver for the scheme (s3fs, gcsfs ...), else ``pyarrow.fs``: see ``remote``

Paths are relative to the archive, with ``/``. A data file is written where ``spool`` says, on a local disk, and put in
its place by ``publish`` when it is complete. ``create_new`` is what the log of commits stands on: a name that is there
is never written again, and what is there is whole. It holds in one step locally, and in object stores with every fsspec
driver that knows mode ``xb`` (S3, Google, Azure: by conditional requests); elsewhere it looks first and writes then:
there only one archiver may work at a time.

Errors are OSErrors. Knows: bytes and names. Must not know: what is in the files. No state: any thread, any process;
instances can be pickled.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from radiator.archive.paths import NEW
from radiator.errors import StorageError

LOCAL_SCHEMES = ("", "file", "local")


class NoArchive(StorageError):
    """There is no archive where one was looked for."""


class Entry(NamedTuple):
    path: str
    size_bytes: int


class Files(ABC):
    uri: str  # of the archive, for messages: without what may be secret
    given: str  # what opens it again
    local: str | None = None  # its directory, if it is one of this machine

    @abstractmethod
    def list(self, directory: str) -> list[Entry]:
        """The files below, however deep, sorted; none if there is no such directory. Raises OSError if it cannot be
        told: an archive that cannot be listed is no empty one."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Raises FileNotFoundError."""

    @abstractmethod
    def open(self, path: str) -> Any:
        """To be read, by pyarrow too. Raises FileNotFoundError."""

    @abstractmethod
    def size(self, path: str) -> int | None:
        """In bytes; None: there is no such file."""

    @abstractmethod
    def create_new(self, path: str, data: bytes) -> bool:
        """A file with just this, in one step; False, and nothing else, if there is one of that name."""

    @abstractmethod
    def publish(self, spooled: str, path: str) -> None:
        """The complete local file ``spooled`` becomes ``path``, which is new. What is there when this fails is of no
        use; the spooled file may be gone."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """No error if it is not there."""

    @abstractmethod
    def spool(self, name: str) -> str:
        """A directory of this machine for files that are being written, the same for the same name."""

    @abstractmethod
    def spools(self) -> tuple[str, str]:
        """The directory in which spools are, and how their names begin."""

    @abstractmethod
    def address(self, path: str) -> str:
        """What other programs open it by: a local path, or a URI, which may have secrets where the archive's has."""

    def named(self, path: str) -> str:
        """For messages."""
        return f"{self.uri}/{path}"

    def settle(self) -> None:  # noqa: B027 - elsewhere it is safe when it is published
        """What was published since the last time is safe when this returns."""


class LocalFiles(Files):
    def __init__(self, root: str) -> None:
        self.local = self.uri = self.given = os.path.abspath(root)
        self._temporary = self.address(NEW)  # where a file is made before it gets its name
        self._unsynced: set[str] = set()  # directories with new names

    def list(self, directory: str) -> list[Entry]:
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
        with open(self.address(path), "rb") as file:
            return file.read()

    def open(self, path: str) -> Any:
        return open(self.address(path), "rb")

    def size(self, path: str) -> int | None:
        try:
            return os.stat(self.address(path)).st_size
        except FileNotFoundError:
            return None

    def create_new(self, path: str, data: bytes) -> bool:
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

    def publish(self, spooled: str, path: str) -> None:
        with open(spooled, "rb") as file:
            os.fsync(file.fileno())
        self._folder(path)
        os.rename(spooled, self.address(path))

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.address(path))

    def spool(self, name: str) -> str:
        self._temporary = self.address(f"{NEW}/{name}")
        self._folder(f"{NEW}/x")
        os.makedirs(self._temporary, exist_ok=True)
        return self._temporary

    def spools(self) -> tuple[str, str]:
        return self.address(NEW), ""

    def address(self, path: str) -> str:
        return f"{self.uri}/{path}"

    def settle(self) -> None:
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
        """Makes the directory of ``path`` if need be. It and those above it will be synced, whoever made them: a run
        that died may have."""
        folder = above = os.path.dirname(self.address(path))
        while not os.path.isdir(above):
            above = os.path.dirname(above)
        os.makedirs(folder, exist_ok=True)
        last = min(above, os.path.dirname(self.uri), key=len)
        self._unsynced.add(last)
        while folder != last:
            self._unsynced.add(folder)
            folder = os.path.dirname(folder)
