"""The ``dedup`` file of a partition: the message ids that it remembers, so that a restart remembers them too.

The file consists of *blocks*, appended while the log grows. Each block says up to which offset all ids are in the file
(``covered``), and contains the ids since the block before. The file is not synced with each message. A start reads the
valid blocks, and searches the log from the covered offset on for the other ids (``dedup_recovery``).

    first id of a partition   the file is made, and synced, before the batch with that id is written, whatever the rule
    1,024 ids, 1 MiB of log   a block; 8 MiB of log, a new segment, a clean stop: a block that is synced
    too large, or a failure   the whole file is rewritten beside the old one, synced, and renamed over it

This module knows the bytes of the file and when to write it. It does not know headers or how ids are stored in memory
(``dedup``). The event loop owns everything but ``write`` and ``sync`` of the jobs, which the disk thread calls.
Invariants: what a block covers was committed when the block was written; a start removes ids behind the end of the log
before anything is appended, because their offsets may be given again; while ids are remembered, no part of the log is
removed that the synced part of the file does not cover.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from struct import Struct
from typing import NamedTuple, Protocol

from radiator import limits
from radiator.checksum import crc32
from radiator.clock import Now
from radiator.config import Settings
from radiator.storage import layout
from radiator.storage.batch import RECORD_OVERHEAD_BYTES, RecordBatch
from radiator.storage.dedup import Columns, Dedup
from radiator.storage.files import FileSystem, opened, replace_file, storage_error, write_again, write_all
from radiator.storage.jobs import Job
from radiator.storage.log import Log

MAGIC = b"\x89RDD1\r\n\x1a"
HEADER = Struct("<8sIIQQ")  # magic, crc of the bytes from 12 on, entries, covered before, covered
CRC_FROM = 12
ENTRY_BYTES = 32  # id, offset u64, receive time i64
BLOCK_IDS = 1_024
BLOCK_LOG_BYTES = 1 * limits.MIB
SYNC_LOG_BYTES = 8 * limits.MIB
SPARE_IDS = 4_096  # a file is rewritten when it has this many more than twice the ids in memory


def encode_block(before: int, covered: int, rows: bytes) -> bytes:
    """Return a block with the ids between two covered offsets."""
    rest = HEADER.pack(MAGIC, 0, len(rows) // ENTRY_BYTES, before, covered)[CRC_FROM:] + rows
    return MAGIC + crc32(rest).to_bytes(4, "little") + rest


class Decoded(NamedTuple):
    """The valid blocks of a file."""

    rows: bytes
    covered: int | None  # None: there is no valid block
    end: int  # position behind the last valid block


def decode(data: bytes) -> Decoded:
    """Decode the blocks up to the first that is damaged or does not follow the one before it."""
    rows: list[bytes] = []
    covered: int | None = None
    at = 0
    while at + HEADER.size <= len(data):
        magic, crc, count, before, after = HEADER.unpack_from(data, at)
        end = at + HEADER.size + count * ENTRY_BYTES
        if magic != MAGIC or end > len(data) or crc32(memoryview(data)[at + CRC_FROM : end]) != crc:
            break
        if covered is not None and before != covered:
            break
        rows.append(data[at + HEADER.size : end])
        covered = after
        at = end
    return Decoded(b"".join(rows), covered, at)


def shortened(data: bytes, end: int) -> bytes | None:
    """Return a file for a copy of the log that ends at offset ``end``; None if no block is valid."""
    found = decode(data)
    if found.covered is None:
        return None
    columns, covered = columns_of(found.rows), min(found.covered, end)
    keep = bisect_left(columns[2], end)
    return encode_block(covered, covered, found.rows[: keep * ENTRY_BYTES])


def rows_of(columns: Columns) -> bytes:
    """Return columns as the entries of a block."""
    first, second, offsets, receive_ns = columns
    rows = array("Q", bytes(ENTRY_BYTES * len(offsets)))
    rows[0::4], rows[1::4], rows[2::4], rows[3::4] = first, second, offsets, array("Q", receive_ns.tobytes())
    if sys.byteorder == "big":
        rows.byteswap()
    return rows.tobytes()


def columns_of(rows: bytes) -> Columns:
    """Return the entries of blocks as columns."""
    values = array("Q", rows)
    if sys.byteorder == "big":
        values.byteswap()
    return values[0::4], values[1::4], values[2::4], array("q", values[3::4].tobytes())


# --- writing ----------------------------------------------------------------------------------------------------------


class RemembersIds(Protocol):
    """The partition of a file, as the jobs use it."""

    log: Log
    settings: Settings
    high_watermark: int

    def want_retention(self) -> None:
        """Check soon which segments may be deleted."""


class DedupFile:
    """The state of the file: how far it is written, and what is due."""

    def __init__(self) -> None:
        self.exists = False
        self.stale = True  # the current content is invalid: the whole file must be rewritten
        self.wanted = False  # a block is wanted now, and synced
        self.under_way = False
        self.inherited = False  # an earlier run wrote it, and may have failed to sync it
        self.covered = 0
        self.synced_to = 0  # as far as a power cut leaves it
        self.blocks_retention = False  # something of the log waits to be removed until the file has its ids
        self.position = 0
        self.entries = 0
        self.seen = 0  # ids that had come when the last block was made
        self.log_bytes = 0  # committed since then, about
        self.unsynced_bytes = 0  # and since the last one that is synced
        self.restored: Columns | None = (
            None  # ids that an earlier run left, until it is known which rule they are under
        )

    @classmethod
    def recovered(cls, exists: bool, restored: Columns, covered: int, position: int, entries: int) -> DedupFile:
        """Return the state of a file that a start has read.

        Args:
            exists: Whether the file exists.
            restored: The ids within the limits.
            covered: The file has all ids below this offset.
            position: Where its last valid block ends, in bytes.
            entries: The number of ids in the file, with those outside of the limits.
        """
        file = cls()
        file.exists, file.stale, file.restored = exists, not exists, restored
        file.inherited = exists
        file.covered, file.position, file.entries = covered, position, entries
        return file

    def replaced(self, end: int, position: int, entries: int) -> None:
        """Note that a start has written and synced the whole file: it has all ids below offset ``end``."""
        self.exists, self.stale, self.inherited = True, False, False
        self.covered = self.synced_to = end
        self.position, self.entries = position, entries

    def not_replaced(self) -> None:
        """Note that a start could not write the file: it is written before anything is appended."""
        self.exists, self.stale = False, True

    def committed(self, batch: RecordBatch) -> None:
        """Count a committed batch."""
        size = batch.size_bytes + len(batch) * RECORD_OVERHEAD_BYTES
        self.log_bytes += size
        self.unsynced_bytes += size

    def request_block(self) -> None:
        """Have a block written soon, and synced."""
        self.wanted = True

    def request_before_removal(self) -> bool:
        """Note that a segment can only be deleted when the file has its ids.

        Returns:
            True if a block must be written for that.
        """
        self.blocks_retention = True
        self.wanted |= not self.under_way
        return not self.under_way

    def lost(self) -> None:
        """Have the whole file rewritten: some of its ids are void."""
        self.stale = self.wanted = True

    def take_restored(self) -> Columns | None:
        """Return the ids of an earlier run, once."""
        restored, self.restored = self.restored, None
        return restored

    def due(self, dedup: Dedup) -> bool:
        """Return whether a block must be written."""
        return (
            self.wanted or not self.exists or dedup.added - self.seen >= BLOCK_IDS or self.log_bytes >= BLOCK_LOG_BYTES
        )

    def block(self, partition: RemembersIds, dedup: Dedup) -> DedupJob:
        """Return the job that writes what is due. It must run before the appends of the same turn."""
        never, covered = partition.settings.sync.never, partition.high_watermark
        whole = self.stale or not self.exists or self.entries > 2 * len(dedup) + SPARE_IDS
        synced = not never and (whole or self.wanted or self.unsynced_bytes >= SYNC_LOG_BYTES)
        columns = dedup.columns(0 if whole else self.covered, covered)
        self.wanted = False
        self.under_way = True
        self.seen = dedup.added
        self.log_bytes = 0
        if synced:
            self.unsynced_bytes = 0
        return DedupJob(partition, self, columns, covered, None if whole else self.position, synced)

    def written(self, job: DedupJob) -> None:
        """Take back a finished job."""
        self.under_way = False
        if job.error is not None:
            self.stale = True
            return
        count, whole = len(job.columns[2]), job.position is None
        self.exists, self.stale = True, False
        self.inherited = self.inherited and not (whole or job.needs_sync)
        self.covered = job.covered
        if whole or job.needs_sync or job.partition.settings.sync.never:
            self.synced_to = job.covered
        self.position = (job.position or 0) + HEADER.size + ENTRY_BYTES * count
        self.entries = count if whole else self.entries + count


class DedupJob(Job):
    """Write one block at ``position``, or the whole file (``position`` None)."""

    __slots__ = ("before", "columns", "covered", "file", "inherited", "position", "required")
    before_entry = True
    partition: RemembersIds

    def __init__(
        self,
        partition: RemembersIds,
        file: DedupFile,
        columns: Columns,
        covered: int,
        position: int | None,
        synced: bool,
    ) -> None:
        super().__init__(partition, needs_sync=synced and position is not None)
        self.file = file
        self.columns = columns
        self.inherited = file.inherited
        self.before = file.covered
        self.covered = covered
        self.position = position
        self.required = not file.exists  # without it, an id that is receipted now would be forgotten by a crash

    def write(self) -> None:
        """Write the block, or the file. The disk thread calls it."""
        log = self.partition.log
        log.remember_ids(True)
        try:
            if self.position is None:
                log.make_directory()
                log.open_logs.with_descriptors(self._replace)
            elif not self.needs_sync:
                log.open_logs.with_descriptors(self._add)
        except OSError as error:
            self.error = storage_error(layout.dedup_path(log.directory), "write", error)
            if self.required:
                log.refuse(self.error)

    def sync(self) -> None:
        """Write and sync the block. The disk thread calls it.

        It is written here too: a group may have many of these jobs, and each would hold a descriptor in between.
        """
        log = self.partition.log
        try:
            log.open_logs.with_descriptors(self._add)
        except OSError as error:
            self.error = storage_error(layout.dedup_path(log.directory), "write or sync", error)

    def _replace(self) -> None:
        log, synced = self.partition.log, self.required or not self.partition.settings.sync.never
        replace(log.fs, log.directory, self.covered, rows_of(self.columns), synced)
        if self.required:
            log.sync_names()  # a power cut may take a new directory, and a start brings back only the messages

    def _add(self) -> None:
        fs, position = self.partition.log.fs, self.position
        assert position is not None
        with opened(fs, fs.open(layout.dedup_path(self.partition.log.directory))) as fd:
            write_all(fs, fd, [encode_block(self.before, self.covered, rows_of(self.columns))], position)
            if self.needs_sync:
                if self.inherited:
                    write_again(fs, fd, 0, position)
                fs.fdatasync(fd)

    def done(self, now: Now) -> None:
        """Report the result to the file's state."""
        self.file.written(self)
        if self.file.blocks_retention and self.error is None:
            self.file.blocks_retention = False
            self.partition.want_retention()


class ForgetJob(Job):
    """Remove the file, because the rule remembers no ids: a later start must not use it."""

    __slots__ = ()
    before_entry = True
    partition: RemembersIds

    def write(self) -> None:
        """Remove the file. The disk thread calls it."""
        log = self.partition.log
        log.remember_ids(False)
        try:
            log.fs.remove(layout.dedup_path(log.directory))
            log.fs.sync_dir(log.directory)
        except FileNotFoundError:
            pass
        except OSError as error:
            self.error = storage_error(layout.dedup_path(log.directory), "remove", error)


def replace(fs: FileSystem, directory: str, covered: int, rows: bytes, synced: bool) -> None:
    """Replace the contents of the file in one step. Raises OSError."""
    data = encode_block(covered, covered, rows)
    replace_file(fs, layout.dedup_path(directory), data, layout.NEW_SUFFIX, synced)
