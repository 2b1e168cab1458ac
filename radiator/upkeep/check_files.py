"""Check the small files beside the logs.

These are ``dedup`` and ``archived`` of a partition, ``transactions``, the journal, ``subscriptions`` and
``last_rules``. Segments are not known here. Keeps no state: any thread, any process.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from radiator.errors import StorageError
from radiator.storage import archived, dedup_file, definitions, last_rules, layout, removal, transaction_log
from radiator.storage.files import FileSystem, read_file
from radiator.storage.journal.format import FILE_HEADER_BYTES
from radiator.storage.journal.reading import JournalFiles
from radiator.upkeep.findings import Finding


def run(fs: FileSystem, directory: str, end: int, live: bool, latest_ns: int | None = None) -> Iterator[Finding]:
    """Yield what is wrong with ``dedup`` and ``archived`` of a partition.

    Args:
        fs: The file system.
        directory: The directory of the partition.
        end: The offset at which its log ends; beside a running broker the log may have grown since.
        live: Whether a broker is running.
        latest_ns: The latest receive time that is not reported; None to report none.
    """
    yield from _ids(fs, layout.dedup_path(directory), end, live, latest_ns)
    path = layout.archived_path(directory)
    try:
        below = archived.read(fs, directory)
    except StorageError:
        yield Finding("archived", path, "damaged; nothing is removed until it is written again, or deleted", 0, None)
        return
    if below > end and not live:
        yield Finding("archived", path, f"covers offsets below {below}, but the log ends at {end}")


def transactions(fs: FileSystem, root: str) -> Iterator[Finding]:
    """Yield what a killed broker has left in the redo log of an earlier version.

    Not for use beside a running broker, which changes the file with each group commit.
    """
    path = layout.transactions_path(root)
    data = read_file(fs, path)
    if data is None:
        return
    entries = transaction_log.decode_entries(data)
    if entries:
        text = f"{len(entries)} decided entries: the next start writes what segments lack"
        yield Finding("decided", path, text, 0, len(data))
    elif data.strip(b"\0"):
        text = "no valid entry: the last write was never decided"
        yield Finding("tail", path, text, 0, len(data))


def journal(fs: FileSystem, root: str) -> Iterator[Finding]:
    """Yield what a killed broker has left in the journal.

    Not for use beside a running broker, which changes the journal with each group commit.
    """
    files = JournalFiles(fs, root)
    if not files:
        return
    count = sum(1 for _ in files.entries())
    for path in files.unread:
        yield Finding(
            "journal",
            path,
            "not a journal file, or its header is damaged; a start skips it",
            0,
            FILE_HEADER_BYTES,
        )
    for path, first, last, start, end in files.gaps:
        text = f"entries {first} to {last} are damaged or missing; a start continues after them"
        yield Finding("journal", path, text, start, end)
    if count:
        text = f"{count} decided entries: the next start writes what segments lack"
        yield Finding("decided", files.directory, text)


def definition_files(fs: FileSystem, root: str) -> Iterator[Finding]:
    """Yield a finding for each of ``subscriptions``, ``removals`` and ``last_rules`` that cannot be read."""
    for kind, head, effect in (
        ("subscriptions", definitions.HEAD, "a start renames it, and names are unknown until they are used again"),
        (layout.REMOVALS, removal.HEAD, "a start ignores it: partitions that were about to be removed stay"),
        ("last_rules", last_rules.HEAD, "a start ignores it: queues without a cursor get all messages"),
    ):
        path = f"{root}/{kind}"
        data = read_file(fs, path)
        if data is None:
            continue
        try:
            definitions.decode(data, head)
        except ValueError as error:
            yield Finding(kind, path, f"cannot be read ({error}); {effect}", 0, len(data))


def needed_by_archive(fs: FileSystem, directory: str, first: int) -> str | None:
    """Return why the receive times of a log, from the offset ``first`` on, must stay; None if they need not.

    An archive has the times as well: a log with others would be taken for another log.
    """
    try:
        archived_to = archived.read(fs, directory)
    except StorageError as error:
        return str(error)
    if archived_to <= first:
        return None
    return (
        f"offsets {first} to {archived_to - 1} are in an archive with these times. To continue without that archive, "
        f"remove {layout.archived_path(directory)}, lower the times, and archive into another directory"
    )


def _ids(fs: FileSystem, path: str, end: int, live: bool, latest_ns: int | None) -> Iterator[Finding]:
    data = read_file(fs, path)
    if data is None:
        return
    found = dedup_file.decode(data)
    rest = data[found.end :]
    if found.covered is None and not live:
        yield Finding("ids", path, "no valid block; ids are searched in the log", 0, len(data))
    elif dedup_file.MAGIC in rest[1:]:
        text = f"nothing from byte {found.end} on is valid; its ids are searched in the log"
        yield Finding("ids", path, text, found.end, len(data))
    elif rest and not live:
        text = f"a torn block of {len(rest)} bytes; its ids are searched in the log"
        yield Finding("tail", path, text, found.end, len(data))
    _, _, offsets, times = dedup_file.columns_of(found.rows)
    if any(low >= high for low, high in pairwise(offsets)) or any(low > high for low, high in pairwise(times)):
        yield Finding("ids", path, "offsets or receive times do not increase")
    if latest_ns is not None and (late := sum(time > latest_ns for time in times)):
        yield Finding(
            "future", path, f"{late} message ids have a receive time in the future: they are remembered longer"
        )
    if not live and max([found.covered or 0, *offsets[-1:]]) > end:
        yield Finding("ids", path, f"has ids up to offset {found.covered}, but the log ends at {end}")
