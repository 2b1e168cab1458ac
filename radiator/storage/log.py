"""The writing end of one partition's files. Belongs to the disk thread, all of it, from the first job to the last (a
loop that does a job itself has seen to it that the thread does nothing).

    append: one pwritev        at a known position (the file's size is never asked: zeros may stand ahead)
    sync:   one fdatasync      then the head file moves, through a shared mapping, with no system call
    roll:   cut the zeros off, sync, next file, sync the directory

Zeros ahead: while single small batches are synced one by one, the segment is grown in chunks of zeros, so that a sync
has no file size to record; that takes 30 to 40 % off it (``docs/adr/``). Recovery takes a tail of zeros as a clean end.
Index entries are buffered, and written when a sync has covered what they point to.

Knows: bytes, positions, descriptors. Must not know: waiters, receipts, the hub's offsets, time.
Invariants: ``position`` is the end of the last whole batch. After a write that found the disk full nothing more is
written until ``retry`` finds room; what was whole before it is still synced, so that its group can be told. After any
other failure (``file_failed``) the file is never written or synced again: ``reopen`` goes on in another one. At most
OpenLogs.limit logs hold descriptors.
"""

from __future__ import annotations

from radiator import limits
from radiator.errors import StorageError
from radiator.storage import index, layout, names
from radiator.storage.batch import RecordBatch
from radiator.storage.files import NO_ROOM, FileSystem, close_quietly, storage_error, write_all
from radiator.storage.index import IndexEntry
from radiator.storage.open_logs import OpenLogs, make_directories
from radiator.storage.options import PartitionOptions

AHEAD_BYTES_MIN = 64 * 1024
AHEAD_BYTES_MAX = 512 * 1024
AHEAD_BATCH_BYTES_MAX = 32 * 1024  # larger batches pay for the size's change themselves
AHEAD_AFTER = 8  # small synced batches in a row, so that a file that gets only a few stays small
ZEROS = memoryview(bytes(AHEAD_BYTES_MAX))
INDEX_ENTRIES_BUFFERED = 4  # a recovery walks as much of the log as this


