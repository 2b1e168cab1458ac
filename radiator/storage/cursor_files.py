"""Read the cursors from the files: the snapshot, then the entries of the journal.

While a broker runs, a checkpoint may replace the snapshot while the journal is read, and may then release files of the
journal that only the older snapshot needs. ``read_live`` reads again until both fit.

An earlier version had a journal of its own beside the snapshot. It is applied after the snapshot and before the
entries.

This module knows these files. It does not know when to write. It has no state: any thread and any process may call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import error as StructError
from typing import NamedTuple

from radiator.errors import StorageError
from radiator.storage import cursor_records, cursor_snapshot, layout
from radiator.storage.cursor_records import JOURNAL, CursorState
from radiator.storage.cursor_snapshot import SNAPSHOT, StoredSnapshot
from radiator.storage.delivered_ranges import MARKS_BYTES
from radiator.storage.files import FileSystem, read_file
from radiator.storage.journal.reading import JournalFiles

DELIVERED = "delivered"  # hints: see ``hints``
TRIES_MAX = 20  # each finds that a checkpoint has just replaced the snapshot

Entries = Iterable[tuple[int, bytes]]  # entry numbers and the cursor changes of each


class OldJournal(NamedTuple):
    """The journal of cursors of an earlier version."""

    path: str
    data: bytes
    end: int  # end of the last valid block
    lost: int  # bytes before it that do not


class StoredCursors(NamedTuple):
    """All cursors, as stored in the files."""

    snapshot: StoredSnapshot
    unsorted: list[CursorState]  # cursors with unordered or adjacent intervals in the snapshot
    states: dict[int, CursorState]
    highest_number: int  # the highest number that was ever given
    entries_to: int  # entries below this number are included
    first_entry: int  # number of the first in the journal; 0: there is none
    changed: bool  # since the snapshot was written
    delivered: bool  # something has been, by the hints; False if the snapshot is there
    old_journals: list[int]  # generations
    old_journal: OldJournal | None  # the journal that continues the snapshot

    @property
    def generation(self) -> int:
        """The generation of the snapshot; without one, that of the newest journal of an earlier version."""
        return self.snapshot.generation or max(self.old_journals, default=0)

    @property
    def since(self) -> int:
        """The number of the first entry that the snapshot does not cover."""
        return max(1, 0 if self.snapshot.snapshot is None else self.snapshot.snapshot.entries_to)

    @property
    def misses_snapshot(self) -> bool:
        """Whether a snapshot was written once and no readable one exists."""
        if self.snapshot.snapshot is not None:
            return False
        if self.first_entry or self.old_journals:
            return self.first_entry > 1 or self.generation > 0
        return self.delivered


class StoredMetadata(NamedTuple):
    """Cursors and durable subscriptions at one moment, as stored in the files."""

    cursors: StoredCursors
    names: bytes | None  # the file of names; None: there is none
    names_changes: list[bytes]  # changes of names in the journal since
    last: tuple[int, int] | None  # numbers of the last entry of the journal that was read, and of its file


def read(fs: FileSystem, directory: str, entries: Entries, redone: Iterable[bytes] = ()) -> StoredCursors:
    """Read the cursors.

    Args:
        fs: The file system.
        directory: Of the cursors.
        entries: Of the journal, in order.
        redone: Acks of transactions that an earlier version has decided.

    Raises:
        OSError: A file cannot be read.
    """
    generations = cursor_records.generations(fs.listdir(directory))
    snapshot = cursor_snapshot.read(fs, directory, max(generations, default=0))
    states, deleted = snapshot.states, set[int]()
    unsorted = [state for state in states.values() if not state.is_sorted]
    marks = b"" if snapshot.snapshot is not None else (read_file(fs, f"{directory}/{DELIVERED}") or b"")[:MARKS_BYTES]
    delivered = marks != bytes(len(marks))
    found = StoredCursors(snapshot, unsorted, states, 0, 0, 0, False, delivered, generations, None)
    old_journal = None
    path = f"{directory}/{JOURNAL}{found.generation:010d}"
    data = read_file(fs, path)
    if data is not None:
        old_journal = OldJournal(path, data, *cursor_records.replay(data, states, deleted))
    highest_number, entries_to = (0, 0) if snapshot.snapshot is None else snapshot.snapshot[1:]
    changed = bool(data)
    for records in redone:
        cursor_records.redo(records, states, deleted, highest_number)
        changed = True
    first_entry = 0
    for number, records in entries:
        first_entry = first_entry or number
        if number < entries_to:
            continue  # the settled messages may have been lost since, and their offsets reused
        entries_to = number + 1
        if records:
            changed = True
            try:
                cursor_records.apply(records, states, deleted)
            except StructError:  # correct crc, wrong contents: not written by radiator
                pass
    return found._replace(
        highest_number=max([highest_number, *states, *deleted]),
        entries_to=entries_to,
        first_entry=first_entry,
        changed=changed,
        old_journal=old_journal,
    )


def read_live(fs: FileSystem, root: str) -> StoredCursors:
    """Read the cursors of a data directory at one moment, also beside a running broker.

    Raises:
        OSError: A file cannot be read.
        StorageError: The snapshot is replaced again and again.
    """
    return read_metadata(fs, root).cursors


def read_metadata(fs: FileSystem, root: str, redone: Sequence[bytes] = ()) -> StoredMetadata:
    """Read cursors and durable subscriptions at one moment, as ``read_live`` does.

    Args:
        fs: The file system.
        root: The data directory.
        redone: Acks of transactions that an earlier version has decided.
    """
    directory = layout.cursors_path(root)
    path = f"{directory}/{SNAPSHOT}"
    for _ in range(TRIES_MAX):
        before = read_file(fs, path)
        snapshot = cursor_snapshot.read(fs, directory, 0).snapshot
        since = 0 if snapshot is None else snapshot.entries_to
        names = read_file(fs, layout.subscriptions_path(root))
        try:
            entries = [
                (each.number, each.cursors, each.names, each.file) for each in JournalFiles(fs, root).entries(since)
            ]
        except FileNotFoundError:
            continue  # a file of the journal was released
        found = read(fs, directory, [entry[:2] for entry in entries], redone)
        if read_file(fs, path) == before:
            changes = [each for number, _, each, _ in entries if number >= since and each]
            return StoredMetadata(found, names, changes, (entries[-1][0], entries[-1][3]) if entries else None)
    raise StorageError(f"{directory}: the snapshot changes faster than it can be read")
