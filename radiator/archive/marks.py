"""Marks of a data directory that say more than an archive has: somebody else has told retention.

It may be as it should be: there is a second archive, or ``radiator export --mark-archived`` is used. Or the disk of the
archive is not mounted, and a new one is begun in its place; or its last commits are gone. Nothing in the archive itself
tells these apart, so it is said before retention hears more.

Knows: marks, the state of an archive. Must not know: segments. Nothing is written.
"""

from __future__ import annotations

import contextlib

from radiator.archive.manifest import State
from radiator.columns.files import open_store
from radiator.columns.log import partitions
from radiator.errors import StorageError
from radiator.storage import archived
from radiator.storage.files import FileSystem


def ahead(data: str, uri: str, state: State, names: frozenset[str] = frozenset()) -> str | None:
    """In words, of all partitions or of those ``names``; None: no mark is. Raises StorageError."""
    fs, found = FileSystem(), []
    for each in partitions(open_store(data)):
        if names and each.name not in names:
            continue
        with contextlib.suppress(StorageError, OSError):  # damaged or just gone: it is written again, or nobody's
            mark = archived.read(fs, each.directory)
            if mark > state.ends.get(each.name, 0):
                found.append((each.name, mark))
    if not found:
        return None
    name, mark = found[0]
    more = f"; so it is with {len(found) - 1} more partitions" if found[1:] else ""
    return (
        f"{name}: retention was told that it is archived up to offset {mark}, and {uri} has it up to "
        f"{state.ends.get(name, 0)}{more}. Another archive or `radiator export --mark-archived` told it; or the "
        "archive that told it is not mounted here, or its last commits are gone: then stop, and give it back. What "
        "retention has removed meanwhile is not here"
    )
