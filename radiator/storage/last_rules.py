"""The rules of the last run, as far as a start needs them: one small file, replaced as a whole.

A missing cursor may have been lost, or may never have existed. This file shows which, independently of the cursors: the
changes that a run makes for new rules are on disk, cursors first, before anything else. A missing file says nothing, so
a file that cannot be written is removed.

This module knows entries, which are plain values by a key. It does not know their contents. It runs at a start, before
any other thread.
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
    """Return the contents of the file; None if it cannot be read."""
    path = layout.last_rules_path(root)
    try:
        data = read_file(fs, path)
        return None if data is None else decode(data, HEAD)
    except (OSError, ValueError) as error:
        log.warning("%s: cannot be read (%s): the fan_out rules of the last run are unknown", path, error)
    return None


def replace(fs: FileSystem, root: str, entries: Entries) -> None:
    """Replace the file by these rules. Raises StorageError."""
    path = layout.last_rules_path(root)
    try:
        replace_file(fs, path, encode(entries, HEAD))
        return
    except OSError as error:
        log.warning("%s", storage_error(path, "write the file", error))
    remove(fs, root)


def remove(fs: FileSystem, root: str) -> None:
    """Remove the file. Raises StorageError."""
    path = layout.last_rules_path(root)
    try:
        for each in (path, f"{path}.tmp"):
            with contextlib.suppress(FileNotFoundError):
                fs.remove(each)
        fs.sync_dir(root)
    except OSError as error:
        raise storage_error(path, "remove the files of the last run", error) from error
