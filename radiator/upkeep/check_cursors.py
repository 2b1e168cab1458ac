"""fsck's look at the cursors: snapshot, journal, the file of hints.

Beside a running broker a snapshot may be replaced at any moment, and then its journal is another: both are read until
they fit. Nothing is said there of the last entry, which may be just being written, nor of cursors ahead of their log,
whose head follows later.

Knows: the files of ``cursors/``. Must not know: segments. No state: any thread, any process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from radiator import limits
from radiator.storage import cursor_journal, cursor_snapshot, layout
from radiator.storage.counted import HINTS_BYTES
from radiator.storage.cursor_journal import CursorState
from radiator.storage.cursor_snapshot import COPY, SNAPSHOT
from radiator.storage.cursor_store import DELIVERED
from radiator.storage.files import FileSystem, read_file
from radiator.storage.handed import U64_BYTES
from radiator.upkeep.cursor_copy import cursor_of
from radiator.upkeep.findings import Finding, span

LOOKS = 8
KEPT = SNAPSHOT + ".damaged"


def run(fs: FileSystem, root: str, logs: Mapping[str, tuple[int, int]] | None) -> Iterator[Finding]:
    """``logs``: the first and the next offset of each partition; None if a broker is at work."""
    directory = layout.cursors_path(root)
    if fs.facts(directory) is None:
        return
    path = f"{directory}/{SNAPSHOT}"
    for _ in range(LOOKS):
        raw = read_file(fs, path)
        listed = fs.listdir(directory)
        newest = max(cursor_journal.generations(listed), default=0)
        snapshot, states, broken, copied, alike = cursor_snapshot.read(fs, directory, newest)
        generation = snapshot.generation if snapshot is not None else newest
        journal_path = f"{directory}/{cursor_journal.JOURNAL}{generation:010d}"
        journal = read_file(fs, journal_path) or b""
        unsorted = [state for state in states.values() if _unsorted(state)]
        end, lost = cursor_journal.replay(journal, states)
        if read_file(fs, path) == raw and not (lost and logs is None):  # a read may meet a write half-way
            break
    remedy = "the next start uses its copy" if copied else "cursors that only it knew start again"
    if broken:
        kind = "copy" if copied else "snapshot"
        yield Finding(kind, path, f"cannot be read; {remedy}", 0, len(raw or b""))
    elif logs is None:
        pass  # the copy is written first: beside a broker the snapshot may follow in a moment
    elif copied:
        yield Finding("copy", path, f"missing; {remedy}")
    elif snapshot is not None and not alike and COPY in listed:  # one from a backup has none until its first start
        yield Finding("copy", f"{directory}/{COPY}", "is not what it is a copy of; the next start writes it anew")
    elif raw is None and generation:
        text = f"missing, but the journal is of generation {generation}; cursors that only it knew start again"
        yield Finding("snapshot", path, text)
    for state in unsorted:
        yield Finding(
            "cursor", path, f"{state.name} over {state.partition}: its intervals are not sorted above its floor"
        )
    yield from _listing(fs, directory, listed, generation, logs is None)
    if lost:
        text = f"{lost} bytes in the middle cannot be read; acknowledgements in them come again"
        yield Finding("journal", journal_path, text, 0, end)
    if logs is not None and journal[end:].strip(b"\0"):
        text = f"torn tail of {len(journal) - end} bytes; acknowledgements in it come again"
        yield Finding("tail", journal_path, text, end, len(journal))
    yield from _cursors(root, path, states, logs)


def _listing(fs: FileSystem, directory: str, listed: list[str], generation: int, live: bool) -> Iterator[Finding]:
    for name in listed:
        path = f"{directory}/{name}"
        facts = fs.facts(path)
        if facts is None:
            continue
        if facts.is_file and facts.mode & 0o077:
            yield Finding("mode", path, f"mode {facts.mode:04o}, expected no more than {layout.FILE_MODE:04o}")
        if name == DELIVERED:
            if (facts.size % U64_BYTES or facts.size > HINTS_BYTES) and not live:  # a start fills up what is shorter
                text = f"{facts.size} bytes, expected {HINTS_BYTES}, or less in whole numbers of {U64_BYTES} bytes"
                yield Finding("delivered", path, text)
        elif name == KEPT:
            yield Finding("kept", path, "a snapshot that could not be read; not needed any more")
        elif generations := cursor_journal.generations([name]):
            if generations[0] != generation and not live:
                text = f"a journal of generation {generations[0]}, where {generation} is in use"
                yield Finding("leftover", path, text, 0, facts.size)
        elif name in (SNAPSHOT + ".tmp", COPY + ".tmp"):
            if not live:
                yield Finding("leftover", path, "a snapshot that was never finished", 0, facts.size)
        elif name not in (SNAPSHOT, COPY):
            yield Finding("foreign", path, "not of this store; left alone")


def _cursors(
    root: str, path: str, states: Mapping[int, CursorState], logs: Mapping[str, tuple[int, int]] | None
) -> Iterator[Finding]:
    slots: dict[int, str] = {}
    keys: set[tuple[str, str]] = set()
    for state in states.values():
        who = f"{state.name} over {state.partition}"
        if (state.name, state.partition) in keys:
            yield Finding("cursor", path, f"{who}: stands there twice; the later one counts")
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
            text = f"{span(gone[0], gone[1] + 1)}, of which {state.name} had not settled {gone[2]}: removed by somebody"
            where = layout.partition_path(root, state.partition)
            yield Finding("missing", where, text, None, None, gone[0], gone[1])


def _unsorted(state: CursorState) -> bool:
    """Of a snapshot: whether its intervals are not in order, or touch."""
    return any(first[1] >= second[0] for first, second in pairwise([(0, state.floor), *state.changes]))
