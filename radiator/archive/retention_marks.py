"""Marks of a data directory that say more than an archive has: somebody else has told retention.

It may be as it should be: there is a second archive, or ``radiator export --mark-archived`` is used. Or the disk of the
archive is not mounted, and a new one is begun in its place; or its last commits are gone. Nothing in the archive itself
tells these apart, so it is said before retention hears more, and to who reads both as one.

A mark is written behind the commit that it speaks of. So who reads the marks first and the commits then finds no mark
that is ahead but those.

Knows: marks, the state of an archive. Must not know: segments. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from radiator.archive.manifest import State
from radiator.columns.files import together
from radiator.errors import StorageError
from radiator.storage import archived
from radiator.storage.files import FileSystem
from radiator.storage.reader import StoredPartition


def marks(fs: FileSystem, logs: Iterable[StoredPartition]) -> dict[str, int]:
    """By partition, of those that have one which holds."""
    logs = list(logs)
    found = together(fs, partial(_mark, fs), logs)
    return {log.name: mark for log, mark in zip(logs, found, strict=True) if mark}


def _mark(fs: FileSystem, log: StoredPartition) -> int:
    try:
        return archived.read(fs, log.directory)
    except (StorageError, OSError):
        return 0  # damaged, or just gone: nothing was removed by it


def ahead(found: Mapping[str, int], uri: str, state: State) -> str | None:
    """Marks that are ahead of the archive, in words; None: none is."""
    names = [name for name, mark in found.items() if mark > state.ends.get(name, 0)]
    if not names:
        return None
    name = names[0]
    more = f"; so it is with {len(names) - 1} more partitions" if names[1:] else ""
    return (
        f"{name}: retention was told that it is archived up to offset {found[name]}, and {uri} has it up to "
        f"{state.ends.get(name, 0)}{more}. Another archive or `radiator export --mark-archived` told it; or the "
        "archive that told it is not mounted here, or its last commits are gone: then stop, and give it back. What "
        "retention has removed meanwhile is not here"
    )
