"""What the rules of the last run said, as far as a start must know: one small file, replaced as a whole.

A cursor that is not there may be one that was lost, or one that never was. This file tells which, and it does not hang
on the cursors: what a run makes of new rules is on the disk, cursors first, before anything else can be. A file that is
not there says nothing, so one that cannot be written is removed.

Knows: entries, which are plain values by a key. Must not know: what is in them. Only at a start, before any other
thread runs.
"""

from __future__ import annotations

import contextlib
import logging

from radiator.storage import layout
from radiator.storage.definitions import Entry, decode, encode
from radiator.storage.files import FileSystem, read_file, replace_file, storage_error

log = logging.getLogger("radiator.storage")

HEAD = b"radiator last-rules 1 "
Entries = dict[str, Entry]


def load(fs: FileSystem, root: str) -> Entries | None:
    """What the file says; None if there is none that can be read."""
    path = layout.last_rules_path(root)
    try:
        data = read_file(fs, path)
        return None if data is None else decode(data, HEAD)
    except (OSError, ValueError) as error:
        log.warning("%s: cannot be read (%s): who had a fan_out in the last run is not known", path, error)
    return None


def replace(fs: FileSystem, root: str, entries: Entries) -> None:
    """These rules hold from now on. Raises StorageError."""
    path = layout.last_rules_path(root)
    try:
        replace_file(fs, path, encode(entries, HEAD))
        return
    except OSError as error:
        log.warning("%s", storage_error(path, "write the file", error))
    remove(fs, root)


def remove(fs: FileSystem, root: str) -> None:
    """Nobody knows which rules hold. Raises StorageError."""
    path = layout.last_rules_path(root)
    try:
        for each in (path, f"{path}.tmp"):
            with contextlib.suppress(FileNotFoundError):
                fs.remove(each)
        fs.sync_dir(root)
    except OSError as error:
        raise storage_error(path, "remove what the last run has left", error) from error
