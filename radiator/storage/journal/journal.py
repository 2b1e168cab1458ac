"""Write the journal: ``<data_dir>/journal/<number, 10 digits>.rjl``.

    write    one entry, at the end of the last file: one pwritev
    sync     one fdatasync for everything that was written, of all logs
    release  files whose contents are in synced segments or in the snapshot: the newest of them is used again, the
             others are removed

Zeros are written ahead of the end, in pieces, so that a sync has no file size to record. A reused file needs none: its
old entries have lower numbers (``format``). Entries with messages leave room behind them, so that ACKs can be stored
while the disk is full and messages are refused.

A file whose sync has failed is not written or synced again: another is begun. An entry that was refused because of it
is voided: the next entry gets its number. A file contains the number of its first entry, and entries of earlier files
from that number on are void.

This module knows bytes, files and numbers. It does not know partitions, cursors or receipts. The disk thread owns it
once the store is open, except ``wants_checkpoint``, ``full``, ``failed`` and ``sync_error``, which the event loop may
read.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import NamedTuple

from radiator import clock, limits
from radiator.errors import StorageError
from radiator.histogram import Histogram
from radiator.storage import layout
from radiator.storage.files import NO_ROOM, FileSystem, close_quietly, storage_error, write_all
from radiator.storage.journal import format as journal_format
from radiator.storage.journal.format import (
    FILE_HEADER_BYTES,
    SALT_BYTES,
    EntryBuilder,
    FileHeader,
)
from radiator.storage.open_logs import Runner, run_once

AHEAD_BYTES_MIN = 64 * limits.KIB
ROOM_BYTES = 128 * limits.KIB  # for entries without messages, on a full disk: thousands of groups of ACKs
ROOM_ENTRIES = 4_000  # more than fit into that
AHEAD_BYTES_MAX = 4 * limits.MIB
ZEROS = memoryview(bytes(AHEAD_BYTES_MAX))
VOID = bytes(8)  # in place of an entry's magic
PROBE = ZEROS[:AHEAD_BYTES_MIN]  # must fit on a full disk before messages are accepted again


class Extent(NamedTuple):
    """The size of one file of the journal."""

    bytes: int
    batches: int


class Journal:
    """The files of the journal, and the one that is written."""

    def __init__(
        self, fs: FileSystem, root: str, again: Runner = run_once, file_bytes: int = limits.JOURNAL_FILE_BYTES
    ) -> None:
        self.fs = fs
        self.directory = layout.journal_path(root)
        self.failed: StorageError | None = None  # messages could not be written, or an entry not synced
        self.sync_error: StorageError | None = None  # of the latest sync that has failed
        self.wants_checkpoint = False
        self.syncs = 0  # made so far, for metrics
        self.sync_durations = Histogram()
        self.next_entry = 1
        self.epoch = 1
        self.file_number = 0  # of the file that is written
        self.position = 0
        self._run = again
        self._file_bytes = file_bytes
        self._room_bytes = min(ROOM_BYTES, file_bytes // 4)
        self._first_bytes = FILE_HEADER_BYTES + min(ROOM_BYTES + AHEAD_BYTES_MIN, file_bytes)
        self._before: dict[int, Extent] = {}  # of the files before the last, by number
        self._batches = 0  # in the last file; an entry without any counts as one
        self._spare = 0  # the number of a file that may be used again; 0: none
        self._fd = -1
        self._path = ""
        self._unsynced: list[tuple[int, int]] = []  # (number, descriptor) of full files that no sync has covered
        self._doubtful = 0  # the newest file with a failed sync
        self._synced = 0  # position
        self._salt = 0  # of the last file
        self._ahead = 0  # up to where there is room in the file already
        self._named = False  # this file's name is on the disk
        self._abandoned = False  # this file is not written again

    def continue_after(self, files: dict[int, int], next_entry: int, epoch: int) -> None:
        """Continue behind files of an earlier run, given with their sizes, in a new file."""
        self._before = {number: Extent(size, 0) for number, size in files.items()}
        self.file_number = max(files, default=0)
        self.next_entry, self.epoch = next_entry, epoch
        self._abandoned = self.wants_checkpoint = bool(files)
        self._doubtful = self.file_number  # it may never have been synced

    @property
    def bytes(self) -> int:
        """The size of all files that are needed."""
        return sum(each.bytes for each in self._before.values()) + self.position

    @property
    def full(self) -> bool:
        """Whether checkpoints have fallen behind: no messages should be accepted before the next one."""
        batches = sum(each.batches for each in self._before.values()) + self._batches
        files_max = limits.JOURNAL_FILES_MAX
        return self.bytes > files_max * limits.JOURNAL_FILE_BYTES or batches > files_max * limits.JOURNAL_FILE_BATCHES

    def write(self, entry: EntryBuilder) -> None:
        """Append an entry. If it raises StorageError, the entry is not stored."""
        try:
            size = entry.size_bytes
            room, more = (self._room_bytes, 0) if entry.batches else (0, ROOM_ENTRIES)
            too_much = self.position + size + room > self._file_bytes
            too_much |= self._batches >= limits.JOURNAL_FILE_BATCHES + more
            if self._fd < 0 or self._abandoned or (too_much and self.position > FILE_HEADER_BYTES):
                self._begin_file()
            if not self.fs.has_name(self._path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            position = self.position
            ahead = self._ahead
            if position + size + self._room_bytes > ahead:
                ahead = self._grow(position + size, must=bool(entry.batches))
            data = entry.encode(self.next_entry, self.epoch, self._salt)
            if self.fs.pwritev(self._fd, [data], position) != len(data):
                write_all(self.fs, self._fd, [data], position)
        except OSError as error:
            self._abandoned = self._abandoned or error.errno not in NO_ROOM
            raise self._fail("write", error) from error
        self.position, self._ahead = position + len(data), ahead
        self._batches += entry.batches or 1
        self.next_entry += 1
        if entry.batches:
            self.failed = None

    def sync(self) -> None:
        """Sync everything that was written. Raises StorageError."""
        if self._synced == self.position and not self._unsynced:
            return
        if self._doubtful == self.file_number:
            raise StorageError(str(self.sync_error))
        self.syncs += 1
        start_ns = clock.monotonic_ns()
        try:
            for _, fd in self._unsynced:
                self.fs.fdatasync(fd)
            self._close_unsynced(self.file_number)
            self._sync_file()
            self.sync_durations.observe(clock.monotonic_ns() - start_ns)
        except OSError as error:
            self._abandoned = self.wants_checkpoint = True
            self._doubtful = self.file_number
            self._close_unsynced(self.file_number)  # a second sync might report success
            self.sync_error = self._fail("sync", error)
            raise self.sync_error from error
        self._synced = self.position

    def _sync_file(self) -> None:
        self.fs.fdatasync(self._fd)
        if not self._named:
            self.fs.sync_dir(self.directory)
            self.fs.sync_dir(self.directory.rpartition("/")[0])
            self._named = True

    @property
    def doubtful(self) -> bool:
        """Whether it is unknown if some entries are on disk, until the next checkpoint."""
        return self._doubtful > 0

    def take_back(self, next_entry: int, position: int) -> None:
        """Void the entries from this number on, which were refused because a sync has failed.

        They are void once another file with their number has begun on disk. If the process is killed before that, they
        are void because they are overwritten.

        Args:
            next_entry: The number of the first of them.
            position: Where it begins.
        """
        assert self._abandoned
        self.next_entry = next_entry
        with contextlib.suppress(OSError):
            self.fs.pwritev(self._fd, [VOID], position)
        with contextlib.suppress(OSError):
            self._begin_file()
            self._sync_file()

    # --- files --------------------------------------------------------------------------------------------------------

    def begin_file(self, again: bool = False) -> int:
        """Begin the file for what is written from now on, unless the present file can be used.

        Args:
            again: The checkpoint before this one has failed. Files before the present one are enough to release.

        Returns:
            The number of the file.

        Raises:
            StorageError: No file can be written.
        """
        try:
            used = self.position > FILE_HEADER_BYTES and not (again and self._before)
            if self._fd < 0 or self._abandoned or used:
                self._begin_file()
            elif self.failed is not None:
                self._ahead = max(self._ahead, self.position + write_all(self.fs, self._fd, [PROBE], self.position))
        except OSError as error:
            self._abandoned = self._abandoned or error.errno not in NO_ROOM
            raise self._fail("begin", error) from error
        self.failed = None
        self.wants_checkpoint = False
        return self.file_number

    def request_checkpoint(self) -> None:
        """Note that a checkpoint could not release files: another one is needed."""
        self.wants_checkpoint = True

    def _begin_file(self) -> None:
        self._run(self._open_file)
        self.wants_checkpoint |= bool(self._before)

    def _open_file(self) -> None:
        fs, number = self.fs, self.file_number + 1
        fs.mkdir(self.directory)
        path = self.path(number)
        ahead = 0
        if self._spare:
            with contextlib.suppress(FileNotFoundError):
                fs.rename(self.path(self._spare), path)
            self._spare = 0
        fd = fs.open(path, create=True)
        try:
            salt = int.from_bytes(fs.entropy(SALT_BYTES), "little")
            header = FileHeader(number, self.next_entry, self.epoch, salt)
            ahead = fs.size(fd)
            if ahead < self._first_bytes:
                ahead = write_all(fs, fd, [ZEROS[: self._first_bytes]], 0)
            write_all(fs, fd, [journal_format.encode_file_header(header)], 0)  # last: it ends the file before
            if self._abandoned:  # refused messages must not come back
                fs.fdatasync(fd)
                fs.sync_dir(self.directory)
        except OSError:
            close_quietly(fs, fd)
            raise
        if self._fd >= 0:
            if self._doubtful == self.file_number or self._synced == self.position:
                close_quietly(fs, self._fd)
            else:
                self._unsynced.append((self.file_number, self._fd))
            self._before[self.file_number] = Extent(self.position, self._batches)
        self._fd, self._path, self.file_number, self._salt = fd, path, number, salt
        self.position = self._synced = FILE_HEADER_BYTES
        self._ahead, self._batches = ahead, 0
        self._abandoned = self._named = False

    def release(self, first_needed: int) -> None:
        """Release files with lower numbers: their contents are in synced segments, or in the snapshot.

        Raises:
            OSError: A file cannot be removed.
        """
        for number in sorted(number for number in self._before if number < first_needed):
            if self._spare:
                with contextlib.suppress(FileNotFoundError):
                    self.fs.remove(self.path(self._spare))
                self._spare = 0
            self.fs.sync_dir(self.directory)  # a file goes before the one that says that its last entries are void
            self._spare = number
            del self._before[number]
        self._close_unsynced(first_needed)
        if self._doubtful < first_needed:
            self._doubtful = 0

    def _close_unsynced(self, first_needed: int) -> None:
        for number, fd in self._unsynced:
            if number < first_needed:
                close_quietly(self.fs, fd)
        self._unsynced = [each for each in self._unsynced if each[0] >= first_needed]

    def path(self, number: int) -> str:
        """Return the path of a file of the journal."""
        return layout.journal_file_path(self.directory, number)

    def _grow(self, end: int, must: bool) -> int:
        """Allocate room for an entry that will end at ``end``, and behind it.

        Returns:
            Where that room ends.

        Raises:
            OSError: There is no room, and ``must`` is True.
        """
        start = max(self._ahead, self.position)
        usual = min(max(self.position, AHEAD_BYTES_MIN), AHEAD_BYTES_MAX, self._file_bytes - start)
        length = max(usual, end + self._room_bytes - start)
        zeros = [ZEROS] * (length // len(ZEROS)) + [ZEROS[: length % len(ZEROS)]]
        try:
            return start + write_all(self.fs, self._fd, zeros, start)
        except OSError:
            if must:
                raise
            return self._ahead

    def _fail(self, doing: str, error: OSError) -> StorageError:
        self.failed = storage_error(self.path(self.file_number or 1), f"{doing} the journal", error)
        return self.failed

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the files, which the next start reads."""
        self._close_unsynced(self.file_number)
        close_quietly(self.fs, self._fd)
        self._fd = -1

    def clear(self) -> None:
        """Remove all files: their contents are in synced segments, or in the snapshot. Raises OSError."""
        self.close()
        if not self.file_number:
            return  # nothing was ever written
        for number in sorted({*self._before, self.file_number, self._spare}):
            with contextlib.suppress(FileNotFoundError):
                self.fs.remove(self.path(number))
        self.fs.sync_dir(self.directory)
        self._before.clear()
        self._spare = 0
