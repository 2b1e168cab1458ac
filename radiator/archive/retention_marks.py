"""Marks of a data directory that are ahead of an archive: something else has set them.

That may be intended: there is a second archive, or ``radiator export --mark-archived`` is used. Or the disk of the
archive is not mounted, and a new one is begun in its place; or its last commits are lost. The archive itself does not
show which. So it is reported before retention gets more marks, and to readers of log and archive.

A mark is written after its commit. So if marks are read first and commits then, only these marks are ahead.

This module knows marks and the state of an archive. It does not know segments. It writes nothing.
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
from radiator.words import counted


def marks(fs: FileSystem, logs: Iterable[StoredPartition]) -> dict[str, int]:
    """Return the valid marks by partition."""
    logs = list(logs)
    found = together(fs, partial(_mark, fs), logs)
    return {log.name: mark for log, mark in zip(logs, found, strict=True) if mark}


def _mark(fs: FileSystem, log: StoredPartition) -> int:
    try:
        return archived.read(fs, log.directory)
    except (StorageError, OSError):
        return 0  # damaged, or just gone: nothing was removed by it


def ahead(found: Mapping[str, int], uri: str, state: State) -> str | None:
    """Describe marks that are ahead of the archive; None: there are none."""
    names = [name for name, mark in found.items() if mark > state.ends.get(name, 0)]
    if not names:
        return None
    name = names[0]
    more = f"; the same for {counted(len(names) - 1, 'more partition')}" if names[1:] else ""
    return (
        f"{name}: is marked as archived up to offset {found[name]}, and {uri} has it up to "
        f"{state.ends.get(name, 0)}{more}. The mark is from another archive or from `radiator export --mark-archived`; "
        "or the archive of the mark is not mounted here, or its last commits are gone: then stop, and restore it. "
        "Messages that retention has removed meanwhile are not here"
    )
