"""Write the segments of one partition. The disk thread owns it from the first job to the last.

(An event loop that does a job itself makes sure that the thread is idle.)

    append: one pwritev        at a known position; the journal has the same bytes already (``journal``)
            the head moves     through a shared mapping, with no system call, once what it covers is stored as promised
    roll:   sync, next file

A message waits for no sync of a segment: checkpoints sync segments, by file name. Index entries are buffered, and
written when a sync has covered the batches they point to.

This module knows bytes, positions and descriptors. It does not know receipts, the event loop's offsets, or time.
Invariants: ``position`` is the end of the last whole batch. After a write that found the disk full nothing more is
written until ``retry`` finds room. After any other failure (``State.FAILED``) the file is never written or synced
again: ``reopen`` continues in another one. At most OpenLogs.limit logs hold descriptors.
"""

from __future__ import annotations

import contextlib
import errno
from functools import partial
from typing import TYPE_CHECKING

from radiator import limits
from radiator.errors import StorageError
from radiator.storage import index, layout, names
from radiator.storage.batch import RecordBatch
from radiator.storage.files import NO_ROOM, FileSystem, close_quietly, opened, storage_error, write_all
from radiator.storage.index import IndexEntry
from radiator.storage.open_logs import OpenLogs
from radiator.storage.segment_states import TRANSITIONS, Event, State

if TYPE_CHECKING:  # readers of a store do without the configuration, which takes 0.05 s to import
    from radiator.config import Settings

INDEX_ENTRIES_BUFFERED = 4  # a recovery walks as much of the log as this
PROBE = bytes(64 * 1024)  # must fit on a full disk before messages are accepted again


