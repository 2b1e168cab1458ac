"""Check the small files beside the logs.

These are ``dedup`` and ``archived`` of a partition, ``transactions``, the journal, ``subscriptions``, ``last_rules``,
and what is in ``cursors/``. Segments are not known here. Keeps no state: any thread, any process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from radiator import limits
from radiator.errors import StorageError
from radiator.storage import (
    archived,
    cursor_files,
    cursor_records,
    dedup_file,
    definitions,
    last_rules,
    layout,
    removal,
    transaction_log,
)
from radiator.storage.cursor_files import DELIVERED
from radiator.storage.cursor_records import CursorState
from radiator.storage.cursor_snapshot import COPY, SNAPSHOT
from radiator.storage.delivered_ranges import U64_BYTES
from radiator.storage.delivery_counts import HINTS_BYTES
from radiator.storage.files import FileSystem, read_file
from radiator.storage.journal.format import FILE_HEADER_BYTES
from radiator.storage.journal.reading import JournalFiles
from radiator.upkeep.findings import Finding, span

DAMAGED_SNAPSHOT = SNAPSHOT + ".damaged"


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


# --- cursors ----------------------------------------------------------------------------------------------------------


def cursors(fs: FileSystem, root: str, logs: Mapping[str, tuple[int, int]] | None) -> Iterator[Finding]:
    """Yield what is wrong with the cursors of a store: the snapshot, its copy, an old journal, the delivery hints.

    Beside a running broker, a cursor that is ahead of its log is not reported, because the head is written later.

    Args:
        fs: The file system.
        root: The data directory.
        logs: The first and the next offset of each partition; None if a broker is running.
    """
    directory = layout.cursors_path(root)
    if fs.stat(directory) is None:
        return
    path = f"{directory}/{SNAPSHOT}"
    found = cursor_files.read_live(fs, root)
    listed = fs.listdir(directory)
    snapshot, _, broken, copied, alike = found.snapshot
    remedy = "the next start uses its copy" if copied else "cursors without another copy start again"
    if broken:
        kind = "copy" if copied else "snapshot"
        yield Finding(kind, path, f"cannot be read; {remedy}", 0, len(read_file(fs, path) or b""))
    elif logs is None:
        pass  # the copy is written first: beside a broker the snapshot may follow in a moment
    elif copied:
        yield Finding("copy", path, f"missing; {remedy}")
    elif snapshot is not None and not alike and COPY in listed:  # one from a backup has none until its first start
        yield Finding("copy", f"{directory}/{COPY}", "differs from the original; the next start writes it again")
    elif found.misses_snapshot:
        yield Finding("snapshot", path, f"missing, although it existed; {remedy}")
    for state in found.unsorted:
        yield Finding(
            "cursor", path, f"{state.name} over {state.partition}: its intervals are not sorted above its floor"
        )
    yield from _listing(fs, directory, listed, found.generation, logs is None)
    old = found.old_journal
    if old is not None and old.lost:
        text = f"{old.lost} bytes in the middle cannot be read; their messages will be redelivered"
        yield Finding("journal", old.path, text, 0, old.end)
    if old is not None and old.data[old.end :].strip(b"\0"):
        text = f"torn tail of {len(old.data) - old.end} bytes; their messages will be redelivered"
        yield Finding("tail", old.path, text, old.end, len(old.data))
    yield from _cursors(root, path, found.states, logs)


def _listing(fs: FileSystem, directory: str, listed: list[str], generation: int, live: bool) -> Iterator[Finding]:
    for name in listed:
        path = f"{directory}/{name}"
        facts = fs.stat(path)
        if facts is None:
            continue
        if facts.is_file and facts.mode & 0o077:
            yield Finding("mode", path, f"mode {facts.mode:04o}, expected no more than {layout.FILE_MODE:04o}")
        if name == DELIVERED:
            if (facts.size % U64_BYTES or facts.size > HINTS_BYTES) and not live:  # a start extends a shorter file
                text = f"{facts.size} bytes, expected {HINTS_BYTES}, or less in whole numbers of {U64_BYTES} bytes"
                yield Finding("delivered", path, text)
        elif name == DAMAGED_SNAPSHOT:
            yield Finding("kept", path, "a snapshot that could not be read; no longer needed")
        elif generations := cursor_records.generations([name]):
            if generations[0] != generation and not live:
                text = f"a journal of generation {generations[0]}, where {generation} is in use"
                yield Finding("leftover", path, text, 0, facts.size)
        elif name in (SNAPSHOT + ".tmp", COPY + ".tmp"):
            if not live:
                yield Finding("leftover", path, "an unfinished snapshot", 0, facts.size)
        elif name not in (SNAPSHOT, COPY):
            yield Finding("foreign", path, "not of this store; ignored")


def _cursors(
    root: str, path: str, states: Mapping[int, CursorState], logs: Mapping[str, tuple[int, int]] | None
) -> Iterator[Finding]:
    slots: dict[int, str] = {}
    keys: set[tuple[str, str]] = set()
    for state in states.values():
        who = f"{state.name} over {state.partition}"
        if (state.name, state.partition) in keys:
            yield Finding("cursor", path, f"{who}: is listed twice; the later entry counts")
        keys.add((state.name, state.partition))
        if state.slot >= limits.CURSORS_MAX or state.slot in slots:
            why = f"also that of {slots[state.slot]}" if state.slot in slots else f"not below {limits.CURSORS_MAX}"
            yield Finding("cursor", path, f"{who}: its slot {state.slot} is {why}")
        slots.setdefault(state.slot, who)
        if any(start >= stop for start, stop in state.changes):
            yield Finding("cursor", path, f"{who}: an interval of acknowledged offsets ends before it begins")
        if logs is None:
            continue
        first, end = logs.get(state.partition, (0, 0))
        top = max([state.floor, *(stop for _, stop in state.changes)])
        if top > end:
            text = f"{who}: settled up to {top}, but the log ends at {end}; the next start sets it back"
            yield Finding("cursor", path, text)
        gone = state.cursor(end).unsettled_below(min(first, end))
        if gone is not None:
            text = f"{span(gone[0], gone[1] + 1)}, of which {state.name} had not settled {gone[2]}: they were removed"
            where = layout.partition_path(root, state.partition)
            yield Finding("missing", where, text, None, None, gone[0], gone[1])
