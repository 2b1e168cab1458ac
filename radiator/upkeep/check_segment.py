"""Check one segment: read every byte, compute every crc, check every part (``StoredBatch.verify``).

The log must be whole up to ``committed``. What lies behind was never acknowledged, and is reported as such. Behind
damage the check goes on at the next whole batch, as any reader does.

Knows positions, batches and columns, but not directories or repair; the caller checks how segments join. Each byte
below ``committed`` is in a batch, in damage that was reported, or behind an end that was reported.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from radiator import limits
from radiator.storage.files import FileSystem, read_fully
from radiator.storage.format import StoredBatch, decode_single_records
from radiator.storage.header import HEADER_BYTES, PREFIX, TIMES_AND_SALT, BatchHeader, DamagedBatch, UnknownVersion
from radiator.storage.index import IndexEntry
from radiator.storage.segment import Window, batch_at, find_batch, last_offset, whole_batches
from radiator.upkeep.findings import Finding, SegmentCheck, span

CHUNK_BYTES = 4 * 1024 * 1024
FINDINGS_MAX = 100_000  # of one segment: bounds memory where nothing is as it should be


class Committed(NamedTuple):
    """Up to where a segment must be whole.

    Attributes:
        position: The position at which its committed part ends.
        next_offset: The offset that follows there; None if it is not known.
        following: The first offset of the next segment. This segment ends there, whatever its file has behind it.
    """

    position: int
    next_offset: int | None
    following: int | None = None


PASSED = Committed(-1, None)


class Walk:
    """The check of one segment file.

    Args:
        fs: The file system.
        fd: The segment, open for reading.
        path: Its path, for findings.
        base_offset: Its first offset.
        size: How many bytes of it to check.
        committed: Up to where it must be whole.
        latest_ns: The latest receive time of the segments before it.
    """

    def __init__(
        self, fs: FileSystem, fd: int, path: str, base_offset: int, size: int, committed: Committed, latest_ns: int
    ) -> None:
        self.window = Window(fs, fd, CHUNK_BYTES, path)
        self.found = SegmentCheck(path, base_offset, latest_ns=latest_ns)
        self.size = size
        self.committed = committed
        self.following = committed.following
        self.expected = base_offset
        self.indexed = -limits.INDEX_INTERVAL_BYTES
        self.foreign_salts = 0
        self.ended: int | None = None  # position behind the last batch, if other bytes follow
        self.uncommitted: list[tuple[int, int, int]] = []  # position, first offset, records

    def run(self) -> SegmentCheck:
        """Check the segment and return what was found."""
        found, position = self.found, 0
        while position < self.size:
            if position == self.committed.position:
                self._at_head(position)
            if self.following is not None and self.expected >= self.following:
                self._report("trailing", f"bytes {position} to {self.size - 1} are never read", position, self.size)
                self.ended, self.committed = position, PASSED
                break
            try:
                header = batch_at(self.window, position)
                if position + header.total_len > self.size:
                    raise DamagedBatch(f"{header.total_len} bytes expected, {self.size - position} there")
                if header.base_offset != self.expected and not self._is_next(position):
                    misplaced = DamagedBatch(f"base offset {header.base_offset}, expected {self.expected}")
                    position = self._damaged(position, position, misplaced)
                    continue
            except (DamagedBatch, UnknownVersion) as damage:
                position = self._damaged(position, position + 8, damage)
                continue
            self._batch(position, header)
            position += header.total_len
            if header.records == 1:
                position = self._single_records(position)
        if position <= self.committed.position:
            self._at_head(position)
        if self.following is not None and self.expected > self.following:
            text = f"the next segment begins with offset {self.following}, the batches here end at {self.expected}"
            self._report("contradiction", text, position, position)
        found.end(min(position, self.size) if self.ended is None else self.ended, self.expected)
        if self.foreign_salts:
            self._report("salt", f"{self.foreign_salts} batches do not have the salt of their partition", 0, self.size)
        if self.uncommitted:
            start, first, _ = self.uncommitted[0]
            stop = self.uncommitted[-1][1] + self.uncommitted[-1][2]
            text = f"{len(self.uncommitted)} whole batches after head ({span(first, stop)}), not known to be synced"
            self._report("uncommitted", text, start, found.position)
        return found

    def _is_next(self, position: int) -> bool:
        """Return whether a whole batch that leaves a gap is where any reader would go on."""
        try:
            next_batch = find_batch(self.window, position, self.size, self.expected)
        except UnknownVersion:
            return True
        batch_at(self.window, position)  # its bytes are in the window again
        return next_batch is not None and next_batch[0] == position

    def matches(self, entry: IndexEntry) -> bool:
        """Return whether the batch that an index entry names is where the entry says."""
        try:
            header = batch_at(self.window, entry.position)
        except (DamagedBatch, UnknownVersion):
            return False
        return header.base_offset == entry.base_offset and header.min_receive_ns == entry.min_receive_ns

    def _report(
        self, kind: str, text: str, start: int, end: int, first: int | None = None, last: int | None = None
    ) -> None:
        if len(self.found.findings) < FINDINGS_MAX:
            self.found.findings.append(Finding(kind, self.found.path, text, start, end, first, last))

    def _report_lost(self, kind: str, text: str, start: int, end: int, stop: int) -> None:
        """Report damage that costs the offsets from ``expected`` up to ``stop``."""
        if stop > self.expected:
            self._report(kind, f"{text}; {span(self.expected, stop)} lost", start, end, self.expected, stop - 1)
            self.expected = stop
        else:
            self._report(kind, f"{text}; no offset is missing", start, end)

    # --- damage, and the end ------------------------------------------------------------------------------------------

    def _at_head(self, position: int) -> None:
        """Report if the batches end here at another offset than the head says, or the file ends too early."""
        wanted = self.committed.next_offset
        if wanted is None:
            return
        if position < self.committed.position:
            text = f"the file ends at byte {self.size}, its committed part at {self.committed.position}"
            self._report_lost("gap", text, position, self.committed.position, wanted)
        elif wanted > self.expected:
            self._report_lost("gap", f"the batches end at byte {position}, too early", position, position, wanted)
        elif wanted < self.expected and wanted != self.following:
            text = f"head says that offset {wanted} follows at byte {position}, the batches say {self.expected}"
            self._report("head", text, position, position)
        self.committed = PASSED

    def _damaged(self, position: int, search: int, damage: Exception) -> int:
        """Report damage at ``position`` and return where to go on; the next batch is searched from ``search``."""
        if isinstance(damage, UnknownVersion):  # whole, by its crc
            place = self.window.at(position, HEADER_BYTES)
            after = min(position + int(PREFIX.unpack_from(self.window.data, place)[1]), self.size)
            self._report("version", str(damage), position, after)
            self.found.damaged_bytes.append((position, after))
            self.expected = self._next_offset(after)
            return after
        try:
            next_batch = find_batch(self.window, search, self.size, self.expected)
        except UnknownVersion:
            next_batch = None
        if next_batch is not None and self.following is not None and next_batch[1].base_offset >= self.following:
            next_batch = None
        before_head = self.committed.next_offset is not None and position < self.committed.position
        if next_batch is not None:
            end, following = next_batch[0], next_batch[1].base_offset
        elif not before_head:
            return self._end(position, search, damage)
        else:
            end, following = min(self.committed.position, self.size), self.committed.next_offset or self.expected
            self.committed = PASSED
        self.found.damaged_bytes.append((position, end))
        self._report_lost("damaged", f"bytes {position} to {end - 1} damaged ({damage})", position, end, following)
        return end

    def _next_offset(self, position: int) -> int:
        """Return the offset behind a batch that cannot be read: that of the next batch, if there is one."""
        try:
            return max(batch_at(self.window, position).base_offset, self.expected)
        except (DamagedBatch, UnknownVersion):
            return self.expected

    def _end(self, position: int, search: int, damage: Exception) -> int:
        """Report what stands behind the last batch, and return where to go on.

        There may be batches whose offsets are in use already; a start does not cut these off.
        """
        others = whole_batches(self.window, search, self.size, self.found.base_offset)
        if end := max([at + header.total_len for at, header in others], default=0):
            self.found.damaged_bytes.append((position, end))
            self._report_lost(
                "damaged", f"bytes {position} to {end - 1} repeat offsets ({damage})", position, end, self.expected
            )
            return end
        self.ended = position
        at, size = position, self.size
        while at < size:
            data = read_fully(self.window.fs, self.window.fd, min(CHUNK_BYTES, size - at), at)
            if data.strip(b"\0"):
                text = f"bytes {position} to {size - 1} are no whole batch, and none follows ({damage})"
                self._report("torn", text, position, size)
                return size + 1
            if not data:
                break
            at += len(data)
        self._report("zeros", f"{size - position} bytes of zeros after the last batch", position, size)
        return size + 1

    # --- batches ------------------------------------------------------------------------------------------------------

    def _single_records(self, position: int) -> int:
        """Check plain batches of one record the fast way.

        Stops at the first batch that is not as expected or at which an index entry is due.

        Returns:
            The position behind the checked batches.
        """
        window, found, expected, latest = self.window, self.found, self.expected, self.found.latest_ns
        if self.committed.position < 0:
            return position
        at = window.at(position, HEADER_BYTES)
        base, data, salts = window.position, window.data, window.salts
        stop = min(len(data), self.size - base)
        limit = self.indexed + limits.INDEX_INTERVAL_BYTES - base  # an index entry is due there
        if self.committed.next_offset is not None:
            stop = min(stop, self.committed.position - base)
        last = expected + limits.BATCH_BYTES_MAX if self.following is None else self.following
        known: bytes | None = None
        for end, offset, receive_ns, _, _, name, _, _ in decode_single_records(data, at):
            low, high, salt = TIMES_AND_SALT.unpack_from(data, at)
            if at >= limit or end > stop or offset != expected or offset >= last or salt not in salts:
                break
            if low != receive_ns or high != receive_ns or receive_ns < latest:
                break
            if name is not known:
                try:
                    found.names.add(name.decode())
                except UnicodeDecodeError:
                    break
                known = name
            expected, latest, at = expected + 1, receive_ns, end
        passed = expected - self.expected
        if passed:
            found.count(passed, passed, latest)
            self.expected = expected
        return base + at

    def _batch(self, position: int, header: BatchHeader) -> None:
        """Check a whole batch whose crc is right and whose bytes are in the window."""
        found, end = self.found, position + header.total_len
        if self.committed.position < 0:
            self.uncommitted.append((position, header.base_offset, header.records))
        elif self.committed.next_offset is not None and position < self.committed.position < end:
            text = f"head points to byte {self.committed.position}, inside the batch at {position}"
            self._report("head", text, position, end)
            self.committed = PASSED
        if header.base_offset > self.expected:
            text = f"at byte {position} follows offset {header.base_offset}"
            self._report_lost("gap", text, position, position, header.base_offset)
        batch = StoredBatch(self.window.data, position - self.window.position, header)
        try:
            found.names.update(batch.verify())
        except DamagedBatch as damage:
            self._report("contradiction", str(damage), position, end)
            with suppress(DamagedBatch):
                found.names.update(batch.names("strict"))
        self.expected = last_offset(self.window, position, header) + 1
        if header.min_receive_ns < found.latest_ns or header.max_receive_ns < header.min_receive_ns:
            text = f"batch at offset {header.base_offset}: receive times from {header.min_receive_ns} to "
            text += f"{header.max_receive_ns}, where {found.latest_ns} came before"
            self._report("times", text, position, end)
        if header.salt not in self.window.salts and self.window.salts:
            self.foreign_salts += 1
        if position >= self.indexed + limits.INDEX_INTERVAL_BYTES:
            found.entries.append(IndexEntry(header.base_offset, position, header.min_receive_ns))
            self.indexed = position
        found.count(1, header.records, max(found.latest_ns, header.max_receive_ns))
