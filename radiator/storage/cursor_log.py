"""The files of the cursors: a journal that grows, and now and then a snapshot that takes its place.

Room for ACKs: the journal has zeros ahead of its end, so that entries can be written and synced when the disk is full
and messages are refused; and a sync of an entry has no file size to record. Readers take a tail of zeros as the end.

Knows: bytes, positions, descriptors. Must not know: cursors, what an entry says, time.
Invariants: ``position`` is the end of the last whole entry. After a failure nothing is written until a snapshot has
taken the journal's place. Disk thread only, once the store is open.
"""

from __future__ import annotations

import contextlib

from radiator.errors import StorageError
from radiator.storage import cursor_snapshot
from radiator.storage.cursor_journal import JOURNAL
from radiator.storage.files import NO_ROOM, FileSystem, close_quietly, storage_error, write_all
from radiator.storage.open_logs import Again, once

ROOM_BYTES_MIN = 128 * 1024  # thousands of group commits, each with any number of ACKs in a row
ZEROS = memoryview(bytes(2 * ROOM_BYTES_MIN))


class CursorLog:
    """See the top of the file."""

    def __init__(self, fs: FileSystem, directory: str, again: Again = once) -> None:
        self.fs = fs
        self._again = again
        self.directory = directory
        self.failed: StorageError | None = None
        self.no_room = False  # that is why
        self.generation = 0
        self.position = 0
        self.synced = 0
        self.ahead = 0  # up to where there are zeros
        self.fd = -1

    def path(self, generation: int) -> str:
        return f"{self.directory}/{JOURNAL}{generation:010d}"

    def append(self, data: bytes) -> None:
        if self.failed is not None:
            raise StorageError(str(self.failed))
        try:
            if self.fd < 0:
                self._again(self._open)
            self.position += write_all(self.fs, self.fd, [data], self.position)
        except OSError as error:
            raise self._fail("write", error) from error
        if self.ahead - self.position < ROOM_BYTES_MIN:
            self._make_room()

    def _open(self) -> None:
        close_quietly(self.fs, self.fd)  # of an attempt that ended half-way
        self.fd = -1
        self.fd = self.fs.open(self.path(self.generation), create=True)
        self.fs.sync_dir(self.directory)

    def _make_room(self) -> None:
        start = max(self.ahead, self.position)
        try:
            self.ahead = start + self.fs.pwritev(self.fd, [ZEROS], start)
        except OSError:
            self.ahead = start  # a full disk: what is left of the room is used up, one entry after the other

    def sync(self) -> None:
        if self.failed is not None:
            raise StorageError(str(self.failed))
        if self.synced == self.position:
            return
        try:
            self.fs.fdatasync(self.fd)
        except OSError as error:
            raise self._fail("sync", error) from error
        self.synced = self.position

    def replace(self, generation: int, snapshot: bytes) -> None:
        """The snapshot holds everything up to now, durably; the journal of that generation goes on from it. A journal
        that has failed is left behind with that: nothing of it is needed any more."""
        fs = self.fs
        try:
            self._again(lambda: cursor_snapshot.write(fs, self.directory, snapshot))
            close_quietly(fs, self.fd)
            self.fd = -1
            with contextlib.suppress(FileNotFoundError):
                fs.remove(self.path(self.generation))
            self.generation, self.position, self.synced, self.ahead = generation, 0, 0, 0
            self.failed = None
        except OSError as error:
            raise self._fail("replace the snapshot", error) from error

    def close(self) -> None:
        close_quietly(self.fs, self.fd)
        self.fd = -1

    def _fail(self, doing: str, error: OSError) -> StorageError:
        self.no_room = error.errno in NO_ROOM
        self.failed = storage_error(self.path(self.generation), doing, error)
        return self.failed
