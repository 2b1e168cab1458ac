"""Recognise directories that look like a data directory and are a copy of one: a backup, or the copy of a mirror.

A backup has a manifest. A mirror writes a small file, ``mirror``; a broker that starts on the copy removes it, because
the copy is then a store of its own. Readers must not change a copy: a backup whose files differ from its manifest is
worthless.

This module knows two file names. It has no state: any thread and any process may call it.
"""

from __future__ import annotations

import contextlib

from radiator.storage import layout
from radiator.storage.files import FileSystem, read_file, replace_file

WORDS = b"A copy that `radiator mirror` maintains. A broker that starts here removes this file.\n"


def kind_of_copy(fs: FileSystem, root: str) -> str | None:
    """Return "a backup", "a mirror's copy", or None for a store of its own. Raises OSError."""
    there = fs.listdir(root)
    if layout.MANIFEST in there:
        return "a backup"
    return "a mirror's copy" if layout.MIRROR in there else None


def begin_mirror(fs: FileSystem, root: str) -> None:
    """Write the file that marks ``root`` as the copy of a mirror."""
    if read_file(fs, layout.mirror_path(root)) != WORDS:
        replace_file(fs, layout.mirror_path(root), WORDS, layout.NEW_SUFFIX)


def end_mirror(fs: FileSystem, root: str) -> None:
    """Remove the file that marks ``root`` as the copy of a mirror."""
    with contextlib.suppress(FileNotFoundError):
        fs.remove(layout.mirror_path(root))
