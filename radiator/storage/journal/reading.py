"""Read the journal of an earlier run, entry by entry.

Files are read in the order of their numbers. An entry is valid if its crc is right, and if no later file begins with
its number or a lower one: then it was refused. Valid entries may follow a damaged one: unsynced writes reach the disk
in any order when the power fails. They are used too; missing entries between them are reported, because damage looks
the same.

This module knows files and entries. It does not know the contents of segments. It runs before any other thread, or in a
process of its own.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import NamedTuple

from radiator.storage import layout
from radiator.storage.files import FileSystem, opened, read_file, read_fully, write_again
from radiator.storage.header import DamagedBatch, decode_header, next_offset
from radiator.storage.journal.format import (
    FILE_HEADER_BYTES,
    Entry,
    FileHeader,
    Part,
    decode_entry,
    decode_file_header,
    find_entry,
)
from radiator.storage.journal.journal import Journal
from radiator.storage.recovery import RecoveryNote


class _Place(NamedTuple):
    """Where a batch stands in the journal."""

    file: int
    position: int
    length: int
    next_offset: int
    crc: int


class Gap(NamedTuple):
    """Missing entries, from ``first`` to ``last``, and where they should be.

    ``end`` is that of the file, if they may have been in files that do not exist.
    """

    path: str
    first: int
    last: int
    start: int
    end: int


class JournalFiles:
    """The files of the journal in a data directory."""

    def __init__(self, fs: FileSystem, root: str) -> None:
        """Read the headers of the files. Raises OSError."""
        self.fs = fs
        self.directory = layout.journal_path(root)
        self.gaps: list[Gap] = []
        self.unread: list[str] = []  # paths of files with an invalid header, or that of another file
        self._headers: dict[int, FileHeader] = {}
        self._sizes: dict[int, int] = {}
        self._last = FileHeader(0, 1, 1, 0)
        self.next_entry = 1  # the number behind the last entry found
        self._places: dict[str, dict[int, _Place]] | None = None  # by partition and offset
        misnamed: dict[int, FileHeader] = {}
        names = fs.listdir(self.directory)
        for number in sorted(number for name in names if (number := layout.journal_file_number(name)) is not None):
            head = self._head(number)
            header = decode_file_header(head)
            if header is None or header.number != number:
                self._sizes[number] = 0
                if header is not None:
                    misnamed[number] = header
                elif any(head):  # zeros: the power failed before the first sync of the file
                    self.unread.append(self._path(number))
            else:
                self._headers[number] = self._last = header
        oldest = min(self._headers, default=0)
        for number, header in misnamed.items():
            if not header.number <= min(oldest, number - 1):  # else it was to be used again, and has no entries yet
                self.unread.append(self._path(number))

    def _path(self, number: int) -> str:
        return layout.journal_file_path(self.directory, number)

    def _head(self, number: int) -> bytes:
        with opened(self.fs, self.fs.open_read(self._path(number))) as fd:
            return self.fs.pread(fd, FILE_HEADER_BYTES, 0)

    def __bool__(self) -> bool:
        return bool(self._headers or self._sizes)

    def entries(self, since: int = 0) -> Iterator[Entry]:
        """Yield valid entries in order, without files that have none from number ``since`` on. Raises OSError."""
        self.gaps.clear()
        expected: int | None = None
        headers = list(self._headers.values())
        for place, header in enumerate(headers):
            void_from = min((later.first_entry for later in headers[place + 1 :]), default=None)
            if void_from is not None and void_from <= since:
                continue
            data = memoryview(read_file(self.fs, self._path(header.number)) or b"")
            at = FILE_HEADER_BYTES
            if expected is None:
                expected = header.first_entry
            number = header.first_entry
            while True:
                entry = decode_entry(data, at, header.salt)
                if entry is None or entry.number != number:
                    entry = find_entry(data, at, number, header.salt)
                if entry is None or (void_from is not None and entry.number >= void_from):
                    break
                if entry.number > expected:
                    self.gaps.append(Gap(self._path(header.number), expected, entry.number - 1, at, entry.start))
                yield entry._replace(file=header.number)
                at, number = entry.end, entry.number + 1
                expected = number
            self._sizes[header.number] = at
            if void_from is not None and void_from > expected:
                self.gaps.append(Gap(self._path(header.number), expected, void_from - 1, at, len(data)))
                expected = void_from
        self.next_entry = expected or 1

    def starts(self) -> dict[str, int]:
        """Return the offset of the first batch of each log. Raises OSError."""
        return {name: min(found) for name, found in self._all_places().items()}

    def ends(self) -> dict[str, int]:
        """Return the offset behind the last batch of each log. Raises OSError."""
        return {name: max(place.next_offset for place in found.values()) for name, found in self._all_places().items()}

    def batches(self, partition: str, start: int, end: int) -> Iterator[bytes]:
        """Yield the batches of a log with offsets from ``start`` to ``end``, in order. Raises OSError."""
        for offset, place in sorted(self._places_of(partition).items()):
            if offset < end and place.next_offset > start:
                yield self._read(place)

    def next_batch(self, partition: str, start: int, end: int) -> bytes | None:
        """Return the first batch of a log between two offsets, or None. Raises OSError."""
        places = self._places_of(partition)
        found = min((each for each in places if each >= start and places[each].next_offset <= end), default=None)
        return None if found is None else self._read(places[found])

    def _read(self, place: _Place) -> bytes:
        path = self._path(place.file)
        with opened(self.fs, self.fs.open_read(path)) as fd:
            data = read_fully(self.fs, fd, place.length, place.position)
        try:
            if decode_header(data).crc == place.crc:
                return data
        except DamagedBatch:
            pass
        raise FileNotFoundError(errno.ENOENT, "the journal has used the file for other entries since", path)

    def _places_of(self, partition: str) -> dict[int, _Place]:
        return self._all_places().get(partition, {})

    def _all_places(self) -> dict[str, dict[int, _Place]]:
        if self._places is None:
            self._places = {}
            for entry in self.entries():
                for name in entry.removed:
                    self._places.pop(name, None)
                for part in entry.parts:
                    place = _Place(entry.file, part.position, len(part.data), end_of(part), part.header.crc)
                    self._places.setdefault(part.partition, {})[part.header.base_offset] = place
        return self._places

    def has(self, partition: str, offset: int, end: int) -> bool:
        """Return whether the journal has everything of a log from ``offset`` up to ``end``. Raises OSError."""
        places = self._places_of(partition)
        while offset < end:
            place = places.get(offset)
            if place is None:
                return False
            offset = place.next_offset
        return True

    def size(self, partition: str, offset: int, end: int) -> int:
        """Return the size of the batches of a log with offsets from ``offset`` up to ``end``. Raises OSError."""
        return sum(place.length for base, place in self._places_of(partition).items() if offset <= base < end)

    def sync(self) -> None:
        """Write all valid entries again, and sync them: the earlier run may not have synced them, or have failed to.

        Raises:
            OSError: A file cannot be read, written or synced.
        """
        for number, size in self._sizes.items():
            if number in self._headers:
                with opened(self.fs, self.fs.open(self._path(number))) as fd:
                    write_again(self.fs, fd, 0, size)
                    self.fs.fdatasync(fd)
        if self._sizes:
            self.fs.sync_dir(self.directory)

    def notes(self) -> list[RecoveryNote]:
        """Return the problems that ``entries`` has found."""
        notes = [RecoveryNote(path, "not a file of this journal; skipped", "journal") for path in self.unread]
        for gap in self.gaps:
            text = f"entries {gap.first} to {gap.last} are damaged or missing; later entries are kept"
            notes.append(RecoveryNote(gap.path, text, "journal"))
        return notes

    def hand_over(self, journal: Journal, next_entry: int) -> None:
        """Let the journal continue behind the valid entries, with ``next_entry`` or a higher number."""
        journal.continue_after(self._sizes, max(self.next_entry, next_entry), self._last.epoch)


def end_of(part: Part) -> int:
    """Return the offset behind a batch."""
    return next_offset(part.data, 0, part.header)
