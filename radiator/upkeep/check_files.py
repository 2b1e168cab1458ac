"""fsck's look at the small files beside the logs: ``dedup`` and ``archived`` of a partition, ``transactions``,
``subscriptions``, ``last_rules``.

Knows: these five. Must not know: segments. No state: any thread, any process.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from radiator.errors import StorageError
from radiator.storage import archived, dedup_file, definitions, layout, transaction_log
from radiator.storage import last_rules as last_rules_file
from radiator.storage.files import FileSystem, read_file
from radiator.upkeep.findings import Finding


def run(fs: FileSystem, directory: str, end: int, live: bool) -> Iterator[Finding]:
    """``end``: the offset at which the log of the partition ends; beside a running broker it may have gone on."""
    yield from _ids(fs, layout.dedup_path(directory), end, live)
    path = layout.archived_path(directory)
    try:
        below = archived.read(fs, directory)
    except StorageError:
        yield Finding("archived", path, "damaged; nothing is removed until it is written again, or deleted", 0, None)
        return
    if below > end and not live:
        yield Finding("archived", path, f"speaks of offsets below {below}, but the log ends at {end}")


def transactions(fs: FileSystem, root: str) -> Iterator[Finding]:
    """What a kill has left of the redo log. Not beside a running broker: there it changes with each group commit."""
    path = layout.transactions_path(root)
    data = read_file(fs, path)
    if data is None:
        return
    entries = transaction_log.decode_entries(data)
    if entries:
        text = f"{len(entries)} entries that are decided: the next start makes up for what is not in its place yet"
        yield Finding("decided", path, text, 0, len(data))
    elif data.strip(b"\0"):
        text = "no entry holds: what was being written was never decided"
        yield Finding("tail", path, text, 0, len(data))


def subscriptions(fs: FileSystem, root: str) -> Iterator[Finding]:
    """The file of named subscriptions, which is replaced as a whole."""
    path = layout.subscriptions_path(root)
    data = read_file(fs, path)
    if data is not None:
        try:
            definitions.decode(data)
        except ValueError as error:
            text = f"cannot be read ({error}); a start puts it aside, and names are unknown until they are used again"
            yield Finding("subscriptions", path, text, 0, len(data))


def last_rules(fs: FileSystem, root: str) -> Iterator[Finding]:
    """The file of who was fed to whom, which is replaced as a whole."""
    path = layout.last_rules_path(root)
    data = read_file(fs, path)
    if data is not None:
        try:
            definitions.decode(data, last_rules_file.HEAD)
        except ValueError as error:
            text = f"cannot be read ({error}); a start goes on without it: children without a cursor get all there is"
            yield Finding("last_rules", path, text, 0, len(data))


def _ids(fs: FileSystem, path: str, end: int, live: bool) -> Iterator[Finding]:
    data = read_file(fs, path)
    if data is None:
        return
    found = dedup_file.decode(data)
    rest = data[found.end :]
    if found.covered is None and not live:
        yield Finding("ids", path, "no block holds; ids are looked for in the log", 0, len(data))
    elif dedup_file.MAGIC in rest[1:]:
        text = f"nothing from byte {found.end} on holds; what it had is looked for in the log"
        yield Finding("ids", path, text, found.end, len(data))
    elif rest and not live:
        text = f"a torn block of {len(rest)} bytes; what it had is looked for in the log"
        yield Finding("tail", path, text, found.end, len(data))
    _, _, offsets, times = dedup_file.columns_of(found.rows)
    if any(low >= high for low, high in pairwise(offsets)) or any(low > high for low, high in pairwise(times)):
        yield Finding("ids", path, "offsets or receive times do not rise")
    if not live and max([found.covered or 0, *offsets[-1:]]) > end:
        yield Finding("ids", path, f"knows ids up to offset {found.covered}, but the log ends at {end}")
