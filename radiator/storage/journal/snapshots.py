"""What entries of the journal say of cursors and names, as files of its own: then those entries are not needed.

    encode   hub, some in each turn: a ``Snapshot`` of one moment
    write    any thread: both files. The names first: what entries say of them is applied from the place on that the
             cursors' snapshot tells, in their order, and may be applied to names that are newer than that

Knows: cursors and names. Must not know: segments, when this is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from radiator.storage import cursor_snapshot, definitions, layout
from radiator.storage.files import FileSystem, replace_file

if TYPE_CHECKING:
    from radiator.storage.cursor_store import CursorStore, EncodedCursors
    from radiator.storage.definitions import Definitions, Entry


class Snapshot(NamedTuple):
    """Cursors and names as they are at one moment."""

    cursors: EncodedCursors
    names: dict[str, Entry] | None  # None: the file has them as they are
    names_changes: int  # that made them so

    def write(self, fs: FileSystem, root: str, first_entry: int) -> None:
        """``first_entry``: what earlier entries of the journal say is in it. Raises OSError."""
        if self.names is not None:
            replace_file(fs, layout.subscriptions_path(root), definitions.encode(self.names))
        cursor_snapshot.write(fs, layout.cursors_path(root), self.cursors.encode(first_entry))


class Snapshots:
    """Those of one store. Hub only."""

    def __init__(self, fs: FileSystem, root: str, cursors: CursorStore, names: Definitions) -> None:
        self.cursors = cursors
        self.first_entry = 1  # what earlier entries of the journal say is in the snapshot
        self._fs = fs
        self._root = root
        self._names = names

    def begin_at(self, first_entry: int) -> None:
        """Note with which entry of the journal begins what the snapshot that a start has found lacks."""
        self.first_entry = first_entry

    @property
    def wanted(self) -> bool:
        """Whether the journal lacks something that was told."""
        return self.cursors.failed is not None

    def encode(self) -> Snapshot | None:
        """Encode some more for the next snapshot. Return it once it has everything as it is now, as far as the jobs of
        this turn have it."""
        cursors = self.cursors.encode()
        return None if cursors is None else Snapshot(cursors, *self._names.snapshot())

    def written(self, snapshot: Snapshot, first_entry: int) -> None:
        """It is on the disk."""
        self.first_entry = first_entry
        self._names.saved(snapshot.names_changes)
        self.cursors.saved(snapshot.cursors)

    def not_written(self) -> list[Any]:
        """The latest could not be written. Return who has waited for it: they have to be refused."""
        return self.cursors.not_saved()

    def save(self, first_entry: int) -> None:
        """Write one at once, while no other thread runs. ``first_entry``: what earlier entries of the journal say is in
        it. Raises OSError."""
        while (snapshot := self.encode()) is None:
            pass
        snapshot.write(self._fs, self._root, first_entry)
        cursor_snapshot.remove_old_journals(self._fs, layout.cursors_path(self._root))
        self.written(snapshot, first_entry)
