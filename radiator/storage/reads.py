"""Reads that may need the disk: a chunk of records from an offset, and the offset of a time or of the last N.

The event loop makes the job with all facts that it needs (which segment, where the log ends), the read thread runs it
with descriptors of its own, and the event loop takes the result. ``finished`` jobs were answered from memory and need
no thread.

    event loop  partition.fetch() -> ReadJob ... read thread: run() ... event loop: done()

``result`` is one RecordBatch that starts at or before ``offset`` and ends before the next gap; ``skip_to`` is where the
log continues if ``offset`` itself is lost (retention, or ``damage``). If both are None and there is no ``error``,
nothing is stored there yet.

The active segment may lack records that were written to it and not synced yet: the system could not write them back,
and has dropped the pages. The journal still has these records, so they are read from there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from radiator.clock import Now
from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.batch import RecordBatch, densify
from radiator.storage.damage import Damage
from radiator.storage.files import FileSystem, opened, storage_error
from radiator.storage.format import decode
from radiator.storage.header import DamagedBatch, decode_header
from radiator.storage.segment import (
    Location,
    SegmentInfo,
    Window,
    find_place,
    find_time,
    header_at,
    last_offset,
    load_index,
    merge_run,
    read_run,
    salt_at,
)

SCAN_BYTES = 256 * 1024


class ReadableLog(Protocol):
    """The facts of a partition that a read needs. The event loop owns it."""

    fs: FileSystem
    directory: str
    high_watermark: int
    log_start_offset: int
    segments: list[SegmentInfo]

    @property
    def written_to(self) -> int:
        """The offset up to which records are looked for in files."""

    def newest_first(self) -> list[RecordBatch]:
        """Return the batches in memory."""

    def journaled(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the batches between two offsets that the journal has. Any thread may call it. Raises OSError."""

    def fetched(self, job: ReadJob) -> None:
        """Take the result of a cold read."""


class Hint(NamedTuple):
    """Where a read ended, so that the next one need not search for its place.

    If the segment is rewritten in between, a message that looks like a batch may be there; so the salt must match.
    """

    segment: int  # base offset
    position: int
    salt: int


class ReadJob:
    """One cold read. The event loop makes it, the read thread runs it once, and the event loop takes it back."""

    def __init__(self, partition: ReadableLog, offset: int, bytes_max: int, hint: Hint | None) -> None:
        self.partition = partition
        self.offset = offset
        self.bytes_max = bytes_max
        self.fs = partition.fs
        self.directory = partition.directory
        self.end_offset = partition.written_to
        self.result: RecordBatch | None = None
        self.error: StorageError | None = None
        self.skip_to: int | None = None
        self.damage: Damage | None = None  # the reason, to be reported
        self.next_hint: tuple[int, Hint] | None = None  # the offset where the next read begins, and where that is
        self.waiters: list[Any] = []  # for the broker
        self.finished = False
        self.outdated = False  # set by the event loop: the file was rewritten, so the result is not cached
        self.hint: Hint | None = None
        self.base_offset = 0
        self.following: int | None = None  # base offset of the next segment
        if offset < partition.log_start_offset:
            self.skip_to = partition.log_start_offset
            self.finished = True
        elif offset >= self.end_offset or not partition.segments:
            self.finished = True
        else:
            segments = partition.segments
            place = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
            self.base_offset = segments[place].base_offset
            if place + 1 < len(segments):
                self.following = segments[place + 1].base_offset
            if hint is not None and hint.segment == self.base_offset:
                self.hint = hint

    def was_rewritten(self, base_offset: int) -> None:
        """Note that a segment has lost records: if this job reads it, only its own waiters may use the result."""
        self.outdated |= self.base_offset == base_offset

    def run(self) -> None:
        """Read, on the read thread."""
        path = layout.segment_path(self.directory, self.base_offset)
        try:
            with opened(self.fs, self.fs.open_read(path)) as fd:
                self._read(Window(self.fs, fd, self.bytes_max, path))
        except FileNotFoundError:
            self.skip_to = self._end_of_segment()  # deleted by retention, or by another program
            self.damage = Damage(path, None, 0, self.base_offset, self.skip_to)
        except OSError as error:
            self.error = storage_error(path, "read", error)
        except StorageError as error:
            self.error = type(error)(f"{path}: {error}")
        else:
            if self.damage is not None and self.following is None:  # what is sealed is synced
                self._restore(self.damage)

    def _read(self, window: Window) -> None:
        end, batch, after = self._end_of_segment(), None, 0
        position = self.hint.position if self.hint is not None else None
        if self.hint is not None and salt_at(window, self.hint.position) == self.hint.salt:
            batch, after = read_run(window, self.hint.position, end, self.bytes_max)
        if batch is None or position is None or not batch.base_offset <= self.offset < batch.next_offset:
            entries, size = load_index(self.fs, self.directory, self.base_offset), self.fs.size(window.fd)
            place = find_place(window, entries, self.offset, size)
            position, batch = place.position, None
            if position is not None:
                batch, after = read_run(window, position, end, self.bytes_max)
            if position is None or batch is None or batch.base_offset > self.offset:
                self._lost(window, place, batch, end, size)
                return
        densify(batch)  # here, not on the event loop; the batch is cached
        self.result = batch
        self.next_hint = (batch.next_offset, Hint(self.base_offset, after, salt_at(window, position)))

    def _lost(self, window: Window, place: Location, batch: RecordBatch | None, end: int, size: int) -> None:
        """Note where the log continues, and the damage before that: no batch contains the offset."""
        position, first_byte, first = place
        if position is None:
            self.skip_to, end_byte = end, size
        elif batch is not None:
            self.skip_to, end_byte = batch.base_offset, position
            self.next_hint = (batch.base_offset, Hint(self.base_offset, position, salt_at(window, position)))
        else:  # it cannot be unpacked, or all that is left begins behind the end
            header, end_byte = header_at(window, position), position
            self.skip_to = min(end, max(last_offset(window, position, header) + 1, self.offset + 1))
            if header.base_offset < end:
                first_byte, end_byte, first = position, position + header.total_len, header.base_offset
        self.damage = Damage(window.path, first_byte, end_byte, first, self.skip_to)

    def _restore(self, damage: Damage) -> None:
        """Take from the journal what the segment lacks, as far as it is there."""
        self.damage = self.skip_to = None
        try:
            pieces = self._journaled(damage.end_offset)
            base_offset = decode(pieces[0])[1].base_offset if pieces else damage.end_offset
            if pieces:
                self.next_hint = None
            if base_offset > self.offset:
                self.skip_to, self.damage = base_offset, damage._replace(end_offset=base_offset)
                return
            data = b"".join(pieces)
            merger, _ = merge_run(data, 0, decode_header(data), damage.end_offset, self.bytes_max)
        except (OSError, DamagedBatch) as error:  # it is being written, or the disk fails
            self.error = StorageError(f"{damage}; the journal, which may have them, cannot be read: {error}")
            return
        self.result = merger.finish()
        densify(self.result)

    def _journaled(self, end: int) -> list[bytes]:
        """Return the first batches that the journal has from ``offset`` to ``end``. Raises OSError."""
        pieces, size = [], 0
        for piece in self.partition.journaled(self.offset, end):
            pieces.append(piece)
            size += len(piece)
            if size >= self.bytes_max:
                break
        return pieces

    def _end_of_segment(self) -> int:
        return self.end_offset if self.following is None else min(self.following, self.end_offset)

    def done(self, now: Now | None = None) -> None:
        """Put the result into the cold cache. The event loop calls it."""
        partition = self.partition
        if self.skip_to is not None and self.skip_to < partition.log_start_offset:
            self.skip_to = partition.log_start_offset
        if self.damage is not None and self.damage.end_offset <= partition.log_start_offset:
            self.damage = None  # deleted by retention
        partition.fetched(self)


