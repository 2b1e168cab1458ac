"""Directories that look like a data directory, and are the copy of one: a backup, or what a mirror writes.

A backup is known by its manifest. A mirror leaves a small file, ``mirror``, which a broker that starts there takes
away, since the copy is its own from then on. Nothing of a copy is to be changed by who only reads it: a file of a
backup that is not what its manifest says makes it worthless.

Knows: two names. Must not know: what is in a copy. No state: any thread, any process.
"""

from __future__ import annotations

import contextlib

from radiator.storage import layout
from radiator.storage.files import FileSystem, read_file, replace_file

WORDS = b"A copy that `radiator mirror` keeps. A broker that starts here takes this file away.\n"


def kind_of_copy(fs: FileSystem, root: str) -> str | None:
    """In words; None: it is a store of its own. Raises OSError."""
    there = fs.listdir(root)
    if layout.MANIFEST in there:
        return "a backup"
    return "a mirror's copy" if layout.MIRROR in there else None


def begin_mirror(fs: FileSystem, root: str) -> None:
    if read_file(fs, layout.mirror_path(root)) != WORDS:
        replace_file(fs, layout.mirror_path(root), WORDS, layout.NEW_SUFFIX)


def end_mirror(fs: FileSystem, root: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        fs.remove(layout.mirror_path(root))
