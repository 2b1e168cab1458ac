"""Write cursors and definitions to files of their own, so that the journal's entries about them are not needed.

    encode   event loop, some in each turn: a ``Snapshot`` of one moment
    write    any thread: both files. The definitions first: entries about them are applied from the place on that the
             cursors' snapshot contains, in their order, and may be applied to newer definitions

This module knows cursors and definitions. It does not know segments, or when a snapshot is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from radiator.storage import cursor_snapshot, definitions, layout
from radiator.storage.files import FileSystem, replace_file

if TYPE_CHECKING:
    from radiator.storage.cursor_store import CursorStore, EncodedCursors
    from radiator.storage.definitions import Definitions, Entry


class Snapshot(NamedTuple):
    """Cursors and definitions at one moment."""

    cursors: EncodedCursors
    names: dict[str, Entry] | None  # None: the file has them as they are
    names_changes: int  # that made them so

    def write(self, fs: FileSystem, root: str, first_entry: int) -> None:
        """Write both files; they cover all entries of the journal below ``first_entry``. Raises OSError."""
        if self.names is not None:
            replace_file(fs, layout.subscriptions_path(root), definitions.encode(self.names))
        cursor_snapshot.write(fs, layout.cursors_path(root), self.cursors.encode(first_entry))


class Snapshots:
    """The snapshots of one store. The event loop owns it."""

    def __init__(self, fs: FileSystem, root: str, cursors: CursorStore, names: Definitions) -> None:
        self.cursors = cursors
        self.first_entry = 1  # earlier journal entries are included in the snapshot
        self._fs = fs
        self._root = root
        self._names = names

    def begin_at(self, first_entry: int) -> None:
        """Set the first entry of the journal that the snapshot on disk does not cover."""
        self.first_entry = first_entry

    @property
    def wanted(self) -> bool:
        """Whether the journal lacks some changes of cursors."""
        return self.cursors.failed is not None

    def encode(self) -> Snapshot | None:
        """Encode some more for the next snapshot.

        Returns:
            The snapshot once it has everything that the jobs of this turn have; None before that.
        """
        cursors = self.cursors.encode()
        return None if cursors is None else Snapshot(cursors, *self._names.snapshot())

    def written(self, snapshot: Snapshot, first_entry: int) -> None:
        """Note that the snapshot is on disk."""
        self.first_entry = first_entry
        self._names.saved(snapshot.names_changes)
        self.cursors.saved(snapshot.cursors)

    def not_written(self) -> list[Any]:
        """Note that the snapshot could not be written. Return the waiters that must be refused."""
        return self.cursors.not_saved()

    def save(self, first_entry: int) -> None:
        """Write a snapshot at once, while no other thread runs. It covers all entries below ``first_entry``.

        Raises:
            OSError: A file cannot be written.
        """
        while (snapshot := self.encode()) is None:
            pass
        snapshot.write(self._fs, self._root, first_entry)
        cursor_snapshot.remove_old_journals(self._fs, layout.cursors_path(self._root))
        self.written(snapshot, first_entry)