class Log:
    """Segment files of one partition, as the disk thread sees them."""

    __slots__ = (
        "ahead",
        "base_offset",
        "deferred",
        "directory",
        "entries",
        "exists",
        "failed",
        "fd",
        "file_failed",
        "fs",
        "head",
        "index_count",
        "indexed_position",
        "made",
        "names",
        "next_offset",
        "open_logs",
        "owes_sync",
        "options",
        "position",
        "salt",
        "small_syncs",
        "synced",
        "synced_offset",
        "unreadable",
        "used",
    )

    def __init__(
        self, fs: FileSystem, directory: str, own_name: str, options: PartitionOptions, open_logs: OpenLogs, salt: int
    ) -> None:
        self.fs = fs
        self.directory = directory
        self.options = options
        self.open_logs = open_logs
        self.failed: StorageError | None = None
        self.file_failed = False  # then that is final for the file; a write that found the disk full may be repeated
        self.exists = False  # the directory does
        self.made = -1  # base offset of the last file that was begun, its name synced
        self.base_offset = 0  # of the active segment
        self.next_offset = 0
        self.position = 0  # where the next batch goes
        self.synced = 0  # position up to which fdatasync has covered the active segment
        self.synced_offset = 0  # the offset that follows there
        self.owes_sync = False  # something was written that is to be synced, whatever the rule says
        self.deferred = False  # the last batch is decided, and safe in the redo log only: nothing is written behind it
        self.ahead = 0  # position up to which zeros have been written
        self.small_syncs = 0
        self.unreadable = 0  # attempts to read a failed file that failed as well
        self.fd = -1
        self.head: memoryview | None = None
        self.entries: list[IndexEntry] = []  # not yet written
        self.index_count = 0  # entries written
        self.indexed_position = -limits.INDEX_INTERVAL_BYTES
        self.salt = salt
        self.names = names.NameList(own_name)
        self.used = False

    # --- the three things a job does ----------------------------------------------------------------------------------

    def encode(self, batch: RecordBatch) -> list[bytes]:
        """The batch as it will stand here; sparse, if offsets before its first have been given up (``redo``)."""
        base = batch.base_offset
        deltas = [offset - base for offset in batch.offsets] if batch.offsets[0] != base else None
        return batch.encode(self.salt, deltas)

    def refuse(self, error: StorageError) -> None:
        """A batch will not come, so nothing that follows may either; as after a write that failed."""
        if self.failed is None:
            self.failed = error

    def append(
        self, batch: RecordBatch, will_sync: bool, roll: bool = False, pieces: list[bytes] | None = None
    ) -> bool:
        """Writes the batch; True if it is the first of its segment. Raises StorageError, until ``retry`` succeeds."""
        if self.failed is not None:
            raise StorageError(str(self.failed))
        if self.deferred:
            self.sync()
        pieces = pieces or self.encode(batch)
        size, position = sum(map(len, pieces)), self.position
        try:
            if position and (roll or position + size > self.options.segment_bytes):
                self._roll(batch.base_offset)
                position = 0
            if not self.names.known.issuperset(batch.names):
                self.open_logs.again(lambda: self._add_names(set(batch.names) - self.names.known))
            if self.fd < 0:
                self._open(batch.base_offset)
            if will_sync and position + size > self.ahead:
                self._grow(position, size)
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
        self.owes_sync |= will_sync
        if not will_sync and self.options.sync.never:
            self._covered()
        return position == 0  # whatever failed between the first attempt and this one

    def defer(self, deferred: bool = True) -> None:
        """What was just appended is decided and not synced; or nothing is left of that."""
        self.open_logs.deferring += deferred - self.deferred
        self.deferred = deferred

    def sync(self) -> None:
        """Everything appended so far is on disk when this returns, and the head says so. Raises StorageError, and that
        is final for the file: the hub takes the offsets back, and the file holds them."""
        if self.file_failed:
            raise StorageError(str(self.failed))
        if self.synced == self.position:
            return
        try:
            if self.fd < 0:
                self._open(self.base_offset)
            self._sync(self.fd)
            self._covered()
        except OSError as error:
            self.file_failed = True
            raise self.fail("sync", error) from error

    def roll(self, next_offset: int) -> bool:
        """Seals the active segment, if it holds anything, and begins the next one; the first one if there is none."""
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
        """Deletes sealed segments. A crash in between leaves whole segments, which the next retention takes."""
        try:
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
        """Opens the active segment, a new one if nothing is in it yet."""
        if not self.position:
            self.base_offset = base_offset
        self.open_logs.again(self._open_files)

    def _open_files(self) -> None:
        fs, new = self.fs, not self.position
        make_directories([self])
        close_quietly(fs, self.fd)  # of an attempt that ended half-way
        self.fd = -1
        self.fd = fs.open(layout.segment_path(self.directory, self.base_offset), create=new)
        self.map_head()
        if new and self.made != self.base_offset:
            fs.sync_dir(self.directory)
            self.made = self.base_offset

    def map_head(self) -> None:
        """From now on this log counts among the open ones."""
        if self.head is not None:
            return
        fd = self.fs.open(layout.head_path(self.directory), create=True)
        try:
            if self.fs.size(fd) < layout.HEAD_FILE_BYTES:  # allocated before it is mapped: a hole could be a SIGBUS
                write_all(self.fs, fd, [bytes(layout.HEAD_FILE_BYTES)], 0)
            self.head = self.fs.map(fd, layout.HEAD_FILE_BYTES)
        finally:
            self.fs.close(fd)
        self.open_logs.opened(self)

    def release(self) -> None:
        """Gives the descriptors back; the next append opens them again."""
        if self.fd >= 0 and not self.file_failed and self.synced != self.position and self._syncs:
            try:
                self._sync(self.fd)  # a later sync through another descriptor might not hear of an error
                self._covered()
            except OSError as error:
                self.fail("sync", error)
        close_quietly(self.fs, self.fd)
        self.fd = -1
        if self.head is not None:
            self.head.release()
            self.head = None

    def close(self) -> None:
        """The clean end: zeros cut off, synced, index complete."""
        try:
            if not self.file_failed and (self.fd >= 0 or self.ahead > self.position or self.synced != self.position):
                if self.fd < 0:
                    self._open(self.base_offset)
                self._seal()
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
        self._begin(next_offset)

    def _begin(self, base_offset: int) -> None:
        self.base_offset = self.next_offset = self.synced_offset = base_offset
        self.position = self.synced = self.ahead = self.index_count = self.small_syncs = self.unreadable = 0
        self.defer(False)
        self.entries = []
        self.indexed_position = -limits.INDEX_INTERVAL_BYTES

    def _seal(self) -> None:
        if self.ahead > self.position or self.failed is not None:
            self.fs.truncate(self.fd, self.position)
            self.ahead = 0
        if self._syncs:
            self._sync(self.fd)
        self._covered()
        self.write_index()

    @property
    def _syncs(self) -> bool:
        return self.owes_sync or not self.options.sync.never

    def _sync(self, fd: int) -> None:
        self.open_logs.syncs += 1
        try:
            self.fs.fdatasync(fd)
        except OSError:
            self.file_failed = True
            raise
        self.synced, self.synced_offset = self.position, self.next_offset
        self.owes_sync = False
        self.defer(False)

    def retry(self, next_offset: int) -> None:
        """After a write that found no room: if there is some again, the log goes on behind its last whole batch."""
        if self.failed is None:
            return
        assert not self.must_reopen(next_offset)
        try:
            if self.fd >= 0:
                self.fs.truncate(self.fd, self.position)
                write_all(self.fs, self.fd, [ZEROS[:AHEAD_BYTES_MIN]], self.position)
                self.fs.truncate(self.fd, self.position)
                if self.synced != self.position and self._syncs:
                    self._sync(self.fd)  # as in ``release``
        except OSError as error:
            raise self.fail("write", error) from error
        close_quietly(self.fs, self.fd)  # opened anew: what was under way when the disk was full is then complete
        self.fd = -1
        self.ahead = self.small_syncs = 0
        self.failed = None

    def must_reopen(self, next_offset: int) -> bool:
        """Whether the log can go on only in another file: this one cannot be trusted, or holds what the hub has not
        told (it ends at ``next_offset``)."""
        return self.failed is not None and (self.file_failed or self.next_offset != next_offset)

    def goes_on_in(
        self, fd: int, base_offset: int, position: int, next_offset: int, ahead: int, entries: list[IndexEntry]
    ) -> None:
        """The active segment is another file, all of it synced, its name too (``reopen``)."""
        close_quietly(self.fs, self.fd)
        self._begin(base_offset)
        self.fd = fd
        self.position = self.synced = position
        self.next_offset = self.synced_offset = next_offset
        self.ahead = ahead
        self.entries = entries
        if entries:
            self.indexed_position = entries[-1].position
        self.failed = None
        self.file_failed = False
        self._covered()

    def fail(self, doing: str, error: OSError) -> StorageError:
        """Nothing more is appended until ``retry`` or ``reopen``; returns what is to be raised."""
        path = layout.segment_path(self.directory, self.base_offset)
        if error.errno not in NO_ROOM:
            self.file_failed = True
        elif doing == "write" and self.fd >= 0:
            try:
                self.fs.truncate(self.fd, self.position)  # no half record is left, if the disk still lets us
            except OSError:
                pass  # recovery cuts it off
        self.failed = storage_error(path, doing, error)
        return self.failed

    # --- parts --------------------------------------------------------------------------------------------------------

    def _covered(self) -> None:
        """What has been appended is as safe as the rule makes it: readers of the files may have it."""
        if self.head is not None:
            data = layout.encode_head(self.base_offset, self.position, self.next_offset) + self.names.vouched
            self.head[: len(data)] = data
        if len(self.entries) >= INDEX_ENTRIES_BUFFERED:
            self.write_index()

    def write_index(self) -> None:
        if not self.entries:
            return
        fd = -1
        try:
            fd = self.fs.open(layout.index_path(self.directory, self.base_offset), create=True)
            data = index.encode_entries(self.entries)
            if self.index_count:
                write_all(self.fs, fd, [data], index.ENTRY_BYTES * (1 + self.index_count))
            else:
                write_all(self.fs, fd, [index.encode_head(self.base_offset), data], 0)
        except OSError:
            return  # a cache: no message fails because of it
        finally:
            close_quietly(self.fs, fd)
        self.index_count += len(self.entries)
        self.entries.clear()

    def _grow(self, position: int, size: int) -> None:
        """Zeros ahead of the next batch, as much as the segment has grown so far, within bounds."""
        if size > AHEAD_BATCH_BYTES_MAX:
            self.small_syncs = 0
            return
        self.small_syncs += 1
        if self.small_syncs < AHEAD_AFTER:
            return
        start = max(position, self.ahead)
        length = min(max(position, AHEAD_BYTES_MIN), AHEAD_BYTES_MAX, self.options.segment_bytes - start)
        if length < size:
            return
        try:
            self.ahead = start + self.fs.pwritev(self.fd, [ZEROS[:length]], start)
        except OSError:
            self.small_syncs = -1_000  # a full disk: the batch itself may still fit

    def _add_names(self, new: set[str]) -> None:
        """Destinations that are new here."""
        make_directories([self])
        sync = not self.options.sync.never
        if self.names.add(self.fs, layout.names_path(self.directory), new, sync) and sync and self.position:
            self.fs.sync_dir(self.directory)  # else the segment that comes next syncs the name as well
