"""From a range of a segment file to chunks of good batches; what is not good is told as a ``Loss``.

The file is read in large pieces and walked by the length chain: magic, length, crc, and that the offsets follow one
another: each batch covers what comes behind the one before it. The bytes are read with ``preadv``, not mapped: a file
that gets shorter under us is a short read, not a SIGBUS.

The broker may rewrite a sealed segment after a range of it was planned: offsets hold, positions do not. So a range is
taken by its positions only as long as everything fits: the batch at its start is the one that was planned (by offset
and salt), and each further one follows. Where something does not, the rest is read again by its offsets, from the start
of the file. Only there is anything called lost: the walk goes on at the batch that ``storage.segment`` finds behind the
damage, as all readers do, and reports the offsets in between; it never trusts a length or an offset that no crc covers.
What a batch covers and does not hold was removed on purpose: no loss.

Knows: the header of a batch. Must not know: where files lie, columns, Spark, who planned the range.
Invariant: the records of the yielded batches, as far as each chunk says that they count, what was removed on purpose,
and the reported losses together are exactly the offsets of the range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import add
from typing import NamedTuple

import numpy as np

from radiator.columns.batches import Batches, Bytes
from radiator.columns.checksum import crc32
from radiator.columns.decode import Counters
from radiator.columns.files import REMOTE_CHUNK_BYTES, RemoteFiles, remedy
from radiator.columns.joint import small_batches
from radiator.columns.partial import Reach, read_part
from radiator.errors import StorageError
from radiator.limits import MIB
from radiator.storage.files import FileSystem, storage_error
from radiator.storage.format import (
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

REMOVED = "retention has removed it, or all in it was settled, since this read was planned"
NOT_REMOVED = "the broker has not removed it: it removes the oldest ones first, and never the last"
CHUNK_BYTES = 8 * MIB  # 32 k rows of 200 B; of 4 MiB all columns take a tenth more CPU, of 16 no less, and more memory


class LostRecords(StorageError):
    """Records that were asked for cannot be read: damaged, or removed. ``str()`` says which, and how to go on."""


@dataclass(frozen=True)
class SegmentRange:
    """The offsets from ``first_offset`` up to, not including, ``next_offset`` of one segment. When this was planned
    they were whole batches from ``start`` to ``end``. Offsets that the file does not cover are a loss."""

    partition: str
    path: str
    start: int
    end: int
    first_offset: int
    next_offset: int


class Loss(NamedTuple):
    """Offsets ``first`` to ``following - 1`` of a partition cannot be read. ``removed``: the broker has removed them on
    purpose, with their segment."""

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
    """The good batches of a piece of the file. Of their records those count that have an offset from ``low`` up to, not
    including, ``high``. ``place_of``: where what stands somewhere in the piece is in the file."""

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
    """``on_loss`` may raise; if it returns, the scan goes on behind the loss. ``reach``: the chunks need not hold more
    of each batch than this, and damage behind it may go unseen. Of remote files batches are read whole."""
    fs = fs or FileSystem()
    chunk_bytes = REMOTE_CHUNK_BYTES if isinstance(fs, RemoteFiles) else CHUNK_BYTES
    try:
        fd = fs.open_read(wanted.path)
    except FileNotFoundError:
        removed = removed_on_purpose(fs, wanted.path)
        reason = "its segment is gone; " + (REMOVED if removed else NOT_REMOVED)
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
        self.low = wanted.first_offset  # what lies below is not wanted, or was yielded before the way was lost
        size = fs.size(fd)
        self.end = min(wanted.end, size)
        self.by_offset = not wanted.start and wanted.end >= size  # nothing else could be read than what was planned
        self.window = Window(fs, fd, path=wanted.path)  # for a look at single batches; it knows their salts

    def chunks(self, chunk_bytes: int, reach: Reach) -> Iterator[Chunk]:
        wanted, need = self.wanted, 0
        if wanted.start and not self._starts_as_planned():
            self._start_over()
        while self.expected < wanted.next_offset:
            if reach is not Reach.WHOLE and (part := self._part(reach)) is not None:
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
            if reason is None:  # the piece ends inside a batch, or the range ends
                need = self._length_at(data, stopped)
            elif self.by_offset:
                self._resume(reason)
            else:
                self._start_over()
        if self.expected < wanted.next_offset:
            self._lose(wanted.next_offset, "the file ends before them")

    def _part(self, reach: Reach) -> Chunk | None:
        """The next batches that can be read in part, if there are any."""
        found = read_part(self.fs, self.fd, self.position, self.end, self.wanted.next_offset, reach)
        at, places = found.batches.at, found.places
        if not len(at):
            return None
        self.counters.bytes_read += found.bytes_read
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
        """By offsets: the file is not, or not here, what it was when this was planned."""
        self.low = max(self.low, self.expected)
        self.position, self.expected = 0, base_of(self.wanted.path)
        self.end = self.fs.size(self.fd)
        self.by_offset = True

    def _read(self, length: int) -> Bytes:
        length = max(min(length, self.end - self.position), 0) & ~7
        data = np.empty(length, np.uint8)
        got = self.fs.preadv(self.fd, [data.data], self.position) if length else 0
        self.counters.bytes_read += got
        return data[: got & ~7]

    def _length_at(self, data: Bytes, at: int) -> int:
        """What the batch at ``at``, which this piece does not hold whole, says of its length."""
        if len(data) - at < HEADER_BYTES:
            return 0
        return int(PREFIX.unpack_from(data.data, at)[1])

    def _walk(self, data: Bytes, whole: bool) -> tuple[Batches, int, str | None]:
        """The good batches, where the walk stopped, and why if the batch there is not good. ``whole``: more
        of the range may follow this piece, so a batch that it does not hold whole may be a good one."""
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
        """Cuts them before the first whose offset does not follow, whose flags we do not know, or whose lengths do not
        add up."""
        at, base = batches.at, batches.base_offset
        after = base + batches.count
        fit = ((batches.flags & ~KNOWN_FLAGS) == 0) & batches.regions[2]
        sparse = ((batches.flags & SPARSE) != 0) & fit
        if sparse.any():
            after[sparse] = base[sparse] + batches.only(sparse).last_deltas() + 1
        expected = np.concatenate([[self.expected], after[:-1]])
        good = (base == expected) & fit
        last = int(np.argmax(expected >= self.wanted.next_offset)) or len(at)  # the range ends before this one
        first = len(at) if good.all() else int(np.argmin(good))
        taken = min(first, last)
        self.counters.batches_checked += taken
        if taken:
            self.expected = int(after[taken - 1])
        if taken < len(at):
            stopped, reason = int(at[taken]), None
            if first < last:
                reason = f"a batch of offset {base[first]} stands where offset {expected[first]} was expected"
                if not fit[first]:
                    reason = self._why(data.data, int(at[first]), whole=False)
        return batches if taken == len(at) else batches.only(slice(taken)), stopped, reason

    @staticmethod
    def _why(view: memoryview, at: int, whole: bool) -> str | None:
        """In words, by the codec itself; None if the batch goes on behind this piece. Raises UnknownVersion for a
        batch of a newer radiator."""
        try:
            header = decode_header(view, at)
            if whole and at + header.total_len > len(view):
                return None
            check(view, at, header)
        except DamagedBatch as error:
            return str(error)
        return "the batch does not hold"

    def _resume(self, reason: str) -> None:
        """Moves to the next good batch of the range, and reports what lies before it. That may be the very batch where
        the walk stopped: if it is good, and only those before it are missing."""
        damaged, at = self.position, self.position
        while found := find_batch(self.window, at, self.end, self.expected):
            self.position, header = found
            if header.base_offset < self.wanted.next_offset:
                self._lose(header.base_offset, reason, damaged)
                return
            at = self.position + header.total_len  # of another place, or left over from a sync that failed
        self.position = self.end
        self._lose(self.wanted.next_offset, reason, damaged)

    def _lose(self, following: int, reason: str, position: int | None = None) -> None:
        first, self.expected = max(self.expected, self.low), following
        following = min(following, self.wanted.next_offset)
        if following > first:
            where = self.position if position is None else position
            self.on_loss(Loss(self.wanted.partition, self.wanted.path, where, first, following, reason))
