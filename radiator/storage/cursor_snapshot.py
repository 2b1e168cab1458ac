"""The snapshot of the cursors, which is stored twice: a damaged or missing file costs no acks.

    write: the copy is replaced (written beside its place, synced, renamed, the directory synced), then the snapshot
    read:  the snapshot; if it is damaged, the copy, unless an earlier version has left a journal of cursors with
           a higher generation: then the copy is older than the snapshot was

The copy is written first, so it is never older than the snapshot. A start that finds them different writes both.

This module knows two files, and the names of journals of earlier versions. It does not know the journal or when to
write. It has no state: any thread and any process may call it.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from radiator.storage import cursor_records
from radiator.storage.cursor_records import JOURNAL, CursorState, Snapshot
from radiator.storage.files import FileSystem, read_file, replace_file

SNAPSHOT = "snapshot"
COPY = "snapshot.copy"


class StoredSnapshot(NamedTuple):
    """What was read of the snapshot and its copy."""

    snapshot: Snapshot | None  # None: there is no valid one
    states: dict[int, CursorState]
    damaged: bool  # the snapshot file exists and is invalid
    copied: bool  # this is the copy
    alike: bool  # both hold the same

    @property
    def generation(self) -> int | None:
        """The generation of the snapshot, or None."""
        return None if self.snapshot is None else self.snapshot.generation


def read(fs: FileSystem, directory: str, newest_journal: int) -> StoredSnapshot:
    """Read the snapshot, or else its copy. Raises OSError."""
    raw, copy = (read_file(fs, f"{directory}/{name}") for name in (SNAPSHOT, COPY))
    states: dict[int, CursorState] = {}
    snapshot = cursor_records.load_snapshot(raw, states)
    if snapshot is not None:
        return StoredSnapshot(snapshot, states, False, False, raw == copy)
    snapshot = cursor_records.load_snapshot(copy, states)
    if snapshot is not None and snapshot.generation >= newest_journal:
        return StoredSnapshot(snapshot, states, raw is not None, True, False)
    return StoredSnapshot(None, {}, raw is not None, False, False)


def remove_old_journals(fs: FileSystem, directory: str) -> None:
    """Remove the journals of cursors that an earlier version has left. Raises OSError."""
    for generation in cursor_records.generations(fs.listdir(directory)):
        fs.sync_dir(directory)  # the snapshot's name first: an earlier run may have failed to sync it
        with contextlib.suppress(FileNotFoundError):
            fs.remove(f"{directory}/{JOURNAL}{generation:010d}")


def write(fs: FileSystem, directory: str, data: bytes) -> None:
    """Write the copy and the snapshot durably. Raises OSError."""
    for name in (COPY, SNAPSHOT):
        replace_file(fs, f"{directory}/{name}", data)
