"""Make a backup: a copy of a store that is an exact prefix of every log, beside a running broker or without one.

The order of the steps is what makes the copy consistent:

    1  the cursors are read, and then the end of each log, as one consistent point (``consistent_point``)
    2  the partitions are copied up to their ends: whole batches, byte for byte, each file synced
    3  the manifest is written, and then the directory is renamed: whatever is called TARGET is complete

It takes no lock and writes nothing in the store. Meanwhile the broker may append (behind the ends), remove old segments
(the copy of that partition then begins later), and replace a sealed segment with a rewritten one. Both versions of a
rewritten segment are right, because the offsets are the same; if it was the active segment in step 1, its end is looked
up again.

Knows about files, but not about threads or the clock: the caller passes the time. One thread, any process.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from radiator.checksum import crc32
from radiator.clock import WallNs
from radiator.errors import StorageError
from radiator.storage import archived, dedup_file, definitions, index, layout, names, typed_rules
from radiator.storage.files import DirectoryLock, FileSystem, lock_holder, opened, read_file, storage_error
from radiator.storage.header import DamagedBatch
from radiator.storage.layout import Head
from radiator.storage.reader import StoredPartition, list_partitions, stored_partition
from radiator.storage.segment import Window, batch_at, load_index
from radiator.upkeep import manifest as manifests
from radiator.upkeep.consistent_point import ConsistentPoint, find_consistent_point, segment_bases
from radiator.upkeep.copying import Copier, remove_tree
from radiator.upkeep.manifest import CopiedFile, CopiedPartition, Manifest

PARTIAL = ".partial"
TRIES_MAX = 100  # each finds that retention or the rewriter went on; they are slower than a copy of one segment
HEADROOM_BYTES = 1 << 20  # the manifest, directories
NOT_COPIED = {
    layout.LOCK,
    layout.SALT,
    layout.PARTITIONS,
    layout.CURSORS,
    layout.JOURNAL,
    layout.TRANSACTIONS,
    layout.SCHEMAS,
    layout.SUBSCRIPTIONS,
    layout.SUBSCRIPTIONS_DAMAGED,
    layout.LAST_RULES,
    layout.MIRROR,
    layout.REMOVALS,
    layout.REMOVED,
    "lost+found",
}
KNOWN = (layout.HEAD, layout.NAMES, layout.DEDUP, layout.ARCHIVED)
KNOWN_SUFFIXES = (layout.SEGMENT_SUFFIX, layout.INDEX_SUFFIX, ".new")
NO_LINK = (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.ENOENT, errno.ENOTSUP)


@dataclass(frozen=True)
class Previous:
    """An earlier backup of the same store, whose files may be linked to."""

    path: str
    manifest: Manifest


@dataclass(frozen=True)
class BackupMade:
    """What a backup holds.

    Attributes:
        manifest: The manifest that was written.
        copied_bytes: How many bytes were written.
        linked_bytes: How many bytes are in files shared with the previous backup.
    """

    manifest: Manifest
    copied_bytes: int
    linked_bytes: int  # shared with the previous backup


class _Changed(Exception):
    """The broker has changed a file while it was copied, so it must be looked up again."""


def back_up(
    fs: FileSystem,
    root: str,
    target: str,
    *,
    now_ns: WallNs,
    version: str,
    since: str | None = None,
    pace: Callable[[int], None] | None = None,
    pause: Callable[[], None] = lambda: None,
    planned: Callable[[int], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> BackupMade:
    """Copy a store to a new directory.

    All paths are absolute and without links. If this fails, nothing of the copy remains.

    Args:
        fs: The file system.
        root: The data directory.
        target: The directory to make; its parent must exist.
        now_ns: The time to note in the manifest, in nanoseconds since 1970.
        version: The version of radiator to note in the manifest.
        since: An earlier backup of the same store, to link unchanged segments to.
        pace: Called with the size of each chunk before it is read; may sleep.
        pause: Called between two attempts to find a consistent point.
        planned: Called once with how many bytes there will be.
        progress: Called with the size of each chunk that is done.

    Raises:
        StorageError: The target exists or lies inside the store, the disk is full, or a file cannot be read or written.
    """
    if f"{target}/".startswith(f"{root}/"):
        raise StorageError(f"{target}: is inside the data directory {root}, and would be a part of the copy")
    parent, _, name = target.rpartition("/")
    lock, partial = None, target + PARTIAL
    try:
        previous = _previous(fs, since, root)
        if name in fs.listdir(parent or "/"):
            raise StorageError(f"{target}: exists already; each backup needs a new name")
        lock = _begin(fs, partial)
        try:
            made = _Backup(fs, root, partial, Copier(fs, pace, progress), previous).run(now_ns, version, pause, planned)
            fs.remove(layout.lock_path(partial))
            fs.sync_dir(partial)
            fs.rename(partial, target)
            fs.sync_dir(parent or "/")
        except BaseException:
            remove_tree(fs, partial)
            raise
        return made
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = (
            "free space there, or choose another place for the backup; the incomplete backup was removed"
            if full
            else None
        )
        raise storage_error(error.filename or target, "make the backup", error, remedy) from error
    finally:
        if lock is not None:
            fs.unlock(lock)


def _previous(fs: FileSystem, since: str | None, root: str) -> Previous | None:
    if since is None:
        return None
    found = manifests.read(fs, since)
    if found.store != store_digest(fs, root):
        raise StorageError(f"{since}: a backup of another store than {root}; --since needs an earlier one of the same")
    return Previous(since, found)


def store_digest(fs: FileSystem, root: str) -> str:
    """Return a digest that differs between stores and does not reveal the key of the salts."""
    return sha256(read_file(fs, layout.salt_path(root)) or b"").hexdigest()


def _begin(fs: FileSystem, partial: str) -> DirectoryLock:
    """Make and lock the directory of an unfinished backup, and remove what an interrupted backup left there."""
    if fs.listdir(partial) and layout.LOCK not in fs.listdir(partial):
        raise StorageError(f"{partial}: exists, and is not from an interrupted backup; remove or rename it")
    fs.mkdir(partial)
    try:
        lock = fs.lock(partial)
    except BlockingIOError:
        holder = lock_holder(fs, partial)
        raise StorageError(f"{partial}: another backup is being written there (process {holder})") from None
    for name in fs.listdir(partial):
        if name != layout.LOCK:
            remove_tree(fs, f"{partial}/{name}")
    return lock


class _Backup:
    def __init__(self, fs: FileSystem, root: str, partial: str, copier: Copier, previous: Previous | None) -> None:
        self.fs = fs
        self.root = root
        self.partial = partial
        self.copier = copier
        self.previous = previous
        self.known = {file.path: file for file in previous.manifest.files} if previous else {}
        self.files: list[CopiedFile] = []
        self.left_out: list[str] = []
        self.copied_bytes = self.linked_bytes = 0
        self.whole = True
        self.decided: dict[str, int] = {}  # where logs will end by the journal that the copy has

    def run(
        self, now_ns: WallNs, version: str, pause: Callable[[], None], planned: Callable[[int], None] | None
    ) -> BackupMade:
        fs, partial = self.fs, self.partial
        store = store_digest(fs, self.root)
        key = read_file(fs, layout.salt_path(self.root))
        last_rules = read_file(fs, layout.last_rules_path(self.root))
        damaged = read_file(fs, f"{self.root}/{layout.SUBSCRIPTIONS_DAMAGED}")
        point = find_consistent_point(fs, self.root, pause)
        partitions = [stored for stored in list_partitions(self.root, fs) if stored.name in point.heads]
        self._room(partitions, point, planned)
        self.left_out = [name for name in fs.listdir(self.root) if name not in NOT_COPIED]
        if key is not None:
            self._write(layout.SALT, key)
        fs.mkdir(layout.partitions_path(partial))
        self.whole, self.decided = point.whole, point.decided
        found = [self._partition(stored, point.heads[stored.name]) for stored in partitions]
        copied = [each for each in found if each is not None]
        for name in sorted(point.decided.keys() - point.heads.keys()):
            fs.mkdir(layout.partition_path(partial, name))
            copied.append(CopiedPartition(name, 0, point.decided[name], 0))
        cursors = point.cursors
        cursors.limit({each.name: (each.first_offset, each.next_offset) for each in copied})
        fs.mkdir(layout.cursors_path(partial))
        for name, data in cursors.files():
            self._write(f"{layout.CURSORS}/{name}", data)
        if point.journal:
            fs.mkdir(layout.journal_path(partial))
            self._write(layout.journal_file_path(layout.JOURNAL, 1), point.journal)
        if cursors.names is not None:
            self._write(layout.SUBSCRIPTIONS, definitions.encode(cursors.names))
        if damaged is not None:  # as long as it is there, a start keeps the cursors of unknown names
            self._write(layout.SUBSCRIPTIONS_DAMAGED, damaged)
        if last_rules is not None:
            self._write(layout.LAST_RULES, last_rules)
        self._schemas()
        for directory in manifests.directories(self.files):
            fs.sync_dir(f"{partial}/{directory}" if directory else partial)
        fs.sync_dir(layout.partitions_path(partial))
        made = Manifest(now_ns, version, store, copied, cursors.facts(), self.files, self.left_out, self.whole)
        self.copier.write(f"{partial}/{manifests.MANIFEST}", manifests.encode(made))
        return BackupMade(made, self.copied_bytes, self.linked_bytes)

    def _room(
        self, partitions: list[StoredPartition], point: ConsistentPoint, planned: Callable[[int], None] | None
    ) -> None:
        """Check that the backup fits on the disk, before the first byte is written.

        Raises:
            StorageError: There is too little room.
        """
        total = sum(stored.size_bytes for stored in partitions) + point.cursors.size_bytes + len(point.journal)
        needed = total + HEADROOM_BYTES
        for stored in partitions:
            for segment in stored.segments[:-1]:
                known = self.known.get(_relative(stored, segment.base_offset))
                if known is not None and known.size_bytes == segment.size_bytes:
                    needed -= segment.size_bytes
        free = self.fs.free_bytes(self.partial)
        if needed > free:
            raise StorageError(f"{self.partial}: the backup needs {needed} bytes, and there is room for {free}")
        if planned is not None:
            planned(total)

    def _schemas(self) -> None:
        """Copy the schemas as they are: each is written once and never changed.

        The list of rules is replaced by a reload, after new schemas were written. So it is read before them.
        """
        source = layout.schemas_path(self.root)
        names = [name for name in self.fs.listdir(source) if name.endswith(".json")]
        names.sort(key=lambda name: name != typed_rules.FILE)
        if names:
            self.fs.mkdir(layout.schemas_path(self.partial))
        for name in names:
            self._write(f"{layout.SCHEMAS}/{name}", read_file(self.fs, f"{source}/{name}") or b"")

    # --- a partition --------------------------------------------------------------------------------------------------

    def _partition(self, stored: StoredPartition, head: Head | None) -> CopiedPartition | None:
        """Copy a partition. Return None, with nothing copied, if it was removed since the backup began."""
        fs, partial = self.fs, f"{self.partial}/{_relative(stored)}"
        fs.mkdir(partial)
        if head is None:
            head = _end(stored)
        copied: dict[int, CopiedFile] = {}
        short = False
        for _ in range(TRIES_MAX):
            there = segment_bases(fs, stored.directory)
            if not there and not fs.has_name(stored.directory):
                self._keep_only(copied, [], partial)
                fs.rmdir(partial)
                return None
            bases = [base for base in there if head and base <= head.segment_base]
            try:
                for base in bases:
                    if base not in copied:
                        copied[base] = self._segment(stored, base, head, short)
                break
            except (FileNotFoundError, _Changed) as change:
                stored = stored_partition(fs, stored.name, stored.directory)
                gone = head is None or head.segment_base not in segment_bases(fs, stored.directory)
                if gone or isinstance(change, _Changed):
                    before, head = head, _end(stored)
                    short = head == before and not fs.is_locked(self.root)  # a power failure has taken its end
                    self.whole &= short  # else it is another moment than that of the other logs
        else:
            raise StorageError(
                f"{stored.directory}: changes faster than it can be copied; try again at a time with less traffic"
            )
        self._keep_only(copied, bases, partial)
        self.files += copied.values()
        self._small_files(stored, bases, copied, head)
        start = stored.next_offset if stored.name not in self.decided else 0
        if bases:
            start = bases[0]
        end = max(head.next_offset if head else stored.next_offset, self.decided.get(stored.name, 0))
        return CopiedPartition(stored.name, start, end, sum(file.size_bytes for file in copied.values()))

    def _keep_only(self, copied: dict[int, CopiedFile], bases: list[int], partial: str) -> None:
        """Remove the copies of segments that retention has passed meanwhile: they would stand before a hole."""
        for base in [base for base in copied if base not in bases]:
            del copied[base]
            self.fs.remove(layout.segment_path(partial, base))

    def _segment(self, stored: StoredPartition, base: int, head: Head | None, short: bool) -> CopiedFile:
        fs, path = self.fs, _relative(stored, base)
        with opened(fs, fs.open_read(f"{self.root}/{path}")) as fd:
            before, size, mtime_ns = fs.stamp(fd), fs.size(fd), fs.stamp(fd)[1]
            if head is not None and base == head.segment_base:
                if not (short or self._still_matches(stored.directory, head, fd)):
                    raise _Changed
                size, mtime_ns = min(size, head.position), 0
            elif (known := self.known.get(path)) is not None and known.size_bytes == size:
                same = known.mtime_ns == mtime_ns or self.copier.digest(fd, size) == (size, known.sha256)
                if same and self._link(path):
                    self.linked_bytes += size
                    self.copier.done(size)
                    return CopiedFile(path, size, known.sha256, mtime_ns)
            got, digest = self.copier.copy(fd, size, f"{self.partial}/{path}")
            self.copied_bytes += got
            if got != size or (mtime_ns and fs.stamp(fd) != before):
                fs.remove(f"{self.partial}/{path}")
                raise _Changed
            return CopiedFile(path, size, digest, mtime_ns)

    def _link(self, path: str) -> bool:
        assert self.previous is not None
        try:
            self.fs.link(f"{self.previous.path}/{path}", f"{self.partial}/{path}")
            return True
        except OSError as error:
            if error.errno in NO_LINK:
                return False
            raise

    def _still_matches(self, directory: str, head: Head, fd: int) -> bool:
        """Return whether the open segment is still the file that ``head`` describes.

        Only appends change an active segment. One that was sealed meanwhile may have been rewritten, with other
        positions.
        """
        size = self.fs.size(fd)
        if segment_bases(self.fs, directory)[-1:] == [head.segment_base]:
            return size >= head.position
        if size <= head.position:
            return size == head.position
        try:
            return batch_at(Window(self.fs, fd, 4096), head.position).base_offset >= head.next_offset
        except DamagedBatch:
            return False

    def _small_files(
        self, stored: StoredPartition, bases: list[int], copied: dict[int, CopiedFile], head: Head | None
    ) -> None:
        """Write head, index, names, ids and archive position so that they fit the copied segments."""
        fs, partial = self.fs, _relative(stored)
        for base in bases:
            entries = load_index(fs, stored.directory, base)
            entries = [each for each in entries if each.position < copied[base].size_bytes]
            if entries:
                self._write(layout.index_path(partial, base), index.encode_head(base) + index.encode_entries(entries))
        listed = layout.decode_listed(read_file(fs, layout.head_path(stored.directory)) or b"")
        raw = read_file(fs, layout.names_path(stored.directory)) or b""  # behind the head that is to vouch for it
        _, end = names.decode(raw)
        if head is not None:
            data = layout.encode_head(*head)
            if names.vouched(raw, listed):
                data += layout.encode_listed(layout.Listed(end, crc32(raw[:end])))
            self._write(layout.head_path(partial), data.ljust(layout.HEAD_FILE_BYTES, b"\0"))
        if head is not None and (ids := read_file(fs, layout.dedup_path(stored.directory))):
            # Empty if no block is valid: a start over the copy then searches the log.
            self._write(layout.dedup_path(partial), dedup_file.shortened(ids, head.next_offset) or b"")
        if end:
            self._write(layout.names_path(partial), raw[:end])
        if head is not None and (archived_to := _archived(fs, stored, head.next_offset)):
            self._write(layout.archived_path(partial), archived.encode(archived_to))
        for name in fs.listdir(stored.directory):
            if not (name in KNOWN or name.endswith(KNOWN_SUFFIXES)):
                self.left_out.append(f"{partial}/{name}")

    def _write(self, path: str, data: bytes) -> None:
        digest = self.copier.write(f"{self.partial}/{path}", data)
        self.copied_bytes += len(data)
        self.files.append(CopiedFile(path, len(data), digest))


def _end(stored: StoredPartition) -> Head | None:
    """Return where the committed records of a partition end; None if there are none."""
    if not stored.segments:
        return None
    last = stored.segments[-1]
    return Head(last.base_offset, last.size_bytes, stored.next_offset)


def _relative(stored: StoredPartition, base: int | None = None) -> str:
    directory = f"{layout.PARTITIONS}/{layout.encode_name(stored.name)}"
    return directory if base is None else layout.segment_path(directory, base)


def _archived(fs: FileSystem, stored: StoredPartition, end: int) -> int:
    """Return how far an archive has the copied messages: others will get the offsets behind them."""
    try:
        return min(archived.read(fs, stored.directory), end)
    except StorageError:
        return 0  # a damaged mark retains everything, as a missing one does
