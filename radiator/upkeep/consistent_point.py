"""Find the consistent point that a backup copies: where the cursors stand, where each log ends, and the journal beyond.

Cursors and ends of logs are read one after the other, while group commits go on. A log ends behind the whole batches
that follow its head, as for a start. What was decided meanwhile may be there in part: a transaction in one log and not
in another, or without its acks. So the journal is read after them, and the copy gets a journal of its own, with all
batches above these ends and all changes that the cursors do not have. Whoever opens the copy completes it from that
journal, as after a crash. Batches that bypass the journal are in their segment before anything that follows them is in
the journal, so that segment is copied up to there.

All is read again if files of the journal are missing because a checkpoint has released them meanwhile, or if the last
entry that the cursors have was refused meanwhile because its sync failed: another entry then has its number.

Knows heads, cursors, the journal, and where batches end, but not how they are copied. One thread, any process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

from radiator.storage import layout, removal, transaction_log
from radiator.storage.files import FileSystem, opened
from radiator.storage.journal.format import (
    CURSORS,
    NAMES,
    PREFIX_BYTES,
    SALT_BYTES,
    Entry,
    EntryBuilder,
    FileHeader,
    Part,
    encode_file_header,
)
from radiator.storage.journal.reading import JournalFiles, end_of
from radiator.storage.layout import Head
from radiator.storage.reader import read_head
from radiator.storage.segment import Window, find_place, last_offset, load_index, whole_batches
from radiator.upkeep.cursor_copy import CursorCopy, read_cursors

TRIES_MAX = 10  # a checkpoint is made every few seconds at most


@dataclass(frozen=True)
class ConsistentPoint:
    """What a backup copies.

    Attributes:
        cursors: The cursors.
        heads: By partition, where its log ends, if it has committed messages; None if there is only a damaged ``head``.
        journal: A journal file with what is decided and lies above the heads; empty if there is nothing.
        decided: The partitions that the journal names, which the copy must have, and where they end with the journal.
        whole: Whether each transaction is in the copy as a whole or not at all.
    """

    cursors: CursorCopy
    heads: dict[str, Head | None]  # by partition, if anything is committed there; None: only a damaged file is left
    journal: bytes  # a journal file with the decided entries above the heads; empty if there are none
    decided: dict[str, int]  # the partitions that it names, which must be there for it, and where they end by it
    whole: bool  # each transaction is in it as a whole or not at all


def find_consistent_point(fs: FileSystem, root: str, pause: Callable[[], None]) -> ConsistentPoint:
    """Return the point to copy.

    Args:
        fs: The file system.
        root: The data directory.
        pause: Called between two attempts.

    Raises:
        OSError: A file cannot be read.
        StorageError: A file is damaged, and a copy without it would lose cursors or subscriptions.
    """
    for _ in range(TRIES_MAX):
        oldest = _oldest(fs, root)
        decided = transaction_log.load(fs, root)  # by an earlier version
        cursors, heads = _read(fs, root, decided)
        missing = None
        with contextlib.suppress(FileNotFoundError):
            missing = _missing_entries(fs, root, decided, cursors, heads)
        if missing is not None and _oldest(fs, root) == oldest:
            ends: dict[str, int] = {}
            for part in (part for entry in missing for part in entry.parts):
                ends[part.partition] = max(end_of(part), ends.get(part.partition, 0))
            return ConsistentPoint(cursors, heads, _encoded(fs, missing), ends, True)
        pause()
    return ConsistentPoint(*_read(fs, root, []), b"", {}, False)


def _oldest(fs: FileSystem, root: str) -> int | None:
    """Return the lowest number of a journal file; None if there is none.

    A file that was released keeps its number and content until it is used again, or the next one is released.
    """
    numbers = map(layout.journal_file_number, fs.listdir(layout.journal_path(root)))
    return min((number for number in numbers if number is not None), default=None)


def _missing_entries(
    fs: FileSystem, root: str, decided: list[Entry], cursors: CursorCopy, heads: dict[str, Head | None]
) -> list[Entry] | None:
    """Return the decided entries that these cursors and the logs below these heads do not have.

    These are more than the incomplete ones: of a transaction whose parts could not all be written, a checkpoint leaves
    in the journal only those that wait, and nothing distinguishes them from a group that was decided a moment ago.

    Args:
        fs: The file system.
        root: The data directory.
        decided: The transactions that an earlier version has decided.
        cursors: The cursors that were read.
        heads: The heads that were read; set to a later place where batches have bypassed the journal.

    Returns:
        The entries; None if an entry that these cursors have was refused since.
    """
    ends = {name: 0 if head is None else head.next_offset for name, head in heads.items()}
    found: list[Entry] = []
    last: tuple[int, int] | None = None
    at_first = ends | _whole_to(fs, root, heads)
    removed = _removals(fs, root)
    batches = [entry._replace(cursors=b"") for entry in decided]  # ``cursors`` has their acks
    for entry in [*batches, *JournalFiles(fs, root).entries()]:
        for name in entry.removed:  # earlier batches are of another log of that name
            found = [each._replace(parts=[part for part in each.parts if part.partition != name]) for each in found]
            ends[name] = at_first.get(name, 0)
        above = _parts_above(fs, root, entry, removed, at_first, ends, heads)
        if cursors.last is not None and entry.number == cursors.last[0]:
            last = entry.number, entry.file
        if cursors.covers(entry.number):
            entry = entry._replace(cursors=b"", names=b"")
        if above or entry.cursors or entry.names:
            found.append(entry._replace(parts=above))
    return found if last == cursors.last else None


def _whole_to(fs: FileSystem, root: str, heads: dict[str, Head | None]) -> dict[str, int]:
    """Return up to where the segments have everything that the journal may have, by partition.

    A power failure may have taken what lies below a head, or the system may have failed to write it to the segment. A
    start gets it from the journal.
    """
    found: dict[str, int] = {}
    for name, first in JournalFiles(fs, root).starts().items():
        head, directory = heads.get(name), layout.partition_path(root, name)
        if head is None:
            continue
        start = _place_of(fs, directory, head.segment_base, first)
        end = start.next_offset
        for place in _behind(fs, directory, start):
            end = place.next_offset
        found[name] = min(end, head.next_offset)
    return found


def _place_of(fs: FileSystem, directory: str, base: int, offset: int) -> Head:
    """Return the end of the whole batches before ``offset`` in a segment: its beginning, if it begins behind that."""
    if base not in segment_bases(fs, directory):
        return Head(base, 0, base)
    path = layout.segment_path(directory, base)
    with opened(fs, fs.open_read(path)) as fd:
        window = Window(fs, fd, path=path)
        found = find_place(window, load_index(fs, directory, base), offset, fs.size(fd))
    return Head(base, found.before, found.expected)


def _parts_above(
    fs: FileSystem,
    root: str,
    entry: Entry,
    removed: removal.Intent | None,
    at_first: dict[str, int],
    ends: dict[str, int],
    heads: dict[str, Head | None],
) -> list[Part]:
    """Return the batches of an entry that are not below ``at_first``, and move ``ends`` and ``heads`` past them.

    The journal need not have the batches of a log in order, and may have one twice (``redo``).
    """
    above: list[Part] = []
    for part in entry.parts:
        name, end = part.partition, end_of(part)
        if removed is not None and name in removed.partitions and entry.number < removed.entry:
            continue
        if end <= at_first.get(name, 0):
            continue
        if part.header.base_offset > ends.get(name, 0):
            reached = _head_at(fs, layout.partition_path(root, name), heads.get(name), part.header.base_offset)
            heads.update({} if reached is None else {name: reached})
        ends[name] = max(end, ends.get(name, 0))
        above.append(part._replace(data=memoryview(bytes(part.data))))  # without the rest of its file
    return above


def _head_at(fs: FileSystem, directory: str, head: Head | None, offset: int) -> Head | None:
    """Return the place behind ``head`` where a log has everything below ``offset``; None if it does not."""
    places = _behind(fs, directory, head or Head(0, 0, 0))
    return next((place for place in places if place.next_offset == offset), None)


def _behind(fs: FileSystem, directory: str, head: Head, across_damage: bool = False) -> Iterator[Head]:
    """Yield the end of each batch behind ``head``, up to the first gap or across it."""
    expected = head.next_offset
    bases = [base for base in segment_bases(fs, directory) if base >= head.segment_base]
    for base, following in zip_longest(bases, bases[1:]):
        path = layout.segment_path(directory, base)
        with opened(fs, fs.open_read(path)) as fd:
            window = Window(fs, fd, path=path)
            position = head.position if base == head.segment_base else 0
            for place, header in whole_batches(window, position, fs.size(fd), expected):
                if following is not None and header.base_offset >= following:
                    break  # left over from a failed sync
                if header.base_offset != expected and not across_damage:
                    return
                expected = last_offset(window, place, header) + 1
                yield Head(base, place + header.total_len, expected)


def segment_bases(fs: FileSystem, directory: str) -> list[int]:
    """Return the base offsets of all segments of a partition, also of those behind its head."""
    return sorted(base for name in fs.listdir(directory) if (base := layout.segment_base(name)) is not None)


def _encoded(fs: FileSystem, entries: list[Entry]) -> bytes:
    if not entries:
        return b""
    salt = int.from_bytes(fs.entropy(SALT_BYTES), "little")
    pieces = [encode_file_header(FileHeader(1, 1, 1, salt))]
    for number, entry in enumerate(entries, 1):
        builder = EntryBuilder()
        for part in entry.parts:
            builder.add_batch(
                part.partition.encode(), [bytes(part.data[:PREFIX_BYTES]), bytes(part.data[PREFIX_BYTES:])]
            )
        for kind, data in ((CURSORS, entry.cursors), (NAMES, entry.names)):
            if data:
                builder.add(kind, data)
        pieces.append(builder.encode(number, 1, salt))
    return b"".join(pieces)


def _read(fs: FileSystem, root: str, decided: list[Entry]) -> tuple[CursorCopy, dict[str, Head | None]]:
    """Read the cursors, and then where each log ends that is not being removed: those have no cursors any more."""
    cursors = read_cursors(fs, root, [entry.cursors for entry in decided])
    removed = _removals(fs, root)
    heads: dict[str, Head | None] = {}
    for encoded in fs.listdir(layout.partitions_path(root)):
        directory = f"{layout.partitions_path(root)}/{encoded}"
        try:
            name = layout.decode_name(encoded)
            if removed is None or name not in removed.partitions:
                heads.update(_end(fs, name, directory))
        except (ValueError, NotADirectoryError):
            continue  # not ours
    return cursors, heads


def _removals(fs: FileSystem, root: str) -> removal.Intent | None:
    """Return the removals that are under way; None if their list is damaged, which a start ignores."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return removal.load(fs, root)
    return None


def _end(fs: FileSystem, name: str, directory: str) -> dict[str, Head | None]:
    """Return the end of a log by its name, if anything is stored there; None if only its head is left, and damaged.

    A start keeps whole batches behind the head, and so does the copy: receipts may have been sent, and the journal need
    not have the batches any more.
    """
    head, raw = read_head(fs, directory)
    bases = segment_bases(fs, directory)
    lost = bool(bases) if raw is None else len(bases) > 1 or not layout.nothing_committed(raw)
    damaged = head is None and lost
    if damaged and not bases:
        return {name: None}
    later = [base for base in bases if head and base > head.segment_base]
    if head and not later:
        end = head
    else:  # the segment that head names may have been continued in the next one, or removed by retention
        base = min(later) if later else max(bases, default=0)
        end = Head(base, 0, base)
    with contextlib.suppress(FileNotFoundError):  # taken by retention, just now
        for place in _behind(fs, directory, end, across_damage=True):
            end = place
    return {name: end} if head or damaged or end.next_offset else {}
