"""Check the files of the cursors: the snapshot, its copy, the journal of an earlier version, and the delivery hints.

Beside a running broker, a cursor that is ahead of its log is not reported, because the head is written later.

Knows the files in ``cursors/``, but not segments. Keeps no state: any thread, any process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from radiator import limits
from radiator.storage import cursor_files, cursor_records, layout
from radiator.storage.cursor_files import DELIVERED
from radiator.storage.cursor_records import CursorState
from radiator.storage.cursor_snapshot import COPY, SNAPSHOT
from radiator.storage.delivered_ranges import U64_BYTES
from radiator.storage.delivery_counts import HINTS_BYTES
from radiator.storage.files import FileSystem, read_file
from radiator.upkeep.cursor_copy import cursor_of
from radiator.upkeep.findings import Finding, span

DAMAGED_SNAPSHOT = SNAPSHOT + ".damaged"


def run(fs: FileSystem, root: str, logs: Mapping[str, tuple[int, int]] | None) -> Iterator[Finding]:
    """Yield what is wrong with the cursors of a store.

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
        gone = cursor_of(state, end).unsettled_below(min(first, end))
        if gone is not None:
            text = f"{span(gone[0], gone[1] + 1)}, of which {state.name} had not settled {gone[2]}: they were removed"
            where = layout.partition_path(root, state.partition)
            yield Finding("missing", where, text, None, None, gone[0], gone[1])