class PositionJob:
    """Find an offset by receive time. With ``offset``, that is the answer."""

    def __init__(self, partition: ReadableLog, receive_ns: int = 0, offset: int | None = None) -> None:
        self.fs = partition.fs
        self.directory = partition.directory
        self.log_start_offset = partition.log_start_offset
        self.end_offset = partition.high_watermark
        self.receive_ns = receive_ns
        self.offset = self.end_offset if offset is None else offset  # the answer
        self.error: StorageError | None = None
        self.finished = offset is not None
        self.waiters: list[Any] = []
        self._segments = partition.segments[:]

    def run(self) -> None:
        """Search, on the read thread."""
        try:
            self._run()
        except OSError as error:
            self.error = storage_error(self.directory, "read", error)
        except StorageError as error:
            self.error = type(error)(f"{self.directory}: {error}")
        self.finished = True

    def done(self, now: Now | None = None) -> None:
        """Do nothing; the event loop calls it as for other jobs."""

    def _run(self) -> None:
        place = max(bisect_left(self._segments, self.receive_ns, key=lambda segment: segment.first_receive_ns) - 1, 0)
        ends = [segment.base_offset for segment in self._segments[place + 1 :]] + [self.end_offset]
        for segment, end_offset in zip(self._segments[place:], ends, strict=True):
            base_offset = segment.base_offset
            if segment.first_receive_ns >= self.receive_ns:
                self.offset = max(base_offset, self.log_start_offset)
                return
            path = layout.segment_path(self.directory, base_offset)
            try:
                fd = self.fs.open_read(path)
            except FileNotFoundError:
                continue  # deleted by retention meanwhile
            with opened(self.fs, fd):
                entries = load_index(self.fs, self.directory, base_offset)
                found = find_time(Window(self.fs, fd, SCAN_BYTES, path), entries, self.receive_ns, end_offset)
            offset = found.offset if found.missing is None else found.missing
            if offset is not None:
                self.offset = max(offset, self.log_start_offset)
                return


def time_in_memory(job: PositionJob, partition: ReadableLog) -> None:
    """Answer from the tail and the segments' times, if that is possible."""
    receive_ns = job.receive_ns
    segments = partition.segments
    if job.log_start_offset >= job.end_offset:
        job.finished = True
        return
    answer = job.end_offset
    for batch in partition.newest_first():
        if batch.receive_ns[-1] < receive_ns:
            job.offset, job.finished = answer, True
            return
        place = bisect_left(batch.receive_ns, receive_ns)
        answer = batch.offsets[place]
        if place:
            job.offset, job.finished = answer, True
            return
    job.offset = max(answer, job.log_start_offset)
    if answer <= job.log_start_offset or not segments or segments[-1].last_receive_ns < receive_ns:
        job.finished = True
    elif segments[0].first_receive_ns >= receive_ns:
        job.offset, job.finished = job.log_start_offset, True