class Log:
    """The segment files of one partition, for the disk thread."""

    __slots__ = (
        "base_offset",
        "directory",
        "entries",
        "exists",
        "failed",
        "fd",
        "fs",
        "head",
        "index_count",
        "indexed_position",
        "inherited",
        "marked",
        "name",
        "names",
        "names_made",
        "names_synced",
        "next_offset",
        "open_logs",
        "position",
        "remembers",
        "salt",
        "settings",
        "state",
        "suspect",
        "sync_required",
        "synced",
        "synced_offset",
        "unjournaled",
        "unpublished",
        "unreadable",
        "used",
    )

    def __init__(
        self, fs: FileSystem, directory: str, own_name: str, settings: Settings, open_logs: OpenLogs, salt: int
    ) -> None:
        self.fs = fs
        self.name = own_name  # of the partition
        self.directory = directory
        self.settings = settings
        self.open_logs = open_logs
        self.failed: StorageError | None = None
        self.state = State.ACTIVE  # of the active segment; ``failed`` is the error while it is another
        self.exists = False  # the directory does
        self.base_offset = 0  # of the active segment
        self.next_offset = 0
        self.position = 0  # where the next batch goes
        self.synced = 0  # position up to which fdatasync has covered the active segment
        self.synced_offset = 0  # the offset that follows there
        self.inherited = False  # an earlier run wrote the start of the active segment, and may not have synced it
        self.remembers = False  # message ids: the messages must outlive a power cut
        self.sync_required = False  # written batches must be synced, whatever the rule says
        self.names_made = 1  # so far, in its directory, and the directory's own
        self.names_synced = 0  # how many of them are on disk
        self.unjournaled = False  # the journal lacks some unsynced batches
        self.unpublished = False  # the head does not cover all that was appended
        self.suspect = False  # a sync of this file has failed
        self.marked = False  # the head tells the next start so: it has failed, or may have
        self.unreadable = 0  # attempts to read a failed file that failed as well
        self.fd = -1
        self.head: memoryview | None = None
        self.entries: list[IndexEntry] = []  # not yet written
        self.index_count = 0  # entries written
        self.indexed_position = -limits.INDEX_INTERVAL_BYTES
        self.salt = salt
        self.names = names.NameList(own_name)
        self.used = False

    # --- jobs ----------------------------------------------------------------------------------

    def encode(self, batch: RecordBatch) -> list[bytes]:
        """Return the bytes of a batch; sparse, if offsets before its first have been given up (``redo``)."""
        base = batch.base_offset
        deltas = [offset - base for offset in batch.offsets] if batch.offsets[0] != base else None
        return batch.encode(self.salt, deltas)

    def refuse(self, error: StorageError) -> None:
        """Refuse further appends as after a failed write, because a batch will not come."""
        if self.failed is None:
            self.failed = error
        self._on(Event.REFUSE)

    def _on(self, event: Event) -> None:
        self.state = TRANSITIONS.after(self.state, event)

    def append(self, batch: RecordBatch, stored: bool, roll: bool = False, pieces: list[bytes] | None = None) -> bool:
        """Write a batch. Raises StorageError, until ``retry`` succeeds.

        Args:
            batch: The records.
            stored: Whether they are as safe as their rule demands, so that readers of the files may have them;
                otherwise they become so with the next ``publish_head``.
            roll: Begin a new segment with this batch.
            pieces: The bytes of the batch, if it has been encoded already.

        Returns:
            True if it is the first batch of its segment.
        """
        if self.failed is not None:
            raise StorageError(str(self.failed))
        pieces = pieces or self.encode(batch)
        size, position, unopened = sum(map(len, pieces)), self.position, False
        try:
            if position and (roll or position + size > self.settings.segment_bytes):
                self._roll(batch.base_offset)
                position = 0
            if not self.names.known.issuperset(batch.names):
                self.open_logs.with_descriptors(partial(self._add_names, set(batch.names) - self.names.known))
            if self.fd < 0 and position and stored and self.open_logs.skips_opening():
                self.open_logs.with_descriptors(
                    partial(self._write_unopened, pieces, position + size, batch.next_offset)
                )
                stored, unopened = False, True  # the head says so already
            else:
                if self.fd < 0:
                    self._open(batch.base_offset)
                if self.fs.pwritev(self.fd, pieces, position) != size:
                    write_all(self.fs, self.fd, pieces, position)
        except OSError as error:
            raise self.fail("write", error) from error
        if position >= self.indexed_position + limits.INDEX_INTERVAL_BYTES:
            self.entries.append(IndexEntry(batch.base_offset, position, batch.receive_ns[0]))
            self.indexed_position = position
        self.position = position + size
        self.next_offset = batch.next_offset
        self.used = True
        self.unpublished = not unopened
        if stored:
            self.publish_head()
        return position == 0  # whatever failed between the first attempt and this one

    def sync(self) -> None:
        """Sync everything that was appended, and move the head.

        Raises:
            StorageError: The file has failed for good. It still has the bytes, but the event loop takes the offsets
                back.
        """
        if self.state is State.FAILED:
            raise StorageError(str(self.failed))
        try:
            if self.synced != self.position or self.inherited:
                if self.fd < 0:
                    self._open(self.base_offset)
                self._sync(self.fd)
            self.sync_names()
            self.publish_head()
        except OSError as error:
            self._give_up_file()
            raise self.fail("sync", error) from error

    def require_sync(self) -> None:
        """Note that appended batches must be synced, whatever the rule says."""
        self.sync_required = True

    def mark_unjournaled(self) -> None:
        """Note that the journal lacks unsynced batches of this log: syncing the journal is not enough."""
        self.unjournaled = True

    def remember_ids(self, remembers: bool) -> None:
        """Note whether message ids are remembered: then the messages must outlive a power cut."""
        self.remembers = remembers

    def names_are_synced(self, names: int) -> None:
        """Note that a checkpoint has synced that many file names."""
        self.names_synced = max(self.names_synced, names)

    def count_new_name(self) -> None:
        """Note that a file was made, or may have been, whose name is not synced."""
        self.names_made += 1

    def set_recovered(self, remembers: bool, end: int) -> None:
        """Note what recovery has found: the directory, and where the log ends if it has no segment.

        Args:
            remembers: Whether a file of ids exists.
            end: The next offset.
        """
        self.exists, self.remembers = True, remembers
        self.next_offset = self.synced_offset = end

    def set_active_segment(
        self,
        base_offset: int,
        position: int,
        next_offset: int,
        salt: int,
        entries: list[IndexEntry],
        index_count: int,
        indexed_position: int,
    ) -> None:
        """Note what recovery has found in the active segment.

        Args:
            base_offset: Of the segment.
            position: Where its last whole batch ends, in bytes.
            next_offset: The offset that follows.
            salt: Of its batches.
            entries: Of the index, which are not written.
            index_count: Entries of the index that are written.
            indexed_position: Where the batch of the last entry begins.
        """
        self.base_offset, self.position, self.next_offset, self.salt = base_offset, position, next_offset, salt
        self.entries, self.index_count, self.indexed_position = entries, index_count, indexed_position

    def inherit(self) -> None:
        """Note that recovery has brought the active segment in order; an earlier run may not have synced it."""
        self.synced, self.synced_offset = self.position, self.next_offset
        self.inherited = self.position > 0

    def was_synced(self, base_offset: int, position: int, next_offset: int) -> None:
        """Note that a checkpoint has synced the segment that begins there up to ``position``."""
        if self.base_offset != base_offset or self.state is State.FAILED or position < self.synced:
            return  # it was sealed since, or synced further
        self.synced, self.synced_offset = position, next_offset
        self.inherited = False
        if self.marked and not self.suspect:
            self.marked = False
            if self.head is not None:  # else the next write of it says so
                self.head[layout.SYNC_FAILED_AT : layout.HEAD_BYTES] = layout.SYNCED
        self.sync_required = self.sync_required and position < self.position
        if len(self.entries) >= INDEX_ENTRIES_BUFFERED:
            self.write_index()

    def roll(self, next_offset: int) -> bool:
        """Seal the active segment, if it has records, and begin the next one; the first one if there is none.

        Returns:
            True if a segment was begun.

        Raises:
            StorageError: The log has failed.
        """
        if self.failed is not None:
            raise StorageError(str(self.failed))
        if not self.position and self.fd >= 0:
            return False
        try:
            if self.position:
                self._roll(next_offset)
            self._open(next_offset)
        except OSError as error:
            raise self.fail("roll", error) from error
        return True

    def remove(self, bases: list[int]) -> None:
        """Delete sealed segments. After a crash in between, the next retention deletes the rest."""
        try:
            self.sync_names()  # of the segment that follows: without it, a start finds no trace of these offsets
            for base in bases:
                assert base < self.base_offset
                for path in (layout.segment_path(self.directory, base), layout.index_path(self.directory, base)):
                    try:
                        self.fs.remove(path)
                    except FileNotFoundError:
                        continue
            self.fs.sync_dir(self.directory)
        except OSError as error:
            raise storage_error(self.directory, "remove a segment", error) from error

    # --- opening and closing ------------------------------------------------------------------------------------------

    def _open(self, base_offset: int) -> None:
        """Open the active segment, a new one if it has no records yet."""
        if not self.position:
            self.base_offset = base_offset
        self.open_logs.with_descriptors(self._open_files)

    def _open_files(self) -> None:
        fs, new = self.fs, not self.position
        self.make_directory()
        close_quietly(fs, self.fd)  # of an attempt that ended half-way
        self.fd = -1
        self.fd = fs.open(layout.segment_path(self.directory, self.base_offset), create=new)
        self.map_head()
        self.names_made += new
        if new and self.next_offset:  # the segment before may be rewritten: then it no longer ends where the head says
            self.publish_head()

    def make_directory(self) -> None:
        """Make the directory of the log if it does not exist; the next checkpoint syncs its name. Raises OSError."""
        if not self.exists:
            self.fs.mkdir(self.directory)
            self.exists = True
            self.names_made += 1

    def was_used(self) -> bool:
        """Return whether something was appended since the last call."""
        used, self.used = self.used, False
        return used

    def map_head(self) -> None:
        """Map the head. From now on this log counts among the open ones."""
        if self.head is not None:
            return
        with opened(self.fs, self.fs.open(layout.head_path(self.directory), create=True)) as fd:
            if self.fs.size(fd) < layout.HEAD_FILE_BYTES:  # allocated before it is mapped: a hole could be a SIGBUS
                write_all(self.fs, fd, [bytes(layout.HEAD_FILE_BYTES)], 0)
            self.head = self.fs.map(fd, layout.HEAD_FILE_BYTES)
        self.open_logs.opened(self)

    def _write_unopened(self, pieces: list[bytes], end: int, next_offset: int) -> None:
        """Write a batch up to ``end``, and the head, through files that are opened for this alone. Raises OSError."""
        fs, segment, head = self.fs, -1, -1
        try:
            head = fs.open(layout.head_path(self.directory), create=True)
            segment = fs.open(layout.segment_path(self.directory, self.base_offset))
            write_all(fs, segment, pieces, self.position)
            write_all(fs, head, [self._head(end, next_offset).ljust(layout.HEAD_FILE_BYTES, b"\0")], 0)
        finally:
            close_quietly(fs, segment)
            close_quietly(fs, head)

    def release(self) -> None:
        """Close the descriptors; the next append opens them again."""
        close_quietly(self.fs, self.fd)
        self.fd = -1
        if self.head is not None:
            self.head.release()
            self.head = None

    def close(self) -> None:
        """Sync and close at a clean stop, with names and index. Raises StorageError."""
        try:
            unsynced = self.synced != self.position or (self.inherited and self.sync_required)
            if self.state is not State.FAILED and (self.fd >= 0 or unsynced):
                if self.fd < 0:
                    self._open(self.base_offset)
                self._seal()
            elif self.state is not State.FAILED:
                self.publish_head()
                self.write_index()
            with contextlib.suppress(FileNotFoundError):  # another program has removed its directory
                self.sync_names()
        except OSError as error:
            raise self.fail("close", error) from error
        finally:
            self.release()

    def _roll(self, next_offset: int) -> None:
        if self.fd < 0:
            self._open(self.base_offset)
        self._seal()
        close_quietly(self.fs, self.fd)
        self.fd = -1
        self.sync_names()  # a start that finds the next segment must find this one
        self._on(Event.SEAL)
        self._begin(next_offset)

    def sync_names(self) -> None:
        """Sync the names of the files and of the directory. Raises OSError."""
        if self.names_synced < self.names_made and self.exists:
            self.fs.sync_dir(self.directory)
            self.fs.sync_dir(self.directory.rpartition("/")[0])
            self.names_synced = self.names_made

    def configure(self, settings: Settings) -> None:
        """Set the settings of the rule. They are immutable, so the disk thread sees the old ones or the new."""
        self.settings = settings

    def count_unreadable(self) -> int:
        """Count a failed attempt to read the failed file, and return the number of them."""
        self.unreadable += 1
        return self.unreadable

    def _begin(self, base_offset: int) -> None:
        self.state = State.ACTIVE
        self.base_offset = self.next_offset = self.synced_offset = base_offset
        self.position = self.synced = self.index_count = self.unreadable = 0
        self.inherited = self.unjournaled = self.suspect = self.marked = False
        self.entries = []
        self.indexed_position = -limits.INDEX_INTERVAL_BYTES

    def _seal(self) -> None:
        if self.failed is not None:
            self.fs.truncate(self.fd, self.position)
        if self.syncs or self.remembers:  # a start does not read sealed segments, so it would miss a loss
            self._sync(self.fd)
        self.publish_head()
        self.write_index()

    @property
    def syncs(self) -> bool:
        """Whether anything here is to be synced at all."""
        return self.sync_required or not self.settings.sync.never

    def _sync(self, fd: int) -> None:
        self.open_logs.synced()
        self.sync_begins()
        self.write_mark()
        try:
            self.fs.fdatasync(fd)
            self.check_file(self.base_offset)
        except OSError:
            self.suspect_file(self.base_offset)
            self._give_up_file()
            raise
        self.synced, self.synced_offset = self.position, self.next_offset
        self.sync_required = self.inherited = self.unjournaled = self.marked = False

    def _give_up_file(self) -> None:
        self._on(Event.FAIL)
        if self.inherited:  # the earlier run may have failed to sync what it wrote
            self.synced, self.synced_offset = 0, self.base_offset

    def sync_has_failed(self, error: OSError) -> StorageError:
        """Note that a checkpoint could not sync the active segment; return the error to raise."""
        self._give_up_file()
        return self.fail("sync", error)

    def check_file(self, base_offset: int) -> None:
        """Raise OSError if a sync of that segment has failed: then a successful sync proves nothing. Any thread."""
        if self.suspect and base_offset == self.base_offset:
            raise OSError(errno.EIO, "an earlier sync of this file has failed")

    def sync_begins(self) -> None:
        """Note that a sync of the active segment begins, which must succeed if the journal lacks some of it.

        The head is marked until then, with ``write_mark``: if the sync fails and the process is killed before it learns
        of that, the next start must write the segment again instead of trusting the kernel's pages.
        """
        self.marked = self.marked or self.unjournaled or self.inherited

    def suspect_file(self, base_offset: int) -> None:
        """Note that a sync of that segment has failed. Any thread may call it."""
        if base_offset != self.base_offset:
            return  # it was sealed, and synced
        self.suspect = self.marked = True
        self.write_mark()

    def write_mark(self) -> None:
        """Mark the head if a sync of the active segment has failed, or may have. Any thread may call it."""
        if not self.marked:
            return
        if self.head is not None:
            with contextlib.suppress(ValueError):  # it was closed just now
                self.head[layout.SYNC_FAILED_AT : layout.HEAD_BYTES] = layout.SYNC_FAILED
                return
        with contextlib.suppress(OSError):
            with opened(self.fs, self.fs.open(layout.head_path(self.directory))) as fd:
                write_all(self.fs, fd, [layout.SYNC_FAILED], layout.SYNC_FAILED_AT)

    def retry(self, next_offset: int) -> None:
        """After a write that found no room: if there is room again, continue behind the last whole batch."""
        if self.failed is None:
            return
        assert not self.must_reopen(next_offset)
        try:
            if self.fd >= 0:
                self.fs.truncate(self.fd, self.position)
                write_all(self.fs, self.fd, [PROBE], self.position)
                self.fs.truncate(self.fd, self.position)
        except OSError as error:
            raise self.fail("write", error) from error
        close_quietly(self.fs, self.fd)  # reopened, to complete a write that the full disk interrupted
        self.fd = -1
        self.failed = None
        self._on(Event.RETRY)

    def must_reopen(self, next_offset: int) -> bool:
        """Return whether the log can only continue in another file.

        It must if the file cannot be trusted, or has records behind ``next_offset`` that the event loop does not count.
        """
        return self.state is State.FAILED or (self.state is State.REFUSING and self.next_offset != next_offset)

    def continue_in_file(
        self, fd: int, base_offset: int, position: int, next_offset: int, entries: list[IndexEntry]
    ) -> None:
        """Continue in another file, which is synced with its name (``reopen``)."""
        close_quietly(self.fs, self.fd)
        self._begin(base_offset)
        self.fd = fd
        self.position = self.synced = position
        self.next_offset = self.synced_offset = next_offset
        self.entries = entries
        if entries:
            self.indexed_position = entries[-1].position
        self.failed = None
        self.publish_head()

    def fail(self, doing: str, error: OSError) -> StorageError:
        """Refuse appends until ``retry`` or ``reopen``; return the error to raise."""
        path = layout.segment_path(self.directory, self.base_offset)
        if error.errno not in NO_ROOM:
            self._give_up_file()
        else:
            self._on(Event.REFUSE)
            if doing == "write" and self.fd >= 0:
                with contextlib.suppress(OSError):  # recovery truncates it
                    self.fs.truncate(self.fd, self.position)  # no half record is left, if the disk still lets us
        self.failed = storage_error(path, doing, error)
        return self.failed

    # --- parts --------------------------------------------------------------------------------------------------------

    def publish_head(self) -> None:
        """Move the head: what was appended is as safe as the rule makes it, and readers may have it."""
        data = self._head(self.position, self.next_offset)
        if self.head is not None:
            self.head[: len(data)] = data
        elif self.unpublished:  # its descriptors were closed since
            try:
                self.open_logs.with_descriptors(partial(self._write_head, data))
            except OSError:
                return  # until the next time
        self.unpublished = False

    def _write_head(self, data: bytes) -> None:
        with opened(self.fs, self.fs.open(layout.head_path(self.directory))) as fd:
            write_all(self.fs, fd, [data], 0)

    def _head(self, position: int, next_offset: int) -> bytes:
        end = layout.encode_head(self.base_offset, position, next_offset)
        return end + self.names.vouched + (layout.SYNC_FAILED if self.marked else layout.SYNCED)

    def write_index(self) -> None:
        """Write the buffered index entries. Errors are ignored: the index is a cache."""
        if not self.entries:
            return
        path, data = layout.index_path(self.directory, self.base_offset), index.encode_entries(self.entries)
        try:
            with opened(self.fs, self.fs.open(path, create=True)) as fd:
                if self.index_count:
                    write_all(self.fs, fd, [data], index.ENTRY_BYTES * (1 + self.index_count))
                else:
                    write_all(self.fs, fd, [index.encode_head(self.base_offset), data], 0)
        except OSError:
            return  # a cache: no message fails because of it
        self.index_count += len(self.entries)
        self.entries.clear()

    def _add_names(self, new: set[str]) -> None:
        """Add destinations to the list."""
        self.make_directory()
        self.names.add(self.fs, layout.names_path(self.directory), new)
        self.names_made += 1
