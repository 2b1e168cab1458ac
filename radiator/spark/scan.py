"""From a range of a segment file to chunks of good batches; what is not good is told as a ``Loss``.

The file is read in large pieces and walked by the length chain: magic, length, crc, and that the offsets follow one
another without a hole. At the first batch that does not hold, the walk looks for the next one that does (its magic is
8-aligned, its salt and its crc hold, its offset lies ahead and within the range) and reports the offsets in between as
lost; it never trusts a length or an offset that no crc covers. The bytes are read with ``preadv``, not mapped: a file
that gets shorter under us is a short read, not a SIGBUS.

Knows: files, the header of a batch. Must not know: columns, Spark, who planned the range.
Invariant: the records of the yielded batches and the reported losses together are exactly the offsets of the range.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

import numpy as np

from radiator.errors import StorageError
from radiator.limits import BATCH_BYTES_MAX, MIB
from radiator.spark.decode import Counters
from radiator.spark.rows import Bytes, Ints
from radiator.storage.files import FileSystem
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
    columns_len,
    decode_header,
    find_magic,
)
from radiator.storage.salt import of_segment

CHUNK_BYTES = 4 * MIB  # about 16 k rows of 200 B; measured: larger is no faster


class LostRecords(StorageError):
    """Records that were asked for cannot be read: damaged, or removed. ``str()`` says which, and how to go on."""


@dataclass(frozen=True)
class SegmentRange:
    """Whole batches of one segment: from ``start``, where ``first_offset`` stands, to ``end``, where ``next_offset``
    would follow. Offsets that the file does not hold are a loss."""

    partition: str
    path: str
    start: int
    end: int
    first_offset: int
    next_offset: int


class Loss(NamedTuple):
    """Offsets ``first`` to ``following - 1`` of a partition cannot be read."""

    partition: str
    path: str
    position: int
    first: int
    following: int
    reason: str

    def __str__(self) -> str:
        lost = f"offsets {self.first} to {self.following - 1} ({self.following - self.first} records)"
        where = f"{self.path} at byte {self.position}"
        return f"partition {self.partition!r}: {lost} cannot be read: {self.reason} ({where})"


class Chunk(NamedTuple):
    """A piece of the file, and where in it good batches begin."""

    data: Bytes
    at: Ints
    end: int  # position in the file behind the last of them
    next_offset: int  # after the last of them


def scan(wanted: SegmentRange, on_loss: Callable[[Loss], None], counters: Counters) -> Iterator[Chunk]:
    """``on_loss`` may raise; if it returns, the scan goes on behind the loss."""
    try:
        fd = os.open(wanted.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        reason = "its segment is gone; retention has removed it since this read was planned"
        on_loss(Loss(wanted.partition, wanted.path, wanted.start, wanted.first_offset, wanted.next_offset, reason))
        return
    except OSError as error:
        raise StorageError(f"{wanted.path} cannot be read: {error.strerror}; run this as the broker's user") from error
    try:
        yield from _Walk(fd, wanted, on_loss, counters).chunks()
    finally:
        os.close(fd)


class _Walk:
    def __init__(self, fd: int, wanted: SegmentRange, on_loss: Callable[[Loss], None], counters: Counters) -> None:
        self.fd, self.wanted, self.on_loss, self.counters = fd, wanted, on_loss, counters
        self.position, self.expected = wanted.start, wanted.first_offset
        self.salts: frozenset[int] | None = None  # of the segment's batches, once it has been asked for

    def chunks(self) -> Iterator[Chunk]:
        wanted, need = self.wanted, 0
        while self.expected < wanted.next_offset and self.position < wanted.end:
            length = max(CHUNK_BYTES, need)
            data = self._read(length)
            if len(data) < HEADER_BYTES:
                break
            at, stopped, reason = self._walk(data, whole=len(data) >= length)
            if at:
                yield Chunk(data, np.array(at, np.int64), self.position + stopped, self.expected)
            self.position += stopped
            need = 0
            if reason is None:  # the piece ends inside a batch, or the range ends
                if self.expected < wanted.next_offset and self.position < wanted.end:
                    need = self._length_at(data, stopped)
                continue
            self._resume(reason)
        if self.expected < wanted.next_offset:
            self._lose(wanted.next_offset, "the file ends before them")

    def _read(self, length: int) -> Bytes:
        length = min(length, self.wanted.end - self.position) & ~7
        data = np.empty(length, np.uint8)
        got = os.preadv(self.fd, [data.data], self.position) if length else 0
        self.counters.bytes_read += got
        return data[: got & ~7]

    def _length_at(self, data: Bytes, at: int) -> int:
        """What the batch at ``at``, which this piece does not hold whole, says of its length."""
        if len(data) - at < HEADER_BYTES:
            return 0
        return int(PREFIX.unpack_from(data.data, at)[1])

    def _walk(self, data: Bytes, whole: bool) -> tuple[list[int], int, str | None]:
        """Places of the good batches, where the walk stopped, and why if the batch there is not good. ``whole``: more
        of the range may follow this piece, so a batch that it does not hold whole may be a good one."""
        view, size, unpack = data.data, len(data), PREFIX.unpack_from
        at, found, reason = 0, [], None
        while size - at >= HEADER_BYTES:
            magic, total, crc = unpack(view, at)
            end = at + total
            if magic == MAGIC and total >= HEADER_BYTES and end <= size and crc32(view[at + CRC_FROM : end]) == crc:
                found.append(at)
                at = end
                continue
            reason = self._why(view, at, whole)
            break
        if not found:
            return found, at, reason
        return self._in_order(data, found, at, reason)

    def _in_order(
        self, data: Bytes, found: list[int], stopped: int, reason: str | None
    ) -> tuple[list[int], int, str | None]:
        """Cuts ``found`` before the first batch whose offset does not follow, or whose flags we do not know."""
        at = np.array(found, np.int64)
        base: Ints = data.view("<i8")[(at >> 3) + 2]
        count: Ints = data.view("<i4")[(at >> 2) + 10].astype(np.int64)
        flags = data.view("<u2")[(at >> 1) + 22]
        after = base + count
        plain = (flags & ~np.uint16(KNOWN_FLAGS)) == 0
        sparse = (flags & SPARSE) != 0
        if sparse.any():
            after[sparse] = [self._after_sparse(data, place) for place in at[sparse].tolist()]
        expected = np.concatenate([[self.expected], after[:-1]])
        follows = (base == expected) | (sparse & (base > expected))
        good = follows & plain & (after <= self.wanted.next_offset)
        if not good.all():
            first = int(np.argmin(good))
            if not plain[first]:
                check(data.data, found[first], decode_header(data.data, found[first]))
            stopped, found = found[first], found[:first]
            reason = f"a batch of offset {base[first]} stands where offset {expected[first]} was expected"
            self.counters.batches_checked += first
            if first:
                self.expected = int(after[first - 1])
        else:
            self.counters.batches_checked += len(found)
            self.expected = int(after[-1])
        return found, stopped, reason

    @staticmethod
    def _after_sparse(data: Bytes, at: int) -> int:
        header = decode_header(data.data, at)
        deltas = (4 * header.records + 7) & ~7  # the last of the columns
        last = at + HEADER_BYTES + columns_len(header.records, header.flags) - deltas + 4 * (header.records - 1)
        return header.base_offset + int(data[last : last + 4].view("<u4")[0]) + 1

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
        damaged, wanted = self.position, self.wanted
        while self.position < wanted.end:
            data = self._read(CHUNK_BYTES + BATCH_BYTES_MAX)
            if len(data) < HEADER_BYTES:
                break
            raw, at = data.tobytes(), 0
            while 0 <= (at := find_magic(raw, at)) <= len(raw) - HEADER_BYTES:
                base = self._good_base(raw, at)
                if base is not None:
                    self.position += at
                    self._lose(base, reason, damaged)
                    return
                at += 8
            if len(data) < CHUNK_BYTES + BATCH_BYTES_MAX:
                break
            self.position += CHUNK_BYTES
        self.position = wanted.end
        self._lose(wanted.next_offset, reason, damaged)

    def _good_base(self, raw: bytes, at: int) -> int | None:
        if self.salts is None:
            self.salts = of_segment(FileSystem(), self.wanted.path)
        try:
            header = decode_header(raw, at)
            if self.salts and header.salt not in self.salts:
                return None  # bytes of a message that look like a batch
            check(raw, at, header)
        except DamagedBatch:
            return None
        except UnknownVersion as error:
            if error.salt in self.salts:
                raise
            return None  # not one of ours, or who can tell?
        after = header.base_offset + header.records
        if header.flags & SPARSE:
            after = self._after_sparse(np.frombuffer(raw, np.uint8), at)
        return header.base_offset if self.expected <= header.base_offset and after <= self.wanted.next_offset else None

    def _lose(self, following: int, reason: str, position: int | None = None) -> None:
        first, self.expected = self.expected, following
        if following > first:
            where = self.position if position is None else position
            self.on_loss(Loss(self.wanted.partition, self.wanted.path, where, first, following, reason))
