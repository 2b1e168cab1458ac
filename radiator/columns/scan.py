"""Read a range of a segment file as chunks of valid batches, and report the rest as a ``Loss``.

The file is read in large pieces, and walked by the chain of lengths. The walk checks magic, length, crc (or confirms
headers: ``partial``), and that the offsets follow one another. The bytes are read with ``preadv`` and not mapped: if
the file becomes shorter, that is a short read and not a SIGBUS.

The broker may rewrite a sealed segment after a range of it was planned. Offsets stay valid then, positions do not. So a
range is read by positions only while everything fits: the batch at its start is the planned one (by offset and salt),
and each next batch follows. Otherwise the rest is read again by offsets, from the start of the file. Only that second
read reports losses. It continues at the batch that ``storage.segment`` finds after the damage, as all readers do, and
reports the offsets before it. A length or an offset that is neither covered by a correct crc nor confirmed is never
used. Offsets that a batch covers without a record were removed on purpose and are not a loss.

Uses batch headers. Must not import columns, Spark or planning.
Invariant: the records of the yielded batches (inside the offsets of each chunk), the records removed on purpose, and
the reported losses together are exactly the offsets of the range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import add
from typing import NamedTuple

import numpy as np

from radiator.checksum import crc32
from radiator.columns.batches import Batches, Bytes
from radiator.columns.decode import Counters
from radiator.columns.files import REMOTE_CHUNK_BYTES, RemoteFiles, remedy
from radiator.columns.joint_crc import small_batches
from radiator.columns.partial import Reach, read_headers, read_part
from radiator.errors import StorageError
from radiator.limits import MIB
from radiator.storage.files import FileSystem, storage_error
from radiator.storage.header import (
    CRC_FROM,
    HEADER_BYTES,
    KNOWN_FLAGS,
    MAGIC,
    PREFIX,
    SPARSE,
    DamagedBatch,
    UnknownVersion,
    check,
    decode_header,
)
from radiator.storage.reader import removed_on_purpose
from radiator.storage.segment import Window, base_of, find_batch

REMOVED = "the broker removed it after this read was planned (retention, or all its messages were settled)"
NOT_REMOVED = "the broker did not remove it: it removes the oldest segments first, and never the last one"
CHUNK_BYTES = 8 * MIB  # 32 k rows of 200 B; 4 MiB cost a tenth more CPU, 16 MiB save none and use more memory


class LostRecords(StorageError):
    """Records cannot be read: they are damaged, or were removed.

    ``str()`` says which, and how to continue.
    """


@dataclass(frozen=True)
class SegmentRange:
    """A range of offsets of one segment. Offsets that the file does not cover are a loss.

    Attributes:
        partition: The name of the partition.
        path: The path of the segment.
        start: The position of the first batch when the range was planned, in bytes.
        end: The position after the last batch when the range was planned, in bytes.
        first_offset: The first offset.
        next_offset: The offset after the last one.
    """

    partition: str
    path: str
    start: int
    end: int
    first_offset: int
    next_offset: int


class Loss(NamedTuple):
    """Offsets of a partition that cannot be read.

    Attributes:
        partition: The name of the partition.
        path: The path of the segment.
        position: The position of the damage in the segment, in bytes.
        first: The first offset.
        following: The offset after the last one.
        reason: Why the offsets cannot be read, for messages.
        removed: True if the broker removed them on purpose, with their segment.
    """

    partition: str
    path: str
    position: int
    first: int
    following: int
    reason: str
    removed: bool = False

    def __str__(self) -> str:
        lost = f"offsets {self.first} to {self.following - 1} ({self.following - self.first} records)"
        where = f"{self.path} at byte {self.position}"
        return f"partition {self.partition!r}: {lost} cannot be read: {self.reason} ({where})"


class Chunk(NamedTuple):
    """The valid batches of a piece of the file.

    Attributes:
        batches: The batches.
        low: The first offset to return.
        high: The offset after the last one to return.
        place_of: Returns the position in the file for a position in the piece, in bytes.
    """

    batches: Batches
    low: int
    high: int
    place_of: Callable[[int], int]


def scan(
    wanted: SegmentRange,
    on_loss: Callable[[Loss], None],
    counters: Counters,
    fs: FileSystem | None = None,
    reach: Reach = Reach.WHOLE,
) -> Iterator[Chunk]:
    """Yield the valid batches of a range as chunks.

    Args:
        wanted: The range.
        on_loss: Called for each loss. It may raise; if it returns, the scan continues after the loss.
        counters: Counts the bytes and batches.
        fs: The file system; None is the local one.
        reach: The part of each batch that the chunks must contain. Damage after it may go undetected. Batches of remote
            files are read whole.

    Raises:
        StorageError: The file cannot be read.
        UnknownVersion: A batch was written by a newer radiator.
    """
    fs = fs or FileSystem()
    chunk_bytes = REMOTE_CHUNK_BYTES if isinstance(fs, RemoteFiles) else CHUNK_BYTES
    try:
        fd = fs.open_read(wanted.path)
    except FileNotFoundError:
        removed = removed_on_purpose(fs, wanted.path)
        reason = "the segment file does not exist; " + (REMOVED if removed else NOT_REMOVED)
        offsets = wanted.first_offset, wanted.next_offset
        on_loss(Loss(wanted.partition, wanted.path, wanted.start, *offsets, reason, removed))
        return
    except OSError as error:
        raise storage_error(wanted.path, "read", error, remedy(fs)) from error
    try:
        walk = _Walk(fs, fd, wanted, on_loss, counters)
        yield from walk.chunks(chunk_bytes, Reach.WHOLE if isinstance(fs, RemoteFiles) else reach)
    except OSError as error:
        raise storage_error(wanted.path, "read", error, remedy(fs)) from error
    finally:
        fs.close(fd)


class _Walk:
    def __init__(
        self, fs: FileSystem, fd: int, wanted: SegmentRange, on_loss: Callable[[Loss], None], counters: Counters
    ) -> None:
        self.fs, self.fd, self.wanted, self.on_loss, self.counters = fs, fd, wanted, on_loss, counters
        self.position, self.expected = wanted.start, wanted.first_offset
        self.low = wanted.first_offset  # offsets below are outside the range, or were yielded before a restart
        size = fs.size(fd)
        self.end = min(wanted.end, size)
        self.by_offset = not wanted.start and wanted.end >= size  # the range is the whole file: no need to restart
        self.window = Window(fs, fd, path=wanted.path)  # reads single batches, and has the salts of the segment

    def chunks(self, chunk_bytes: int, reach: Reach) -> Iterator[Chunk]:
        wanted, need = self.wanted, 0
        if wanted.start and not self._starts_as_planned():
            self._start_over()
        while self.expected < wanted.next_offset:
            part = None if reach is Reach.WHOLE else self._part(reach)
            if part is None and reach is Reach.BATCH_HEADERS:
                part = self._part(Reach.COLUMNS)
            if part is not None:
                yield part
                continue
            length = max(chunk_bytes, need)
            data = self._read(length)
            if len(data) < HEADER_BYTES:
                if self.by_offset:
                    break
                self._start_over()
                continue
            batches, stopped, reason = self._walk(data, whole=len(data) >= length)
            if len(batches.at):
                yield Chunk(batches, self.low, wanted.next_offset, partial(add, self.position))
            self.position += stopped
            need = 0
            if self.expected >= wanted.next_offset:
                break
            if reason is None:  # the piece ends inside a batch, or at the end of the range
                need = self._length_at(data, stopped)
            elif self.by_offset:
                self._resume(reason)
            else:
                self._start_over()
        if self.expected < wanted.next_offset:
            self._lose(wanted.next_offset, "the file ends before them")

    def _part(self, reach: Reach) -> Chunk | None:
        """Return the next batches that can be read in part, or None."""
        where = self.fs, self.fd, self.position, self.end, self.wanted.next_offset
        found = read_headers(*where) if reach is Reach.BATCH_HEADERS else read_part(*where, reach)
        at, places = found.batches.at, found.places
        if not len(at):
            return None
        self.counters.count_read(bytes_read=found.bytes_read)
        batches, _, _ = self._in_order(found.batches.chunk, found.batches, 0, None)
        if not len(batches.at):
            return None
        taken = len(batches.at)
        self.position = int(places[taken]) if taken < len(at) else found.end
        return Chunk(batches, self.low, self.wanted.next_offset, lambda place: int(places[np.searchsorted(at, place)]))

    def _starts_as_planned(self) -> bool:
        try:
            header = decode_header(self.fs.pread(self.fd, HEADER_BYTES, self.position))
        except (DamagedBatch, UnknownVersion):
            return False
        return header.base_offset == self.expected and (not self.window.salts or header.salt in self.window.salts)

    def _start_over(self) -> None:
        """Read the rest by offsets, because the file has changed since the range was planned."""
        self.low = max(self.low, self.expected)
        self.position, self.expected = 0, base_of(self.wanted.path)
        self.end = self.fs.size(self.fd)
        self.by_offset = True

    def _read(self, length: int) -> Bytes:
        length = max(min(length, self.end - self.position), 0) & ~7
        data = np.empty(length, np.uint8)
        got = self.fs.preadv(self.fd, [data.data], self.position) if length else 0
        self.counters.count_read(bytes_read=got)
        return data[: got & ~7]

    def _length_at(self, data: Bytes, at: int) -> int:
        """Return the length that the incomplete batch at ``at`` declares."""
        if len(data) - at < HEADER_BYTES:
            return 0
        return int(PREFIX.unpack_from(data.data, at)[1])

    def _walk(self, data: Bytes, whole: bool) -> tuple[Batches, int, str | None]:
        """Return the valid batches, the position where the walk stopped, and the reason if that batch is not valid.

        ``whole`` says that more of the range may follow this piece, so an incomplete batch at its end may be valid.
        """
        view, size, unpack = data.data, len(data), PREFIX.unpack_from
        small, at = small_batches(data)
        found: list[int] = []
        reason = None
        while size - at >= HEADER_BYTES:
            magic, total, crc = unpack(view, at)
            end = at + total
            if magic == MAGIC and total >= HEADER_BYTES and end <= size and crc32(view[at + CRC_FROM : end]) == crc:
                found.append(at)
                at = end
                continue
            reason = self._why(view, at, whole)
            break
        batches = Batches(data, np.concatenate([small, np.array(found, np.int64)]))
        return self._in_order(data, batches, at, reason) if len(batches.at) else (batches, at, reason)

    def _in_order(
        self, data: Bytes, batches: Batches, stopped: int, reason: str | None
    ) -> tuple[Batches, int, str | None]:
        """Cut the batches before the first one with an unexpected offset, unknown flags or inconsistent lengths."""
        at, base = batches.at, batches.base_offset
        after = base + batches.count
        fit = ((batches.flags & ~KNOWN_FLAGS) == 0) & batches.regions[2]
        sparse = ((batches.flags & SPARSE) != 0) & fit
        if sparse.any():
            after[sparse] = base[sparse] + batches.only(sparse).last_deltas() + 1
        expected = np.concatenate([[self.expected], after[:-1]])
        good = (base == expected) & fit
        last = int(np.argmax(expected >= self.wanted.next_offset)) or len(at)  # the range ends before this batch
        first = len(at) if good.all() else int(np.argmin(good))
        taken = min(first, last)
        self.counters.count_read(batches_checked=taken)
        if taken:
            self.expected = int(after[taken - 1])
        if taken < len(at):
            stopped, reason = int(at[taken]), None
            if first < last:
                reason = f"expected a batch with offset {expected[first]}, got offset {base[first]}"
                if not fit[first]:
                    reason = self._why(data.data, int(at[first]), whole=False)
        return batches if taken == len(at) else batches.only(slice(taken)), stopped, reason

    @staticmethod
    def _why(view: memoryview, at: int, whole: bool) -> str | None:
        """Return the reason why a batch is not valid, or None if it continues after this piece.

        Raises:
            UnknownVersion: A newer radiator wrote the batch.
        """
        try:
            header = decode_header(view, at)
            if whole and at + header.total_len > len(view):
                return None
            check(view, at, header)
        except DamagedBatch as error:
            return str(error)
        return "the batch is damaged"

    def _resume(self, reason: str) -> None:
        """Move to the next valid batch of the range, and report the offsets before it as lost.

        That may be the batch at which the walk stopped: if it is valid, only the offsets before it are missing.
        """
        damaged, at = self.position, self.position
        while found := find_batch(self.window, at, self.end, self.expected):
            self.position, header = found
            if header.base_offset < self.wanted.next_offset:
                self._lose(header.base_offset, reason, damaged)
                return
            at = self.position + header.total_len  # a batch that was left by a failed sync, or belongs elsewhere
        self.position = self.end
        self._lose(self.wanted.next_offset, reason, damaged)

    def _lose(self, following: int, reason: str, position: int | None = None) -> None:
        first, self.expected = max(self.expected, self.low), following
        following = min(following, self.wanted.next_offset)
        if following > first:
            where = self.position if position is None else position
            self.on_loss(Loss(self.wanted.partition, self.wanted.path, where, first, following, reason))
